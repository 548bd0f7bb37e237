// What the grammar of a row lets a model write, the row's parser reads as calls, whose arguments
// obey the tools' schemas: random walks through the masks.
#include "text/grammar/sources/call_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "text/grammar/sources/testing/call_walker.h"
#include "text/parsers/chat_output.h"

namespace sluice::grammar {
namespace {

constexpr std::string_view kWeather = R"({"type": "object", "properties": {
    "city": {"type": "string", "minLength": 1, "maxLength": 9},
    "days": {"type": "integer", "minimum": 1, "maximum": 7},
    "unit": {"enum": ["C", "F"]},
    "wet": {"type": "boolean"}},
    "required": ["city", "days"], "additionalProperties": false})";
constexpr std::string_view kLabels = R"({"type": "object", "properties": {
    "names": {"type": "array", "items": {"$ref": "#/$defs/name"}, "minItems": 1, "maxItems": 2},
    "note": {"type": ["string", "null"], "maxLength": 6}},
    "required": ["names"], "additionalProperties": false,
    "$defs": {"name": {"type": "string", "maxLength": 4}}})";

Json tool(std::string_view name, std::string_view schema) {
  return {{"type", "function"},
          {"function", {{"name", name}, {"parameters", parse_json(schema).value()}}}};
}

struct Parsed {
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;
  bool is_incomplete = false;
};
Parsed parse(const ToolFormat& format, const std::string& text) {
  ChatOutputSettings settings;
  settings.tool_parser = format.name;
  settings.tools = Json::array({tool("get_weather", kWeather), tool("set-labels", kLabels)});
  if (format.syntax == CallSyntax::kChannels) settings.reasoning_parser = "openai_gptoss";
  ChatOutput output(settings);
  ChatDelta delta;
  output.push(text, delta);
  output.finish(delta);
  Parsed out{.content = delta.content, .calls = {}, .is_incomplete = output.incomplete()};
  for (const ToolDelta& piece : delta.tools) {
    if (!piece.name.empty()) out.calls.push_back({piece.name, ""});
    if (!out.calls.empty()) out.calls.back().second += piece.arguments;
  }
  return out;
}

void check_arguments(const std::string& name, const std::string& text, const std::string& all) {
  const Result<Json> parsed = parse_json(text);
  ASSERT_TRUE(parsed.ok()) << text << " in " << all;
  const Json& json = *parsed;
  ASSERT_TRUE(json.is_object()) << all;
  if (name == "get_weather") {
    ASSERT_TRUE(json.contains("city") && json["city"].is_string()) << text << " in " << all;
    EXPECT_GE(json["city"].get<std::string>().size(), 1u) << all;
    ASSERT_TRUE(json.contains("days") && json["days"].is_number_integer()) << text << " in " << all;
    EXPECT_GE(json["days"].get<int>(), 1) << all;
    EXPECT_LE(json["days"].get<int>(), 7) << all;
    if (json.contains("unit")) {
      EXPECT_TRUE(json["unit"] == "C" || json["unit"] == "F") << all;
    }
    if (json.contains("wet")) {
      EXPECT_TRUE(json["wet"].is_boolean()) << all;
    }
    for (const auto& [key, unused] : json.items())
      EXPECT_TRUE(key == "city" || key == "days" || key == "unit" || key == "wet") << all;
    return;
  }
  ASSERT_EQ(name, "set-labels") << all;
  ASSERT_TRUE(json.contains("names") && json["names"].is_array()) << text << " in " << all;
  EXPECT_THAT(json["names"].size(), testing::AllOf(testing::Ge(1u), testing::Le(2u))) << all;
  for (const Json& one : json["names"]) EXPECT_TRUE(one.is_string()) << all;
  if (json.contains("note")) {
    EXPECT_TRUE(json["note"].is_string() || json["note"].is_null()) << all;
  }
}

CallSource two_tools(std::string_view format, bool is_required, bool is_single) {
  return {.format = std::string(format),
          .tools = {{"get_weather", std::string(kWeather), false},
                    {"set-labels", std::string(kLabels), false}},
          .is_required = is_required,
          .is_single = is_single};
}

TEST(CallGrammar, TheParserReadsWhatTheGrammarWrites) {
  for (const ToolFormat& format : tool_formats()) {
    std::mt19937 random(7);
    Walker walker(two_tools(format.name, true, false), marks_of(format));
    // An array in braces has no schema that the grammar enforces.
    const bool is_free = format.syntax == CallSyntax::kBraces;
    int num_ended = 0, num_several = 0;
    for (int i = 0; i < 60; ++i) {
      const std::string text = walker.walk(random);
      if (text.empty()) continue;
      ++num_ended;
      const Parsed parsed = parse(format, text);
      EXPECT_FALSE(parsed.is_incomplete) << format.name << ": " << text;
      if (format.syntax != CallSyntax::kChannels) {  // harmony has words in front of calls
        EXPECT_EQ(parsed.content, "") << format.name << ": " << text;
      }
      ASSERT_GE(parsed.calls.size(), 1u) << format.name << ": " << text;
      num_several += parsed.calls.size() > 1 ? 1 : 0;
      for (const auto& [name, arguments] : parsed.calls)
        if (!is_free || name == "get_weather")
          check_arguments(name, arguments, std::string(format.name) + ": " + text);
    }
    EXPECT_GT(num_ended, 20) << format.name;
    if (format.syntax != CallSyntax::kChannels) {
      EXPECT_GT(num_several, 0) << format.name;
    }
  }
}

TEST(CallGrammar, OneCallWhereOneIsAskedFor) {
  for (const ToolFormat& format : tool_formats()) {
    std::mt19937 random(8);
    Walker walker(two_tools(format.name, true, true), marks_of(format));
    for (int i = 0; i < 15; ++i) {
      const std::string text = walker.walk(random);
      if (!text.empty()) {
        EXPECT_EQ(parse(format, text).calls.size(), 1u) << format.name << text;
      }
    }
  }
}

TEST(CallGrammar, TextUntilACallBegins) {
  Walker hermes(two_tools("hermes", false, false), {"<tool_call>", "</tool_call>", "<think>"});
  EXPECT_TRUE(hermes.accepts("The weather is fine."));
  EXPECT_TRUE(hermes.accepts(""));
  EXPECT_TRUE(hermes.accepts("a <think> b"));
  EXPECT_TRUE(
      hermes.accepts("I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
                     "{\"city\": \"Rome\", \"days\": 2}}\n</tool_call>"));
  EXPECT_FALSE(
      hermes.accepts("I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
                     "{\"city\": \"Rome\", \"days\": 8}}\n</tool_call>"));
  EXPECT_FALSE(hermes.accepts("<tool_call>\n{\"name\": \"other\""));
  Walker required(two_tools("hermes", true, false), {"<tool_call>", "</tool_call>"});
  EXPECT_FALSE(required.accepts("I"));
  EXPECT_FALSE(required.accepts(""));
}

constexpr std::string_view kCallOfLabels =
    "<tool_call>\n{\"name\": \"set-labels\", \"arguments\": {\"names\": [\"x\"]}}\n</tool_call>";

TEST(CallGrammar, TextBehindCallsWhereNothingIsPromised) {
  const std::string call(kCallOfLabels);
  CallSource calls = two_tools("hermes", false, false);
  Walker free(calls, {"<tool_call>", "</tool_call>"});
  EXPECT_TRUE(free.accepts("Look: " + call + "\nAnd " + call + " Bye."));
  EXPECT_FALSE(free.accepts(call + " Bye <tool_call> bye."));
  calls.is_single = true;
  Walker single(calls, {"<tool_call>", "</tool_call>"});
  EXPECT_TRUE(single.accepts("Look: " + call));
  EXPECT_FALSE(single.accepts(call + " Bye."));
  EXPECT_FALSE(single.accepts(call + "\n" + call));
  calls.is_single = false;
  calls.tools[0].is_strict = true;
  Walker strict(calls, {"<tool_call>", "</tool_call>"});
  EXPECT_TRUE(strict.accepts("Look: " + call + "\n" + call));
  EXPECT_FALSE(strict.accepts(call + " Bye."));
}

TEST(CallGrammar, ThoughtsAreFreeWhereNothingIsPromised) {
  const std::string call(kCallOfLabels);
  CallSource calls = two_tools("hermes", false, false);
  const std::vector<std::string> marks = {"<tool_call>", "</tool_call>", "<think>", "</think>"};
  for (const bool is_thinking : {false, true}) {
    SCOPED_TRACE(is_thinking);
    const std::string open = is_thinking ? "" : "<think>";
    const GrammarSource source{
        .think_open = "<think>", .think_close = "</think>", .is_thinking = is_thinking};
    Walker free(calls, marks, source);
    EXPECT_TRUE(free.accepts(open + "so <tool_call>{</think>\n\n" + call));
    EXPECT_TRUE(free.accepts(open + "no end <tool_call>"));
    EXPECT_FALSE(free.accepts(open + "so</think>\n\n<tool_call>{}"));
    calls.tools[0].is_strict = true;
    Walker strict(calls, marks, source);
    EXPECT_TRUE(strict.accepts(open + "so</think>\n\n" + call));
    EXPECT_FALSE(strict.accepts(open + "so <tool_call>{</think>\n\n" + call));
    EXPECT_EQ(strict.accepts(open + "no end"), !is_thinking);
    calls.tools[0].is_strict = false;
  }
}

// Equal parts of several tools are one node; what only looks equal is not.
TEST(CallGrammar, ToolsShareNoMoreThanTheyHaveInCommon) {
  const auto schema = [](std::string_view member, std::string_view definition) {
    return fmt::format(
        R"({{"type": "object", "properties": {{"a": {}}}, "required": ["a"],
             "additionalProperties": false, "$defs": {{"t": {}}}}})",
        member, definition);
  };
  const auto call = [](std::string_view name, std::string_view value) {
    return fmt::format(
        "<tool_call>\n{{\"name\": \"{}\", \"arguments\": {{\"a\": {}}}}}\n</tool_call>", name,
        value);
  };
  const auto walker = [&](std::string_view first, std::string_view second) {
    return Walker({.format = "hermes",
                   .tools = {{"f", schema(first, R"({"type": "string"})"), true},
                             {"g", schema(second, R"({"type": "integer"})"), true}},
                   .is_required = true},
                  {"<tool_call>", "</tool_call>"});
  };
  for (const std::string_view reference :
       {R"({"$ref": "#/$defs/t"})",
        R"({"type": ["string", "integer"], "allOf": [{"$ref": "#/$defs/t"}]})"}) {
    SCOPED_TRACE(reference);
    Walker referring = walker(reference, reference);
    EXPECT_TRUE(referring.accepts(call("f", "\"x\"")));
    EXPECT_FALSE(referring.accepts(call("f", "1")));
    EXPECT_TRUE(referring.accepts(call("g", "1")));
    EXPECT_FALSE(referring.accepts(call("g", "\"x\"")));
  }
  constexpr std::string_view kNamed = R"({"type": "object", "properties":
      {"enum": {"$ref": "#/$defs/t"}}, "required": ["enum"]})";
  Walker named = walker(kNamed, kNamed);
  EXPECT_TRUE(named.accepts(call("f", R"({"enum": "x"})")));
  EXPECT_FALSE(named.accepts(call("f", R"({"enum": 1})")));
  EXPECT_TRUE(named.accepts(call("g", R"({"enum": 1})")));
  Walker titled = walker(R"({"type": "object", "title": "x", "properties": {"title": {"const": 1}},
                            "required": ["title"]})",
                         R"({"type": "object", "title": "y", "properties": {"title": {"const": 2}},
                            "required": ["title"]})");
  EXPECT_TRUE(titled.accepts(call("f", R"({"title": 1})")));
  EXPECT_FALSE(titled.accepts(call("f", R"({"title": 2})")));
  EXPECT_TRUE(titled.accepts(call("g", R"({"title": 2})")));
  Walker constants =
      walker(R"({"const": {"description": "x"}})", R"({"const": {"description": "y"}})");
  EXPECT_TRUE(constants.accepts(call("f", R"({"description": "x"})")));
  EXPECT_FALSE(constants.accepts(call("f", R"({"description": "y"})")));
  EXPECT_TRUE(constants.accepts(call("g", R"({"description": "y"})")));
}

TEST(CallGrammar, ArgumentsAreAnObjectWhateverElseTheSchemaAllows) {
  for (const std::string schema : {R"(true)", R"({})", R"({"type": ["object", "integer"]})",
                                   R"({"anyOf": [{"type": "object"}, {"type": "integer"}]})"}) {
    SCOPED_TRACE(schema);
    Walker walker({.format = "hermes", .tools = {{"f", schema, true}}, .is_required = true},
                  {"<tool_call>", "</tool_call>"});
    const std::string begin = "<tool_call>\n{\"name\": \"f\", \"arguments\": ";
    EXPECT_TRUE(walker.accepts(begin + "{\"a\": 1}}\n</tool_call>"));
    EXPECT_FALSE(walker.accepts(begin + "1}\n</tool_call>"));
  }
}

TEST(CallGrammar, AnswersAndCallsExcludeEachOther) {
  Walker both(two_tools("hermes", false, false), {"<tool_call>", "</tool_call>"},
              {.kind = GrammarSource::kJson, .text = "object"});
  EXPECT_TRUE(both.accepts("{\"a\": 1}"));
  EXPECT_FALSE(both.accepts("text"));
  EXPECT_TRUE(
      both.accepts("<tool_call>\n{\"name\": \"set-labels\", \"arguments\": {\"names\": "
                   "[\"x\"]}}\n</tool_call>"));
}

TEST(CallGrammar, BareFormatsKeepTextWithoutStrictTools) {
  CallSource calls = two_tools("llama3_json", false, false);
  EXPECT_FALSE(constrains(calls));
  calls.tools[0].is_strict = true;
  EXPECT_TRUE(constrains(calls));
  Walker walker(calls, {"<|python_tag|>"});
  EXPECT_TRUE(walker.accepts("Rome is fine {really}"));
  EXPECT_FALSE(walker.accepts("{\"a\": 1}"));
  EXPECT_TRUE(walker.accepts(
      "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\", \"days\": 2}}"));
}

// References that libraries write: to another property, to the document, to the arguments' schema.
TEST(CallGrammar, ReferencesOfToolsNameWhatTheyNameInTheDocument) {
  const auto call = [](std::string_view pairs) {
    return fmt::format("<tool_call>\n<function=f>\n{}</function>\n</tool_call>", pairs);
  };
  const auto pair = [](std::string_view key, std::string_view value) {
    return fmt::format("<parameter={}>\n{}\n</parameter>\n", key, value);
  };
  constexpr const char* kProperties = R"("type": "object", "properties": {
      "a/b": {"type": "string", "maxLength": 3}, "c": {"$ref": "#/properties/a~1b"},
      "nest": {"$ref": "#"}}, "required": ["c"], "additionalProperties": false)";
  for (const std::string& schema :
       {fmt::format("{{{}}}", kProperties),
        fmt::format(R"({{"$schema": "http://json-schema.org/draft-07/schema#", {}}})", kProperties),
        fmt::format(R"({{"$schema": "http://json-schema.org/draft-04/schema#", {}}})", kProperties),
        fmt::format(R"({{"$id": "https://example.org/tool.json", {}}})", kProperties)}) {
    SCOPED_TRACE(schema);
    Walker walker({.format = "qwen3_coder", .tools = {{"f", schema, true}}, .is_required = true},
                  {"<tool_call>", "</tool_call>"});
    EXPECT_TRUE(walker.accepts(call(pair("c", "abc"))));
    EXPECT_FALSE(walker.accepts(call(pair("c", "abcd"))));
    EXPECT_TRUE(walker.accepts(call(pair("nest", R"({"c": "abc"})") + pair("c", "abc"))));
    EXPECT_FALSE(walker.accepts(call(pair("nest", R"({"c": "abcd"})") + pair("c", "abc"))));
    EXPECT_FALSE(walker.accepts(call("")));
  }
  Walker named({.format = "qwen3_coder",
                .tools = {{"f", R"({"$ref": "#/$defs/Args", "$defs": {"Args": {"type": "object",
                           "properties": {"z": {"type": "string", "maxLength": 3},
                                          "y": {"$ref": "#/$defs/Args/properties/z"}},
                           "required": ["z"], "additionalProperties": false}}})",
                           true}},
                .is_required = true},
               {"<tool_call>", "</tool_call>"});
  EXPECT_TRUE(named.accepts(call(pair("z", "abc"))));
  EXPECT_FALSE(named.accepts(call(pair("z", "abcd"))));
  EXPECT_FALSE(named.accepts(call("")));
}

TEST(CallGrammar, SchemasThatCannotBeEnforced) {
  CallSource calls{.format = "qwen3_coder",
                   .tools = {{"f", R"({"type": "object", "minProperties": 1})", false}},
                   .is_required = true};
  Walker loose(calls, {"<tool_call>", "</tool_call>"});
  EXPECT_TRUE(
      loose.accepts("<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n"
                    "</function>\n</tool_call>"));
  calls.tools[0].is_strict = true;
  const std::unique_ptr<Tokenizer> tokenizer = byte_tokenizer({});
  const auto vocabulary = std::make_shared<const Vocabulary>(*tokenizer, 512);
  const auto refused = compile({.calls = calls}, vocabulary);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.fault().code, "unsupported_tool_schema");
  EXPECT_THAT(refused.fault().message, testing::HasSubstr("minProperties"));
  calls.format = "hermes";
  calls.tools[0].schema = R"({"$ref": "http://127.0.0.1:9/x"})";
  const auto remote = compile({.calls = calls}, vocabulary);
  ASSERT_FALSE(remote.ok());
  EXPECT_EQ(remote.fault().code, "unsupported_json_schema");
  calls.tools[0].is_strict = false;
  Walker any(calls, {});
  ASSERT_EQ(any.unenforced_.size(), 1u);
  EXPECT_EQ(any.unenforced_[0].tool, "f");
  EXPECT_EQ(any.unenforced_[0].pointer, "");
}

// Texts that share beginnings with tokens, longer and shorter ones, against a search of all.
TEST(CallGrammar, FindsTheLongestSpecialTokenThatATextBeginsWith) {
  const std::unique_ptr<Tokenizer> tokenizer =
      byte_tokenizer({"<a>", "<a>b", "<a>bc>", "<ab", "<b", "[x]", "[x", "<a>c"});
  const Vocabulary vocabulary(*tokenizer, 512);
  std::vector<std::string> texts = {""};
  for (std::size_t i = 0; texts.size() < 60'000; ++i)
    for (const char c : {'<', 'a', '>', 'b', 'c', '[', 'x', ']', '~'})
      texts.push_back(texts[i] + c);
  std::size_t found = 0;
  for (const std::string& text : texts) {
    std::size_t longest = 0;
    for (const std::string& token : vocabulary.special_tokens())
      if (text.starts_with(token)) longest = std::max(longest, token.size());
    ASSERT_EQ(vocabulary.special_at(text), longest) << text;
    found += longest > 2;
  }
  EXPECT_GT(found, 100u);
}

// A listed value that the format cannot spell is left out, and the others stay.
TEST(CallGrammar, ListedValuesBetweenTagsAreThoseThatCanStandThere) {
  const CallSource calls{
      .format = "glm45",
      .tools = {{"f",
                 R"({"type": "object", "properties": {"a": {"enum": ["x", "y</arg_value>", "z"]}},
                          "required": ["a"]})",
                 false}},
      .is_required = true};
  Walker walker(calls, {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>",
                        "</arg_value>"});
  const auto call = [](const std::string& value) {
    return "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>" + value + "</arg_value>\n</tool_call>";
  };
  for (const char* value : {"x", "z"}) EXPECT_TRUE(walker.accepts(call(value))) << value;
  for (const char* value : {"y", "xz", "", "y</arg_value>"})
    EXPECT_FALSE(walker.accepts(call(value))) << value;
}

TEST(CallGrammar, FaultsOfValuesBetweenTagsHaveTheirPlaceInTheParameters) {
  const std::unique_ptr<Tokenizer> tokenizer = byte_tokenizer({});
  const auto vocabulary = std::make_shared<const Vocabulary>(*tokenizer, 512);
  for (const char* format : {"glm45", "deepseek_v32", "hermes"}) {
    SCOPED_TRACE(format);
    CallSource calls;
    calls.format = format;
    calls.is_required = true;
    calls.tools = {{.name = "f",
                    .schema = R"({"type": "object", "properties": {"a": {}, "b":
        {"type": "array", "items": {"$ref": "http://127.0.0.1:9/x"}}}})",
                    .is_strict = true}};
    const auto refused = compile({.calls = calls}, vocabulary);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.fault().message, testing::HasSubstr("`f`"));
    EXPECT_THAT(refused.fault().message, testing::HasSubstr(" /properties/b/items/$ref: "));
    calls.tools[0] = {.name = "f", .schema = R"({"type": "object", "$defs": {"d": {"minimun": 1}},
        "properties": {"a": {"$ref": "#/$defs/d", "maximun": 2}}, "no_such_keyword": 1})"};
    std::vector<Unenforced> unenforced;
    ASSERT_TRUE(compile({.calls = calls}, vocabulary, {}, {}, &unenforced).ok());
    std::vector<std::string> pointers;
    for (const Unenforced& one : unenforced) pointers.push_back(one.pointer);
    EXPECT_THAT(pointers, testing::UnorderedElementsAre("/$defs/d/minimun", "/properties/a/maximun",
                                                        "/no_such_keyword"));
  }
}

}  // namespace
}  // namespace sluice::grammar
