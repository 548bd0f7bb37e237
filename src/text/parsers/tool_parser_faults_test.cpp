// Calls with a fault, calls that the engine cut off, and text that only looks like a call.
#include <gtest/gtest.h>

#include "text/parsers/tool_parser.h"

namespace sluice {
namespace {

const Json kTools = Json::parse(R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
   "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                  "at": {"type": "object"}, "big": {"type": "number"}}}}},
  {"type": "function", "function": {"name": "ping"}}])");

const std::string kBegin = "<｜tool▁calls▁begin｜>", kEnd = "<｜tool▁calls▁end｜>",
                  kOne = "<｜tool▁call▁begin｜>", kOneEnd = "<｜tool▁call▁end｜>",
                  kSep = "<｜tool▁sep｜>";

struct Parsed {
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  std::vector<std::string> ids;
  bool incomplete = false;
  bool operator==(const Parsed&) const = default;
};

Parsed parse(std::string_view parser_name, std::string_view text, std::size_t piece, bool is_cut) {
  ToolParser parser = ToolParser::create(parser_name, kTools, [] { return std::string("made"); });
  Parsed out;
  const auto take = [&](const std::vector<ToolEvent>& events) {
    for (const ToolEvent& event : events) {
      if (event.kind == ToolEvent::Kind::kContent) out.content += event.text;
      if (event.kind == ToolEvent::Kind::kBegin) {
        out.calls.emplace_back(event.name, "");
        out.ids.push_back(event.id);
      }
      if (event.kind == ToolEvent::Kind::kArguments) out.calls.back().second += event.text;
    }
  };
  for (std::size_t at = 0; at < text.size(); at += piece) take(parser.push(text.substr(at, piece)));
  take(parser.finish(is_cut));
  out.incomplete = parser.incomplete();
  return out;
}

struct Row {
  const char* parser;
  std::string text;
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;
  bool incomplete = false;
};

void expect_rows(const std::vector<Row>& rows, bool is_cut) {
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.parser) + ": " + row.text);
    const Parsed whole = parse(row.parser, row.text, row.text.size() + 1, is_cut);
    EXPECT_EQ(whole.content, row.content);
    EXPECT_EQ(whole.calls, row.calls);
    EXPECT_EQ(whole.incomplete, row.incomplete);
    for (const std::size_t piece : {1u, 2u, 3u, 7u})
      EXPECT_EQ(parse(row.parser, row.text, piece, is_cut), whole) << "pieces of " << piece;
  }
}

std::string hermes(const std::string& inner) {
  return "<tool_call>\n" + inner + "\n</tool_call>";
}

using Calls = std::vector<std::pair<std::string, std::string>>;
const Calls kRome = {{"get_weather", R"({"city": "Rome"})"}};

TEST(ToolParserFaults, ClearFaultsAreMended) {
  const std::string glm =
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n";
  expect_rows(
      {
          {"hermes", hermes(R"({"name": "get_weather", "arguments": {"city": "Rome"})"), "", kRome},
          {"hermes", hermes(R"({"name": "get_weather", "arguments": {"city": "Rome",}})"), "",
           kRome},
          {"hermes", hermes(R"({"name": "get_weather", "arguments": {"city": "Rome"},})"), "",
           kRome},
          {"hermes", hermes(R"({"name": "get_weather", "arguments": {'city': 'Rome'}})"), "",
           kRome},
          {"hermes", hermes(R"({'name': 'get_weather', 'arguments': {'city': 'Rome'}})"), "",
           kRome},
          {"hermes", hermes(R"({"name": "get_weather", "arguments": {"city": "Rome"}}})"), "",
           kRome},
          {"hermes", hermes(R"([{"name": "get_weather", "arguments": {"city": "Rome"}}])"), "",
           kRome},
          {"hermes",
           hermes("```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n```"),
           "", kRome},
          {"hermes",
           hermes("{\"name\": \"ping\"}\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
                  "\"Rome\"}}"),
           "",
           {{"ping", "{}"}, kRome[0]}},
          {"hermes",
           hermes(R"({"type": "function", "function": {"name": "get_weather", "arguments": )"
                  R"({"city": "Rome"}}})"),
           "", kRome},
          {"hermes", hermes(R"({"name": "ping", "arguments": ""})"), "", {{"ping", "{}"}}},
          {"hermes",
           hermes(R"({"name": "f", "arguments": {"s": "it\'s </tool_call>", "n": None}})"),
           "",
           {{"f", R"({"s": "it's </tool_call>", "n": null})"}}},
          {"hermes",
           "<tool_call>{\"name\": \"ping\"} so\n</tool_call>!",
           "so\n!",
           {{"ping", "{}"}}},
          // Numbers keep their digits, as they are and mended.
          {"hermes",
           hermes(
               R"({"name": "f", "arguments": {"a": 12345678901234567890, "b": 1.50, "c": 1e400}})"),
           "",
           {{"f", R"({"a": 12345678901234567890, "b": 1.50, "c": 1e400})"}}},
          {"hermes",
           hermes(R"({"name": "f", "arguments": {"a": 12345678901234567890123, "b": 1.0,}})"),
           "",
           {{"f", R"({"a": 12345678901234567890123, "b": 1.0})"}}},
          {"glm45",
           "<tool_call>get_weather\n<arg_key>big</arg_key><arg_value>1e400</arg_value>"
           "<arg_key>days</arg_key><arg_value>12345678901234567890123</arg_value></tool_call>",
           "",
           {{"get_weather", R"({"big": 1e400, "days": 12345678901234567890123})"}}},
          {"glm45", glm, "", kRome},
          {"glm45", glm + "</tool_", "", kRome},
          {"glm45", glm + "<tool_call>ping</tool_call>", "", {kRome[0], {"ping", "{}"}}},
          {"glm45", "<tool_call>ping\n", "", {{"ping", "{}"}}},
          {"glm45",
           "<tool_call>get_weather\n<arg_key>at</arg_key>\n<arg_value>{'a': [1, None], 'b': "
           "False}</arg_value>\n</tool_call>",
           "",
           {{"get_weather", R"({"at": {"a": [1, null], "b": false}})"}}},
          {"deepseekv31", kBegin + kOne + "ping" + kSep + kOneEnd + kEnd, "", {{"ping", "{}"}}},
          {"deepseekv31",
           kBegin + kOne + "ping" + kSep + "null" + kOneEnd + kEnd,
           "",
           {{"ping", "{}"}}},
          {"deepseekv31", kBegin + kOne + "ping" + kSep, "", {{"ping", "{}"}}},
          {"deepseekv3",
           kBegin + kOne + "function" + kSep + "ping\n```json\n\n```" + kOneEnd + kEnd,
           "",
           {{"ping", "{}"}}},
          {"deepseekv3",
           kOne + "function" + kSep + "get_weather\n```json\n{\"city\": \"Rome\",}\n```" + kOneEnd +
               kEnd,
           "", kRome},
          {"mistral", "[TOOL_CALLS]ping[ARGS]", "", {{"ping", "{}"}}},
          {"mistral",
           "[TOOL_CALLS]ping[ARGS][TOOL_CALLS]ping[ARGS]{}",
           "",
           {{"ping", "{}"}, {"ping", "{}"}}},
          {"mistral", "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Rome\"}}", "", kRome},
          {"mistral", R"([TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Rome",}}])",
           "", kRome},
          {"llama3", R"({"name": "get_weather", "parameters": {"city": "Rome"})", "", kRome},
          {"llama3", R"({"name": "get_weather", "parameters": {"city": "Rome",}})", "", kRome},
      },
      false);
}

TEST(ToolParserFaults, OtherFaultsAreTextAllOfIt) {
  std::vector<Row> rows;
  for (const char* inner : {R"({"name": "get_weather", "arguments": {"city": }})",
                            R"({"name": "get_weather", "arguments": {"city": Rome}})",
                            R"({"name": "get_weather", "arguments": {"city": NaN}})",
                            R"({"name": "get_weather", "arguments": {"city": "Rome" "days": 2}})",
                            R"({"name": "get_weather", "arguments": [1]})",
                            R"({"name": "get_weather", "arguments": "Rome"})",
                            R"({"name": "get_weather", "arguments": 5})",
                            R"({"name": "get_weather", "arguments": {"city": "Rome)",
                            R"({"name": "get_weather", "arguments": {"city": "Rome")",
                            R"({"name": "get_weather")", R"({"name": 5, "arguments": {}})",
                            R"({"arguments": {"city": "Rome"}})", R"(get_weather(city="Rome"))"})
    rows.push_back(
        {"hermes", "Ok " + hermes(inner) + " Bye.", "Ok " + hermes(inner) + " Bye.", {}});
  for (const char* inner : {"{\"a\": 1", "{\"a\": }", "[1]", "{a: 1}"}) {
    const std::string block = kBegin + kOne + "ping" + kSep + inner + kOneEnd + kEnd;
    rows.push_back({"deepseekv31", block, block, {}});
    rows.push_back({"mistral",
                    std::string("[TOOL_CALLS]ping[ARGS]") + inner,
                    std::string("[TOOL_CALLS]ping[ARGS]") + inner,
                    {}});
  }
  for (const char* text : {"[TOOL_CALLS] is a mark { of Mistral", "Use [TOOL_CALLS] or [ARGS].",
                           "[TOOL_CALLS]ping and more", "[TOOL_CALLS]"})
    rows.push_back({"mistral", text, text, {}});
  for (const char* text :
       {R"({"name": "ping", "age": 3})", R"({"name": "Ann", "parameters": {}})",
        R"({"name": "ping", "parameters": "none"})", R"({"name": "ping", "parameters": [1]})",
        R"([{"name": "ping"}])", R"({"name": "get_weather", "parameters": {"city": "Ro)"})
    rows.push_back({"llama3", text, text, {}});
  for (const char* text : {"<tool_call>ping\nand more</tool_call>",
                           "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Ro",
                           "<tool_call>unknown\n", "<tool_call>"})
    rows.push_back({"glm45", text, text, {}});
  expect_rows(rows, false);
}

// max_tokens: a call whose name is known comes with the arguments so far, never closed.
TEST(ToolParserFaults, CutCalls) {
  expect_rows(
      {
          {"hermes", "<tool_call>", "", {}},
          {"hermes", "Ok <tool_call>\n{\"na", "Ok ", {}},
          {"hermes", "Ok <tool_ca", "Ok <tool_ca", {}},
          {"hermes",
           R"(<tool_call>{"name": "get_weather", "arguments": {"city": "Ro)",
           "",
           {{"get_weather", R"({"city": "Ro)"}},
           true},
          {"hermes", R"(<tool_call>{"name": "get_weather")", "", {{"get_weather", ""}}, true},
          {"hermes", hermes(R"({"name": "ping"})") + "\n<tool_call>", "", {{"ping", "{}"}}},
          {"glm45", "<tool_call>get_wea", "", {}},
          {"glm45",
           "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n",
           "",
           {{"get_weather", R"({"city": "Rome")"}},
           true},
          {"mistral", "[TOOL_CALLS]ping[ARGS]", "", {{"ping", ""}}, true},
          {"deepseekv3", kBegin + kOne + "function" + kSep + "pi", "", {}},
          {"llama3", R"({"name": "get_we)", R"({"name": "get_we)", {}},
          {"llama3", R"({"answer": 4)", R"({"answer": 4)", {}},
          {"llama3",
           R"({"name": "get_weather", "parameters": {"city": "Ro)",
           "",
           {{"get_weather", R"({"city": "Ro)"}},
           true},
      },
      true);
}

// GLM's values have the types that the schema states, however it states them.
TEST(ToolParserFaults, StatedTypes) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "$defs": {"Name": {"type": "string"}, "Both": {"anyOf": [{"$ref":
    "#/$defs/Name"}, {"type": "integer"}]}}, "properties": {
      "ref": {"$ref": "#/$defs/Name"}, "both": {"$ref": "#/$defs/Both"}, "flag": {"const": true},
      "all": {"allOf": [{"$ref": "#/$defs/Name"}]}, "pick": {"enum": ["1", "2"]},
      "mix": {"enum": ["a", 3]}, "loop": {"$ref": "#/$defs/None"}}}}}])");
  ToolParser parser = ToolParser::create("glm45", tools);
  std::string text = "<tool_call>f\n", arguments;
  for (const char* value :
       {"ref>7", "both>7", "flag>true", "all>null", "pick>1", "mix>3", "loop>7"}) {
    const std::string pair = value;
    const std::size_t bar = pair.find('>');
    text += "<arg_key>" + pair.substr(0, bar) + "</arg_key><arg_value>" + pair.substr(bar + 1) +
            "</arg_value>";
  }
  for (const ToolEvent& event : parser.push(text + "</tool_call>")) arguments += event.text;
  EXPECT_EQ(arguments,
            R"({"ref": "7", "both": 7, "flag": true, "all": "null", "pick": "1", "mix": 3, )"
            R"("loop": 7})");
}

// A fault that would be mended in a whole call is mended in the call so far.
TEST(ToolParserFaults, CutCallsWithFaults) {
  const std::string call = R"(<tool_call>{"name": "get_weather", "arguments": )";
  expect_rows(
      {{"hermes", call + R"({"city": "Rome", }})", "", {{"get_weather", R"({"city": "Rome"})"}}},
       {"hermes",
        call + R"({"city": "Rome", "ok": True, "days": 3)",
        "",
        {{"get_weather", R"({"city": "Rome", "ok": true, "days": 3)"}},
        true},
       {"hermes", call + "{'city': 'Ro", "", {{"get_weather", R"({"city": "Ro)"}}, true},
       {"mistral",
        R"([TOOL_CALLS]get_weather[ARGS]{"ok": True, "city": "Ro)",
        "",
        {{"get_weather", R"({"ok": true, "city": "Ro)"}},
        true},
       {"deepseek_v31",
        kBegin + kOne + "get_weather" + kSep + R"({"ok": True, "city": "Ro)",
        "",
        {{"get_weather", R"({"ok": true, "city": "Ro)"}},
        true},
       {"hermes", call + "{oops", call + "{oops", {}}},
      true);
}

TEST(ToolParserFaults, MistralIds) {
  const Parsed given =
      parse("mistral",
            "[TOOL_CALLS]ping[CALL_ID]abcDEF123[ARGS]{}[TOOL_CALLS]ping[CALL_ID]abcDEF123[ARGS]{}",
            1000, false);
  EXPECT_EQ(given.calls, (Calls{{"ping", "{}"}, {"ping", "{}"}}));
  EXPECT_EQ(given.ids, (std::vector<std::string>{"abcDEF123", "made"}));  // no id twice
  const Parsed list =
      parse("mistral",
            R"([TOOL_CALLS][{"name": "ping", "id": "abcDEF123"}, {"name": "ping", "id": "x"}])",
            1000, false);
  EXPECT_EQ(list.ids, (std::vector<std::string>{"abcDEF123", "made"}));
}

// The fault stands behind the bytes that are held: the rest goes on as arguments, and the parser
// says that the call is not whole.
TEST(ToolParserFaults, LongCallsGoOnAsTheyAre) {
  const std::string city(600, 'x');
  const std::string call =
      "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"" + city + "\", oops}}";
  const Parsed out = parse("hermes", call + "</tool_call>Bye.", 5, false);
  ASSERT_EQ(out.calls.size(), 1u);
  EXPECT_EQ(out.calls[0].second, "{\"city\": \"" + city + "\", oops}");
  EXPECT_EQ(out.content, "Bye.");
  EXPECT_TRUE(out.incomplete);
}

struct Stopped {
  std::string content, name, arguments;
  bool incomplete = false, is_cut_off = false;
  bool operator==(const Stopped&) const = default;
};

// `text`, and `stop` behind it. `held`: as for an answer that is told at once.
Stopped parse_stopped(std::string_view parser_name, std::string_view text, std::string_view stop,
                      bool held) {
  ToolParser parser = ToolParser::create(parser_name, kTools, [] { return std::string("made"); });
  if (held) parser.hold_calls();
  Stopped out;
  for (const std::vector<ToolEvent>& events :
       {parser.push(text), parser.push_stop(stop), parser.finish(true)})
    for (const ToolEvent& event : events) {
      if (event.kind == ToolEvent::Kind::kContent) out.content += event.text;
      if (event.kind == ToolEvent::Kind::kBegin) out.name += event.name;
      if (event.kind == ToolEvent::Kind::kArguments) out.arguments += event.text;
    }
  out.incomplete = parser.incomplete();
  out.is_cut_off = parser.is_cut_off();
  return out;
}

// Every stop string at every place of a call: the call is whole, or it is what a cut there leaves.
TEST(ToolParserFaults, StopStringsCut) {
  const std::pair<const char*, std::string> rows[] = {
      {"glm45",
       "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n"
       "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"},
      {"qwen3_coder",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n"
       "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"},
      {"hermes", hermes(R"({"name": "get_weather", "arguments": {"city": "Rome", "days": 2}})")},
      {"deepseek_v31",
       kBegin + kOne + "get_weather" + kSep + R"({"city": "Rome", "days": 2})" + kOneEnd + kEnd},
      {"pythonic", "[get_weather(city='Rome', days=2)]"},
      {"mistral", R"([TOOL_CALLS]get_weather[ARGS]{"city": "Rome", "days": 2})"},
  };
  for (const auto& [parser, text] : rows) {
    const Stopped whole = parse_stopped(parser, text, "", true);
    ASSERT_EQ(Json::parse(whole.arguments), (Json{{"city", "Rome"}, {"days", 2}})) << parser;
    for (std::size_t at = 0; at < text.size(); ++at) {
      const Stopped cut = parse_stopped(parser, text.substr(0, at), "", true);
      for (std::size_t end = at + 1; end <= text.size(); ++end) {
        const std::string stop = text.substr(at, end - at);
        const Stopped seen = parse_stopped(parser, text.substr(0, at), stop, true);
        SCOPED_TRACE(std::string(parser) + ": " + text.substr(0, at) + " | " + stop);
        if (seen != cut) {
          EXPECT_EQ(seen, whole);
        }
        if (seen.is_cut_off) {
          EXPECT_TRUE(seen.incomplete || seen.name.empty());
        }
        EXPECT_EQ(parse_stopped(parser, text.substr(0, at), stop, false), seen);
      }
    }
  }
}

TEST(ToolParserFaults, StopStringsThatCloseCalls) {
  const std::string glm =
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>";
  const std::string json =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}";
  const struct {
    const char* parser;
    std::string text, stop, arguments;
    bool is_whole;
  } rows[] = {
      {"glm45", glm + "\n", "</tool_call>", R"({"city": "Rome"})", true},
      {"glm45", glm, "\n</tool_call>\n<tool_call>", R"({"city": "Rome"})", true},
      {"glm45", glm + "\n", "<arg_key>", R"({"city": "Rome")", false},
      {"glm45", glm + "\n", "</tool_", R"({"city": "Rome")", false},
      {"glm45", glm.substr(0, glm.find("Rome") + 2), "me</arg_value></tool_call>",
       R"({"city": "Ro)", false},
      {"glm45", "<tool_call>ping\n", "</tool_call>", "{}", true},
      {"glm45", "<tool_call>pi", "ng</tool_call>", "", false},
      {"hermes", json, "}\n</tool_call>", R"({"city": "Rome"})", true},
      {"hermes", json + "}\n", "</tool_call>", R"({"city": "Rome"})", true},
  };
  for (const auto& row : rows)
    for (const bool held : {false, true}) {
      const Stopped seen = parse_stopped(row.parser, row.text, row.stop, held);
      SCOPED_TRACE(row.text + " | " + row.stop);
      EXPECT_EQ(seen.arguments, row.arguments);
      EXPECT_EQ(seen.content, "");
      EXPECT_EQ(seen.is_cut_off, !row.is_whole);
    }
}

}  // namespace
}  // namespace sluice
