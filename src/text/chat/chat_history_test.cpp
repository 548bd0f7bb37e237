#include "text/chat/chat_history.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/testing/source_dir.h"
#include "text/chat/chat_template.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

const fs::path kTemplates = fs::path(source_dir()) / "tests/golden/chat_templates";

std::string text_of(const ChatTemplate& chat, const Json& messages, const Json& tools = nullptr) {
  ChatInput input;
  input.messages = messages;
  input.tools = tools;
  const Result<RenderedChat> out = chat.render(input);
  return out ? out->text : "fault " + out.fault().code + ": " + out.fault().message;
}

Json history(const Json& content, const Json& arguments, const char* id, bool named = false) {
  Json call{{"type", "function"}, {"function", {{"name", "get_time"}, {"arguments", arguments}}}};
  Json result{{"role", "tool"}, {"content", "noon"}};
  if (*id) call["id"] = result["tool_call_id"] = id;
  if (named) result["name"] = "get_time";
  return Json::array({Json{{"role", "user"}, {"content", "When?"}},
                      Json{{"role", "assistant"}, {"content", content}, {"tool_calls", {call}}},
                      result, Json{{"role", "assistant"}, {"content", "At noon."}},
                      Json{{"role", "user"}, {"content", "And there?"}}});
}

// Whatever a reply can hold, every template renders it when it comes back, and those with a form
// for calls show the call.
TEST(ChatHistory, EveryTemplateTakesWhatTheServerSends) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "get_time",
    "description": "d", "parameters": {"type": "object", "properties": {}}}}])");
  int templates = 0, with_calls = 0;
  for (const auto& entry : fs::directory_iterator(kTemplates)) {
    if (!fs::exists(entry.path() / "chat_template.jinja")) continue;
    SCOPED_TRACE(entry.path().filename());
    const auto chat = ChatTemplate::load(entry.path());
    const std::string plain =
        text_of(*chat, Json::array({Json{{"role", "user"}, {"content", "When?"}},
                                    Json{{"role", "assistant"}, {"content", "At noon."}},
                                    Json{{"role", "user"}, {"content", "And there?"}}}));
    if (plain.starts_with("fault")) continue;  // a template of statements alone
    // Templates that do not know the role tool refuse all of them.
    const std::string usual =
        text_of(*chat, history(nullptr, R"({"a": 1})", "abcdefgh1", true), tools);
    if (usual.starts_with("fault")) {
      const std::string name = entry.path().filename();
      EXPECT_TRUE(name == "gemma" || name == "recursion") << usual;
      continue;
    }
    ++templates;
    const bool shows =
        usual.find("get_time") != std::string::npos &&
        text_of(*chat, history(nullptr, R"({"a": 1})", "abcdefgh1", true)).find("get_time") !=
            std::string::npos;
    with_calls += shows;
    const bool prints_no_none = usual.find("None") == std::string::npos;
    for (const char* arguments :
         {R"({"a": 1})", R"({"a": )", "", "{", "null", "[1]", "words", "\"text\"",
          R"({"a": 1, "a": 2})", R"({"n": 12345678901234567890123, "f": 1.0})", R"({"n": 1e400})",
          R"({"s": "\ud800"})"})
      for (const char* id : {"abcdefgh1", "call_0123456789abcdefghijklmn", ""})
        for (const Json& content : {Json(nullptr), Json(""), Json("Let me see.")}) {
          const std::string text = text_of(*chat, history(content, arguments, id), tools);
          EXPECT_FALSE(text.starts_with("fault")) << arguments << " " << id << ": " << text;
          if (shows && content != "Let me see.") {
            EXPECT_NE(text.find("get_time"), std::string::npos) << arguments << ": " << text;
          }
          EXPECT_EQ(text.find("None") == std::string::npos, prints_no_none) << text;
        }
  }
  EXPECT_GT(templates, 10);
  EXPECT_GT(with_calls, 7);
}

TEST(ChatHistory, FittedIdsStayTogether) {
  Json messages = history("", "{}", "call_0123456789abcdefghijklmn");
  ASSERT_TRUE(fit_ids(messages));
  const std::string id = messages[1]["tool_calls"][0]["id"].get<std::string>();
  EXPECT_EQ(id.size(), 9u);
  EXPECT_EQ(messages[2]["tool_call_id"], id);
  EXPECT_EQ(messages[2]["name"], "get_time");
  Json again = history("", "{}", "call_0123456789abcdefghijklmn");
  fit_ids(again);
  EXPECT_EQ(again, messages);  // a turn later the prompt begins with the same bytes
  EXPECT_FALSE(fit_ids(messages));
  Json unnamed = history("", "{}", "");
  ASSERT_TRUE(fit_ids(unnamed));
  EXPECT_EQ(unnamed[1]["tool_calls"][0]["id"], unnamed[2]["tool_call_id"]);
}

TEST(ChatHistory, ArgumentsThatAreNoObject) {
  const auto adapted = [](const char* arguments, HistoryRules rules) {
    Json message{{"role", "assistant"},
                 {"content", nullptr},
                 {"tool_calls", Json::array({Json{{"function", {{"arguments", arguments}}}}})}};
    adapt_calls(message, rules);
    return message["tool_calls"][0]["function"]["arguments"].dump();
  };
  const HistoryRules objects{}, texts{.takes_text = true}, strings{.text_arguments = true};
  EXPECT_EQ(adapted(R"({"a": 1.50})", objects), R"({"a":1.5})");
  EXPECT_EQ(adapted(R"({"a": 1.50})", strings), R"("{\"a\": 1.50}")");
  EXPECT_EQ(adapted("", strings), R"("{}")");
  EXPECT_EQ(adapted(R"({"a": 1, "b": )", objects), R"({"a":1})");
  EXPECT_EQ(adapted(R"({"a": 1, "b": )", texts), R"("{\"a\": 1, \"b\": ")");
  EXPECT_EQ(adapted("words", objects), R"({"arguments":"words"})");
  EXPECT_EQ(adapted(R"({"a": 1, "a": 2})", objects), R"({"a":2})");
}

TEST(ChatHistory, SystemMessagesBecomeOneThatLeads) {
  const auto message = [](const char* role, Json content) {
    return Json{{"role", role}, {"content", std::move(content)}};
  };
  Json plain = Json::array({message("system", "a"), message("user", "b")});
  EXPECT_FALSE(fit_system(plain));
  Json messages =
      Json::array({message("user", "b"), message("system", "a"), message("developer", "c")});
  ASSERT_TRUE(fit_system(messages));
  EXPECT_EQ(messages, Json::array({message("system", "a\n\nc"), message("user", "b")}));
  EXPECT_FALSE(fit_system(messages));
  const Json part{{"type", "text"}, {"text", "c"}};
  Json mixed = Json::array(
      {message("system", "a"), message("system", Json::array({part})), message("user", "b")});
  ASSERT_TRUE(fit_system(mixed));
  EXPECT_EQ(mixed[0]["content"], Json::array({Json{{"type", "text"}, {"text", "a"}}, part}));
  EXPECT_EQ(mixed.size(), 2u);
}

// Qwen3.5's rule.
TEST(ChatHistory, ATemplateThatWantsSystemFirstGetsIt) {
  const auto chat = ChatTemplate::from_sources(
      {{"default",
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
        "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
        "<{{ m.role }}>{{ m.content }}{% endfor %}"}},
      {});
  ChatInput input;
  for (const auto& [role, content] :
       {std::pair<const char*, const char*>{"system", "a"}, {"user", "b"}, {"system", "c"}})
    input.messages.push_back(Json{{"role", role}, {"content", content}});
  input.messages.push_back(Json{{"role", "user"}, {"content", "d"}});
  const Result<RenderedChat> rendered = chat->render(input);
  ASSERT_TRUE(rendered);
  EXPECT_EQ(rendered->text, "<system>a\n\nc<user>b<user>d");
}

TEST(ChatHistory, ReasoningHasAllItsNames) {
  for (const char* name : {"reasoning", "reasoning_content", "thinking"})
    for (const char* read : {"reasoning", "reasoning_content", "thinking"}) {
      const auto chat = ChatTemplate::from_sources(
          {{"default", fmt::format("{{% for m in messages %}}{{{{ m.{} }}}}{{% endfor %}}", read)}},
          {});
      ChatInput input;
      input.messages = Json::array({Json{{"role", "assistant"}, {"content", "x"}, {name, "why"}}});
      const Result<RenderedChat> rendered = chat->render(input);
      ASSERT_TRUE(rendered);
      EXPECT_EQ(rendered->text, "why") << name << " " << read;
    }
}

}  // namespace
}  // namespace sluice
