// Writing: replies, event streams and alarms.
#include <ctime>

#include "base/log.h"
#include "server/http/http_connection.h"

namespace sluice {

namespace asio = boost::asio;

namespace {

void append_headers(std::string& head, const HeaderList& headers) {
  for (const auto& [name, value] : headers) head += fmt::format("{}: {}\r\n", name, value);
}

}  // namespace

std::string_view reason_phrase(int status) {
  struct Row {
    int status;
    std::string_view phrase;
  };
  static constexpr Row kRows[] = {
      {200, "OK"},
      {204, "No Content"},
      {304, "Not Modified"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {411, "Length Required"},
      {413, "Content Too Large"},
      {414, "URI Too Long"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
  };
  for (const Row& row : kRows)
    if (row.status == status) return row.phrase;
  return "Status";
}

std::string_view http_date() {
  thread_local std::time_t written = -1;
  thread_local char text[32];
  const std::time_t now = std::time(nullptr);
  if (now == written) return text;
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm t{};
  gmtime_r(&now, &t);
  const auto end = fmt::format_to_n(
      text, sizeof text - 1, "{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT", kDays[t.tm_wday],
      t.tm_mday, kMonths[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
  *end.out = '\0';
  written = now;
  return text;
}

Exchange::Exchange(std::shared_ptr<Connection> connection, std::shared_ptr<IoThread> io)
    : connection_(std::move(connection)), io_(std::move(io)) {}

void Exchange::send(HttpReply reply) {
  if (!io_->context.get_executor().running_in_this_thread()) {
    io_->post([self = shared_from_this(), reply = std::move(reply)]() mutable {
      self->send(std::move(reply));
    });
    return;
  }
  if (connection_ && status_ == 0) connection_->send_reply(std::move(reply), keep_alive_);
}

void Exchange::start_stream(const StreamFraming& framing) {
  framing_ = framing;
  if (connection_ && status_ == 0) connection_->begin_stream();
}

void Exchange::write(std::string_view bytes) {
  if (connection_ && streaming_) connection_->write_chunk(bytes);
}

void Exchange::finish() {
  if (connection_ && streaming_) connection_->end_stream();
}

void Exchange::cut() {
  if (const std::shared_ptr<Connection> connection = connection_) connection->drop();
}

std::size_t Exchange::backlog() const {
  return connection_ ? connection_->out_.size() - connection_->out_sent_ : 0;
}

void Exchange::on_close(std::function<void()> gone) {
  if (!connection_)
    gone();
  else
    gone_ = std::move(gone);
}

void Exchange::close(bool client_left) {
  const std::shared_ptr<Connection> keep = std::move(connection_);
  connection_.reset();
  alive_.store(false, std::memory_order_release);
  const std::function<void()> gone = std::move(gone_);
  gone_ = nullptr;
  drained_ = nullptr;
  if (client_left && gone) gone();
}

void Connection::send_reply(HttpReply&& reply, bool keep_alive) {
  disarm();
  exchange_->status_ = reply.status;
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", reply.status,
                                 reason_phrase(reply.status), http_date());
  // 204 and 304 say that there is no body, so it has no length.
  if (reply.status != 204 && reply.status != 304)
    head += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n", reply.content_type,
                        reply.body.size());
  head += fmt::format("X-Request-Id: {}\r\n", exchange_->request_id_);
  append_headers(head, exchange_->headers_);
  append_headers(head, reply.headers);
  head += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  out_ += head;
  if (exchange_->method_ != "HEAD") out_ += reply.body;
  close_after_answer_ = !keep_alive;
  answered_ = true;
  flush();
}

void Connection::begin_stream() {
  Exchange& exchange = *exchange_;
  exchange.status_ = 200;
  exchange.streaming_ = true;
  const bool keep_alive = exchange.keep_alive_ && exchange.chunked_;
  out_ += fmt::format(
      "HTTP/1.1 200 OK\r\nDate: {}\r\nContent-Type: {}\r\nCache-Control: "
      "no-cache\r\nX-Accel-Buffering: no\r\nX-Request-Id: {}\r\n{}",
      http_date(), exchange.framing_.content_type, exchange.request_id_,
      exchange.chunked_ ? "Transfer-Encoding: chunked\r\n" : "");
  append_headers(out_, exchange.headers_);
  out_ += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  close_after_answer_ = !keep_alive;
  flush();
}

void Connection::write_chunk(std::string_view bytes) {
  if (bytes.empty()) return;
  if (out_.size() - out_sent_ + bytes.size() > shared_->limits.stream_buffer_bytes) {
    log_info("request {}: the client reads too slowly, stream cut", exchange_->request_id_);
    return drop();
  }
  if (exchange_->chunked_) {
    out_ += fmt::format("{:x}\r\n", bytes.size());
    out_.append(bytes);
    out_ += "\r\n";
  } else {
    out_.append(bytes);
  }
  flush();
}

void Connection::end_stream() {
  if (exchange_->chunked_) out_ += "0\r\n\r\n";
  exchange_->streaming_ = false;
  answered_ = true;
  flush();
}

// Writes until the socket is full, then waits for room. The write alarm restarts with each byte
// that goes.
void Connection::flush() {
  if (writing_ || phase_ == Phase::kClosed) return;
  while (out_sent_ < out_.size()) {
    const Transport::Moved moved = transport_->write(std::string_view(out_).substr(out_sent_));
    if (moved.status == Transport::Status::kWantWrite) {
      writing_ = true;
      arm(Alarm::kWrite, shared_->limits.write_idle_timeout);
      socket_.async_wait(asio::socket_base::wait_write,
                         [self = shared_from_this()](const boost::system::error_code& wait_ec) {
                           self->writing_ = false;
                           if (!wait_ec) self->guarded([&] { self->flush(); });
                         });
      wait_readable();
      return;
    }
    // TLS would want to read for a renegotiation only, which it refuses.
    if (moved.status != Transport::Status::kDone) return close();
    out_sent_ += moved.num_bytes;
    if (out_sent_ > (256u << 10)) {
      out_.erase(0, out_sent_);
      out_sent_ = 0;
    }
  }
  if (out_.capacity() > (16u << 10))
    std::string().swap(out_);
  else
    out_.clear();
  out_sent_ = 0;
  if (answered_) return answer_sent();
  if (exchange_ && exchange_->streaming_) {
    arm(Alarm::kPing, shared_->limits.ping_interval);
    wait_readable();
    if (const std::function<void()> drained = exchange_->drained_) drained();
  }
}

void Connection::answer_sent() {
  answered_ = false;
  end_exchange(false);
  if (close_after_answer_) return linger();
  phase_ = Phase::kIdle;
  arm(Alarm::kIdle, shared_->limits.keep_alive_timeout);
  if (in_.empty()) std::string().swap(in_);
  consume();
  wait_readable();
}

void Connection::end_exchange(bool client_left) {
  if (!exchange_) return;
  const std::shared_ptr<Exchange> exchange = std::move(exchange_);
  exchange_.reset();
  shared_->num_exchanges.fetch_sub(1, std::memory_order_relaxed);
  RequestOutcome outcome;
  outcome.route = exchange->route_;
  outcome.method = exchange->method_;
  outcome.request_id = exchange->request_id_;
  outcome.status = client_left ? 499 : exchange->status_;
  outcome.use = exchange->use_.get();
  outcome.seconds = std::chrono::duration<double>(Clock::now() - exchange->arrival_).count();
  exchange->close(client_left);
  shared_->handler.ended(outcome);
}

void Connection::arm(Alarm alarm, Clock::duration after) {
  if (phase_ == Phase::kClosed) return;
  const std::uint32_t epoch = ++alarm_epoch_;
  timer_.expires_after(after);
  timer_.async_wait([self = shared_from_this(), alarm, epoch](const boost::system::error_code& ec) {
    if (!ec && epoch == self->alarm_epoch_) self->guarded([&] { self->on_alarm(alarm); });
  });
}

void Connection::disarm() {
  ++alarm_epoch_;
  timer_.cancel();
}

void Connection::on_alarm(Alarm alarm) {
  switch (alarm) {
    case Alarm::kHandshake:
      log_info("TLS handshake failed: it was not complete in time");
      drop();
      break;
    case Alarm::kIdle:
    case Alarm::kLinger:
      close();
      break;
    case Alarm::kHead:
      parse_failed(408, "request_timeout", "The request's headers did not arrive in time.");
      break;
    case Alarm::kBody:
      parse_failed(408, "request_timeout", "The request's body did not arrive in time.");
      break;
    case Alarm::kWrite:
      if (exchange_)
        log_info("request {}: the client stopped reading, connection closed",
                 exchange_->request_id_);
      drop();
      break;
    case Alarm::kPing:
      if (exchange_ && exchange_->streaming_) write_chunk(exchange_->framing_.ping);
      break;
  }
}

// Closes at once, with what the kernel still holds for a client that does not read.
void Connection::drop() {
  transport_ = make_plain_transport(socket_.native_handle());  // without a farewell
  boost::system::error_code ec;
  socket_.set_option(asio::socket_base::linger(true, 0), ec);
  close();
}

// Closes in order: what the client still sends is read and dropped for a while, so that a reset
// does not overtake the answer.
void Connection::linger() {
  phase_ = Phase::kLinger;
  std::string().swap(in_);
  parser_.reset();
  lease_.reset();
  transport_->end_writing();
  transport_ = make_plain_transport(socket_.native_handle());  // what comes is not looked at
  boost::system::error_code ec;
  socket_.shutdown(asio::socket_base::shutdown_send, ec);
  arm(Alarm::kLinger, shared_->limits.linger_timeout);
  wait_readable();
}

}  // namespace sluice
