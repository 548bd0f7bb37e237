// Names and values of arguments that a format cannot spell are refused or said; all others come
// back from the row's parser as they are.
#include "text/grammar/sources/call_spelling.h"

#include <gmock/gmock.h>

#include "text/grammar/sources/testing/call_walker.h"

namespace sluice::grammar {
namespace {

const std::vector<std::string> kKeys = {
    "city",        "a b",   " lead",        "trail ", "\tq",          "</arg_key>",
    "<arg_value>", "a>b",   "a:b",          "a,b",    "a\nb",         "}",
    "{",           "a\"b",  "a\\b",         "a=b",    "a(b",          "\"q\"",
    "'q'",         "<|x|>", "</parameter>", "ünï",    "a.b-c",        "1",
    "a]b",         "",      "None",         "🙂",     "<parameter=a>"};

std::vector<std::string_view> keyed_formats() {
  std::vector<std::string_view> out;
  for (const ToolFormat& format : tool_formats())
    if (format.syntax == CallSyntax::kTagged || format.syntax == CallSyntax::kKeywords ||
        format.syntax == CallSyntax::kBraces)
      out.push_back(format.name);
  return out;
}

CallSource one_tool(std::string_view format, const Json& properties, bool is_strict) {
  Json required = Json::array();
  for (const auto& [key, unused] : properties.items()) required.push_back(key);
  const Json schema = {{"type", "object"},
                       {"properties", properties},
                       {"required", required},
                       {"additionalProperties", false}};
  return {.format = std::string(format),
          .tools = {{"f", dump_json(schema), is_strict}},
          .is_required = true,
          .is_single = true};
}

// The arguments of the only call in the text.
Json arguments_of(std::string_view format, const CallSource& calls, const std::string& text) {
  Json tools = Json::array();
  tools.push_back({{"name", "f"}, {"parameters", parse_json(calls.tools[0].schema).value()}});
  ToolParser parser = ToolParser::create(format, tools);
  std::string arguments;
  std::vector<ToolEvent> events = parser.push(text);
  std::ranges::move(parser.finish(), std::back_inserter(events));
  for (const ToolEvent& event : events)
    if (event.kind == ToolEvent::Kind::kArguments) arguments += event.text;
  const Result<Json> json = parse_json(arguments);
  return json ? *json : Json(arguments);
}

TEST(CallSpelling, NamesComeBackOrAreRefused) {
  for (const std::string_view name : keyed_formats()) {
    const ToolFormat& format = find_tool_format(name);
    std::mt19937 random(3);
    int num_spelled = 0;
    for (const std::string& key : kKeys) {
      SCOPED_TRACE(fmt::format("{}: `{}`", name, key));
      const Json properties = {{"one", {{"type", "boolean"}}}, {key, {{"type", "boolean"}}}};
      const CallSource strict = one_tool(name, properties, true);
      if (!can_spell_key(format, key)) {
        const std::unique_ptr<Tokenizer> tokenizer = byte_tokenizer(marks_of(format));
        const auto vocabulary = std::make_shared<const Vocabulary>(*tokenizer, 512);
        const auto refused = compile({.calls = strict}, vocabulary);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.fault().code, "unsupported_tool_schema");
        EXPECT_THAT(refused.fault().message, testing::HasSubstr("`/properties/"));
        Walker loose(one_tool(name, properties, false), marks_of(format));
        ASSERT_EQ(loose.unenforced_.size(), 1u);
        EXPECT_THAT(loose.unenforced_[0].pointer, testing::StartsWith("/properties/"));
        const Json read = arguments_of(name, strict, loose.walk(random));
        EXPECT_TRUE(read.is_object() && read.size() == 1 && read.contains("one")) << read;
        continue;
      }
      ++num_spelled;
      Walker walker(strict, marks_of(format));
      EXPECT_TRUE(walker.unenforced_.empty());
      const std::string text = walker.walk(random);
      const Json read = arguments_of(name, strict, text);
      EXPECT_TRUE(read.is_object() && read.size() == 2 && read.contains("one") &&
                  read.contains(key) && read[key].is_boolean())
          << text << " is " << read;
    }
    EXPECT_GE(num_spelled, 3) << name;
    EXPECT_LT(num_spelled, static_cast<int>(kKeys.size())) << name;
  }
}

TEST(CallSpelling, ValuesThatHoldTheirMarkAreRefusedOrSaid) {
  for (const std::string_view name : keyed_formats()) {
    const ToolFormat& format = find_tool_format(name);
    const std::string_view mark =
        format.syntax == CallSyntax::kTagged ? format.value_close : format.quote;
    if (mark.empty()) continue;  // literals have escapes
    SCOPED_TRACE(name);
    const Json properties = {{"a", {{"const", fmt::format("x{}y", mark)}}},
                             {"b", {{"type", "boolean"}}}};
    const std::unique_ptr<Tokenizer> tokenizer = byte_tokenizer(marks_of(format));
    const auto vocabulary = std::make_shared<const Vocabulary>(*tokenizer, 512);
    for (const bool is_required : {true, false}) {
      CallSource strict = one_tool(name, properties, true);
      strict.is_required = is_required;
      const auto refused = compile({.calls = strict}, vocabulary);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.fault().code, "unsupported_tool_schema");
      EXPECT_THAT(refused.fault().message, testing::HasSubstr("`/properties/a`"));
    }
    Walker loose(one_tool(name, properties, false), marks_of(format));
    ASSERT_EQ(loose.unenforced_.size(), 1u);
    EXPECT_EQ(loose.unenforced_[0].tool, "f");
    EXPECT_EQ(loose.unenforced_[0].pointer, "");
  }
}

TEST(CallSpelling, ToolsWithoutAnyArgumentsThatFitAreNamed) {
  const std::unique_ptr<Tokenizer> tokenizer = byte_tokenizer({});
  const auto vocabulary = std::make_shared<const Vocabulary>(*tokenizer, 512);
  for (const bool is_required : {true, false}) {
    CallSource calls = one_tool(
        "hermes", {{"a", {{"type", "string"}, {"pattern", "^x"}, {"maxLength", 0}}}}, true);
    calls.is_required = is_required;
    const auto refused = compile({.calls = calls}, vocabulary);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.fault().message, testing::HasSubstr("`f`"));
    EXPECT_THAT(refused.fault().message, testing::HasSubstr("/properties/a"));
    calls.tools[0].is_strict = false;
    Walker loose(calls, {});
    ASSERT_EQ(loose.unenforced_.size(), 1u);
  }
}

}  // namespace
}  // namespace sluice::grammar
