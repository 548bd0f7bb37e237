// One HTTP/1.1 connection: reads requests under limits, hands them over, writes answers. Private to
// the server's two Beast files.
//
// Everything but Exchange::send and Exchange::post happens on the connection's I/O thread. Reading
// waits for the socket to become readable and only then borrows the thread's scratch buffer, so an
// idle connection holds no memory but this object. While a request is answered the socket is still
// watched: a client that leaves is noticed at once.
#pragma once

#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/log.h"
#include "server/http/http.h"
#include "server/http/transport.h"

namespace sluice {

class Connection;
// Of TCP, or of the file system.
using StreamSocket = boost::asio::generic::stream_protocol::socket;

// What all connections of a server share.
struct ServerShared {
  const ServerLimits limits;
  HttpHandler& handler;
  std::atomic<int> num_connections{0};
  std::atomic<int> num_exchanges{0};       // requests whose answer is not wholly in the socket
  std::atomic<std::size_t> body_bytes{0};  // of all bodies in flight
};

// An event loop and its thread's belongings.
class IoThread {
 public:
  IoThread() : context(1), scratch(64 << 10) {}

  // Any thread. One wake-up carries all tasks that came before it is served.
  void post(std::function<void()> task);
  // No task is taken any more.
  void close();

  boost::asio::io_context context;
  std::vector<char> scratch;                    // I/O thread
  std::unordered_set<Connection*> connections;  // I/O thread

 private:
  void drain();

  std::mutex mutex_;
  std::vector<std::function<void()>> inbox_;  // guarded by mutex_
  bool posted_ = false;                       // guarded by mutex_
  bool closed_ = false;                       // guarded by mutex_
};

// One request on a connection and its answer.
class Exchange : public Responder, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(std::shared_ptr<Connection> connection, std::shared_ptr<IoThread> io);

  void add_header(std::string name, std::string value) override {
    headers_.emplace_back(std::move(name), std::move(value));
  }
  void send(HttpReply reply) override;
  void start_stream(const StreamFraming& framing) override;
  void write(std::string_view bytes) override;
  void finish() override;
  void cut() override;
  std::size_t backlog() const override;
  bool alive() const override { return alive_.load(std::memory_order_acquire); }
  void post(std::function<void()> task) override { io_->post(std::move(task)); }
  void on_close(std::function<void()> gone) override;
  void on_drain(std::function<void()> drained) override { drained_ = std::move(drained); }

 private:
  friend class Connection;
  void close(bool client_left);

  std::shared_ptr<Connection> connection_;  // null once the exchange is over; I/O thread
  const std::shared_ptr<IoThread> io_;
  std::atomic<bool> alive_{true};
  std::function<void()> gone_;     // I/O thread
  std::function<void()> drained_;  // I/O thread
  // Of the request, for the outcome; I/O thread.
  std::size_t route_ = kNoRoute;
  std::string method_;
  std::string request_id_;
  std::shared_ptr<RequestUse> use_;
  std::chrono::steady_clock::time_point arrival_;
  HeaderList headers_;  // of the answer, beside those of its reply; read once it begins
  int status_ = 0;
  bool keep_alive_ = false;
  bool chunked_ = false;
  bool streaming_ = false;
  StreamFraming framing_;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `transport` moves the bytes of `socket`.
  Connection(StreamSocket socket, std::unique_ptr<Transport> transport, Peer peer,
             std::shared_ptr<IoThread> io, std::shared_ptr<ServerShared> shared);
  ~Connection();

  void start();
  void close();

 private:
  friend class Exchange;
  using Clock = std::chrono::steady_clock;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class Phase { kHandshake, kIdle, kHead, kBody, kAnswer, kLinger, kClosed };
  enum class Alarm { kHandshake, kIdle, kHead, kBody, kWrite, kPing, kLinger };

  // Runs `body`; an exception ends this connection only.
  template <class Body>
  void guarded(Body&& body) noexcept {
    try {
      body();
    } catch (const std::exception& e) {
      log_error("connection closed after an internal error: {}", e.what());
      close();
    }
  }
  // Reading (http_connection.cpp)
  void shake_hands();
  void wait_readable();
  void wait_to_read(StreamSocket::wait_type event);
  void on_readable();
  void consume();
  bool read_head();
  bool check_lines();
  bool head_complete();
  bool read_body();
  void begin_exchange();
  bool lease_body(std::size_t bytes);
  void dispatch();
  void parse_failed(int status, std::string_view code, std::string_view message);
  // Writing (http_output.cpp)
  void send_reply(HttpReply&& reply, bool keep_alive);
  void begin_stream();
  void write_chunk(std::string_view bytes);
  void end_stream();
  void flush();
  void answer_sent();
  void end_exchange(bool client_left);
  void arm(Alarm alarm, Clock::duration after);
  void disarm();
  void on_alarm(Alarm alarm);
  void linger();
  void drop();

  StreamSocket socket_;
  std::unique_ptr<Transport> transport_;
  const Peer peer_;
  boost::asio::steady_timer timer_;
  const std::shared_ptr<IoThread> io_;
  const std::shared_ptr<ServerShared> shared_;
  Phase phase_ = Phase::kIdle;
  std::uint32_t alarm_epoch_ = 0;  // an expiry of an older epoch is stale
  bool reading_ = false;           // a wait that ends in on_readable() is pending
  bool writing_ = false;           // a wait for writability is pending
  bool close_after_answer_ = false;
  bool answered_ = false;  // the answer is complete in out_
  bool in_consume_ = false;
  std::string in_;              // bytes not parsed yet
  std::size_t line_start_ = 0;  // in in_, of the head's current line
  std::size_t scanned_ = 0;
  int num_lines_ = 0;
  std::optional<Parser> parser_;
  HttpRequest request_;
  std::shared_ptr<void> lease_;
  std::size_t leased_ = 0;
  Clock::time_point body_deadline_;
  std::string out_;
  std::size_t out_sent_ = 0;
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace sluice
