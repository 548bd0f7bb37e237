// Fields that change nothing are named in X-Ignored-Fields.
#include "server/testing/server_fixture.h"

namespace sluice {
namespace {

std::string ignored_of(TestServer& server, const std::string& path, const Json& body) {
  const ClientReply reply = server.call("POST", path, body.dump());
  EXPECT_EQ(reply.status, 200) << reply.body;
  const auto found = reply.headers.find("x-ignored-fields");
  return found == reply.headers.end() ? "" : found->second;
}

Json with_message(Json fields) {
  Json message{{"role", "user"}, {"content", "Hi"}};
  message.update(fields);
  return Json{{"messages", {message}}, {"max_tokens", 2}};
}

TEST(UnreadFields, OfMessagesDependOnTheRole) {
  TestServer server;
  struct Row {
    const char* fields;
    const char* ignored;
  };
  const Row rows[] = {
      {R"({})", ""},
      {R"({"name": "ann"})", "messages.name"},
      {R"({"role": "assistant", "name": "ann"})", "messages.name"},
      {R"({"role": "system", "name": "ann"})", "messages.name"},
      {R"({"name": null})", ""},
      {R"({"role": "tool", "name": "f", "tool_call_id": "abc"})", ""},
      {R"({"tool_call_id": "abc", "tool_name": "f"})", "messages.tool_call_id, messages.tool_name"},
      {R"({"reasoning_content": "hm", "tool_calls": []})", "messages.reasoning_content"},
      {R"({"role": "assistant", "reasoning_content": "hm"})", ""},
      {R"({"tool_calls": [{"function": {"name": "f"}}]})", "messages.tool_calls"},
  };
  for (const Row& row : rows)
    EXPECT_EQ(ignored_of(server, "/v1/chat/completions", with_message(Json::parse(row.fields))),
              row.ignored)
        << row.fields;
}

TEST(UnreadFields, OneLimitOfTwoIsNamed) {
  TestServer server;
  Json body = with_message(Json::object());
  body["max_completion_tokens"] = 1;
  const ClientReply reply = server.call("POST", "/v1/chat/completions", body.dump());
  EXPECT_EQ(reply.json()["usage"]["completion_tokens"], 1);
  EXPECT_EQ(reply.headers.at("x-ignored-fields"), "max_tokens");
  body["max_tokens"] = nullptr;
  EXPECT_EQ(ignored_of(server, "/v1/chat/completions", body), "");
}

TEST(UnreadFields, TokenizeTakesOneOfPromptAndMessages) {
  TestServer server;
  const Json messages = Json::array({Json{{"role", "user"}, {"content", "Hi"}}});
  for (const Json& body : {Json{{"prompt", "Hi"}, {"messages", messages}}, Json::object()}) {
    const ClientReply reply = server.call("POST", "/tokenize", body.dump());
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.json()["error"]["param"], "prompt");
  }
  EXPECT_EQ(ignored_of(server, "/tokenize", {{"prompt", "Hi"}, {"messages", nullptr}}), "");
  EXPECT_EQ(ignored_of(server, "/tokenize", {{"messages", messages}, {"prompt", nullptr}}), "");
  EXPECT_EQ(ignored_of(server, "/tokenize",
                       {{"prompt", "Hi"},
                        {"chat_template_kwargs", {{"enable_thinking", false}}},
                        {"add_generation_prompt", true}}),
            "add_generation_prompt, chat_template_kwargs");
  EXPECT_EQ(ignored_of(server, "/tokenize",
                       {{"messages", {{{"role", "user"}, {"content", "Hi"}, {"cntent", "x"}}}},
                        {"add_special_tokens", false}}),
            "messages.cntent");
}

}  // namespace
}  // namespace sluice
