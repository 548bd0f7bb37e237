// The seam between HTTP and what answers it: plain values, no socket type shows.
//
// A connection reads the head of a request and asks the handler to admit it (route, access, size),
// reads the body, and hands both over with a Responder, through which the answer goes: one reply,
// or a stream of events.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace sluice {

inline constexpr std::size_t kNoRoute = static_cast<std::size_t>(-1);
using HeaderList = std::vector<std::pair<std::string, std::string>>;

class KeyAccount;

// What one request uses, and for whom. Its connection, its handler and the log share it. Any
// thread.
struct RequestUse {
  // Written before the handler sees the request.
  std::string key_name;                 // of the key that it came with; empty: none was needed
  std::shared_ptr<KeyAccount> account;  // null: nobody counts
  std::shared_ptr<void> place;          // among the concurrent requests of its key
  // Written by the handler, read when the answer is over.
  std::atomic<std::int64_t> prompt_tokens{0}, cached_tokens{0}, completion_tokens{0};
};

// Where a connection comes from.
enum class Peer : std::uint8_t {
  kRemote,       // another machine
  kThisMachine,  // a loopback address
  kAdminSocket,  // the socket of --admin-socket
};

struct HttpRequest {
  std::string method;
  std::string path;    // without the query, percent escapes decoded; `*` of `OPTIONS *`
  std::string query;   // after `?`, as sent
  HeaderList headers;  // names in lower case
  std::string body;
  std::string request_id;    // x-request-id, echoed or made
  std::uint64_t key_id = 0;  // of the key that authenticated it; 0: none was needed
  std::string owner;         // whose it is, the same in every run; empty: nobody's
  bool admin = false;        // the caller may administrate
  Peer peer = Peer::kRemote;
  std::shared_ptr<RequestUse> use;   // null before it is admitted
  std::size_t route = kNoRoute;      // index in the route table
  std::shared_ptr<void> body_lease;  // gives the body's bytes back to the server's budget
  std::chrono::steady_clock::time_point arrival{};
  // Why nobody waits for the answer any more; any thread.
  std::function<std::optional<Fault>()> why_unwanted;

  // The first header of that (lower-case) name, or null.
  const std::string* header(std::string_view lower_name) const {
    for (const auto& [name, value] : headers)
      if (name == lower_name) return &value;
    return nullptr;
  }
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HeaderList headers;
};

// How a stream is written: its media type, and what keeps a silent one alive (nothing: empty). The
// texts are literals.
struct StreamFraming {
  std::string_view content_type = "text/event-stream";
  std::string_view ping = ": ping\n\n";
};

// Answers one request. send() and post() may be called from any thread, the rest on the
// connection's I/O thread, which post() reaches. After the client is gone every call is ignored.
class Responder {
 public:
  virtual ~Responder() = default;
  // One more header of the answer; before send() or start_stream(), which must come after it.
  virtual void add_header(std::string name, std::string value) = 0;
  // The whole answer; once.
  virtual void send(HttpReply reply) = 0;
  // 200 and the headers of a stream.
  virtual void start_stream(const StreamFraming& framing) = 0;
  // Bytes of the stream: whole events.
  virtual void write(std::string_view bytes) = 0;
  // The stream is complete.
  virtual void finish() = 0;
  // Closes the connection without another byte.
  virtual void cut() = 0;
  // Bytes written that the client has not taken yet. When it falls to 0, on_drain's function is
  // called.
  virtual std::size_t backlog() const = 0;
  virtual bool alive() const = 0;
  // Runs `task` on the I/O thread; tasks of one connection run in the order of their posts.
  virtual void post(std::function<void()> task) = 0;
  // `gone` is called once if the client leaves before the answer is complete; at once if it already
  // has.
  virtual void on_close(std::function<void()> gone) = 0;
  virtual void on_drain(std::function<void()> drained) = 0;
};

// What became of one request, for metrics and the log.
struct RequestOutcome {
  std::size_t route = 0;  // kNoRoute when none matched
  std::string_view method;
  std::string_view request_id;
  int status = 0;  // 499: the client left first
  double seconds = 0;
  const RequestUse* use = nullptr;  // null: it was not admitted
};
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // The head is complete. A reply refuses the request before a byte of its body is kept. Fills
  // key_id, owner, admin, use and route.
  virtual std::optional<HttpReply> admit(HttpRequest& head, bool has_body) = 0;
  // Headers of every answer to this request, refusals included.
  virtual HeaderList reply_headers(const HttpRequest&) { return {}; }
  // The body is complete. Runs on the I/O thread: must hand long work to another thread.
  virtual void handle(HttpRequest&& request, std::shared_ptr<Responder> responder) = 0;
  // A fault of the protocol itself, in the error format of the interface.
  virtual HttpReply protocol_error(int status, std::string_view code, std::string_view message) = 0;
  virtual void ended(const RequestOutcome& outcome) = 0;
};

// A size and a time for everything (docs/rules.md, limits).
struct ServerLimits {
  std::size_t max_line_bytes = 8 << 10;
  std::size_t max_header_bytes = 32 << 10;
  int max_headers = 100;
  std::size_t max_body_bytes = 32 << 20;
  std::size_t max_bodies_bytes = 512u << 20;  // of all connections
  int max_connections = 4096;
  std::size_t max_pipelined_bytes = 64 << 10;  // of later requests, kept while one is answered
  std::size_t stream_pause_bytes = 64 << 10;   // of backlog: events are joined from here on
  std::size_t stream_buffer_bytes = 1 << 20;   // of one stream; beyond it the stream is cut
  std::chrono::milliseconds header_timeout{10'000};
  std::chrono::milliseconds body_idle_timeout{10'000};
  std::chrono::milliseconds body_total_timeout{60'000};
  std::chrono::milliseconds write_idle_timeout{30'000};
  std::chrono::milliseconds keep_alive_timeout{75'000};
  std::chrono::milliseconds linger_timeout{2'000};
  std::chrono::milliseconds ping_interval{15'000};
};

// Now, as the header `Date` has it; valid until the thread's next call.
std::string_view http_date();
// The standard phrase of a status that the server sends.
std::string_view reason_phrase(int status);

}  // namespace sluice
