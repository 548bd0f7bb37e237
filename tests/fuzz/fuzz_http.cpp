// server/http/http_server.h: any bytes on a connection, over a real socket. The first byte selects
// how the rest is cut into writes. Every answer is HTTP with a known status, and the server keeps
// answering other connections.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "fuzz_support.h"
#include "fuzz_target.h"
#include "server/http/http_server.h"

namespace sluice::fuzz {
namespace {

HttpReply reply(int status, std::string body) {
  HttpReply made;
  made.status = status;
  made.body = std::move(body);
  return made;
}

// Answers every request with the size of its body.
class Echo final : public HttpHandler {
 public:
  std::optional<HttpReply> admit(HttpRequest& head, bool) override {
    must_hold(!head.method.empty() && !head.path.empty(), "a request has a method and a path");
    if (head.path == "/refused") return reply(404, "{}");
    return std::nullopt;
  }
  void handle(HttpRequest&& request, std::shared_ptr<Responder> responder) override {
    if (request.path == "/stream") {
      responder->start_stream({});
      responder->write("data: 1\n\n");
      responder->finish();
      return;
    }
    responder->send(reply(200, std::to_string(request.body.size())));
  }
  HttpReply protocol_error(int status, std::string_view code, std::string_view) override {
    return reply(status, "\"" + std::string(code) + "\"");
  }
  void ended(const RequestOutcome&) override {}
};

HttpServer& server() {
  static Echo handler;
  static HttpServer* const instance =
      [] {  // never destroyed: libFuzzer ends the process while its threads run
        ServerLimits limits;
        limits.max_body_bytes = 1 << 20;
        limits.header_timeout = limits.body_idle_timeout = limits.keep_alive_timeout =
            std::chrono::milliseconds(2000);
        limits.linger_timeout = std::chrono::milliseconds(1);
        auto* made = new HttpServer("127.0.0.1", 0, 1, limits, handler);
        made->start();
        return made;
      }();
  return *instance;
}

// Sends `bytes` in pieces, shuts down its side, and returns everything received. Ends the program
// after two seconds of silence.
std::string talk(std::string_view bytes, std::size_t piece) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  must_hold(fd >= 0, "a socket");
  const timeval patience{.tv_sec = 5, .tv_usec = 0};
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // Closed with a reset, so that a million runs leave no socket in TIME_WAIT.
  const linger reset{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(server().port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  must_hold(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
            "the server accepts");
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size())))
    if (::send(fd, bytes.data(), std::min(piece, bytes.size()), MSG_NOSIGNAL) < 0)
      break;  // the server closed the connection on an error
  ::shutdown(fd, SHUT_WR);
  std::string answer;
  char buffer[4096];
  ssize_t count = 0;
  while ((count = ::recv(fd, buffer, sizeof buffer, 0)) > 0)
    answer.append(buffer, static_cast<std::size_t>(count));
  must_hold(count == 0 || errno == ECONNRESET, "the server answers or hangs up");
  ::close(fd);
  return answer;
}

}  // namespace

void run_one(std::string_view input) {
  if (input.empty()) return;
  const unsigned cut = static_cast<unsigned char>(input[0]);
  const std::string answer = talk(
      input.substr(1), cut < 192 ? 1 << 20 : std::max<std::size_t>(cut - 191, input.size() / 16));
  if (!answer.empty()) {
    must_hold(answer.starts_with("HTTP/1.1 ") || answer.starts_with("HTTP/1.0 "),
              "an answer is HTTP: " + answer);
    const int status = answer.size() < 12 ? 0 : std::atoi(answer.c_str() + 9);
    must_hold(status >= 100 && status < 500, "a bad request is the client's fault: " + answer);
  }
  static int runs = 0;
  if (++runs % 64 == 0)
    must_hold(talk("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 1 << 20)
                  .starts_with("HTTP/1.1 200"),
              "the server goes on answering");
}

std::vector<std::string> seeds() {
  const std::string texts[] = {
      "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: "
      "application/json\r\nContent-Length: 15\r\n\r\n{\"model\": \"m\"}\n",
      "POST /stream HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
      "chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nTrailer: t\r\n\r\n",
      "GET /a?b=c&d=%20 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer k\r\n\r\nGET /b "
      "HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
      "POST /refused HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
      "GET / HTTP/1.0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: "
      "chunked\r\n\r\n0\r\n\r\n",
      "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "GET  /  HTTP/1.1\r\n x: y\r\n\r\n"};
  std::vector<std::string> all;
  for (const std::string& text : texts)
    for (const char* cut : {"\x01", "\xC1", "\xC8"}) all.push_back(cut + text);
  return all;
}

}  // namespace sluice::fuzz
