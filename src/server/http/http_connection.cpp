// Reading: from bytes to an admitted request with its body. Limits are applied while reading, never
// after (R10).
#include "server/http/http_connection.h"

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <cstring>

#include "server/http/request_id.h"
#include "server/http/request_target.h"

namespace sluice {
namespace {

namespace http = boost::beast::http;

// Bytes of a chunk header or a trailer that may wait for their end of line.
constexpr std::size_t kMaxChunkHead = 8 << 10;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

struct BodyLease {
  std::shared_ptr<ServerShared> shared;
  std::size_t bytes = 0;
  ~BodyLease() { shared->body_bytes.fetch_sub(bytes, std::memory_order_relaxed); }
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// What is wrong with a head that parses as HTTP; empty: nothing.
std::string_view head_fault(const HttpRequest& head, int version, bool has_target) {
  if (version < 10 || version > 11)
    return "Only HTTP/1.1 and HTTP/1.0 are spoken here; leave HTTP/2 to a proxy.";
  if (!has_target)
    return "The request target must be a path that begins with `/`, or a URL with http:// or "
           "https://, with valid percent escapes.";
  const auto count = [&](std::string_view name) {
    return std::ranges::count_if(head.headers, [&](const auto& h) { return h.first == name; });
  };
  const std::string* host = head.header("host");
  if (!host && version >= 11) return "An HTTP/1.1 request needs a header `Host` (RFC 9112, 3.2).";
  if (count("host") > 1) return "The header `Host` must stand once.";
  if (host && !valid_host(*host)) return "The header `Host` must be a host, perhaps with a port.";
  if (const std::string* coding = head.header("transfer-encoding")) {
    if (version < 11) return "HTTP/1.0 has no Transfer-Encoding; send Content-Length.";
    if (count("transfer-encoding") > 1 || lower(*coding) != "chunked")
      return "The only transfer coding that is read is `chunked`.";
    if (head.header("content-length"))
      return "Send Content-Length or `Transfer-Encoding: chunked`, not both.";
  }
  return {};
}

}  // namespace

void IoThread::post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    inbox_.push_back(std::move(task));
    if (posted_) return;
    posted_ = true;
  }
  boost::asio::post(context, [this] { drain(); });
}

void IoThread::close() {
  std::vector<std::function<void()>> dropped;
  std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(inbox_);
}

void IoThread::drain() {
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(inbox_);
    posted_ = false;
  }
  for (auto& task : tasks) {
    try {
      task();
    } catch (const std::exception& e) {
      log_error("a task of the I/O thread failed: {}", e.what());
    }
  }
}

Connection::Connection(StreamSocket socket, std::unique_ptr<Transport> transport, Peer peer,
                       std::shared_ptr<IoThread> io, std::shared_ptr<ServerShared> shared)
    : socket_(std::move(socket)),
      transport_(std::move(transport)),
      peer_(peer),
      timer_(io->context),
      io_(std::move(io)),
      shared_(std::move(shared)) {
  io_->connections.insert(this);
}

Connection::~Connection() {
  io_->connections.erase(this);
  shared_->num_connections.fetch_sub(1, std::memory_order_relaxed);
}

void Connection::start() {
  boost::system::error_code ec;
  socket_.non_blocking(true, ec);
  socket_.set_option(boost::asio::ip::tcp::no_delay(true), ec);
  if (transport_->needs_handshake()) {
    phase_ = Phase::kHandshake;
    arm(Alarm::kHandshake, shared_->limits.header_timeout);
    return shake_hands();
  }
  arm(Alarm::kIdle, shared_->limits.keep_alive_timeout);
  wait_readable();
}

void Connection::close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  // Half an answer must not look like a whole one.
  if (!exchange_) transport_->end_writing();
  end_exchange(true);
  disarm();
  parser_.reset();
  lease_.reset();
  boost::system::error_code ec;
  socket_.close(ec);
}

// The alarm of the whole handshake is set, so a slow client costs no more than its time.
void Connection::shake_hands() {
  switch (transport_->handshake()) {
    case Transport::Status::kDone:
      phase_ = Phase::kIdle;
      arm(Alarm::kIdle, shared_->limits.keep_alive_timeout);
      return wait_readable();
    case Transport::Status::kWantRead:
      return wait_readable();
    case Transport::Status::kWantWrite:
      return wait_to_read(StreamSocket::wait_write);
    case Transport::Status::kPlain:
      transport_ = make_plain_transport(socket_.native_handle());
      request_.arrival = Clock::now();
      return parse_failed(400, "https_required", "This port speaks HTTPS; use https://.");
    case Transport::Status::kClosed:
      // A probe that connects and leaves is no news.
      if (transport_->failure().empty()) return close();
      log_info("TLS handshake failed: {}", transport_->failure());
      return linger();
  }
}

void Connection::wait_readable() {
  if (phase_ == Phase::kAnswer && in_.size() >= shared_->limits.max_pipelined_bytes) return;
  wait_to_read(StreamSocket::wait_read);
}

void Connection::wait_to_read(StreamSocket::wait_type event) {
  if (reading_ || phase_ == Phase::kClosed) return;
  reading_ = true;
  auto ready = [self = shared_from_this()](const boost::system::error_code& ec) {
    self->reading_ = false;
    if (ec || self->phase_ == Phase::kClosed) return;
    self->guarded([&] { self->on_readable(); });
  };
  if (transport_->has_more())
    boost::asio::post(io_->context, [ready = std::move(ready)] { ready({}); });
  else
    socket_.async_wait(event, std::move(ready));
}

void Connection::on_readable() {
  if (phase_ == Phase::kHandshake) return shake_hands();
  const Transport::Moved moved = transport_->read(io_->scratch);
  if (moved.status == Transport::Status::kWantRead) return wait_readable();
  if (moved.status == Transport::Status::kWantWrite) return wait_to_read(StreamSocket::wait_write);
  if (moved.status != Transport::Status::kDone) return close();  // the client left
  if (phase_ != Phase::kLinger) {
    in_.append(io_->scratch.data(), moved.num_bytes);
    consume();
  }
  wait_readable();
}

// Takes from in_ what can be taken. Answers may be sent, and further requests begun, before it
// returns.
void Connection::consume() {
  if (in_consume_) return;
  in_consume_ = true;
  for (bool more = true; more;) {
    switch (phase_) {
      case Phase::kIdle: {
        const std::size_t blank = std::min(in_.find_first_not_of("\r\n"), in_.size());
        in_.erase(0, blank);
        if ((more = !in_.empty())) {
          phase_ = Phase::kHead;
          line_start_ = scanned_ = 0;
          num_lines_ = 0;
          request_ = HttpRequest();
          request_.arrival = Clock::now();
          arm(Alarm::kHead, shared_->limits.header_timeout);
        } else {
          std::string().swap(in_);
        }
        break;
      }
      case Phase::kHead:
        more = read_head();
        break;
      case Phase::kBody:
        more = read_body();
        break;
      default:
        more = false;
    }
  }
  in_consume_ = false;
}

// False while the head is incomplete or after it was refused.
bool Connection::check_lines() {
  const ServerLimits& limits = shared_->limits;
  while (scanned_ < in_.size()) {
    const void* found = std::memchr(in_.data() + scanned_, '\n', in_.size() - scanned_);
    const std::size_t end = found ? static_cast<const char*>(found) - in_.data() : in_.size();
    if (end - line_start_ > limits.max_line_bytes || end > limits.max_header_bytes) {
      if (num_lines_ == 0)
        parse_failed(
            414, "uri_too_long",
            fmt::format("The request line is longer than {} bytes.", limits.max_line_bytes));
      else
        parse_failed(431, "headers_too_large",
                     fmt::format("A header line may have {} bytes, all headers {}.",
                                 limits.max_line_bytes, limits.max_header_bytes));
      return false;
    }
    if (!found) {
      scanned_ = end;
      return false;
    }
    if (end == line_start_ || in_[end - 1] != '\r') {
      parse_failed(400, "bad_request", "Header lines must end with CR LF.");
      return false;
    }
    // A recipient that joins such lines otherwise than a proxy before it would read other headers.
    if (num_lines_ > 0 && (in_[line_start_] == ' ' || in_[line_start_] == '\t')) {
      parse_failed(400, "bad_request", "A header must not be continued on a second line.");
      return false;
    }
    const bool blank = end - 1 == line_start_;
    scanned_ = line_start_ = end + 1;
    if (blank) return true;
    if (++num_lines_ > limits.max_headers + 1) {
      parse_failed(431, "too_many_headers",
                   fmt::format("More than {} headers.", limits.max_headers));
      return false;
    }
  }
  return false;
}

bool Connection::read_head() {
  if (!check_lines()) return false;
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(shared_->limits.max_header_bytes + 4));
  parser_->body_limit(shared_->limits.max_body_bytes);
  while (!parser_->is_header_done()) {
    boost::system::error_code ec;
    const std::size_t used = parser_->put(boost::asio::buffer(in_), ec);
    in_.erase(0, used);
    if (ec == http::error::body_limit) {
      parse_failed(
          413, "body_too_large",
          fmt::format("The body may have at most {} bytes.", shared_->limits.max_body_bytes));
      return false;
    }
    if (ec || used == 0) {
      parse_failed(400, "bad_request", "The request is not valid HTTP/1.1.");
      return false;
    }
  }
  return head_complete();
}

// end_exchange() is its counterpart.
void Connection::begin_exchange() {
  exchange_ = std::make_shared<Exchange>(shared_from_this(), io_);
  exchange_->request_id_ = request_.request_id;
  exchange_->arrival_ = request_.arrival;
  answered_ = false;
  shared_->num_exchanges.fetch_add(1, std::memory_order_relaxed);
}

// The head is in parser_: routes it, and decides whether the body is wanted.
bool Connection::head_complete() {
  const auto& head = parser_->get();
  request_.method = std::string(head.method_string());
  std::optional<RequestTarget> target =
      read_request_target(request_.method, std::string_view(head.target()));
  if (target) {
    request_.path = std::move(target->path);
    request_.query = std::move(target->query);
  }
  for (const auto& field : head)
    request_.headers.emplace_back(lower(field.name_string()), std::string(field.value()));
  const std::string* sent_id = request_.header("x-request-id");
  request_.request_id = sent_id && valid_request_id(*sent_id) ? *sent_id : make_id("req-");

  // A proxy on this machine speaks for callers of others.
  const bool is_forwarded = request_.header("forwarded") || request_.header("x-forwarded-for") ||
                            request_.header("x-real-ip") || request_.header("via");
  request_.peer = peer_ == Peer::kThisMachine && is_forwarded ? Peer::kRemote : peer_;

  begin_exchange();
  exchange_->method_ = request_.method;
  exchange_->keep_alive_ = parser_->keep_alive();
  exchange_->chunked_ = head.version() >= 11;
  exchange_->headers_ = shared_->handler.reply_headers(request_);

  const std::string_view fault = head_fault(request_, static_cast<int>(head.version()), !!target);
  if (!fault.empty()) {
    parse_failed(400, "bad_request", fault);
    return false;
  }
  const std::string* expect = request_.header("expect");
  if (expect && lower(*expect) != "100-continue") {
    parse_failed(417, "expectation_failed", "The only expectation that is met is `100-continue`.");
    return false;
  }
  const bool has_body = !parser_->is_done();
  std::optional<HttpReply> refusal = shared_->handler.admit(request_, has_body);
  exchange_->route_ = request_.route;
  exchange_->use_ = request_.use;
  if (refusal) {
    phase_ = Phase::kAnswer;
    send_reply(std::move(*refusal), exchange_->keep_alive_ && !has_body);
    return phase_ == Phase::kIdle;
  }
  if (!has_body) {
    dispatch();
    return phase_ == Phase::kIdle;
  }
  if (!lease_body(parser_->content_length().value_or(0))) return false;
  if (request_.header("expect") && exchange_->chunked_) {
    out_.append(kContinue);
    flush();
  }
  phase_ = Phase::kBody;
  parser_->eager(true);
  body_deadline_ = Clock::now() + shared_->limits.body_total_timeout;
  arm(Alarm::kBody, shared_->limits.body_idle_timeout);
  return true;
}

bool Connection::read_body() {
  const ServerLimits& limits = shared_->limits;
  while (!parser_->is_done() && !in_.empty()) {
    boost::system::error_code ec;
    const std::size_t used = parser_->put(boost::asio::buffer(in_), ec);
    in_.erase(0, used);
    if (ec == http::error::need_more) {
      if (used > 0) continue;
      if (in_.size() > kMaxChunkHead)
        parse_failed(400, "bad_request", "A chunk header is too long.");
      break;
    }
    if (ec == http::error::body_limit) {
      parse_failed(413, "body_too_large",
                   fmt::format("The body may have at most {} bytes.", limits.max_body_bytes));
      return false;
    }
    if (ec) {
      parse_failed(400, "bad_request", "The body is not framed as its headers say.");
      return false;
    }
  }
  if (phase_ != Phase::kBody || !lease_body(parser_->get().body().size())) return false;
  if (parser_->is_done()) {
    dispatch();
    return phase_ == Phase::kIdle;
  }
  const auto left = body_deadline_ - Clock::now();
  arm(Alarm::kBody,
      std::clamp<Clock::duration>(left, Clock::duration::zero(), limits.body_idle_timeout));
  return false;
}

// Makes the lease cover `bytes`; refuses the request when all bodies together would pass the limit.
bool Connection::lease_body(std::size_t bytes) {
  if (bytes <= leased_) return true;
  const std::size_t more = bytes - leased_;
  if (shared_->body_bytes.fetch_add(more, std::memory_order_relaxed) + more >
      shared_->limits.max_bodies_bytes) {
    shared_->body_bytes.fetch_sub(more, std::memory_order_relaxed);
    parse_failed(
        503, "overloaded",
        "The server holds as many request bodies as it may. Send the request again later.");
    return false;
  }
  if (!lease_) lease_ = std::make_shared<BodyLease>(BodyLease{shared_, 0});
  static_cast<BodyLease*>(lease_.get())->bytes += more;
  leased_ = bytes;
  return true;
}

void Connection::dispatch() {
  disarm();
  phase_ = Phase::kAnswer;
  request_.body = std::move(parser_->get().body());
  request_.body_lease = std::move(lease_);
  leased_ = 0;
  parser_.reset();
  shared_->handler.handle(std::move(request_), exchange_);
}

// Answers what cannot be read any further, and closes.
void Connection::parse_failed(int status, std::string_view code, std::string_view message) {
  if (!exchange_) {
    request_.request_id = make_id("req-");
    begin_exchange();
  }
  phase_ = Phase::kAnswer;
  std::string().swap(in_);
  send_reply(shared_->handler.protocol_error(status, code, message), false);
}

}  // namespace sluice
