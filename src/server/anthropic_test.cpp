// Anthropic's Messages API: blocks, events, faults.
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

constexpr const char* kMessages = "/v1/messages";

std::vector<std::int32_t> tokens_of(const TestServer& server, const std::string& text) {
  return server.tokenizer->encode(text, {.add_special_tokens = false});
}

std::string request(const std::string& fields,
                    const std::string& messages = R"([{"role": "user", "content": "Hello"}])") {
  return R"({"model": "tiny", "max_tokens": 200, "messages": )" + messages +
         (fields.empty() ? "" : ", ") + fields + "}";
}

struct NamedEvent {
  std::string name;
  Json data;
};

std::vector<NamedEvent> events_of(const std::string& body) {
  std::vector<NamedEvent> out;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    if (end == std::string::npos) break;
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    const std::size_t line = event.find('\n');
    EXPECT_EQ(event.rfind("event: ", 0), 0u) << event;
    EXPECT_EQ(event.compare(line + 1, 6, "data: "), 0) << event;
    out.push_back({event.substr(7, line - 7), Json::parse(event.substr(line + 7))});
  }
  return out;
}

// The message that the events build, as a client builds it.
Json built(const std::vector<NamedEvent>& events) {
  Json message;
  std::string arguments;
  for (const NamedEvent& event : events) {
    EXPECT_EQ(event.data["type"], event.name);
    if (event.name == "message_start") message = event.data["message"];
    if (event.name == "content_block_start") {
      EXPECT_EQ(event.data["index"], message["content"].size());
      message["content"].push_back(event.data["content_block"]);
      arguments.clear();
    }
    if (event.name == "content_block_delta") {
      EXPECT_EQ(event.data["index"], message["content"].size() - 1);
      Json& block = message["content"].back();
      const Json& delta = event.data["delta"];
      const std::string type = delta["type"];
      const auto extend = [&](const char* key) {
        block[key] = block[key].get<std::string>() + delta[key].get<std::string>();
      };
      if (type == "text_delta") extend("text");
      if (type == "thinking_delta") extend("thinking");
      if (type == "signature_delta") extend("signature");
      if (type == "input_json_delta") arguments += delta["partial_json"].get<std::string>();
    }
    if (event.name == "content_block_stop" && !arguments.empty())
      message["content"].back()["input"] = Json::parse(arguments);
    if (event.name == "message_delta") {
      message["stop_reason"] = event.data["delta"]["stop_reason"];
      message["stop_sequence"] = event.data["delta"]["stop_sequence"];
      message["usage"] = event.data["usage"];
    }
  }
  return message;
}

const char* const kTools =
    R"("tools": [{"name": "get_weather", "input_schema": {"type": "object", "properties": )"
    R"({"city": {"type": "string"}}}}])";

TEST(Messages, AnswerHasTheShapeOfAnthropic) {
  TestServer server;
  const ClientReply reply = server.call("POST", kMessages, request(""));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json json = reply.json();
  EXPECT_EQ(json["type"], "message");
  EXPECT_EQ(json["role"], "assistant");
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(json["id"].get<std::string>().rfind("msg_", 0), 0u);
  EXPECT_EQ(json["content"],
            Json::array({Json{{"type", "text"}, {"text", server.text_of_script()}}}));
  EXPECT_EQ(json["stop_reason"], "end_turn");
  EXPECT_TRUE(json["stop_sequence"].is_null());
  EXPECT_GT(json["usage"]["input_tokens"], 0);
  EXPECT_EQ(json["usage"]["output_tokens"], server.engine->script().size() + 1);
  EXPECT_EQ(reply.headers.at("request-id"), reply.headers.at("x-request-id"));
  server.expect_healthy();
}

TEST(Messages, StreamBuildsTheSameMessage) {
  TestServer server;
  const std::string script =
      "<think>Paris, then.</think>\n\nI look it up.<tool_call>get_weather\n"
      "<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>";
  server.engine->set_script(tokens_of(server, script));
  const std::string fields =
      std::string(kTools) + R"(, "thinking": {"type": "enabled", "budget_tokens": 100})";
  Json whole = server.call("POST", kMessages, request(fields)).json();
  const ClientReply reply = server.call("POST", kMessages, request(fields + R"(, "stream": true)"));
  EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream");
  const std::vector<NamedEvent> events = events_of(reply.body);
  ASSERT_GT(events.size(), 6u);
  EXPECT_EQ(events[0].name, "message_start");
  EXPECT_EQ(events[1].name, "ping");
  EXPECT_EQ(events[events.size() - 2].name, "message_delta");
  EXPECT_EQ(events.back().name, "message_stop");
  Json stream = built(events);
  ASSERT_EQ(whole["content"].size(), 3u) << whole;
  EXPECT_EQ(whole["content"][0]["thinking"], "Paris, then.");
  EXPECT_EQ(whole["content"][1]["text"], "I look it up.");
  EXPECT_EQ(whole["content"][2]["type"], "tool_use");
  EXPECT_EQ(whole["content"][2]["name"], "get_weather");
  EXPECT_EQ(whole["content"][2]["input"], (Json{{"city", "Paris"}}));
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  for (Json* message : {&whole, &stream}) {
    EXPECT_FALSE((*message)["content"][0]["signature"].get<std::string>().empty());
    (*message)["content"][0].erase("signature");
    EXPECT_FALSE((*message)["content"][2]["id"].get<std::string>().empty());
    (*message)["content"][2].erase("id");
    message->erase("id");
    (*message)["usage"].erase("cache_read_input_tokens");
    (*message)["usage"].erase("input_tokens");
  }
  EXPECT_EQ(stream, whole);
  EXPECT_TRUE(server.engine->last_request().make_constraint != nullptr);  // of the budget
}

TEST(Messages, StopReasons) {
  TestServer server;
  Json json = server.call("POST", kMessages, request(R"("stop_sequences": ["fox"])")).json();
  EXPECT_EQ(json["stop_reason"], "stop_sequence");
  EXPECT_EQ(json["stop_sequence"], "fox");
  EXPECT_EQ(json["content"][0]["text"], "The quick brown ");
  json = server
             .call("POST", kMessages,
                   R"({"max_tokens": 2, "messages": [{"role": "user", "content": "a"}]})")
             .json();
  EXPECT_EQ(json["stop_reason"], "max_tokens");
  // The context ends the answer first; the whole prompt is in it.
  server.engine->context = 40;
  json = server.call("POST", kMessages, request(R"("ignored": 1)")).json();
  EXPECT_EQ(json["stop_reason"], "end_turn");
  server.engine->context = 12;
  const ClientReply small = server.call("POST", kMessages, request(""));
  EXPECT_TRUE(small.status == 200 ? small.json()["stop_reason"] == "model_context_window_exceeded"
                                  : small.error("type") == "invalid_request_error")
      << small.body;
}

TEST(Messages, BlocksBecomeThePromptOfTheSameChat) {
  TestServer server;
  const std::string messages = R"([
    {"role": "user", "content": [{"type": "text", "text": "Weather?"},
                                 {"type": "text", "text": " In Paris."}]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "A tool.", "signature": "x"},
        {"type": "redacted_thinking", "data": "abc"},
        {"type": "text", "text": "I ask."},
        {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [
            {"type": "text", "text": "18 C"}]},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no", "is_error": true},
        {"type": "text", "text": "And?"}]}])";
  const ClientReply reply = server.call(
      "POST", kMessages,
      request(std::string(kTools) + R"(, "system": [{"type": "text", "text": "Be short."}])",
              messages));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const std::vector<std::int32_t> ids = server.engine->last_request().prompt_ids;
  const ClientReply chat = server.call("POST", "/v1/chat/completions", R"({"messages": [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Weather? In Paris."},
    {"role": "assistant", "reasoning_content": "A tool.", "content": "I ask.", "tool_calls": [
        {"id": "toolu_1", "type": "function",
         "function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}}]},
    {"role": "tool", "tool_call_id": "toolu_1", "content": "18 C"},
    {"role": "tool", "tool_call_id": "toolu_2", "content": "Error: no"},
    {"role": "user", "content": "And?"}],
    "chat_template_kwargs": {"enable_thinking": false},
    "tools": [{"type": "function", "function": {"name": "get_weather", "parameters":
        {"type": "object", "properties": {"city": {"type": "string"}}}}}]})");
  ASSERT_EQ(chat.status, 200) << chat.body;
  EXPECT_EQ(server.tokenizer->decode(ids, false),
            server.tokenizer->decode(server.engine->last_request().prompt_ids, false));
  const ClientReply count = server.call(
      "POST", "/v1/messages/count_tokens",
      R"({"system": "Be short.", )" + std::string(kTools) + R"(, "messages": )" + messages + "}");
  ASSERT_EQ(count.status, 200) << count.body;
  EXPECT_EQ(count.json(), (Json{{"input_tokens", ids.size()}}));
}

TEST(Messages, AnswersGoOnWithAnAssistantsLastMessage) {
  TestServer server;
  const ClientReply reply = server.call(
      "POST", kMessages,
      request("",
              R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "The"}])"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const std::string prompt =
      server.tokenizer->decode(server.engine->last_request().prompt_ids, false);
  EXPECT_TRUE(prompt.ends_with("The")) << prompt;
}

TEST(Messages, FaultsHaveTheShapeAndTheNamesOfTheProtocol) {
  TestServer server;
  struct Row {
    std::string fields, messages, word;
  };
  const std::string hello = R"([{"role": "user", "content": "a"}])";
  const auto content = [](const std::string& blocks) {
    return R"([{"role": "user", "content": )" + blocks + "}]";
  };
  const auto answer = [](const std::string& blocks) {
    return R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": )" + blocks +
           R"(}, {"role": "user", "content": "b"}])";
  };
  const std::vector<Row> rows = {
      {R"("max_tokens": 0)", hello, "max_tokens"},
      {R"("temperature": -1)", hello, "temperature"},
      {R"("top_k": 1.5)", hello, "top_k"},
      {R"("stop_sequences": [""])", hello, "stop_sequences"},
      {R"("stop_sequences": 3)", hello, "stop_sequences"},
      {R"("stream": 1)", hello, "stream"},
      {R"("system": 3)", hello, "system"},
      {R"("system": [{"type": "image"}])", hello, "system.0.type"},
      {R"("thinking": true)", hello, "thinking"},
      {R"("thinking": {"type": "on"})", hello, "thinking.type"},
      {R"("thinking": {"type": "enabled"})", hello, "thinking.budget_tokens"},
      {R"("thinking": {"type": "enabled", "budget_tokens": -1})", hello, "thinking.budget_tokens"},
      {R"("thinking": {"type": "enabled", "budget_tokens": 1.5})", hello, "thinking.budget_tokens"},
      {R"("thinking": {"type": "enabled", "budget_tokens": 200})", hello, "max_tokens"},
      {R"("thinking": {"type": "disabled", "budget_tokens": 20})", hello, "thinking.budget_tokens"},
      {R"("tools": {})", hello, "tools"},
      {R"("tools": [3])", hello, "tools.0"},
      {R"("tools": [{"name": "f"}])", hello, "tools.0.input_schema"},
      {R"("tools": [{"name": "a b", "input_schema": {}}])", hello, "name"},
      {R"("tools": [{"name": "f", "input_schema": {"type": "array"}}])", hello, "type `object`"},
      {R"("tools": [{"type": "web_search_20250305", "name": "web_search"}])", hello,
       "tools.0.type"},
      {R"("tool_choice": "auto")", hello, "tool_choice"},
      {R"("tool_choice": {"type": "some"})", hello, "tool_choice.type"},
      {R"("tool_choice": {"type": "tool"})", hello, "tool_choice.name"},
      {R"("mcp_servers": [{"url": "http://x"}])", hello, "mcp_servers"},
      {R"("container": "x")", hello, "container"},
      {R"("tools": [{"name": "f", "input_schema": {}, "defer_loading": 1}])", hello,
       "tools.0.defer_loading"},
      {R"("context_management": 1)", hello, "context_management"},
      {R"("context_management": {"edits": [{}]})", hello, "context_management.edits.0.type"},
      {R"("context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]})", hello,
       "shorten it"},
      {R"("context_management": {"edits": [{"type": "clear_thinking_20251015"}]})", hello,
       "context_management.edits.0.keep"},
      {R"("output_config": {"effort": "heroic"})", hello, "output_config.effort"},
      {R"("output_config": {"format": {"type": "xml"}})", hello, "output_config.format.type"},
      {R"("regex": "([a-z")", hello, "regex"},
      {R"("response_format": {"type": "json_object"})", hello, "response_format"},
      {"", "3", "messages"},
      {"", "[]", "messages"},
      {"", "[3]", "messages.0"},
      {"", R"([{"content": "a"}])", "messages.0.role"},
      {"", R"([{"role": "user"}])", "messages.0.content"},
      {"", R"([{"role": "tool", "content": "a"}])", "messages.0.role"},
      {"", content("3"), "messages.0.content"},
      {"", content("[3]"), "messages.0.content.0"},
      {"", content("[{}]"), "messages.0.content.0.type"},
      {"", content(R"([{"type": "text"}])"), "messages.0.content.0.text"},
      {"", content(R"([{"type": "image", "source": {}}])"), "reads text only"},
      {"", content(R"([{"type": "document", "source": {"type": "base64"}}])"), "reads text only"},
      {"", content(R"([{"type": "tool_use", "id": "a", "name": "b"}])"), "`tool_use`"},
      {"", content(R"([{"type": "tool_result"}])"), "messages.0.content.0.tool_use_id"},
      {"", content(R"([{"type": "tool_result", "tool_use_id": "a", "is_error": 1}])"), "is_error"},
      {"",
       content(R"([{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}])"),
       "messages.0.content.0.content.0.type"},
      {"", content(R"([{"type": "tool_reference", "tool_name": "f"}])"), "`tool_reference`"},
      {"",
       content(R"([{"type": "tool_result", "tool_use_id": "a", "content": )"
               R"([{"type": "tool_reference", "tool_name": "f"}]}])"),
       "messages.0.content.0.content.0.tool_name"},
      {"", R"([{"role": "system", "content": [{"type": "tool_addition"}]}])",
       "messages.0.content.0.tool"},
      {"",
       R"([{"role": "system", "content": [{"type": "tool_removal", "tool": )"
       R"({"type": "tool_definition", "definition": {}}}]}])",
       "messages.0.content.0.tool.type"},
      {"",
       R"([{"role": "system", "content": [{"type": "tool_addition", "tool": )"
       R"({"type": "tool_definition", "definition": {"name": "f"}}}]}])",
       "messages.0.content.0.tool.definition.input_schema"},
      {"", answer(R"([{"type": "tool_result"}])"), "`tool_result`"},
      {"", answer(R"([{"type": "tool_use", "name": "f"}])"), "messages.1.content.0.id"},
      {"", answer(R"([{"type": "tool_use", "id": "a", "name": "f", "input": []}])"),
       "messages.1.content.0.input"},
      {"",
       R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": )"
       R"([{"type": "tool_use", "id": "a", "name": "f"}]}])",
       "tool_result"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.fields + row.messages);
    const std::string more = row.fields.empty() ? "" : ", " + row.fields;
    const std::string most = row.fields.find("\"max_tokens\"") == 0 ? "" : R"("max_tokens": 200, )";
    const ClientReply reply =
        server.call("POST", kMessages, "{" + most + R"("messages": )" + row.messages + more + "}");
    EXPECT_EQ(reply.status, 400) << reply.body;
    const Json json = reply.json();
    EXPECT_EQ(json["type"], "error");
    EXPECT_EQ(json["error"]["type"], "invalid_request_error");
    EXPECT_EQ(json["request_id"], reply.headers.at("x-request-id"));
    EXPECT_NE(json["error"]["message"].get<std::string>().find(row.word), std::string::npos)
        << json;
  }
  EXPECT_NE(
      server.call("POST", kMessages, R"({"messages": []})").error("message").find("max_tokens"),
      std::string::npos);
  EXPECT_EQ(server.call("POST", kMessages, "{").json()["type"], "error");
  EXPECT_EQ(server.call("GET", kMessages).json()["type"], "error");
  EXPECT_EQ(server.call("POST", "/v1/messages/batches", "{}").json()["error"]["type"],
            "not_found_error");
  ClientReply reply = server.call("POST", kMessages,
                                  R"({"model": "x", "max_tokens": 1, )"
                                  R"("messages": [{"role": "user", "content": "a"}]})");
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(reply.json()["error"]["type"], "not_found_error");
  server.engine->set_failure(
      3, Fault{500, "numerics_error", "", "The model's logits were not finite."});
  reply = server.call("POST", kMessages, request(""));
  EXPECT_EQ(reply.json()["error"]["type"], "api_error");
  const auto events = events_of(server.call("POST", kMessages, request(R"("stream": true)")).body);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().name, "error");
  EXPECT_EQ(events.back().data["error"]["type"], "api_error");
  server.engine->set_failure(-1, Fault{});
  server.engine->max_queued = 0;
  reply = server.call("POST", kMessages, request(""));
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.json()["error"]["type"], "rate_limit_error");
  server.engine->max_queued = 1000;
  server.expect_healthy();
}

TEST(Messages, ToolsAreOfferedAsMessagesChangeThem) {
  TestServer server;
  const auto prompt_of = [&](const std::string& tools, const std::string& messages) {
    const ClientReply reply =
        server.call("POST", kMessages, request(R"("tools": [)" + tools + "]", messages));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return server.tokenizer->decode(server.engine->last_request().prompt_ids, false);
  };
  const auto tool = [](const std::string& name, const std::string& more = "") {
    return R"({"name": ")" + name + R"(", "input_schema": {"type": "object"})" + more + "}";
  };
  const auto offers = [](const std::string& prompt, const std::string& name) {
    return prompt.find("\"" + name + "\"") != std::string::npos;
  };
  const std::string tools = tool("find") + ", " + tool("late", R"(, "defer_loading": true)");
  const std::string hello = R"({"role": "user", "content": "Hello"})";
  std::string prompt = prompt_of(tools, "[" + hello + "]");
  EXPECT_TRUE(offers(prompt, "find") && !offers(prompt, "late")) << prompt;

  const std::string found =
      "[" + hello +
      R"(, {"role": "assistant", "content": [)"
      R"({"type": "tool_use", "id": "a", "name": "find", "input": {}}]},)"
      R"({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": )"
      R"([{"type": "tool_reference", "tool_name": "late"}]}]}])";
  prompt = prompt_of(tools, found);
  EXPECT_TRUE(offers(prompt, "find") && offers(prompt, "late")) << prompt;
  EXPECT_NE(prompt.find("The tool late can be called now."), std::string::npos) << prompt;

  const auto changed = [&](const std::string& blocks) {
    return "[" + hello + R"(, {"role": "system", "content": [)" + blocks + "]}]";
  };
  const std::string late = R"({"type": "tool_reference", "name": "late"})";
  const std::string find = R"({"type": "tool_reference", "name": "find"})";
  prompt = prompt_of(tools, changed(R"({"type": "tool_addition", "tool": )" + late + "}, " +
                                    R"({"type": "tool_removal", "tool": )" + find + "}"));
  EXPECT_TRUE(!offers(prompt, "find") && offers(prompt, "late")) << prompt;
  prompt = prompt_of(tools, changed(R"({"type": "tool_addition", "tool": {"type": )"
                                    R"("tool_definition", "definition": )" +
                                    tool("new") + "}}"));
  EXPECT_TRUE(offers(prompt, "find") && offers(prompt, "new") && !offers(prompt, "late")) << prompt;
  server.expect_healthy();
}

TEST(Messages, TheEditThatKeepsAllThoughtsChangesNothing) {
  TestServer server;
  const std::string edits =
      R"("context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})";
  const Json none{{"applied_edits", Json::array()}};
  const ClientReply whole = server.call("POST", kMessages, request(edits));
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(whole.json()["context_management"], none);
  const auto events =
      events_of(server.call("POST", kMessages, request(edits + R"(, "stream": true)")).body);
  ASSERT_GT(events.size(), 2u);
  EXPECT_EQ(events[events.size() - 2].data["context_management"], none);
  EXPECT_FALSE(server.call("POST", kMessages, request("")).json().contains("context_management"));
}

TEST(Messages, FieldsWithoutEffectAreNamed) {
  TestServer server;
  const ClientReply reply = server.call(
      "POST", kMessages,
      request(R"("metadata": {"user_id": "me"}, "no_such": 1, "system": [{"type": "text", )"
              R"("text": "a", "cache_control": {"type": "ephemeral"}}], "context_management": )"
              R"({"edits": [{"type": "clear_thinking_20251015", "keep": "all", "no": 1}]})",
              R"([{"role": "user", "content": "a", "mood": 1}, {"role": "assistant", "content": )"
              R"([{"type": "thinking", "thinking": "b", "depth": 1}]}, )"
              R"({"role": "user", "content": "c"}])"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const std::string names = reply.headers.at("x-ignored-fields");
  for (const char* name : {"metadata", "no_such", "cache_control", "context_management.edits.no",
                           "messages.mood", "messages.content.depth"})
    EXPECT_NE(names.find(name), std::string::npos) << names;
}

TEST(Messages, SilenceIsFilledWithPings) {
  TestServer server;
  server.engine->stalled = true;
  Client client(server.port());
  client.send(request_text("POST", kMessages, request(R"("stream": true)")));
  std::string seen;
  const auto pings = [&] {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = seen.find("event: ping\n", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  EXPECT_TRUE(eventually([&] { return seen += client.read_some(), pings() >= 2; }));
  server.engine->stalled = false;
  EXPECT_TRUE(eventually(
      [&] { return (seen += client.read_some()).find("message_stop") != std::string::npos; }));
}

}  // namespace
}  // namespace sluice
