// Answers that end inside a character: its bytes are no text, on every route.
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

// What a route calls its answer, and the pieces of a stream of it.
std::string answer_of(const std::string& path, const Json& json) {
  if (path == "/v1/chat/completions") return json["choices"][0]["message"]["content"];
  if (path == "/v1/completions") return json["choices"][0]["text"];
  if (path == "/v1/messages") return json["content"].empty() ? "" : json["content"][0]["text"];
  if (path == "/v1/responses")
    return json["output"].empty() ? "" : json["output"][0]["content"][0]["text"];
  if (path == "/generate") return json["text"];
  return path == "/api/chat" ? json["message"]["content"] : json["response"];
}

Json body_of(const std::string& path, std::size_t limit) {
  const Json messages = Json::array({Json{{"role", "user"}, {"content", "Hi"}}});
  const std::size_t most = std::max<std::size_t>(limit, 1);
  if (path == "/generate")
    return Json{{"text", "Hi"}, {"sampling_params", {{"max_new_tokens", most}}}};
  if (path == "/api/chat")
    return Json{{"model", "tiny"},
                {"messages", messages},
                {"stream", false},
                {"think", false},
                {"options", {{"num_predict", most}}}};
  if (path == "/api/generate")
    return Json{{"model", "tiny"},
                {"prompt", "Hi"},
                {"stream", false},
                {"think", false},
                {"options", {{"num_predict", most}}}};
  if (path == "/v1/completions") return Json{{"prompt", "Hi"}, {"max_tokens", most}};
  const Json no_thoughts{{"enable_thinking", false}};
  if (path == "/v1/responses")
    return Json{
        {"input", "Hi"}, {"max_output_tokens", most}, {"chat_template_kwargs", no_thoughts}};
  return Json{{"model", "tiny"},
              {"messages", messages},
              {"max_tokens", most},
              {"chat_template_kwargs", no_thoughts}};
}

const std::string kRoutes[] = {"/v1/chat/completions", "/v1/completions", "/generate",
                               "/v1/messages",         "/v1/responses",   "/api/chat",
                               "/api/generate"};

TEST(UnfinishedCharacters, AreNoText) {
  TestServer server;
  const std::string smile = "\U0001F600";
  const auto ids = server.tokenizer->encode("x" + smile, {.add_special_tokens = false});
  const std::size_t begin = server.tokenizer->encode("x", {.add_special_tokens = false}).size();
  ASSERT_GT(ids.size(), begin + 1);  // the character has several tokens
  for (std::size_t count = begin; count <= ids.size(); ++count) {
    server.engine->set_script({ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count)});
    const std::string text = count == ids.size() ? "x" + smile : "x";
    // The limit ends the answer, or the model does.
    for (const std::size_t limit : {count, count + 5})
      for (const std::string& path : kRoutes) {
        SCOPED_TRACE(path + " " + std::to_string(count) + " of " + std::to_string(limit));
        Json body = body_of(path, limit);
        const ClientReply reply = server.call("POST", path, dump_json(body));
        ASSERT_EQ(reply.status, 200) << reply.body;
        EXPECT_EQ(answer_of(path, reply.json()), text) << reply.body;
        body["stream"] = true;
        const ClientReply stream = server.call("POST", path, dump_json(body));
        EXPECT_EQ(stream.body.find("\xEF\xBF\xBD"), std::string::npos) << stream.body;
        EXPECT_EQ(stream.body.find(smile) != std::string::npos, count == ids.size());
      }
  }
}

// Token ids and log-probabilities are those of all tokens.
TEST(UnfinishedCharacters, TokensAreTold) {
  TestServer server;
  const auto ids = server.tokenizer->encode("x\U0001F600", {.add_special_tokens = false});
  const std::vector<std::int32_t> script(ids.begin(), ids.end() - 1);
  server.engine->set_script(script);
  const std::size_t count = script.size();
  const Json choice =
      server
          .chat(fmt::format(R"(, "max_tokens": {}, "logprobs": true, "return_token_ids": true, )"
                            R"("chat_template_kwargs": {{"enable_thinking": false}})",
                            count))
          .json()["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "x");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["token_ids"], Json(script));
  EXPECT_EQ(choice["logprobs"]["content"].size(), count);
  const Json text = server.call("POST", "/detokenize", dump_json(Json{{"tokens", script}})).json();
  EXPECT_EQ(text["text"], "x\uFFFD");
}

// In the middle of an answer they are bytes that are no character.
TEST(UnfinishedCharacters, InTheMiddleAreReplaced) {
  TestServer server;
  const auto ids = server.tokenizer->encode("x\U0001F600", {.add_special_tokens = false});
  const auto end = server.tokenizer->encode("y", {.add_special_tokens = false});
  std::vector<std::int32_t> script(ids.begin(), ids.end() - 1);
  script.insert(script.end(), end.begin(), end.end());
  server.engine->set_script(script);
  EXPECT_EQ(server.chat(R"(, "chat_template_kwargs": {"enable_thinking": false})")
                .json()["choices"][0]["message"]["content"],
            "x\uFFFDy");
}

}  // namespace
}  // namespace sluice
