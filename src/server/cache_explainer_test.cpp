// POST /page/cache over a scripted look-up. tests/serving/test_cache_explainer.py has a real cache.
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

constexpr const char* kPrompt = R"({"prompt": [1, 2, 3, 4, 5, 6]})";

PrefixLookup lookup_of(std::uint64_t first, std::uint64_t second) {
  PrefixLookup found;
  found.runs = {{2, first}, {2, second}};
  found.common_tokens = 4;
  found.usable_tokens = 3;
  found.other_tokens = {7, 8};
  found.other_request = second;
  return found;
}

std::string bearer(const std::string& key) {
  return "Authorization: Bearer " + key + "\r\n";
}

std::vector<std::pair<std::string, int>> parts_of(const Json& answer) {
  std::vector<std::pair<std::string, int>> out;
  for (const Json& part : answer["parts"])
    out.emplace_back(part["state"].get<std::string>(), part["tokens"].get<int>());
  return out;
}

TEST(CacheExplainer, PartsHaveStatesAndOrigins) {
  TestServer server;
  ASSERT_EQ(server.chat("", "X-Request-Id: the-first\r\n").status, 200);
  server.engine->lookup = lookup_of(1, 4000);
  const ClientReply reply = server.call("POST", "/page/cache", kPrompt);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.headers.at("cache-control"), "no-store");
  const Json answer = reply.json();
  EXPECT_EQ(parts_of(answer), (std::vector<std::pair<std::string, int>>{
                                  {"cached", 2}, {"cached", 1}, {"unusable", 1}, {"new", 2}}));
  const Json& parts = answer["parts"];
  EXPECT_EQ(parts[0]["request"]["id"], "the-first");
  EXPECT_EQ(parts[0]["request"]["route"], "/v1/chat/completions");
  EXPECT_GE(parts[0]["request"]["age_s"].get<double>(), 0);
  EXPECT_TRUE(parts[1]["request"].is_null());  // an id that nobody knows any more
  std::string text;
  for (const Json& part : parts) text += part["text"].get<std::string>();
  EXPECT_EQ(text, server.tokenizer->decode(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}, false));
  EXPECT_EQ(answer["num_tokens"], 6);
  EXPECT_EQ(answer["cached_tokens"], 3);
  EXPECT_EQ(answer["divergence"]["token"], 4);
  EXPECT_EQ(answer["divergence"]["prompt_text"],
            server.tokenizer->decode(std::vector<std::int32_t>{5, 6}, false));
  EXPECT_EQ(answer["divergence"]["cached_text"],
            server.tokenizer->decode(std::vector<std::int32_t>{7, 8}, false));
}

// A proxy speaks for other machines: who shares a namespace is not told of its requests.
TEST(CacheExplainer, OriginsAreForThoseWhoseTheyAreOrWhoAdministrate) {
  {
    TestServer server;
    ASSERT_EQ(server.chat("").status, 200);
    server.engine->lookup = lookup_of(1, 1);
    const Json answer = server.call("POST", "/page/cache", kPrompt, "Via: 1.1 proxy\r\n").json();
    EXPECT_EQ(answer["tells_origins"], false);
    for (const Json& part : answer["parts"]) EXPECT_TRUE(part["request"].is_null());
    EXPECT_TRUE(answer["divergence"]["cached_text"].is_null());
    EXPECT_TRUE(answer["divergence"]["request"].is_null());
    EXPECT_EQ(answer["divergence"]["token"], 4);
  }
  TestServerConfig config;
  config.options.api_keys = {"one", "two"};
  TestServer server(config);
  server.engine->lookup = lookup_of(1, 1);
  EXPECT_EQ(server.call("POST", "/page/cache", kPrompt).status, 401);
  const auto name_space = [&](const char* key, const char* body) {
    const Json answer =
        server.call("POST", "/page/cache", body, bearer(key) + "Via: 1.1 proxy\r\n").json();
    EXPECT_EQ(answer["tells_origins"], true) << answer;
    return server.engine->last_request().cache_namespace;
  };
  const std::uint64_t one = name_space("one", kPrompt);
  EXPECT_NE(name_space("two", kPrompt), one);
  const std::uint64_t salted =
      name_space("one", R"({"prompt": [1, 2, 3, 4, 5, 6], "cache_salt": "s"})");
  EXPECT_NE(salted, one);
  // They are those of a request.
  const auto sent = [&](const char* body) {
    EXPECT_EQ(server.call("POST", "/v1/completions", body, bearer("one")).status, 200);
    return server.engine->last_request().cache_namespace;
  };
  EXPECT_EQ(sent(R"({"prompt": [1]})"), one);
  EXPECT_EQ(sent(R"({"prompt": [1], "cache_salt": "s"})"), salted);
}

TEST(CacheExplainer, TakesWhatAChatSendsAndRefusesTheRest) {
  TestServer server;
  server.engine->lookup = PrefixLookup{};
  const auto call = [&](const char* body) { return server.call("POST", "/page/cache", body); };
  const char* kMessages = R"({"messages": [{"role": "user", "content": "Hello"}]})";
  ASSERT_EQ(call(kMessages).status, 200);
  const std::vector<std::int32_t> seen = server.engine->last_request().prompt_ids;
  ASSERT_EQ(server.chat("").status, 200);
  EXPECT_EQ(server.engine->last_request().prompt_ids, seen);
  EXPECT_TRUE(call(R"({"prompt": "Hello"})").json()["divergence"].is_null());
  EXPECT_EQ(call(R"({"prompt": "Hello", "promt": 1})").headers.at("x-ignored-fields"), "promt");

  EXPECT_EQ(call(R"({"prompt": "Hello", "tools": []})").headers.at("x-ignored-fields"), "tools");

  EXPECT_EQ(call("{}").error("param"), "prompt");
  EXPECT_EQ(call(R"({"prompt": "a", "messages": [{"role": "user", "content": "a"}]})").status, 400);
  EXPECT_EQ(call(R"({"prompt": 5})").error("param"), "prompt");
  EXPECT_EQ(call(R"({"prompt": [1e9]})").error("param"), "prompt");
  EXPECT_EQ(call(R"({"prompt": []})").error("code"), "empty_prompt");
  EXPECT_EQ(call(R"({"prompt": "a", "cache_salt": 5})").error("param"), "cache_salt");
  EXPECT_EQ(call(R"({"prompt": "a", "add_special_tokens": 5})").error("param"),
            "add_special_tokens");
  EXPECT_EQ(call(R"({"prompt": "a", "model": "none"})").status, 404);
  EXPECT_EQ(call(R"({"messages": []})").status, 400);
  server.engine->lookup.reset();
  EXPECT_EQ(call(kPrompt).error("code"), "unsupported_task");
  server.expect_healthy();
  TestServerConfig bare;
  bare.options.no_webui = true;
  EXPECT_EQ(TestServer(bare).call("POST", "/page/cache", kPrompt).status, 404);
}

}  // namespace
}  // namespace sluice
