// Stop strings inside calls: they cut a call as `max_tokens` does, on every route.
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

const std::string kHead = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris";
const std::string kRest =
    "</arg_value>\n<arg_key>unit</arg_key>\n<arg_value>C</arg_value>\n</tool_call>";
const std::string kText = kHead + kRest;

const char* const kParameters =
    R"({"type": "object", "properties": {"city": {"type": "string"}, "unit": {"type": "string"}},
        "required": ["city", "unit"]})";

struct Route {
  std::string path, stop, limit;  // names of fields
  bool has_functions = false;     // tools are {"type": "function", "function": ...}
};

const Route kRoutes[] = {
    {"/v1/chat/completions", "stop", "max_tokens", true},
    {"/v1/messages", "stop_sequences", "max_tokens", false},
    {"/v1/responses", "stop", "max_output_tokens", false},
    {"/api/chat", "stop", "num_predict", true},
};

struct Answer {
  std::string content, finish;
  Json calls = Json::array();  // of arguments: text, or an object where the protocol has one
  Json stop;
};

Json body_of(const Route& route, const Json& more) {
  const Json parameters = Json::parse(kParameters);
  Json tool{{"name", "get_weather"}};
  const bool is_anthropic = route.path == "/v1/messages";
  tool[is_anthropic ? "input_schema" : "parameters"] = parameters;
  if (route.has_functions)
    tool = Json{{"type", "function"}, {"function", tool}};
  else if (!is_anthropic)
    tool["type"] = "function";
  const Json messages = Json::array({Json{{"role", "user"}, {"content", "Weather?"}}});
  Json body{{"model", "tiny"}, {"tools", Json::array({tool})}, {"stream", false}};
  body[route.path == "/v1/responses" ? "input" : "messages"] = messages;
  if (is_anthropic) body["max_tokens"] = 200;
  if (route.path == "/api/chat") {
    body["think"] = false;
    body["options"] = more;
  } else {
    body["chat_template_kwargs"] = Json{{"enable_thinking", false}};
    body.update(more);
  }
  return body;
}

Answer answer(TestServer& server, const Route& route, const Json& more) {
  const ClientReply reply = server.call("POST", route.path, dump_json(body_of(route, more)));
  EXPECT_EQ(reply.status, 200) << reply.body;
  const Json json = reply.json();
  Answer out;
  if (route.path == "/v1/chat/completions") {
    const Json& choice = json["choices"][0];
    if (choice["message"]["content"].is_string()) out.content = choice["message"]["content"];
    if (choice["message"].contains("tool_calls"))
      for (const Json& call : choice["message"]["tool_calls"])
        out.calls.push_back(call["function"]["arguments"]);
    out.finish = choice["finish_reason"];
    out.stop = choice["matched_stop"];
  } else if (route.path == "/v1/messages") {
    for (const Json& block : json["content"]) {
      if (block["type"] == "text") out.content += block["text"].get<std::string>();
      if (block["type"] == "tool_use") out.calls.push_back(block["input"]);
    }
    out.finish = json["stop_reason"];
    out.stop = json["stop_sequence"];
  } else if (route.path == "/v1/responses") {
    for (const Json& item : json["output"]) {
      if (item["type"] == "message") out.content += item["content"][0]["text"].get<std::string>();
      if (item["type"] == "function_call")
        out.calls.push_back(Json{item["arguments"], item["status"]});
    }
    out.finish = json["status"];
  } else {
    out.content = json["message"]["content"];
    if (json["message"].contains("tool_calls"))
      for (const Json& call : json["message"]["tool_calls"])
        out.calls.push_back(call["function"]["arguments"]);
    out.finish = json["done_reason"];
  }
  return out;
}

TEST(StopInCall, CutsAsMaxTokensDoes) {
  TestServer server;
  const auto script = [&](const std::string& text) {
    server.engine->set_script(server.tokenizer->encode(text, {.add_special_tokens = false}));
  };
  for (const Route& route : kRoutes)
    for (const std::string stop : {"aris", "unit", "<arg_key>unit", "</arg_value>", "C</"}) {
      SCOPED_TRACE(route.path + " " + stop);
      script(kText);
      const Answer stopped = answer(server, route, Json{{route.stop, Json::array({stop})}});
      const std::string before = kText.substr(0, kText.find(stop));
      const auto tokens = server.tokenizer->encode(before, {.add_special_tokens = false});
      server.engine->set_script(tokens);
      const Answer cut = answer(server, route, Json{{route.limit, tokens.size()}});
      EXPECT_EQ(stopped.content, cut.content);
      EXPECT_EQ(stopped.calls, cut.calls);
      EXPECT_EQ(stopped.content, "");
      ASSERT_EQ(stopped.calls.size(), 1u);
      if (route.path == "/v1/chat/completions") {
        EXPECT_EQ(stopped.finish, "stop");
        EXPECT_EQ(stopped.stop, stop);
        EXPECT_TRUE(Json::parse(stopped.calls[0].get<std::string>(), nullptr, false).is_discarded())
            << stopped.calls;
      }
      if (route.path == "/v1/messages") {
        EXPECT_EQ(stopped.finish, "stop_sequence");
        EXPECT_EQ(stopped.stop, stop);
        EXPECT_TRUE(stopped.calls[0].contains("INVALID_JSON")) << stopped.calls;
      }
      if (route.path == "/v1/responses") {
        EXPECT_EQ(stopped.calls[0][1], "incomplete");
      }
      if (route.path == "/api/chat") {
        EXPECT_EQ(stopped.finish, "stop");
      }
    }
}

TEST(StopInCall, BehindTheArgumentsACallIsWhole) {
  TestServer server;
  server.engine->set_script(server.tokenizer->encode(kText, {.add_special_tokens = false}));
  const Json arguments{{"city", "Paris"}, {"unit", "C"}};
  for (const Route& route : kRoutes) {
    SCOPED_TRACE(route.path);
    const Answer seen = answer(server, route, Json{{route.stop, Json::array({"</tool_call>"})}});
    ASSERT_EQ(seen.calls.size(), 1u);
    const Json call = route.path == "/v1/responses" ? seen.calls[0][0] : seen.calls[0];
    EXPECT_EQ(call.is_string() ? Json::parse(call.get<std::string>()) : call, arguments);
    EXPECT_EQ(seen.content, "");
    if (route.path == "/v1/chat/completions") {
      EXPECT_EQ(seen.finish, "tool_calls");
    }
    if (route.path == "/v1/responses") {
      EXPECT_EQ(seen.calls[0][1], "completed");
    }
  }
}

struct Streamed {
  std::string content, arguments, finish;
};

Streamed streamed(TestServer& server, Json more) {
  more["stream"] = true;
  const ClientReply reply =
      server.call("POST", kRoutes[0].path, dump_json(body_of(kRoutes[0], more)));
  Streamed out;
  for (const std::string& payload : sse_payloads(reply.body)) {
    if (payload == "[DONE]") continue;
    const Json choice = Json::parse(payload)["choices"][0];
    out.content += choice["delta"].value("content", "");
    if (choice["delta"].contains("tool_calls"))
      out.arguments += choice["delta"]["tool_calls"][0]["function"].value("arguments", "");
    if (!choice["finish_reason"].is_null()) out.finish = choice["finish_reason"];
  }
  return out;
}

TEST(StopInCall, StreamsAgree) {
  TestServer server;
  const std::string longer(600, 'x');
  for (const std::string& city : {std::string(), longer})
    for (const bool keep : {false, true})
      for (const std::string stop : {"<arg_key>unit", "unit", "</tool_call>", "</arg_value>"}) {
        SCOPED_TRACE(stop);
        const std::string text = kHead + city + kRest;
        server.engine->set_script(server.tokenizer->encode(text, {.add_special_tokens = false}));
        const Json more{{"stop", stop}, {"max_tokens", 2000}, {"include_stop_str_in_output", keep}};
        const Answer whole = answer(server, kRoutes[0], more);
        const Streamed stream = streamed(server, more);
        ASSERT_EQ(whole.calls.size(), 1u);
        EXPECT_EQ(stream.arguments, whole.calls[0]);
        EXPECT_EQ(stream.content, whole.content);
        EXPECT_EQ(stream.content, "");
        EXPECT_EQ(stream.finish, whole.finish);
        EXPECT_EQ(stream.finish, stop == "</tool_call>" ? "tool_calls" : "stop");
      }
}

// A token that is text stops as a string does; the model's own end tokens end an answer.
TEST(StopInCall, StopTokens) {
  TestServer server;
  const auto tokens = server.tokenizer->encode(kText, {.add_special_tokens = false});
  server.engine->set_script(tokens);
  const std::size_t at = server.tokenizer->encode(kHead, {.add_special_tokens = false}).size() - 1;
  const Answer seen =
      answer(server, kRoutes[0], Json{{"stop_token_ids", Json::array({tokens[at]})}});
  EXPECT_EQ(seen.finish, "stop");
  EXPECT_EQ(seen.stop, tokens[at]);
  EXPECT_EQ(seen.content, "");
  server.engine->generation.eos_token_ids = {tokens[at]};
  const Answer ended =
      answer(server, kRoutes[0], Json{{"stop_token_ids", Json::array({tokens[at]})}});
  EXPECT_EQ(ended.finish, "stop");
  EXPECT_NE(ended.content, "");  // the model left its call unfinished, so that it is text
  EXPECT_EQ(ended.calls.size(), 0u);
}

}  // namespace
}  // namespace sluice
