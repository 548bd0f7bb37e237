// usage.*.reasoning_tokens: the same whatever a step brings, whole or streamed.
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

std::vector<std::int32_t> tokens_of(const TestServer& server, const std::string& text) {
  return server.tokenizer->encode(text, {.add_special_tokens = false});
}

int of_chat(TestServer& server, const std::string& fields) {
  const ClientReply reply = server.chat(fields);
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.json()["usage"]["completion_tokens_details"]["reasoning_tokens"];
}

int of_chat_stream(TestServer& server, const std::string& fields) {
  const std::string options = R"(, "stream": true, "stream_options": {"include_usage": true, )"
                              R"("continuous_usage_stats": true})";
  int last = 0;
  for (const std::string& payload : sse_payloads(server.chat(fields + options).body)) {
    if (payload == "[DONE]") break;
    const Json chunk = Json::parse(payload);
    if (!chunk.contains("usage") || chunk["usage"].is_null()) continue;
    const int now = chunk["usage"]["completion_tokens_details"]["reasoning_tokens"];
    EXPECT_GE(now, last);
    last = now;
  }
  return last;
}

int of_responses(TestServer& server, int max_tokens, const std::string& stop) {
  Json body{{"input", "Hi"}, {"max_output_tokens", max_tokens}};
  if (!stop.empty()) body["stop"] = stop;
  const ClientReply reply = server.call("POST", "/v1/responses", body.dump());
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.json()["usage"]["output_tokens_details"]["reasoning_tokens"];
}

TEST(ReasoningTokens, AreThoseBetweenTheMarks) {
  TestServer server;
  const std::vector<std::int32_t> thought = tokens_of(server, "Two and \U0001F600 two.");
  std::vector<std::int32_t> script = tokens_of(server, "<think>");
  ASSERT_EQ(script.size(), 1u);
  script.insert(script.end(), thought.begin(), thought.end());
  for (const std::int32_t id : tokens_of(server, "</think>\n\nFour.")) script.push_back(id);
  server.engine->set_script(script);
  const int num_thought = static_cast<int>(thought.size());
  for (const int step : {1, 2, 3, 5, 100}) {
    server.engine->step_tokens = step;
    for (int limit = 1; limit <= static_cast<int>(script.size()) + 2; ++limit) {
      SCOPED_TRACE(fmt::format("{} tokens a step, {} in all", step, limit));
      const int expected = std::min(limit - 1, num_thought);
      const std::string fields = fmt::format(R"(, "max_tokens": {})", limit);
      EXPECT_EQ(of_chat(server, fields), expected);
      EXPECT_EQ(of_chat_stream(server, fields), expected);
      EXPECT_EQ(of_responses(server, limit, ""), expected);
    }
    // A stop string holds text back, here in the answer.
    EXPECT_EQ(of_chat(server, R"(, "stop": "our.")"), num_thought);
    EXPECT_EQ(of_chat_stream(server, R"(, "stop": ["our.", ".</thinner"])"), num_thought);
    EXPECT_EQ(of_responses(server, 100, "our."), num_thought);
    // Each choice counts.
    EXPECT_EQ(of_chat(server, R"(, "n": 3)"), 3 * num_thought);
    EXPECT_EQ(of_chat(server, R"(, "separate_reasoning": false)"), 0);
  }
}

}  // namespace
}  // namespace sluice
