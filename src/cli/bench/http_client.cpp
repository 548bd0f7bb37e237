#include "cli/bench/http_client.h"

#include <algorithm>
#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http.hpp>

#include "base/error.h"

namespace sluice {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;

// One call on its way; it keeps itself alive through its handlers.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(asio::io_context& context, HttpEvents events)
      : socket_(context), timer_(context), events_(std::move(events)) {
    parser_.body_limit(boost::none);
    parser_.eager(true);
  }

  void start(const tcp::resolver::results_type& endpoints, http::request<http::string_body> request,
             std::chrono::duration<double> timeout) {
    request_ = std::move(request);
    timer_.expires_after(std::chrono::duration_cast<std::chrono::nanoseconds>(timeout));
    timer_.async_wait([self = shared_from_this()](const error_code& ec) {
      if (!ec) self->end("timed out");
    });
    asio::async_connect(socket_, endpoints,
                        [self = shared_from_this()](const error_code& ec, const tcp::endpoint&) {
                          if (self->failed(ec, "cannot connect")) return;
                          error_code ignored;
                          self->socket_.set_option(tcp::no_delay(true), ignored);
                          http::async_write(self->socket_, self->request_,
                                            [self](const error_code& error, std::size_t) {
                                              if (self->failed(error, "cannot send")) return;
                                              self->read();
                                            });
                        });
  }

 private:
  // Bytes are parsed as they come: Beast's own reading waits for the next chunk's head before it
  // tells of a chunk.
  void read() {
    socket_.async_read_some(
        asio::buffer(bytes_), [self = shared_from_this()](const error_code& ec, std::size_t count) {
          if (self->ended_) return;
          if (ec && ec != asio::error::eof)
            return self->end(fmt::format("the answer broke off: {}", ec.message()));
          self->pending_.append(self->bytes_.data(), count);
          const bool eof = ec == asio::error::eof;
          if (!self->parse(eof)) return;
          if (self->parser_.is_done()) return self->end("");
          if (eof) return self->end("the answer broke off: the server closed the connection");
          self->read();
        });
  }

  // False when the answer is no HTTP, which is told.
  bool parse(bool eof) {
    error_code ec;
    while (!pending_.empty() && !parser_.is_done()) {
      const std::size_t used = parser_.put(asio::buffer(pending_), ec);
      pending_.erase(0, used);
      if (ec == http::error::need_more) ec = {};
      if (ec) break;
      if (used == 0) break;
    }
    if (!ec && eof && !parser_.is_done() && parser_.is_header_done()) {
      parser_.put_eof(ec);
    }
    if (!told_head_ && parser_.is_header_done()) {
      told_head_ = true;
      events_.on_head(static_cast<int>(parser_.get().result_int()));
    }
    std::string& body = parser_.get().body();
    if (!body.empty()) events_.on_body(body);
    body.clear();  // the parser appends
    if (!ec) return true;
    end(fmt::format("the answer is not HTTP: {}", ec.message()));
    return false;
  }

  bool failed(const error_code& ec, std::string_view what) {
    if (ec) end(fmt::format("{}: {}", what, ec.message()));
    return ended_;
  }

  void end(const std::string& error) {
    if (ended_) return;
    ended_ = true;
    timer_.cancel();
    error_code ignored;
    socket_.close(ignored);
    events_.on_end(error);
  }

  tcp::socket socket_;
  asio::steady_timer timer_;
  std::array<char, 16384> bytes_;
  std::string pending_;  // read and not parsed yet
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  HttpEvents events_;
  bool told_head_ = false;
  bool ended_ = false;
};

}  // namespace

struct HttpClient::Impl {
  asio::io_context& context;
  HttpUrl url;
  tcp::resolver::results_type endpoints;
};

HttpUrl parse_url(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  require(text.starts_with(kScheme),
          "'{}' is no address that can be used; it must be http://HOST[:PORT][/PATH]", text);
  HttpUrl url;
  std::string_view rest = text.substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view path = rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  url.path = path;
  rest = rest.substr(0, slash);
  // [::1]:30000
  const std::size_t bracket = rest.starts_with('[') ? rest.find(']') : 0;
  require(bracket != std::string_view::npos, "'{}' has no ] after its address", text);
  const std::size_t colon = rest.find(':', bracket);
  url.host = bracket > 0 ? rest.substr(1, bracket - 1) : rest.substr(0, colon);
  if (colon != std::string_view::npos) url.port = rest.substr(colon + 1);
  const bool port_ok = !url.port.empty() && url.port.size() <= 5 &&
                       std::ranges::all_of(url.port, [](char c) { return c >= '0' && c <= '9'; }) &&
                       std::stoi(url.port) >= 1 && std::stoi(url.port) <= 65535;
  require(!url.host.empty() && port_ok,
          "'{}' is no address that can be used; it must be http://HOST[:PORT][/PATH], with a port "
          "from 1 to 65535",
          text);
  return url;
}

HttpClient::HttpClient(asio::io_context& context, HttpUrl url) {
  error_code ec;
  tcp::resolver resolver(context);
  auto endpoints = resolver.resolve(url.host, url.port, ec);
  require(!ec, "cannot find the host {}: {}", url.host, ec.message());
  impl_ = std::make_unique<Impl>(Impl{context, std::move(url), std::move(endpoints)});
}

HttpClient::~HttpClient() = default;

const HttpUrl& HttpClient::url() const {
  return impl_->url;
}

void HttpClient::start(HttpCall call, std::chrono::duration<double> timeout, HttpEvents events) {
  http::request<http::string_body> request;
  request.version(11);
  request.method_string(call.method);
  request.target(impl_->url.path + call.target);
  request.set(http::field::host, impl_->url.host + ":" + impl_->url.port);
  request.set(http::field::connection, "close");
  for (const auto& [name, value] : call.headers) request.set(name, value);
  if (!call.body.empty() || call.method == "POST") {
    request.set(http::field::content_type, "application/json");
    request.body() = std::move(call.body);
    request.prepare_payload();
  }
  std::make_shared<Exchange>(impl_->context, std::move(events))
      ->start(impl_->endpoints, std::move(request), timeout);
}

HttpClient::Answer HttpClient::fetch(HttpCall call, std::chrono::duration<double> timeout) {
  Answer answer;
  start(std::move(call), timeout,
        {.on_head = [&](int status) { answer.status = status; },
         .on_body = [&](std::string_view bytes) { answer.body += bytes; },
         .on_end = [&](const std::string& error) { answer.error = error; }});
  impl_->context.restart();
  impl_->context.run();
  return answer;
}

void SseReader::push(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    if (end == std::string_view::npos) {
      held_ += bytes;
      return;
    }
    if (held_.empty()) {
      line(bytes.substr(0, end));
    } else {
      held_ += bytes.substr(0, end);
      line(held_);
      held_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
}

void SseReader::line(std::string_view text) {
  if (text.ends_with('\r')) text.remove_suffix(1);
  if (text.empty()) {
    if (!data_.empty()) take_(data_);
    data_.clear();
    return;
  }
  if (!text.starts_with("data:")) return;  // a comment, or a field that nobody asks for
  text.remove_prefix(5);
  if (text.starts_with(' ')) text.remove_prefix(1);
  if (!data_.empty()) data_ += '\n';
  data_ += text;
}

}  // namespace sluice
