// Ollama's API: lines, options, faults, what the model is.
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

constexpr const char* kChat = "/api/chat";
constexpr const char* kGenerate = "/api/generate";

std::vector<std::int32_t> tokens_of(const TestServer& server, const std::string& text) {
  return server.tokenizer->encode(text, {.add_special_tokens = false});
}

std::string chat(const std::string& fields) {
  return R"({"model": "tiny", "messages": [{"role": "user", "content": "Hello"}])" +
         (fields.empty() ? std::string() : ", " + fields) + "}";
}

std::vector<Json> lines_of(const std::string& body) {
  std::vector<Json> out;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find('\n', at);
    EXPECT_NE(end, std::string::npos) << "a line without an end";
    if (end == std::string::npos) break;
    out.push_back(Json::parse(body.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

TEST(Ollama, StreamsLinesByDefault) {
  TestServer server;
  const ClientReply reply = server.call("POST", kChat, chat(R"("think": false)"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.headers.at("content-type"), "application/x-ndjson");
  const std::vector<Json> lines = lines_of(reply.body);
  ASSERT_GT(lines.size(), 2u);
  std::string text;
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["done"], false);
    EXPECT_EQ(lines[i]["model"], "tiny");
    EXPECT_EQ(lines[i]["message"]["role"], "assistant");
    text += lines[i]["message"]["content"].get<std::string>();
  }
  EXPECT_EQ(text, server.text_of_script());
  const Json& last = lines.back();
  EXPECT_EQ(last["done"], true);
  EXPECT_EQ(last["done_reason"], "stop");
  EXPECT_EQ(last["eval_count"], server.engine->script().size() + 1);
  EXPECT_GT(last["prompt_eval_count"], 0);
  EXPECT_GT(last["total_duration"], 0);
  EXPECT_GT(last["eval_duration"], 0);
  EXPECT_LE(
      last["eval_duration"].get<std::int64_t>() + last["prompt_eval_duration"].get<std::int64_t>(),
      last["total_duration"].get<std::int64_t>());

  const Json whole = server.call("POST", kChat, chat(R"("think": false, "stream": false)")).json();
  EXPECT_EQ(whole["message"]["content"], text);
  EXPECT_EQ(whole["done"], true);
  server.expect_healthy();
}

TEST(Ollama, ThoughtsAndCallsAreWhole) {
  TestServer server;
  server.engine->set_script(
      tokens_of(server,
                "<think>Paris, then.</think>\n\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
                "<arg_value>Paris</arg_value>\n</tool_call><tool_call>get_weather\n"
                "<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>"));
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "get_weather", "parameters": )"
      R"({"type": "object", "properties": {"city": {"type": "string"}}}}}])";
  const Json whole = server.call("POST", kChat, chat(tools + R"(, "stream": false)")).json();
  EXPECT_EQ(whole["message"]["thinking"], "Paris, then.");
  ASSERT_EQ(whole["message"]["tool_calls"].size(), 2u) << whole;
  EXPECT_EQ(whole["message"]["tool_calls"][1]["function"]["arguments"], (Json{{"city", "Rome"}}));
  std::string thoughts;
  Json calls = Json::array();
  for (const Json& line : lines_of(server.call("POST", kChat, chat(tools)).body)) {
    thoughts += line["message"].value("thinking", "");
    for (const Json& call : line["message"].value("tool_calls", Json::array()))
      calls.push_back(call["function"]);
  }
  EXPECT_EQ(thoughts, "Paris, then.");
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0], (Json{{"name", "get_weather"}, {"arguments", {{"city", "Paris"}}}}));
}

TEST(Ollama, GenerateUsesTheTemplateUnlessRaw) {
  TestServer server;
  const auto prompt_of = [&](const std::string& fields) {
    const ClientReply reply =
        server.call("POST", kGenerate,
                    R"({"model": "tiny", "prompt": "Hello", "stream": false)" + fields + "}");
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.json()["response"], server.text_of_script());
    return server.tokenizer->decode(server.engine->last_request().prompt_ids, false);
  };
  const std::string plain = prompt_of(R"(, "think": false)");
  EXPECT_NE(plain.find("<|user|>"), std::string::npos) << plain;
  EXPECT_NE(prompt_of(R"(, "think": false, "system": "Be short.")").find("Be short."),
            std::string::npos);
  const std::string raw = prompt_of(R"(, "raw": true)");
  EXPECT_TRUE(raw.ends_with("Hello")) << raw;
  EXPECT_EQ(raw.find("<|user|>"), std::string::npos);
}

TEST(Ollama, OptionsReachTheEngine) {
  TestServer server;
  const ClientReply reply = server.call(
      "POST", kChat,
      chat(R"("stream": false, "keep_alive": "5m", "options": {"num_predict": 5, "temperature": )"
           R"(0.25, "top_k": 7, "top_p": 0.5, "min_p": 0.1, "seed": 3, "stop": ["zzz"], )"
           R"("repeat_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": -0.5, )"
           R"("num_ctx": 4096, "num_thread": 2, "nope": 1})"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Request request = server.engine->last_request();
  EXPECT_EQ(request.max_new_tokens, 5);
  EXPECT_FLOAT_EQ(request.params.temperature, 0.25f);
  EXPECT_EQ(request.params.top_k, 7);
  EXPECT_FLOAT_EQ(request.params.top_p, 0.5f);
  EXPECT_FLOAT_EQ(request.params.min_p, 0.1f);
  EXPECT_EQ(request.params.seed, 3u);
  EXPECT_EQ(request.stop, std::vector<std::string>{"zzz"});
  EXPECT_FLOAT_EQ(request.params.repetition_penalty, 1.5f);
  EXPECT_FLOAT_EQ(request.params.presence_penalty, 0.5f);
  EXPECT_FLOAT_EQ(request.params.frequency_penalty, -0.5f);
  EXPECT_EQ(reply.json()["done_reason"], "length");
  const std::string names = reply.headers.at("x-ignored-fields");
  for (const char* name : {"keep_alive", "options.num_ctx", "options.num_thread", "options.nope"})
    EXPECT_NE(names.find(name), std::string::npos) << names;
  // As much as the context holds.
  EXPECT_EQ(server.call("POST", kChat, chat(R"("options": {"num_predict": -1})")).status, 200);
  EXPECT_EQ(server.call("POST", kChat, chat(R"("options": {"num_predict": 0})")).status, 200);
  EXPECT_EQ(server.call("POST", kChat, chat(R"("options": {"num_predict": 1000000})")).status, 200);
  EXPECT_LE(server.engine->last_request().max_new_tokens, 4096);
}

TEST(Ollama, FormatIsAGrammar) {
  TestServerConfig config;
  config.generation.eos_token_ids = {4};
  TestServer server(config);
  for (const char* format : {R"("json")", R"({"type": "object", "properties": {}})"}) {
    const ClientReply reply =
        server.call("POST", kChat,
                    chat(R"("think": false, "stream": false, "format": )" + std::string(format)));
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_TRUE(server.engine->last_request().make_constraint != nullptr);
  }
  EXPECT_EQ(server.call("POST", kChat, chat(R"("format": "")")).status, 200);
  EXPECT_TRUE(server.engine->last_request().make_constraint == nullptr);
}

TEST(Ollama, SaysWhatTheModelIs) {
  TestServer server;
  const Json tags = server.call("GET", "/api/tags").json();
  ASSERT_EQ(tags["models"].size(), 2u);
  EXPECT_EQ(tags["models"][0]["model"], "tiny");
  EXPECT_TRUE(tags["models"][0]["details"]["family"].is_string());
  const Json ps = server.call("GET", "/api/ps").json();
  EXPECT_EQ(ps["models"][0]["context_length"], 4096);
  EXPECT_TRUE(server.call("GET", "/api/version").json()["version"].is_string());
  const Json show = server.call("POST", "/api/show", R"({"model": "tiny:latest"})").json();
  EXPECT_EQ(show["capabilities"], Json::array({"completion", "tools", "thinking", "embedding"}));
  EXPECT_NE(show["template"].get<std::string>().find("<|user|>"), std::string::npos);
  bool has_context = false;
  for (const auto& [key, value] : show["model_info"].items())
    has_context |= key.ends_with(".context_length") && value == 4096;
  EXPECT_TRUE(has_context) << show["model_info"];
  const Json load = server.call("POST", kChat, R"({"model": "tiny", "stream": false})").json();
  EXPECT_EQ(load["done_reason"], "load");
}

TEST(Ollama, FaultsHaveTheShapeAndTheNamesOfTheProtocol) {
  TestServer server;
  struct Row {
    const char* path;
    std::string body, word;
    int status = 400;
  };
  const auto generate = [](const std::string& fields) {
    return R"({"model": "tiny", "prompt": "a", )" + fields + "}";
  };
  const std::vector<Row> rows = {
      {kChat, "[]", "JSON object"},
      {kChat, R"({"messages": []})", "model"},
      {kChat, R"({"model": 3})", "model"},
      {kChat, R"({"model": "other"})", "other", 404},
      {kChat, R"({"model": "tiny", "messages": {}})", "messages"},
      {kChat, R"({"model": "tiny", "messages": [3]})", "messages.0"},
      {kChat, R"({"model": "tiny", "messages": [{"content": "a"}]})", "messages.0.role"},
      {kChat, R"({"model": "tiny", "messages": [{"role": "user", "content": 3}]})",
       "messages.0.content"},
      {kChat,
       R"({"model": "tiny", "messages": [{"role": "user", "content": "a", "images": ["x"]}]})",
       "messages.0.images"},
      {kChat, chat(R"("stream": 1)"), "stream"},
      {kChat, chat(R"("options": [])"), "options"},
      {kChat, chat(R"("options": {"temperature": -1})"), "options.temperature"},
      {kChat, chat(R"("options": {"num_predict": -3})"), "options.num_predict"},
      {kChat, chat(R"("options": {"repeat_penalty": 9})"), "options.repeat_penalty"},
      {kChat, chat(R"("options": {"repeat_penalty": 1.1, "repeat_last_n": 64})"),
       "options.repeat_last_n"},
      {kChat, chat(R"("options": {"mirostat": 1})"), "options.mirostat"},
      {kChat, chat(R"("options": {"typical_p": 0.5})"), "options.typical_p"},
      {kChat, chat(R"("options": {"stop": [""]})"), "options.stop"},
      {kChat, chat(R"("think": "heroic")"), "think"},
      {kChat, chat(R"("think": 1)"), "think"},
      {kChat, chat(R"("format": "xml")"), "format"},
      {kChat, chat(R"("structured_outputs": {"json": {"type": "nope"}})"), ""},
      {kChat, chat(R"("format": {"type": "nope"})"), ""},
      {kChat, chat(R"("tools": 3)"), "tools"},
      {kChat, chat(R"("truncate": true)"), "truncate"},
      {kChat, chat(R"("logprobs": true)"), "logprobs"},
      {kChat, R"({"model": "tiny", "messages": [], "keep_alive": 0})", "keep_alive"},
      {kGenerate, generate(R"("template": "{{ .Prompt }}")"), "template"},
      {kGenerate, generate(R"("suffix": "x")"), "suffix"},
      {kGenerate, generate(R"("images": ["x"])"), "images"},
      {kGenerate, generate(R"("context": [1])"), "context"},
      {kGenerate, generate(R"("system": 3)"), "system"},
      {kGenerate, generate(R"("raw": true, "system": "x")"), "system"},
      {kGenerate, R"({"model": "tiny", "prompt": 3})", "prompt"},
      {"/api/show", "{}", "model"},
      {"/api/show", R"({"model": "other"})", "other", 404},
      {"/api/pull", R"({"model": "other"})", "sluice pull", 404},
      {"/api/embed", R"({"model": "tiny", "input": [1]})", "input.0"},
      {"/api/embed", R"({"input": "a"})", "model"},
      {"/api/embeddings", R"({"model": "tiny", "prompt": ["a"]})", "prompt"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.path) + row.body);
    const ClientReply reply = server.call("POST", row.path, row.body);
    EXPECT_EQ(reply.status, row.status) << reply.body;
    const Json json = reply.json();
    ASSERT_TRUE(json.is_object() && json["error"].is_string()) << reply.body;
    EXPECT_NE(json["error"].get<std::string>().find(row.word), std::string::npos) << json;
  }
  // Nothing of a prompt is dropped.
  server.engine->context = 16;
  const ClientReply reply =
      server.call("POST", kChat,
                  R"({"model": "tiny", "messages": [{"role": "user", "content": ")" +
                      std::string(400, 'a') + "\"}]}");
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.error("message").find("16"), std::string::npos);
  server.engine->context = 4096;
  server.engine->set_failure(
      3, Fault{500, "numerics_error", "", "The model's logits were not finite."});
  const std::vector<Json> lines = lines_of(server.call("POST", kChat, chat("")).body);
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(lines.back()["error"].is_string());
  server.engine->set_failure(-1, Fault{});
  server.expect_healthy();
}

}  // namespace
}  // namespace sluice
