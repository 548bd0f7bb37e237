// Answers: text equal streamed or not, usage, log-probabilities, stops.
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

constexpr const char* kChat = "/v1/chat/completions";

struct Stream {
  std::vector<Json> chunks;
  std::string content, reasoning, finish;
  bool done = false;
  Json usage;
};

Stream read_stream(const ClientReply& reply) {
  Stream out;
  for (const std::string& payload : sse_payloads(reply.body)) {
    if (payload == "[DONE]") {
      out.done = true;
      continue;
    }
    EXPECT_FALSE(out.done) << "an event after [DONE]";
    Json chunk = Json::parse(payload, nullptr, false);
    EXPECT_TRUE(chunk.is_object()) << payload;
    if (chunk.contains("usage") && !chunk["usage"].is_null()) out.usage = chunk["usage"];
    for (const Json& choice : chunk.value("choices", Json::array())) {
      if (choice.contains("delta")) {
        out.content += choice["delta"].value("content", "");
        out.reasoning += choice["delta"].value("reasoning_content", "");
      } else if (choice.contains("text")) {
        out.content += choice["text"].get<std::string>();
      }
      if (choice["finish_reason"].is_string()) out.finish = choice["finish_reason"];
    }
    out.chunks.push_back(std::move(chunk));
  }
  return out;
}

std::vector<std::int32_t> tokens_of(const TestServer& server, const std::string& text) {
  return server.tokenizer->encode(text, {.add_special_tokens = false});
}

TEST(Chat, AnswerHasTheShapeOfOpenAi) {
  TestServer server;
  const ClientReply reply = server.chat(R"(, "chat_template_kwargs": {"enable_thinking": false})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json json = reply.json();
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(json["id"].get<std::string>().rfind("chatcmpl-", 0), 0u);
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], server.text_of_script());
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["logprobs"].is_null());
  const Json& usage = json["usage"];
  EXPECT_EQ(usage["completion_tokens"], server.engine->script().size() + 1);
  EXPECT_EQ(usage["total_tokens"],
            usage["prompt_tokens"].get<int>() + usage["completion_tokens"].get<int>());
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 1);
  EXPECT_EQ(server.engine->last_request().max_new_tokens, -1);
}

// Streams of every interval join to the answer that is not streamed.
TEST(Chat, StreamedDeltasJoinToTheWholeText) {
  for (const int interval : {1, 3, 1000}) {
    TestServerConfig config;
    config.options.stream_interval = interval;
    TestServer server(config);
    const ClientReply reply =
        server.chat(R"(, "stream": true, "stream_options": {"include_usage": true})");
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream");
    EXPECT_EQ(reply.headers.at("cache-control"), "no-cache");
    const Stream stream = read_stream(reply);
    EXPECT_TRUE(stream.done);
    EXPECT_EQ(stream.content, server.text_of_script());
    EXPECT_EQ(stream.finish, "stop");
    EXPECT_EQ(stream.chunks.front()["choices"][0]["delta"]["role"], "assistant");
    EXPECT_EQ(stream.chunks.back()["choices"], Json::array());
    EXPECT_EQ(stream.usage["completion_tokens"], server.engine->script().size() + 1);
    for (const Json& chunk : stream.chunks) EXPECT_EQ(chunk["id"], stream.chunks[0]["id"]);
    if (interval == 1000) {
      EXPECT_LE(stream.chunks.size(), 5u);
    }
  }
}

TEST(Chat, ContinuousUsageIsInEveryChunkThatHasTokens) {
  TestServer server;
  const Stream stream = read_stream(server.chat(
      R"(, "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": )"
      R"(true})"));
  int last = 0;
  for (std::size_t i = 1; i + 1 < stream.chunks.size(); ++i) {
    const int now = stream.chunks[i]["usage"]["completion_tokens"];
    EXPECT_GE(now, last);
    last = now;
  }
  EXPECT_GT(last, 0);
}

TEST(Chat, ReasoningAndContentAreSplit) {
  TestServer server;
  server.engine->set_script(tokens_of(server, "<think>Two and two.</think>\n\nFour."));
  for (const bool stream : {false, true}) {
    const ClientReply reply = server.chat(stream ? R"(, "stream": true)" : "");
    ASSERT_EQ(reply.status, 200);
    if (stream) {
      const Stream read = read_stream(reply);
      EXPECT_EQ(read.reasoning, "Two and two.");
      EXPECT_EQ(read.content, "Four.");
    } else {
      const Json message = reply.json()["choices"][0]["message"];
      EXPECT_EQ(message["reasoning_content"], "Two and two.");
      EXPECT_EQ(message["content"], "Four.");
      EXPECT_GT(reply.json()["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
    }
  }
  const Json inline_message =
      server.chat(R"(, "separate_reasoning": false)").json()["choices"][0]["message"];
  EXPECT_NE(inline_message["content"].get<std::string>().find("Two and two."), std::string::npos);
  EXPECT_FALSE(inline_message.contains("reasoning_content"));
}

TEST(Chat, ToolCallsAreParsedWhereToolsAreOffered) {
  TestServer server;
  const std::string call =
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>";
  server.engine->set_script(tokens_of(server, call));
  const std::string tools =
      R"(, "chat_template_kwargs": {"enable_thinking": false}, "tools": [{"type": "function", )"
      R"("function": {"name": "get_weather",)"
      R"( "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}])";
  const ClientReply reply = server.chat(tools);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json choice = reply.json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
  const Json tool_call = choice["message"]["tool_calls"][0];
  EXPECT_EQ(tool_call["type"], "function");
  EXPECT_EQ(tool_call["function"]["name"], "get_weather");
  EXPECT_EQ(Json::parse(tool_call["function"]["arguments"].get<std::string>()),
            (Json{{"city", "Paris"}}));

  const Stream stream = read_stream(server.chat(tools + R"(, "stream": true)"));
  EXPECT_EQ(stream.finish, "tool_calls");
  EXPECT_EQ(stream.content, "");
  std::string name, arguments;
  int ids = 0;
  for (const Json& chunk : stream.chunks)
    for (const Json& piece : chunk["choices"][0]["delta"].value("tool_calls", Json::array())) {
      EXPECT_EQ(piece["index"], 0);
      ids += piece.contains("id");
      name += piece["function"].value("name", "");
      arguments += piece["function"]["arguments"].get<std::string>();
    }
  EXPECT_EQ(ids, 1);
  EXPECT_EQ(name, "get_weather");
  EXPECT_EQ(Json::parse(arguments), (Json{{"city", "Paris"}}));

  // Not offered, or hidden: the text comes as it is.
  EXPECT_EQ(server.chat(tools + R"(, "tool_choice": "none")").json()["choices"][0]["finish_reason"],
            "stop");
}

TEST(Chat, UnclosedToolMarkersEndAsTextInLinearTime) {
  TestServer server;
  server.engine->step_us = 0;
  server.engine->context = 1 << 20;
  const auto mark = tokens_of(server, "<tool_call>");
  std::vector<std::int32_t> marks;
  for (int i = 0; i < 20000; ++i) marks.insert(marks.end(), mark.begin(), mark.end());
  server.engine->set_script(marks);
  const ClientReply reply = server.chat(
      R"(, "chat_template_kwargs": {"enable_thinking": false}, "tools": [{"type": "function", )"
      R"("function": {"name": "f"}}])");
  ASSERT_EQ(reply.status, 200);
  EXPECT_NE(reply.json()["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_GT(reply.json()["choices"][0]["message"]["content"].get<std::string>().size(), 20000u);
}

TEST(Chat, LogprobsListTheTokensOfTheText) {
  TestServer server;
  const std::string fields =
      R"(, "chat_template_kwargs": {"enable_thinking": false}, "logprobs": true, "top_logprobs": )"
      R"(2)";
  const Json entries = server.chat(fields).json()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(entries.size(), server.engine->script().size());
  std::string bytes;
  for (const Json& entry : entries) {
    EXPECT_FLOAT_EQ(entry["logprob"], -0.5f);
    EXPECT_EQ(entry["top_logprobs"].size(), 2u);
    for (const Json& byte : entry["bytes"]) bytes += static_cast<char>(byte.get<int>());
  }
  EXPECT_EQ(bytes, server.text_of_script());
  std::size_t streamed = 0;
  for (const Json& chunk : read_stream(server.chat(fields + R"(, "stream": true)")).chunks)
    if (!chunk["choices"][0]["logprobs"].is_null())
      streamed += chunk["choices"][0]["logprobs"]["content"].size();
  EXPECT_EQ(streamed, entries.size());
}

TEST(Chat, SeveralChoicesInterleaveUnderTheirIndices) {
  TestServer server;
  const ClientReply whole = server.chat(R"(, "n": 3)");
  ASSERT_EQ(whole.json()["choices"].size(), 3u);
  EXPECT_EQ(whole.json()["usage"]["completion_tokens"], 3 * (server.engine->script().size() + 1));
  std::map<int, std::string> texts;
  for (const Json& chunk : read_stream(server.chat(R"(, "n": 3, "stream": true)")).chunks)
    for (const Json& choice : chunk["choices"])
      texts[choice["index"]] += choice["delta"].value("content", "");
  ASSERT_EQ(texts.size(), 3u);
  for (const auto& [index, text] : texts) EXPECT_EQ(text, server.text_of_script()) << index;
}

TEST(Chat, DefaultsComeFromTheModelOnlyWhereTheRequestIsSilent) {
  for (const bool model_defaults : {true, false}) {
    TestServerConfig config;
    config.options.sampling_defaults = model_defaults ? "model" : "openai";
    config.generation.temperature = 0.25;
    config.generation.top_k = 7;
    TestServer server(config);
    EXPECT_EQ(server.chat("").status, 200);
    EXPECT_FLOAT_EQ(server.engine->last_request().params.temperature,
                    model_defaults ? 0.25f : 1.0f);
    EXPECT_EQ(server.engine->last_request().params.top_k, model_defaults ? 7 : -1);
    EXPECT_EQ(server
                  .chat(R"(, "temperature": 0, "top_k": 0, "seed": 5, "max_completion_tokens": 9, )"
                        R"("max_tokens": 3)")
                  .status,
              200);
    const Request asked = server.engine->last_request();
    EXPECT_EQ(asked.params.temperature, 0);
    EXPECT_EQ(asked.params.top_k, -1);
    EXPECT_EQ(asked.params.seed, 5u);
    EXPECT_EQ(asked.max_new_tokens, 9);
  }
}

// A stop string cut anywhere between tokens: never sent in part, and nothing after it.
TEST(Stop, StringsAreCutExactly) {
  TestServer server;
  const std::string text = server.text_of_script();
  const std::vector<std::string> stops = {"brown", " fox",     "q",
                                          "wn fo", "\xC3\xA9", text.substr(text.size() - 3)};
  for (const std::string& stop : stops) {
    const std::string expected = text.substr(0, text.find(stop));
    const std::string fields = fmt::format(
        R"(, "chat_template_kwargs": {{"enable_thinking": false}}, "stop": ["zzz", "{}"])", stop);
    const Json choice = server.chat(fields).json()["choices"][0];
    EXPECT_EQ(choice["message"]["content"], expected);
    EXPECT_EQ(choice["matched_stop"], stop);
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_EQ(read_stream(server.chat(fields + R"(, "stream": true)")).content, expected);
    EXPECT_EQ(server.chat(fields + R"(, "include_stop_str_in_output": true)")
                  .json()["choices"][0]["message"]["content"],
              expected + stop);
  }
  server.expect_healthy();
}

TEST(Completions, FourPromptShapesAndEcho) {
  TestServer server;
  const auto call = [&](const std::string& fields) {
    return server.call("POST", "/v1/completions", "{" + fields + R"(, "max_tokens": 500})").json();
  };
  EXPECT_EQ(call(R"("prompt": "a")")["choices"][0]["text"], server.text_of_script());
  EXPECT_EQ(call(R"("prompt": ["a", "b"], "n": 2)")["choices"].size(), 4u);
  EXPECT_EQ(call(R"("prompt": [5, 6])")["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(call(R"("prompt": [[5, 6], [7]])")["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(call(R"("prompt": "Hello there", "echo": true)")["choices"][0]["text"],
            "Hello there" + server.text_of_script());
  const Stream stream = read_stream(
      server.call("POST", "/v1/completions",
                  R"({"prompt": "Hi", "echo": true, "stream": true, "max_tokens": 500})"));
  EXPECT_EQ(stream.content, "Hi" + server.text_of_script());
  EXPECT_TRUE(stream.done);
}

TEST(Completions, EchoWithLogprobsScoresThePrompt) {
  TestServer server;
  const auto ids = server.tokenizer->encode("The quick brown fox");
  for (const int max_tokens : {0, 1}) {
    const Json choice =
        server
            .call("POST", "/v1/completions",
                  fmt::format(R"({{"prompt": "The quick brown fox", "echo": true, "logprobs": 1, )"
                              R"("max_tokens": {}}})",
                              max_tokens))
            .json()["choices"][0];
    const Json& logprobs = choice["logprobs"];
    ASSERT_EQ(logprobs["tokens"].size(), ids.size() + max_tokens) << choice;
    EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
    EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
    EXPECT_FLOAT_EQ(logprobs["token_logprobs"][1], -0.5f);
    EXPECT_EQ(logprobs["text_offset"][0], 0);
    EXPECT_EQ(choice["finish_reason"], "length");
  }
  // The token that ends an answer is no text, but it has a row.
  const Json ended =
      server.call("POST", "/v1/completions", R"({"prompt": "a", "logprobs": 0, "max_tokens": 500})")
          .json();
  EXPECT_EQ(ended["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(ended["choices"][0]["logprobs"]["tokens"].size(), ended["usage"]["completion_tokens"]);
}

TEST(Native, MetaInfoAndLogprobTriples) {
  TestServer server;
  const Json one =
      server
          .call("POST", "/generate",
                R"({"input_ids": [5, 6, 7], "rid": "r1", "return_logprob": true, )"
                R"("logprob_start_len": 0, "top_logprobs_num": 2,)"
                R"( "return_text_in_logprobs": true, "sampling_params": {"max_new_tokens": 4}})")
          .json();
  const Json& meta = one["meta_info"];
  EXPECT_EQ(meta["id"], "r1");
  EXPECT_EQ(meta["finish_reason"], (Json{{"type", "length"}, {"length", 4}}));
  EXPECT_EQ(meta["prompt_tokens"], 3);
  EXPECT_EQ(meta["completion_tokens"], 4);
  ASSERT_EQ(meta["input_token_logprobs"].size(), 3u);
  EXPECT_TRUE(meta["input_token_logprobs"][0][0].is_null());
  EXPECT_EQ(meta["input_token_logprobs"][0][1], 5);
  EXPECT_EQ(meta["input_token_logprobs"][2][1], 7);
  EXPECT_TRUE(meta["input_top_logprobs"][0].is_null());
  EXPECT_EQ(meta["input_top_logprobs"][1].size(), 2u);
  EXPECT_EQ(meta["output_token_logprobs"].size(), 4u);
  EXPECT_TRUE(meta["output_token_logprobs"][0][2].is_string());
  EXPECT_EQ(one["output_ids"].size(), 4u);

  const Json plain =
      server.call("POST", "/generate", R"({"text": "a", "return_logprob": true})").json();
  EXPECT_EQ(plain["meta_info"]["input_token_logprobs"], Json::array());
  EXPECT_TRUE(plain["meta_info"]["output_token_logprobs"][0][2].is_null());
  EXPECT_EQ(plain["meta_info"]["finish_reason"]["type"], "stop");
  EXPECT_EQ(server.call("POST", "/generate", R"({"text": ["a", "b"]})").json().size(), 2u);
  EXPECT_EQ(server.engine->last_request().max_new_tokens, 128);
}

TEST(Native, StreamedTextIsCumulative) {
  TestServer server;
  const auto payloads =
      sse_payloads(server.call("POST", "/generate", R"({"text": "a", "stream": true})").body);
  ASSERT_GT(payloads.size(), 3u);
  EXPECT_EQ(payloads.back(), "[DONE]");
  std::string before;
  for (std::size_t i = 0; i + 1 < payloads.size(); ++i) {
    const std::string text = Json::parse(payloads[i])["text"];
    EXPECT_EQ(text.rfind(before, 0), 0u);
    before = text;
  }
  EXPECT_EQ(before, server.text_of_script());
}

TEST(Tokenize, DetokenizeTakesOneListOrMany) {
  TestServer server;
  const auto ids = server.tokenizer->encode("Hello there");
  EXPECT_EQ(server.call("POST", "/detokenize", dump_json(Json{{"tokens", ids}})).json()["text"],
            "Hello there");
  const Json both =
      server.call("POST", "/detokenize", dump_json(Json{{"tokens", {ids, ids}}})).json();
  EXPECT_EQ(both["text"], (Json{"Hello there", "Hello there"}));
  EXPECT_EQ(server.call("POST", "/detokenize", R"({"tokens": [[1], "x"]})").status, 400);
}

TEST(Tokenize, VllmShapes) {
  TestServer server;
  const auto ids = server.tokenizer->encode("Hello there");
  for (const char* path : {"/tokenize", "/v1/tokenize"}) {
    const Json json =
        server.call("POST", path, R"({"model": "tiny", "prompt": "Hello there"})").json();
    EXPECT_EQ(json["tokens"], Json(ids));
    EXPECT_EQ(json["count"], ids.size());
    EXPECT_EQ(json["max_model_len"], server.engine->context.load());
  }
  const Json chat =
      server.call("POST", "/tokenize", R"({"messages": [{"role": "user", "content": "Hello"}]})")
          .json();
  EXPECT_EQ(server.chat("").json()["usage"]["prompt_tokens"], chat["count"]);
}

// A prompt that is only scored may fill the context.
TEST(Completions, APromptWithoutAnAnswerMayFillTheContext) {
  TestServer server;
  const auto context = static_cast<std::size_t>(server.engine->context);
  const auto ask = [&](std::size_t tokens, const char* path, int most) {
    const std::vector<int> ids(tokens, 7);
    const Json body =
        std::string_view(path) == "/generate"
            ? Json{{"input_ids", ids}, {"sampling_params", {{"max_new_tokens", most}}}}
            : Json{{"prompt", ids}, {"max_tokens", most}, {"echo", true}, {"logprobs", 1}};
    return server.call("POST", path, body.dump());
  };
  for (const char* path : {"/v1/completions", "/generate"}) {
    const ClientReply whole = ask(context, path, 0);
    EXPECT_EQ(whole.status, 200) << whole.body;
    const ClientReply more = ask(context + 1, path, 0);
    EXPECT_EQ(more.status, 400);
    EXPECT_EQ(more.body.find("the answer"), std::string::npos) << more.body;
    EXPECT_EQ(ask(context, path, 1).status, 400);
    EXPECT_EQ(ask(context - 1, path, 1).status, 200);
  }
  const Json scored = ask(context, "/v1/completions", 0).json();
  EXPECT_EQ(scored["usage"]["completion_tokens"], 0);
  EXPECT_EQ(scored["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(scored["choices"][0]["logprobs"]["token_logprobs"].size(), context);
}

}  // namespace
}  // namespace sluice
