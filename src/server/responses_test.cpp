// OpenAI's Responses API: items, events, the store, faults.
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

constexpr const char* kResponses = "/v1/responses";
constexpr const char* kNoThoughts = R"("chat_template_kwargs": {"enable_thinking": false})";

std::vector<std::int32_t> tokens_of(const TestServer& server, const std::string& text) {
  return server.tokenizer->encode(text, {.add_special_tokens = false});
}

std::string request(const std::string& fields, const std::string& input = R"("Hello")") {
  return R"({"model": "tiny", "input": )" + input + (fields.empty() ? "" : ", ") + fields + "}";
}

std::string prompt_of(const TestServer& server) {
  return server.tokenizer->decode(server.engine->last_request().prompt_ids, false);
}

std::vector<Json> events_of(const std::string& body) {
  std::vector<Json> out;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    if (end == std::string::npos) break;
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    const std::size_t line = event.find('\n');
    EXPECT_EQ(event.rfind("event: ", 0), 0u) << event;
    out.push_back(Json::parse(event.substr(line + 7)));
    EXPECT_EQ(out.back()["type"], event.substr(7, line - 7));
    EXPECT_EQ(out.back()["sequence_number"], out.size() - 1);
  }
  return out;
}

const char* const kTools =
    R"("tools": [{"type": "function", "name": "get_weather", "parameters": {"type": "object", )"
    R"("properties": {"city": {"type": "string"}}}}])";
const char* const kCall =
    "<think>Paris, then.</think>\n\nI look it up.<tool_call>get_weather\n"
    "<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>";

TEST(Responses, AnswerHasTheShapeOfOpenAi) {
  TestServer server;
  const ClientReply reply = server.call(
      "POST", kResponses,
      request(std::string(kNoThoughts) + R"(, "metadata": {"a": "b"}, "temperature": 0.5)"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json json = reply.json();
  EXPECT_EQ(json["object"], "response");
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(json["metadata"], (Json{{"a", "b"}}));
  EXPECT_EQ(json["temperature"], 0.5);
  ASSERT_EQ(json["output"].size(), 1u);
  EXPECT_EQ(json["output"][0]["type"], "message");
  EXPECT_EQ(json["output"][0]["content"][0]["text"], server.text_of_script());
  EXPECT_EQ(json["usage"]["output_tokens"], server.engine->script().size() + 1);
  const std::string id = json["id"];
  EXPECT_EQ(server.call("GET", kResponses + ("/" + id)).json(), json);
  server.expect_healthy();
}

TEST(Responses, StreamBuildsTheSameItems) {
  TestServer server;
  server.engine->set_script(tokens_of(server, kCall));
  Json whole = server.call("POST", kResponses, request(kTools)).json();
  const std::vector<Json> events = events_of(
      server.call("POST", kResponses, request(std::string(kTools) + R"(, "stream": true)")).body);
  std::vector<std::string> names;
  std::string text, thoughts, arguments;
  Json items = Json::array();
  for (const Json& event : events) {
    const std::string name = event["type"];
    if (names.empty() || names.back() != name) names.push_back(name);
    if (name == "response.output_text.delta") text += event["delta"].get<std::string>();
    if (name == "response.reasoning_text.delta") thoughts += event["delta"].get<std::string>();
    if (name == "response.function_call_arguments.delta")
      arguments += event["delta"].get<std::string>();
    if (name == "response.output_item.added") {
      EXPECT_EQ(event["output_index"], items.size());
    }
    if (name == "response.output_item.done") items.push_back(event["item"]);
  }
  const std::vector<std::string> expected = {
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.content_part.added",
      "response.reasoning_text.delta",
      "response.reasoning_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.output_item.added",
      "response.content_part.added",
      "response.output_text.delta",
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.output_item.added",
      "response.function_call_arguments.delta",
      "response.function_call_arguments.done",
      "response.output_item.done",
      "response.completed",
  };
  EXPECT_EQ(names, expected);
  EXPECT_EQ(thoughts, "Paris, then.");
  EXPECT_EQ(text, "I look it up.");
  EXPECT_EQ(Json::parse(arguments), (Json{{"city", "Paris"}}));
  EXPECT_EQ(events.back()["response"]["output"], items);
  ASSERT_EQ(whole["output"].size(), items.size());
  for (std::size_t i = 0; i < items.size(); ++i)
    for (Json* item : {&whole["output"][i], &items[i]}) {
      item->erase("id");
      item->erase("call_id");
    }
  EXPECT_EQ(whole["output"], items);
}

TEST(Responses, ItemsBecomeThePromptOfTheSameChat) {
  TestServer server;
  const std::string input = R"([
    {"role": "developer", "content": "In English."},
    {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [
        {"type": "reasoning_text", "text": "A tool."}]},
    {"type": "message", "role": "assistant", "content": [
        {"type": "output_text", "text": "I ask.", "annotations": []}]},
    {"type": "function_call", "call_id": "c1", "name": "get_weather",
     "arguments": "{\"city\": \"Paris\"}"},
    {"type": "function_call_output", "call_id": "c1", "output": "18 C"},
    {"role": "user", "content": "And?"}])";
  const ClientReply reply = server.call(
      "POST", kResponses,
      request(std::string(kTools) + ", " + kNoThoughts + R"(, "instructions": "Be short.")",
              input));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const std::string prompt = prompt_of(server);
  const ClientReply chat = server.call("POST", "/v1/chat/completions", R"({"messages": [
    {"role": "system", "content": "Be short.\n\nIn English."},
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "reasoning_content": "A tool.", "content": "I ask.", "tool_calls": [
        {"id": "c1", "type": "function",
         "function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "18 C"},
    {"role": "user", "content": "And?"}],
    "chat_template_kwargs": {"enable_thinking": false},
    "tools": [{"type": "function", "function": {"name": "get_weather", "parameters":
        {"type": "object", "properties": {"city": {"type": "string"}}}}}]})");
  ASSERT_EQ(chat.status, 200) << chat.body;
  EXPECT_EQ(prompt, prompt_of(server));
}

TEST(Responses, ConversationsGoOnByTheirIds) {
  TestServerConfig config;
  config.options.api_keys = {"one", "two"};
  TestServer server(config);
  const std::string one = "Authorization: Bearer one\r\n", two = "Authorization: Bearer two\r\n";
  server.engine->set_script(tokens_of(server, "First answer."));
  const std::string first =
      server.call("POST", kResponses, request(kNoThoughts, R"("First question")"), one)
          .json()["id"];
  const auto next = [&](const std::string& id, const std::string& headers) {
    return server.call(
        "POST", kResponses,
        request(std::string(kNoThoughts) + R"(, "previous_response_id": ")" + id + "\"",
                R"("Second question")"),
        headers);
  };
  const ClientReply second = next(first, one);
  ASSERT_EQ(second.status, 200) << second.body;
  std::string prompt = prompt_of(server);
  EXPECT_NE(prompt.find("First question"), std::string::npos) << prompt;
  EXPECT_LT(prompt.find("First answer."), prompt.find("Second question"));
  const ClientReply third = next(second.json()["id"], one);
  ASSERT_EQ(third.status, 200);
  prompt = prompt_of(server);
  EXPECT_LT(prompt.find("First question"), prompt.find("Second question"));
  // To another key it does not exist.
  for (const ClientReply& reply :
       {next(first, two), server.call("GET", kResponses + ("/" + first), "", two),
        server.call("DELETE", kResponses + ("/" + first), "", two)}) {
    EXPECT_EQ(reply.status, 404);
    EXPECT_EQ(reply.error("code"), "response_not_found");
  }
  const Json items =
      server.call("GET", kResponses + ("/" + first + "/input_items"), "", one).json();
  ASSERT_EQ(items["data"].size(), 1u) << items;
  EXPECT_EQ(items["data"][0]["content"][0]["text"], "First question");
  EXPECT_EQ(items["has_more"], false);
  EXPECT_EQ(server.call("DELETE", kResponses + ("/" + first), "", one).json()["deleted"], true);
  EXPECT_EQ(server.call("GET", kResponses + ("/" + first), "", one).status, 404);
  EXPECT_EQ(next(second.json()["id"], one).error("code"), "response_not_found");
  // Without `store` it is not kept.
  const std::string unkept =
      server.call("POST", kResponses, request(R"("store": false)"), one).json()["id"];
  EXPECT_EQ(server.call("GET", kResponses + ("/" + unkept), "", one).status, 404);
}

TEST(Responses, InputItemsComeInPages) {
  TestServer server;
  const std::string id =
      server
          .call("POST", kResponses, request("", R"([{"role": "user", "content": "1", "id": "i1"},
                                     {"role": "user", "content": "2", "id": "i2"},
                                     {"role": "user", "content": "3", "id": "i3"}])"))
          .json()["id"];
  const std::string path = std::string(kResponses) + "/" + id + "/input_items";
  Json page = server.call("GET", path + "?limit=2&order=asc").json();
  EXPECT_EQ(page["first_id"], "i1");
  EXPECT_EQ(page["last_id"], "i2");
  EXPECT_EQ(page["has_more"], true);
  page = server.call("GET", path + "?order=asc&after=i2").json();
  EXPECT_EQ(page["data"].size(), 1u);
  EXPECT_EQ(page["data"][0]["id"], "i3");
  EXPECT_EQ(server.call("GET", path).json()["first_id"], "i3");
  for (const char* query : {"?limit=0", "?limit=101", "?limit=x", "?order=up", "?after=i9"})
    EXPECT_EQ(server.call("GET", path + query).status, 400) << query;
}

TEST(Responses, CustomToolsHaveTextForInput) {
  TestServer server;
  server.engine->set_script(
      tokens_of(server,
                "<tool_call>run\n<arg_key>input</arg_key>\n<arg_value>ls -l</arg_value>\n"
                "</tool_call>"));
  const std::string fields =
      std::string(kNoThoughts) + R"(, "tools": [{"type": "custom", "name": "run"}])";
  const Json whole = server.call("POST", kResponses, request(fields)).json();
  ASSERT_EQ(whole["output"].size(), 1u) << whole;
  EXPECT_EQ(whole["output"][0]["type"], "custom_tool_call");
  EXPECT_EQ(whole["output"][0]["input"], "ls -l");
  const std::vector<Json> events =
      events_of(server.call("POST", kResponses, request(fields + R"(, "stream": true)")).body);
  bool has_done = false;
  for (const Json& event : events)
    if (event["type"] == "response.custom_tool_call_input.done") {
      EXPECT_EQ(event["input"], "ls -l");
      has_done = true;
    }
  EXPECT_TRUE(has_done);
  // The call and its result go back.
  const std::string call_id = whole["output"][0]["call_id"];
  const ClientReply reply = server.call(
      "POST", kResponses,
      request(fields,
              R"([{"role": "user", "content": "a"}, {"type": "custom_tool_call", "call_id": )"
              R"("c", "name": "run", "input": "ls -l"}, {"type": )"
              R"("custom_tool_call_output", "call_id": "c", "output": "x.txt"}])"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_NE(prompt_of(server).find("x.txt"), std::string::npos);
}

TEST(Responses, CallsSayTheNamespaceOfTheirTool) {
  TestServer server;
  const std::string tools =
      R"("tools": [{"type": "namespace", "name": "mcp__t", "description": "Timers.", "tools": [)"
      R"({"type": "function", "name": "start"}, {"type": "custom", "name": "run"}]}, )"
      R"({"type": "namespace", "name": "other", )"
      R"("tools": [{"type": "function", "name": "start"}]}])";
  const std::string fields = std::string(kNoThoughts) + ", " + tools;
  const auto answer_to = [&](const std::string& call) {
    server.engine->set_script(tokens_of(server, "<tool_call>" + call + "\n</tool_call>"));
    const Json whole = server.call("POST", kResponses, request(fields)).json();
    EXPECT_EQ(whole["output"].size(), 1u) << whole;
    return whole["output"][0];
  };
  Json item = answer_to("mcp__t__start");
  EXPECT_EQ(item["type"], "function_call");
  EXPECT_EQ(item["name"], "start");
  EXPECT_EQ(item["namespace"], "mcp__t");
  item = answer_to("other__start");
  EXPECT_EQ(item["namespace"], "other");
  item = answer_to("mcp__t__run\n<arg_key>input</arg_key>\n<arg_value>ls</arg_value>");
  EXPECT_EQ(item["type"], "custom_tool_call");
  EXPECT_EQ(item["name"], "run");
  EXPECT_EQ(item["namespace"], "mcp__t");
  // The model reads its own name for it when the call comes back.
  const ClientReply reply = server.call(
      "POST", kResponses,
      request(fields,
              R"([{"role": "user", "content": "a"}, {"type": "function_call", )"
              R"("call_id": "c", "namespace": "other", "name": "start", "arguments": )"
              R"("{}"}, {"type": "function_call_output", "call_id": "c", "output": "ok"}])"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_NE(prompt_of(server).find("<tool_call>other__start"), std::string::npos)
      << prompt_of(server);
}

TEST(Responses, ThoughtsComeBackInDisguise) {
  TestServer server;
  server.engine->set_script(tokens_of(server, "<think>Two and two.</think>\n\nFour."));
  const Json whole =
      server
          .call("POST", kResponses,
                request(R"("include": ["reasoning.encrypted_content"], "store": false)"))
          .json();
  ASSERT_EQ(whole["output"].size(), 2u) << whole;
  Json thought = whole["output"][0];
  ASSERT_TRUE(thought["encrypted_content"].is_string());
  thought.erase("content");
  const Json input = Json::array({Json{{"role", "user"}, {"content", "a"}}, thought,
                                  whole["output"][1], Json{{"role", "user"}, {"content", "b"}}});
  EXPECT_EQ(server.call("POST", kResponses, request("", input.dump())).status, 200);
  EXPECT_NE(prompt_of(server).find("Two and two."), std::string::npos);
}

TEST(Responses, TruncationLeavesOutTheOldestTurns) {
  TestServer server;
  Json input = Json::array({Json{{"role", "system"}, {"content", "Be short."}}});
  for (int i = 0; i < 20; ++i) {
    input.push_back(Json{{"role", "user"},
                         {"content", fmt::format("question {} {}", i, std::string(60, 'q'))}});
    input.push_back(Json{{"role", "assistant"}, {"content", fmt::format("answer {}", i)}});
  }
  input.push_back(Json{{"role", "user"}, {"content", "the last one"}});
  server.engine->context = 400;
  const ClientReply refused = server.call("POST", kResponses, request("", input.dump()));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("code"), "context_length_exceeded");
  EXPECT_EQ(refused.error("param"), "input");
  EXPECT_NE(refused.error("message").find("400"), std::string::npos);
  const ClientReply reply =
      server.call("POST", kResponses, request(R"("truncation": "auto")", input.dump()));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const int dropped = std::stoi(reply.headers.at("x-truncated-messages"));
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(dropped % 2, 0);
  EXPECT_EQ(reply.json()["truncated_messages"], dropped);
  const std::string prompt = prompt_of(server);
  EXPECT_NE(prompt.find("Be short."), std::string::npos);
  EXPECT_NE(prompt.find("the last one"), std::string::npos);
  EXPECT_EQ(prompt.find("question 0 "), std::string::npos);
  EXPECT_NE(prompt.find(fmt::format("question {} ", dropped / 2)), std::string::npos);
  EXPECT_EQ(prompt.find(fmt::format("question {} ", dropped / 2 - 1)), std::string::npos);
  // What fits is left as it is.
  server.engine->context = 4096;
  const ClientReply whole =
      server.call("POST", kResponses, request(R"("truncation": "auto")", input.dump()));
  EXPECT_EQ(whole.status, 200);
  EXPECT_FALSE(whole.headers.contains("x-truncated-messages"));
}

TEST(Responses, CancelEndsOneThatRuns) {
  TestServer server;
  server.engine->step_us = 20000;
  Client client(server.port());
  client.send(
      request_text("POST", kResponses, request(R"("stream": true, "max_output_tokens": 3000)")));
  std::string seen;
  ASSERT_TRUE(eventually([&] {
    return (seen += client.read_some()).find("response.in_progress") != std::string::npos;
  }));
  const std::size_t at = seen.find("\"resp_") + 1;
  const std::string id = seen.substr(at, seen.find('"', at) - at);
  EXPECT_EQ(server.call("GET", kResponses + ("/" + id)).json()["status"], "in_progress");
  EXPECT_EQ(server.call("POST", kResponses + ("/" + id + "/cancel")).json()["status"], "cancelled");
  EXPECT_TRUE(eventually([&] { return server.engine->num_open() == 0; }));
  EXPECT_TRUE(eventually(
      [&] { return server.call("GET", kResponses + ("/" + id)).json()["status"] == "cancelled"; }));
  EXPECT_EQ(server.call("POST", kResponses + ("/" + id + "/cancel")).status, 400);
  server.engine->step_us = 200;
  server.expect_healthy();
}

TEST(Responses, AnAnswerWhoseClientLeftIsCancelled) {
  TestServer server;
  server.engine->step_us = 20000;
  std::string id;
  {
    Client client(server.port());
    client.send(request_text("POST", kResponses, request(R"("stream": true)")));
    std::string seen;
    ASSERT_TRUE(eventually([&] {
      return (seen += client.read_some()).find("response.in_progress") != std::string::npos;
    }));
    const std::size_t at = seen.find("\"resp_") + 1;
    id = seen.substr(at, seen.find('"', at) - at);
  }
  EXPECT_TRUE(eventually(
      [&] { return server.call("GET", kResponses + ("/" + id)).json()["status"] == "cancelled"; }));
}

TEST(Responses, FaultsNameTheValue) {
  TestServer server;
  struct Row {
    std::string fields, input, param;
  };
  const std::string hello = R"("a")";
  const std::vector<Row> rows = {
      {"", "3", "input"},
      {"", "[3]", "input.0"},
      {"", "[{}]", "input.0.type"},
      {"", R"([{"type": "nope"}])", "input.0.type"},
      {"", R"([{"type": "item_reference", "id": "x"}])", "input.0.type"},
      {"", R"([{"role": "user"}])", "input.0.content"},
      {"", R"([{"role": "king", "content": "a"}])", "input.0.role"},
      {"", R"([{"role": "tool", "content": "a"}])", "input.0.role"},
      {"", R"([{"role": "user", "content": 3}])", "input.0.content"},
      {"", R"([{"role": "user", "content": [{"type": "input_image"}]}])", "input.0.content.0.type"},
      {"", R"([{"type": "function_call", "name": "f", "arguments": ""}])", "input.0.call_id"},
      {"", R"([{"type": "function_call", "call_id": "c", "arguments": ""}])", "input.0.name"},
      {"", R"([{"type": "function_call", "call_id": "c", "name": "f"}])", "input.0.arguments"},
      {"", R"([{"type": "function_call_output", "call_id": "c"}])", "input.0.output"},
      {"", R"([{"type": "function_call_output", "call_id": "c", "output": 3}])", "input.0.output"},
      {"", R"([{"type": "reasoning", "content": 3}])", "input.0.content"},
      {"", R"([{"type": "reasoning", "summary": [{}]}])", "input.0.summary.0.text"},
      {R"("max_output_tokens": 0)", hello, "max_output_tokens"},
      {R"("temperature": -1)", hello, "temperature"},
      {R"("instructions": 3)", hello, "instructions"},
      {R"("store": 3)", hello, "store"},
      {R"("truncation": "some")", hello, "truncation"},
      {R"("metadata": {"a": 1})", hello, "metadata"},
      {R"("reasoning": 3)", hello, "reasoning"},
      {R"("reasoning": {"effort": "heroic"})", hello, "reasoning.effort"},
      {R"("thinking_token_budget": -1)", hello, "thinking_token_budget"},
      {R"("text": 3)", hello, "text"},
      {R"("text": {"format": {"type": "xml"}})", hello, "text.format.type"},
      {R"("text": {"format": {"type": "json_object"}}, "regex": "a")", hello, "regex"},
      {R"("response_format": {"type": "json_object"})", hello, "response_format"},
      {R"("text": {"format": {"type": "json_schema", "name": "a"}})", hello, "text.format.schema"},
      {R"("include": "x")", hello, "include"},
      {R"("include": ["message.output_text.logprobs"])", hello, "include"},
      {R"("top_logprobs": 3)", hello, "top_logprobs"},
      {R"("background": true)", hello, "background"},
      {R"("conversation": "x")", hello, "conversation"},
      {R"("prompt": {"id": "x"})", hello, "prompt"},
      {R"("tools": 3)", hello, "tools"},
      {R"("tools": [3])", hello, "tools.0"},
      {R"("tools": [{}])", hello, "tools.0.type"},
      {R"("tools": [{"type": "nope"}])", hello, "tools.0.type"},
      {R"("tools": [{"type": "function"}])", hello, "tools.0.name"},
      {R"("tools": [{"type": "function", "name": "a b"}])", hello, "tools.0.name"},
      {R"("tools": [{"type": "custom"}])", hello, "tools.0.name"},
      {R"("tools": [{"type": "namespace", "tools": []}])", hello, "tools.0.name"},
      {R"("tools": [{"type": "namespace", "name": "n"}])", hello, "tools.0.tools"},
      {R"("tools": [{"type": "custom", "name": "f", "format": {"type": "x"}}])", hello,
       "tools.0.format.type"},
      {R"("tool_choice": 3)", hello, "tool_choice"},
      {R"("tool_choice": {"type": "web_search"})", hello, "tool_choice.type"},
      {R"("tool_choice": {"type": "function"})", hello, "tool_choice.name"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.fields + row.input);
    const ClientReply reply = server.call("POST", kResponses, request(row.fields, row.input));
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_EQ(reply.error("param"), row.param) << reply.body;
  }
  EXPECT_EQ(server.call("POST", kResponses, "{}").error("param"), "input");
  EXPECT_EQ(
      server.call("POST", kResponses, request(R"("previous_response_id": "")")).error("param"),
      "previous_response_id");
  EXPECT_EQ(server.call("POST", kResponses, request(R"("previous_response_id": "resp_x")")).status,
            404);
  EXPECT_EQ(server.call("GET", "/v1/responses/resp_x").error("code"), "response_not_found");
  EXPECT_EQ(server.call("GET", "/v1/responses/resp_x/cancel").status, 405);
  EXPECT_EQ(server.call("POST", "/v1/responses/resp_x").status, 405);
  EXPECT_EQ(server.call("GET", "/v1/responses/resp_x/nope").status, 404);
  // Tools that a server would run are left out, and named.
  const ClientReply hosted =
      server.call("POST", kResponses, request(R"("tools": [{"type": "web_search"}])"));
  ASSERT_EQ(hosted.status, 200) << hosted.body;
  EXPECT_NE(hosted.headers.at("x-ignored-fields").find("tools.web_search"), std::string::npos);
  server.engine->set_failure(
      3, Fault{500, "numerics_error", "", "The model's logits were not finite."});
  const std::vector<Json> events =
      events_of(server.call("POST", kResponses, request(R"("stream": true)")).body);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(events.back()["response"]["error"]["code"], "numerics_error");
  server.engine->set_failure(-1, Fault{});
  server.expect_healthy();
}

TEST(Responses, KeysThatNobodyReadsAreNamed) {
  TestServer server;
  const ClientReply reply = server.call(
      "POST", kResponses,
      request(R"("tools": [{"type": "function", "name": "f", "parametres": {}, "defer_loading": )"
              R"(true}, {"type": "custom", "name": "g", "text": 1}, {"type": "namespace", "name": )"
              R"("n", "tools": [], "version": 1}])",
              R"([{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", )"
              R"("text": "a", "depth": 1}]}, {"role": "user", "content": "b", "mood": 1}])"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const std::string names = reply.headers.at("x-ignored-fields");
  for (const char* name : {"tools.parametres", "tools.defer_loading", "tools.text", "tools.version",
                           "input.content.depth", "input.mood"})
    EXPECT_NE(names.find(name), std::string::npos) << names;
}

}  // namespace
}  // namespace sluice
