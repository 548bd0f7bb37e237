#include "server/testing/server_fixture.h"

#include "base/testing/source_dir.h"
#include "server/core/grammars.h"
#include "server/core/pooling_model.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstring>

#include "text/chat/chat_template.h"

namespace sluice {

std::string ClientReply::error(const char* field) const {
  const Json parsed = json();
  if (!parsed.is_object() || !parsed.contains("error")) return "(no error object)";
  if (parsed["error"].is_string())  // Ollama's shape
    return std::string_view(field) == "message" ? parsed["error"].get<std::string>() : "";
  const Json value = parsed["error"].value(field, Json());
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
}

Client::Client(int port, int timeout_ms) {
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) close();
  timeval timeout{timeout_ms / 1000, (timeout_ms % 1000) * 1000};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
}

Client::~Client() {
  close();
}

void Client::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void Client::reset() {
  linger option{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &option, sizeof option);
  close();
}

void Client::shutdown_write() {
  shutdown(fd_, SHUT_WR);
}

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

std::string Client::read_some() {
  char buffer[16384];
  const ssize_t count = recv(fd_, buffer, sizeof buffer, 0);
  return count > 0 ? std::string(buffer, static_cast<std::size_t>(count)) : std::string();
}

bool Client::closed_by_server() {
  char block[65536];
  for (;;) {
    const ssize_t count = recv(fd_, block, sizeof block, 0);
    if (count == 0) return true;
    if (count < 0) return errno == ECONNRESET;
  }
}

ClientReply Client::read_reply(bool head_only) {
  ClientReply reply;
  const auto more = [&] {
    const std::string bytes = read_some();
    in_ += bytes;
    return !bytes.empty();
  };
  std::size_t end;
  while ((end = in_.find("\r\n\r\n")) == std::string::npos)
    if (!more()) {
      reply.closed = true;
      return reply;
    }
  std::string head = in_.substr(0, end + 2);
  in_.erase(0, end + 4);
  reply.status = std::atoi(head.c_str() + 9);
  for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
    const std::size_t eol = head.find("\r\n", at), colon = head.find(':', at);
    std::string name = head.substr(at, colon - at);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    reply.headers[name] = head.substr(colon + 2, eol - colon - 2);
    at = eol + 2;
  }
  if (reply.status == 100) return read_reply(head_only);
  reply.closed = reply.headers["connection"] == "close";
  if (head_only) return reply;
  if (reply.headers.count("transfer-encoding")) {
    for (;;) {
      std::size_t eol;
      while ((eol = in_.find("\r\n")) == std::string::npos)
        if (!more()) return reply.closed = true, reply;
      const std::size_t size = std::stoul(in_.substr(0, eol), nullptr, 16);
      while (in_.size() < eol + 2 + size + 2)
        if (!more()) return reply.closed = true, reply;
      reply.body += in_.substr(eol + 2, size);
      in_.erase(0, eol + 2 + size + 2);
      if (size == 0) return reply;
    }
  }
  const std::size_t length =
      std::stoul(reply.headers.count("content-length") ? reply.headers["content-length"] : "0");
  while (in_.size() < length)
    if (!more()) return reply.closed = true, reply;
  reply.body = in_.substr(0, length);
  in_.erase(0, length);
  return reply;
}

ClientReply Client::call(const std::string& method, const std::string& path,
                         const std::string& body, const std::string& extra_headers) {
  send(request_text(method, path, body, extra_headers));
  return read_reply(method == "HEAD");
}

std::string request_text(const std::string& method, const std::string& path,
                         const std::string& body, const std::string& extra_headers) {
  std::string text = method + " " + path + " HTTP/1.1\r\nHost: test\r\n" + extra_headers;
  if (method == "POST" || !body.empty())
    text +=
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  return text + "\r\n" + body;
}

std::vector<std::string> sse_payloads(const std::string& stream) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at);
    if (end == std::string::npos) break;
    const std::string event = stream.substr(at, end - at);
    if (event.rfind("data: ", 0) == 0) out.push_back(event.substr(6));
    at = end + 2;
  }
  return out;
}

ServerLimits test_limits() {
  ServerLimits limits;
  limits.header_timeout = std::chrono::milliseconds(300);
  limits.body_idle_timeout = std::chrono::milliseconds(300);
  limits.body_total_timeout = std::chrono::milliseconds(800);
  limits.write_idle_timeout = std::chrono::milliseconds(400);
  limits.keep_alive_timeout = std::chrono::milliseconds(3000);
  limits.linger_timeout = std::chrono::milliseconds(300);
  limits.ping_interval = std::chrono::milliseconds(100);
  return limits;
}

TestServer::TestServer(TestServerConfig config) {
  static const std::shared_ptr<const Tokenizer> kTokenizer =
      Tokenizer::load(source_dir() + "/models/sluice-tiny");
  tokenizer = kTokenizer;
  engine = std::make_shared<FakeEngine>(tokenizer, stop_matcher_factory(tokenizer));
  EncodeOptions plain;
  plain.add_special_tokens = false;
  engine->set_script(tokenizer->encode(
      "The quick brown fox says: caf\xC3\xA9 \xF0\x9F\xA6\x8A, and runs on.", plain));
  engine->generation = config.generation;
  state = std::make_unique<ServerState>(config.options, config.limits);
  router = std::make_unique<Router>(*state);
  http = std::make_unique<HttpServer>("127.0.0.1", 0, config.options.io_threads, config.limits,
                                      *router);
  if (!config.options.admin_socket.empty()) http->listen_for_admin(config.options.admin_socket);
  if (config.attach) attach();
  http->start();
}

void TestServer::attach() {
  model = std::make_shared<ServedModel>();
  model->engine = engine;
  model->tokenizer = tokenizer;
  static const std::shared_ptr<const ChatTemplate> kTemplate =
      ChatTemplate::load(source_dir() + "/models/sluice-tiny");
  model->chat_template = kTemplate;
  model->names = {"tiny", "org/other"};
  model->reasoning_parser = "glm45";
  model->tool_parser = "glm45";
  model->vocab_size = tokenizer->size();
  model->grammars = std::make_shared<Grammars>(tokenizer, tokenizer->size());
  PoolingModel pooling;
  pooling.max_tokens = engine->context;
  pooling.state_dimension = pooling.dimension = FakeEngine::kDimension;
  pooling.prompts = {{"query", "Look for: "}, {"document", ""}};
  model->pooling = std::make_shared<const PoolingModel>(std::move(pooling));
  model->created = 1700000000;
  state->metrics.set_model("tiny", "sglang,vllm");
  state->attach(model);
}

TestServer::~TestServer() {
  engine->stalled = false;
  http->stop();
}

std::string TestServer::text_of_script() const {
  return tokenizer->decode(engine->script(), true);
}

void TestServer::expect_healthy() {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(call("GET", "/health").status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_TRUE(eventually([&] { return engine->idle(); }))
      << engine->num_open() << " sequences are still open";
  EXPECT_TRUE(eventually([&] { return state->num_generations() == 0; }));
  const ClientReply canary =
      call("POST", "/generate", R"({"text": "canary", "sampling_params": {"temperature": 0}})");
  ASSERT_EQ(canary.status, 200) << canary.body;
  EXPECT_EQ(canary.json()["text"], text_of_script());
}

}  // namespace sluice
