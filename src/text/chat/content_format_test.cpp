#include "text/chat/content_format.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/testing/source_dir.h"
#include "text/chat/chat_template.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<ChatTemplate> of(const std::string& source) {
  return ChatTemplate::from_sources({{"default", source}}, {});
}

Json message_of(const char* role, Json content) {
  return Json{{"role", role}, {"content", std::move(content)}};
}

Json parts_of(const char* first, const char* second) {
  return Json::array(
      {Json{{"type", "text"}, {"text", first}}, Json{{"type", "text"}, {"text", second}}});
}

std::string text_of(const ChatTemplate& chat, const ChatInput& input) {
  const Result<RenderedChat> out = chat.render(input);
  return out ? out->text : "fault " + out.fault().code + ": " + out.fault().message;
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

TEST(ContentFormat, FollowsTheTemplate) {
  const Json parts = parts_of("a", "b");
  struct Row {
    const char* source;
    ContentFormat format;
    const char* of_text;
    const char* of_parts;
  };
  const Row rows[] = {
      {"{% for m in messages %}{{ m.content }}{% endfor %}", ContentFormat::kString, "hi", "a\nb"},
      {"{% for m in messages %}{{ m.content + '.' }}{% endfor %}", ContentFormat::kString, "hi.",
       "a\nb."},
      {"{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in "
       "m.content %}{{ p.text }},{% endfor %}{% endif %}{% endfor %}",
       ContentFormat::kParts, "hi", "a,b,"},
      {"{% for m in messages %}{% for p in m.content %}{{ p['text'] }};{% endfor %}{% endfor %}",
       ContentFormat::kPartsOnly, "hi;", "a;b;"},
      {"{% for m in messages %}{{ m.content[0].text }};{% endfor %}", ContentFormat::kOnePart,
       "hi;", "a\nb;"},
      // As Gemma 3 shows the system's message.
      {"{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{{ "
       "m.content[0].text }}{% endif %}{% endfor %}",
       ContentFormat::kString, "hi", "a\nb"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.source);
    const auto chat = of(row.source);
    EXPECT_EQ(chat->content_formats().user, row.format);
    ChatInput input;
    input.messages = Json::array({message_of("user", "hi")});
    EXPECT_EQ(text_of(*chat, input), row.of_text);
    input.messages = Json::array({message_of("user", parts)});
    EXPECT_EQ(text_of(*chat, input), row.of_parts);
  }
}

// A place of a role in a conversation.
struct Place {
  const char* name;
  Json (*messages)(Json content);
};

Json with_call(Json words, Json result) {
  Json answer = message_of("assistant", std::move(words));
  answer["tool_calls"] =
      Json::array({Json{{"id", "abcdefgh1"},
                        {"type", "function"},
                        {"function", {{"name", "get_time"}, {"arguments", Json{{"a", 1}}}}}}});
  Json output = message_of("tool", std::move(result));
  output["tool_call_id"] = "abcdefgh1";
  output["name"] = "get_time";
  return Json::array({message_of("user", "u"), std::move(answer), std::move(output)});
}

const Place kPlaces[] = {
    {"user", [](Json it) { return Json::array({message_of("user", std::move(it))}); }},
    {"system",
     [](Json it) {
       return Json::array({message_of("system", std::move(it)), message_of("user", "u")});
     }},
    {"later system",
     [](Json it) {
       return Json::array(
           {message_of("user", "u"), message_of("system", std::move(it)), message_of("user", "v")});
     }},
    {"developer",
     [](Json it) {
       return Json::array({message_of("developer", std::move(it)), message_of("user", "u")});
     }},
    {"assistant",
     [](Json it) {
       return Json::array({message_of("user", "u"), message_of("assistant", std::move(it)),
                           message_of("user", "v")});
     }},
    {"last assistant",
     [](Json it) {
       return Json::array({message_of("user", "u"), message_of("assistant", std::move(it))});
     }},
    {"beside calls", [](Json it) { return with_call(std::move(it), "noon"); }},
    {"tool", [](Json it) { return with_call(nullptr, std::move(it)); }},
};

// Parts make the prompt of their joined text, with or without the line break between the texts.
TEST(ContentFormat, PartsOfEveryRoleAreShownByEveryTemplate) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "get_time",
    "description": "d", "parameters": {"type": "object", "properties": {}}}}])");
  std::vector<fs::path> folders = {fs::path(source_dir()) / "models/sluice-tiny"};
  for (const auto& entry :
       fs::directory_iterator(fs::path(source_dir()) / "tests/golden/chat_templates"))
    if (entry.is_directory()) folders.push_back(entry.path());
  int shown = 0;
  for (const fs::path& folder : folders) {
    const auto chat = ChatTemplate::load(folder);
    for (const Place& place : kPlaces)
      for (const Json& given : {Json(nullptr), tools}) {
        SCOPED_TRACE(folder.filename().string() + ", " + place.name);
        const auto prompt = [&](Json content) {
          ChatInput input;
          input.messages = place.messages(std::move(content));
          input.tools = given;
          return text_of(*chat, input);
        };
        const std::string of_parts = prompt(parts_of("FirstText", "SecondText"));
        const std::string of_text = prompt("FirstText\nSecondText");
        const std::string run_together = prompt("FirstTextSecondText");
        EXPECT_TRUE(of_parts == of_text || of_parts == run_together)
            << "parts: " << of_parts << "\ntext: " << of_text;
        shown += has(of_parts, "FirstText") && has(of_parts, "SecondText");
      }
  }
  EXPECT_GT(shown, 150);
}

// The second template serves requests with tools.
TEST(ContentFormat, EachTemplateHasItsOwn) {
  const auto chat = ChatTemplate::from_sources(
      {{"default", "{% for m in messages %}{{ m.content }}{% endfor %}"},
       {"tool_use",
        "{% for m in messages %}{% for p in m.content %}{{ p.text }};{% endfor %}{% endfor %}"}},
      {});
  ChatInput input;
  for (const bool is_list : {false, true}) {
    input.messages = Json::array({message_of("user", is_list ? parts_of("a", "b") : Json("a\nb"))});
    input.tools = nullptr;
    EXPECT_EQ(text_of(*chat, input), "a\nb");
    input.tools = Json::array({Json{{"type", "function"}, {"function", {{"name", "f"}}}}});
    EXPECT_EQ(text_of(*chat, input), is_list ? "a;b;" : "a\nb;");
  }
}

}  // namespace
}  // namespace sluice
