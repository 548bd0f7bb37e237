// Keys of a file over HTTP: roles, limits in the errors of each protocol, and the admin socket.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "server/core/errors.h"
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::string bearer(const std::string& key) {
  return "Authorization: Bearer " + key + "\r\n";
}

class Keys : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = fs::temp_directory_path() / fmt::format("sluice-keys-{}-{}", getpid(), name);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& text) {
    const std::string path = folder_ / "keys.yaml";
    std::ofstream(path) << text;
    chmod(path.c_str(), 0600);
    return path;
  }
  TestServerConfig config(const std::string& text) {
    TestServerConfig config;
    config.options.api_key_file = write(text);
    return config;
  }

  fs::path folder_;
};

constexpr const char* kTwoRoles =
    "keys:\n- {name: alice, key: alice-key}\n- {name: root, key: root-key, role: admin}\n";

TEST_F(Keys, RolesDecideAboutAdministration) {
  TestServer server(config(kTwoRoles));
  EXPECT_EQ(server.call("GET", "/v1/models").status, 401);
  EXPECT_EQ(server.call("GET", "/v1/models", "", bearer("other")).status, 401);
  EXPECT_EQ(server.call("GET", "/v1/models", "", bearer("alice-key")).status, 200);
  EXPECT_EQ(server.call("POST", "/flush_cache", "", bearer("alice-key")).status, 403);
  EXPECT_EQ(server.call("POST", "/flush_cache", "", bearer("root-key")).status, 200);
}

TEST_F(Keys, ANameIsAnOwnerThatOutlivesItsKey) {
  const KeyPipeline keys({{"plain"}, "", write(kTwoRoles), false});
  const auto caller = [](const KeyPipeline& pipeline, const std::string& key) {
    HttpRequest head;
    head.headers = {{"authorization", "Bearer " + key}};
    EXPECT_FALSE(pipeline.authorize(Access::kUser, head)) << key;
    return head;
  };
  EXPECT_EQ(caller(keys, "alice-key").owner, "key:alice");
  EXPECT_EQ(caller(keys, "alice-key").use->key_name, "alice");
  EXPECT_TRUE(caller(keys, "root-key").admin);
  const std::string plain = caller(keys, "plain").owner;
  EXPECT_TRUE(plain.starts_with("sha256:"));
  EXPECT_EQ(caller(keys, "plain").use->key_name, "api-key-1");
  // Another process: the same owners, other ids.
  const KeyPipeline later({{"other", "plain"}, "", write(kTwoRoles), false});
  EXPECT_EQ(caller(later, "plain").owner, plain);
  EXPECT_NE(caller(later, "plain").key_id, caller(keys, "plain").key_id);
}

TEST_F(Keys, AFileThatIsReadAgain) {
  TestServer server(config(kTwoRoles));
  const std::uint64_t pages = [&] {
    server.call("POST", "/generate", R"({"text": "a"})", bearer("alice-key"));
    return server.engine->last_request().cache_namespace;
  }();
  write("keys: [{name: alice, key: new-key}]");
  EXPECT_EQ(server.state->keys.reload(), 1u);
  EXPECT_EQ(server.call("GET", "/v1/models", "", bearer("alice-key")).status, 401);
  EXPECT_EQ(server.call("POST", "/generate", R"({"text": "a"})", bearer("new-key")).status, 200);
  EXPECT_EQ(server.engine->last_request().cache_namespace, pages);
  // A faulty file changes nothing.
  write("keys: [{name: alice, kye: x}]");
  EXPECT_THROW(server.state->keys.reload(), Error);
  EXPECT_EQ(server.call("GET", "/v1/models", "", bearer("new-key")).status, 200);
}

struct Protocol {
  const char* path;
  const char* body;
  ErrorShape shape;
};
constexpr Protocol kProtocols[] = {
    {"/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})",
     ErrorShape::kOpenAi},
    {"/v1/completions", R"({"prompt": "a"})", ErrorShape::kOpenAi},
    {"/v1/responses", R"({"input": "a"})", ErrorShape::kOpenAi},
    {"/v1/embeddings", R"({"input": "a"})", ErrorShape::kOpenAi},
    {"/generate", R"({"text": "a"})", ErrorShape::kOpenAi},
    {"/v1/messages",
     R"({"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "a"}]})",
     ErrorShape::kAnthropic},
    {"/api/chat", R"({"model": "tiny", "messages": [{"role": "user", "content": "a"}]})",
     ErrorShape::kOllama},
    {"/api/generate", R"({"model": "tiny", "prompt": "a"})", ErrorShape::kOllama},
};

void expect_rate_limit(const ClientReply& reply, ErrorShape shape) {
  EXPECT_EQ(reply.status, 429) << reply.body;
  EXPECT_GE(std::atoi(reply.headers.at("retry-after").c_str()), 1);
  const Json body = reply.json();
  const Json& error = body["error"];
  if (shape == ErrorShape::kOllama) {
    EXPECT_TRUE(error.is_string());
    return;
  }
  EXPECT_EQ(error["type"], "rate_limit_error");
  if (shape == ErrorShape::kAnthropic)
    EXPECT_EQ(body["type"], "error");
  else
    EXPECT_EQ(error["code"], "rate_limit_exceeded");
}

TEST_F(Keys, ConcurrentRequestsAreCounted) {
  TestServer server(
      config("keys:\n- {name: a, key: a, max_concurrent_requests: 1}\n- {name: b, key: b}\n"));
  server.engine->step_us = 2000;
  Client client(server.port());
  client.send(request_text(
      "POST", "/generate",
      R"({"text": "a", "sampling_params": {"max_new_tokens": 3000, "ignore_eos": true}})",
      bearer("a")));
  ASSERT_TRUE(eventually([&] { return server.state->num_generations() == 1; }));
  for (const Protocol& protocol : kProtocols) {
    SCOPED_TRACE(protocol.path);
    expect_rate_limit(server.call("POST", protocol.path, protocol.body, bearer("a")),
                      protocol.shape);
  }
  // Others, and what computes nothing, go on.
  EXPECT_EQ(server.call("GET", "/v1/models", "", bearer("a")).status, 200);
  EXPECT_EQ(server.call("POST", "/tokenize", R"({"prompt": "a"})", bearer("a")).status, 200);
  EXPECT_EQ(server.call("POST", "/generate", R"({"text": "a"})", bearer("b")).status, 200);
  client.close();
  EXPECT_TRUE(eventually([&] {
    return server.call("POST", "/generate", R"({"text": "a"})", bearer("a")).status == 200;
  }));
}

TEST_F(Keys, TokensAMinuteAreCounted) {
  TestServer server(
      config("keys:\n- {name: a, key: a, max_tokens_per_minute: 12}\n- {name: b, key: b}\n"));
  const std::string body = R"({"text": "a", "sampling_params": {"max_new_tokens": 40}})";
  const ClientReply first = server.call("POST", "/generate", body, bearer("a"));
  EXPECT_EQ(first.status, 200);
  ASSERT_GT(first.json()["meta_info"]["completion_tokens"], 12);
  for (const Protocol& protocol : kProtocols) {
    SCOPED_TRACE(protocol.path);
    const ClientReply reply = server.call("POST", protocol.path, protocol.body, bearer("a"));
    expect_rate_limit(reply, protocol.shape);
    EXPECT_GT(std::atoi(reply.headers.at("retry-after").c_str()), 4);
  }
  EXPECT_EQ(server.call("POST", "/generate", body, bearer("b")).status, 200);
}

TEST_F(Keys, PromptsOfVectorsCount) {
  TestServer server(config("keys: [{name: a, key: a, max_tokens_per_minute: 5}]"));
  const std::string body = R"({"input": "one two three four five six seven eight nine"})";
  EXPECT_EQ(server.call("POST", "/v1/embeddings", body, bearer("a")).status, 200);
  EXPECT_EQ(server.call("POST", "/v1/embeddings", body, bearer("a")).status, 429);
}

// The status of one request over the socket; 0 when it cannot be opened.
int status_over(const std::string& path, const std::string& request) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  int status = 0;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      send(fd, request.data(), request.size(), MSG_NOSIGNAL) == std::ssize(request)) {
    char text[16] = {};
    if (recv(fd, text, 12, MSG_WAITALL) == 12) status = std::atoi(text + 9);
  }
  close(fd);
  return status;
}

TEST_F(Keys, AdministrationMovesToItsSocket) {
  TestServerConfig config;
  config.options.api_keys = {"k"};
  config.options.admin_api_key = "a";
  const std::string path = folder_ / "admin.sock";
  config.options.admin_socket = path;
  {
    TestServer server(config);
    EXPECT_EQ(server.call("POST", "/flush_cache", "", bearer("a")).status, 403);
    EXPECT_NE(server.call("POST", "/flush_cache", "", bearer("a"))
                  .error("message")
                  .find("--admin-socket"),
              std::string::npos);
    EXPECT_EQ(server.call("GET", "/v1/models", "", bearer("a")).status, 200);
    EXPECT_EQ(server.call("POST", "/abort_request", R"({"abort_all": true})", bearer("a")).status,
              403);

    EXPECT_EQ(status_over(path, request_text("POST", "/flush_cache", "")), 200);
    EXPECT_EQ(status_over(path, request_text("GET", "/v1/models", "")), 200);
    EXPECT_EQ(status_over(path, request_text("POST", "/abort_request", R"({"abort_all": true})")),
              200);
    struct stat status{};
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    EXPECT_THROW(TestServer{config}, Error);  // it is taken
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(Keys, ASocketThatIsLeftIsReplacedAndAFileIsNot) {
  TestServerConfig config;
  const std::string path = folder_ / "admin.sock";
  config.options.admin_socket = path;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(fd);
  {
    TestServer server(config);
    EXPECT_EQ(status_over(path, request_text("POST", "/flush_cache", "")), 200);
    EXPECT_EQ(server.call("POST", "/flush_cache").status, 403);
  }
  std::ofstream(path) << "a file";
  EXPECT_THROW(TestServer{config}, Error);
  EXPECT_TRUE(fs::exists(path));
  config.options.admin_socket = std::string(200, 'x');
  EXPECT_THROW(TestServer{config}, Error);
}

TEST_F(Keys, AProxyIsNotThisMachine) {
  TestServer server;
  EXPECT_EQ(server.call("POST", "/flush_cache").status, 200);
  for (const char* header : {"X-Forwarded-For: 10.0.0.9\r\n", "Forwarded: for=10.0.0.9\r\n",
                             "X-Real-IP: 127.0.0.1\r\n", "Via: 1.1 proxy\r\n"})
    EXPECT_EQ(server.call("POST", "/flush_cache", "", header).status, 403) << header;
  EXPECT_EQ(server.call("GET", "/v1/models", "", "Via: 1.1 proxy\r\n").status, 200);
}

TEST_F(Keys, ARefusalKnowsTheKeysName) {
  const KeyPipeline keys({{}, "", write(kTwoRoles), false});
  const auto refused = [](const KeyPipeline& pipeline, const std::string& key) {
    HttpRequest head;
    if (!key.empty()) head.headers = {{"authorization", "Bearer " + key}};
    const std::optional<Fault> fault = pipeline.authorize(Access::kAdmin, head);
    EXPECT_TRUE(fault) << key;
    EXPECT_EQ(head.key_id, 0u);
    EXPECT_FALSE(head.admin);
    return head.use ? head.use->key_name : "";
  };
  EXPECT_EQ(refused(keys, "alice-key"), "alice");
  EXPECT_EQ(refused(keys, "other"), "");
  EXPECT_EQ(refused(keys, ""), "");
  const KeyPipeline with_socket({{}, "", write(kTwoRoles), true});
  EXPECT_EQ(refused(with_socket, "root-key"), "root");
}

TEST_F(Keys, MetricsMayBeOpen) {
  TestServerConfig with_keys = config(kTwoRoles);
  with_keys.options.metrics_open = true;
  TestServer server(with_keys);
  EXPECT_EQ(server.call("GET", "/metrics").status, 200);
  EXPECT_EQ(server.call("GET", "/metrics", "", bearer("other")).status, 200);
  EXPECT_EQ(server.call("GET", "/get_server_info").status, 401);
  TestServer closed(config(kTwoRoles));
  EXPECT_EQ(closed.call("GET", "/metrics").status, 401);
}

}  // namespace
}  // namespace sluice
