// Who may call what, for every row of the route table (R17, G14).
#include <filesystem>
#include <fstream>

#include "base/testing/source_dir.h"
#include "server/core/errors.h"
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

std::string bearer(const std::string& key) {
  return "Authorization: Bearer " + key + "\r\n";
}

// A path that the row takes.
std::string path_of(const Route& route) {
  std::string path(route.path);
  if (path.ends_with('*')) path.back() = 'x';
  return path;
}

std::string method_of(const Route& route) {
  return std::string(route.methods.substr(0, route.methods.find(' ')));
}

// Allowed callers are told about their request (any status but 401 and 403).
bool is_let_in(const ClientReply& reply) {
  return reply.status != 401 && reply.status != 403 && reply.status != 0;
}

struct Caller {
  const char* name;
  std::string headers;
  bool user, admin;
};

TEST(Access, EveryRouteWithEveryCaller) {
  TestServerConfig config;
  config.options.api_keys = {"key-one", "key-two"};
  config.options.admin_api_key = "the-admin";
  TestServer server(config);
  const std::vector<Caller> callers = {
      {"NoKey", "", false, false},
      {"WrongKey", bearer("key-onf"), false, false},
      {"EmptyKey", bearer(""), false, false},
      {"PrefixOfAKey", bearer("key-on"), false, false},
      {"OtherScheme", "Authorization: Basic key-one\r\n", false, false},
      {"HostTrick",
       "Forwarded: for=127.0.0.1\r\nX-Forwarded-For: 127.0.0.1\r\nX-Original-URL: /health\r\n",
       false, false},
      {"FirstKey", bearer("key-one"), true, false},
      {"SecondKey", bearer("key-two"), true, false},
      {"HeaderKey", "x-api-key: key-two\r\n", true, false},
      {"AdminKey", bearer("the-admin"), true, true},
  };
  for (const Route& route : route_table()) {
    for (const Caller& caller : callers) {
      SCOPED_TRACE(fmt::format("{} {}", route.path, caller.name));
      bool expected = route.access == Access::kOpen;
      if (route.access == Access::kUser || route.access == Access::kMetrics) expected = caller.user;
      if (route.access == Access::kAdmin) expected = caller.admin;
      const ClientReply reply = server.call(method_of(route), path_of(route),
                                            route.needs_body ? "{}" : "", caller.headers);
      EXPECT_EQ(is_let_in(reply), expected) << reply.status << " " << reply.body;
      if (!expected) {
        EXPECT_EQ(reply.status, route.access == Access::kAdmin && caller.user ? 403 : 401);
        EXPECT_TRUE(route.errors == ErrorShape::kOllama ||
                    reply.error("type") == "authentication_error" ||
                    reply.error("type") == "permission_error");
      }
    }
  }
}

TEST(Access, WithoutKeysEverythingIsOpenToThisMachine) {
  TestServer server;
  for (const Route& route : route_table()) {
    SCOPED_TRACE(route.path);
    EXPECT_TRUE(
        is_let_in(server.call(method_of(route), path_of(route), route.needs_body ? "{}" : "")));
  }
}

TEST(Access, WithoutKeysAdminRoutesAreClosedToOtherMachines) {
  const KeyPipeline keys({});
  HttpRequest far;
  const auto fault = keys.authorize(Access::kAdmin, far);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->status, 403);
  EXPECT_FALSE(keys.authorize(Access::kUser, far));
}

TEST(Access, WithoutAnAdminKeyAdminRoutesStayClosed) {
  TestServerConfig config;
  config.options.api_keys = {"k"};
  TestServer server(config);
  const ClientReply reply = server.call("POST", "/flush_cache", "", bearer("k"));
  EXPECT_EQ(reply.status, 403);
  EXPECT_NE(reply.error("message").find("--admin-api-key"), std::string::npos);
}

TEST(Access, AnAdminKeyAloneGuardsAdminRoutesOnly) {
  TestServerConfig config;
  config.options.admin_api_key = "a";
  TestServer server(config);
  EXPECT_EQ(server.call("GET", "/v1/models").status, 200);
  EXPECT_EQ(server.call("POST", "/flush_cache").status, 401);
  EXPECT_EQ(server.call("POST", "/flush_cache", "", bearer("a")).status, 200);
}

TEST(Access, KeysHaveNamespacesAndSaltsNarrowThem) {
  TestServerConfig config;
  config.options.api_keys = {"one", "two"};
  TestServer server(config);
  const auto space = [&](const std::string& key, const std::string& salt) {
    const std::string fields = salt.empty() ? "" : R"(, "cache_salt": ")" + salt + "\"";
    EXPECT_EQ(
        server.call("POST", "/generate", R"({"text": "a")" + fields + "}", bearer(key)).status,
        200);
    return server.engine->last_request().cache_namespace;
  };
  const std::set<std::uint64_t> spaces = {space("one", ""), space("two", ""), space("one", "s"),
                                          space("two", "s"), space("one", "t")};
  EXPECT_EQ(spaces.size(), 5u);
  EXPECT_EQ(spaces.count(0), 0u);
  EXPECT_EQ(space("one", "s"), space("one", "s"));
}

TEST(Access, OneKeyCannotAbortAnothersRequest) {
  TestServerConfig config;
  config.options.api_keys = {"one", "two"};
  config.options.admin_api_key = "admin";
  TestServer server(config);
  server.engine->step_us = 2000;
  Client client(server.port());
  client.send(request_text(
      "POST", "/generate",
      R"({"text": "a", "rid": "mine", "sampling_params": {"max_new_tokens": 3000, "ignore_eos": )"
      R"(true}})",
      bearer("one")));
  ASSERT_TRUE(eventually([&] { return server.state->num_generations() == 1; }));
  const std::string abort = R"({"rid": "mine"})";
  EXPECT_EQ(server.call("POST", "/abort_request", abort, bearer("two")).json()["aborted"], 0);
  EXPECT_EQ(server.call("POST", "/abort_request", R"({"abort_all": true})", bearer("one")).status,
            403);
  EXPECT_EQ(server.engine->num_open(), 1);
  EXPECT_EQ(server.call("POST", "/abort_request", abort, bearer("one")).json()["aborted"], 1);
  const ClientReply reply = client.read_reply();
  EXPECT_EQ(reply.json()["meta_info"]["finish_reason"]["type"], "abort");
}

// An abort names one request: a rid that runs already is refused, and the next may have it.
TEST(Access, OneRidNamesOneRequest) {
  TestServer server;
  server.engine->step_us = 2000;
  const std::string body =
      R"({"text": "a", "rid": "same", "sampling_params": {"max_new_tokens": 3000, "ignore_eos": )"
      R"(true}})";
  Client client(server.port());
  client.send(request_text("POST", "/generate", body));
  ASSERT_TRUE(eventually([&] { return server.state->num_generations() == 1; }));
  const ClientReply second = server.call("POST", "/generate", body);
  EXPECT_EQ(second.status, 400);
  EXPECT_EQ(second.json()["error"]["param"], "rid");
  EXPECT_EQ(server.call("POST", "/generate", R"({"text": ["a", "b"], "rid": ["q", "q"]})").status,
            400);
  EXPECT_EQ(server.call("POST", "/abort_request", R"({"rid": "same"})").json()["aborted"], 1);
  client.read_reply();
  ASSERT_TRUE(eventually([&] { return server.state->num_generations() == 0; }));
  EXPECT_EQ(server
                .call("POST", "/generate",
                      R"({"text": "a", "rid": "same", "sampling_params": {"max_new_tokens": 1}})")
                .status,
            200);
}

// No request of more prompts than the queue holds can ever be taken, so it is not told to come
// back.
TEST(Access, MorePromptsThanTheQueueHolds) {
  TestServerConfig config;
  config.options.max_queued_requests = 3;
  TestServer server(config);
  const ClientReply reply = server.call("POST", "/v1/completions",
                                        R"({"prompt": ["a", "b", "c", "d"], "max_tokens": 1})");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json()["error"]["code"], "too_many_prompts");
  EXPECT_EQ(
      server.call("POST", "/v1/completions", R"({"prompt": ["a", "b", "c"], "max_tokens": 1})")
          .status,
      200);
  EXPECT_EQ(server.state->num_generations(), 0u);
}

// No key, prompt or output in what the server says about itself (G15).
TEST(Access, SecretsAppearNowhere) {
  TestServerConfig config;
  config.options.api_keys = {"canary-key"};
  config.options.admin_api_key = "canary-admin";
  TestServer server(config);
  const std::string prompt = R"({"text": "canary-prompt"})";
  EXPECT_EQ(server.call("POST", "/generate", prompt, bearer("canary-key")).status, 200);
  for (const char* path : {"/metrics", "/get_server_info", "/get_model_info", "/v1/models"}) {
    const ClientReply reply = server.call("GET", path, "", bearer("canary-key"));
    EXPECT_EQ(reply.status, 200) << path;
    EXPECT_EQ(reply.body.find("canary"), std::string::npos) << path;
  }
  EXPECT_EQ(server.call("GET", "/v1/models", "", bearer("canary-wrong")).body.find("canary"),
            std::string::npos);
}

TEST(Errors, EveryStatusHasATypeAndRetryAfterWhereItHelps) {
  for (const int status :
       {400, 401, 403, 404, 405, 408, 411, 413, 414, 415, 429, 431, 500, 503, 504}) {
    const HttpReply reply = error_reply(Fault{status, "invalid_value", "a.b", "Text."});
    bool retry = false;
    for (const auto& [name, value] : reply.headers)
      retry |= name == "Retry-After" && std::stoi(value) >= 1;
    EXPECT_EQ(retry, status == 429 || status == 503) << status;
    EXPECT_NE(reason_phrase(status), "Status") << status;
    EXPECT_EQ(Json::parse(reply.body)["error"]["param"], "a.b");
  }
}

TEST(Errors, CodesOutsideTheCatalogueNeverReachAClient) {
  const Json body = Json::parse(error_json(Fault{500, "std::exception 0x7fff", "", "secret"}));
  EXPECT_EQ(body["error"]["code"], "internal_error");
  EXPECT_EQ(body.dump().find("secret"), std::string::npos);
}

// A code that the engine or the text code gives a Fault must be one that clients are told.
TEST(Errors, TheCatalogueHoldsEveryCodeOfTheLayersBelow) {
  namespace fs = std::filesystem;
  int found = 0;
  for (const char* folder : {"engine", "scheduler", "server", "text"}) {
    for (const auto& entry : fs::recursive_directory_iterator(source_dir() + "/src/" + folder)) {
      const std::string path = entry.path().string();
      if (!path.ends_with(".cpp") || path.ends_with("_test.cpp")) continue;
      std::ifstream file(path);
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      // Fault{400, "code", ... and .fault = {500, "code", ...
      for (std::size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
        const std::string_view rest = std::string_view(text).substr(at + 1, 160);
        if (rest.size() < 8 || rest[0] < '4' || rest[0] > '5' || rest[3] != ',') continue;
        const std::size_t quote = rest.find_first_not_of(" \n", 4);
        if (quote == std::string_view::npos || rest[quote] != '"') continue;
        const std::string_view code = rest.substr(quote + 1, rest.find('"', quote + 1) - quote - 1);
        // The phrases of HTTP statuses, and sentences about them, are no codes.
        if (code.empty() || code[0] < 'a' || code.find(' ') != code.npos) continue;
        EXPECT_TRUE(known_error_code(code)) << code << " in " << path;
        ++found;
      }
    }
  }
  EXPECT_GT(found, 40);
}

}  // namespace
}  // namespace sluice
