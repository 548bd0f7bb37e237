#include "text/parsers/tool_parser.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>

#include "base/testing/processor_time.h"
#include "base/testing/source_dir.h"
#include "text/parsers/reasoning_parser.h"

namespace sluice {
namespace {

struct Call {
  std::string id, name, arguments;
  bool operator==(const Call&) const = default;
};

struct Parsed {
  std::string content;
  std::vector<Call> calls;
  bool incomplete = false;
  bool operator==(const Parsed&) const = default;
};

const Json kTools = Json::parse(R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
  "properties": {
    "city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"},
    "tags": {"type": "array"},
    "note": {"type": ["string", "null"]}, "score": {"anyOf": [{"type": "number"}, {"type":
    "string"}]},
    "unit": {"enum": ["celsius", "fahrenheit"]}}}}},
  {"type": "function", "function": {"name": "ping", "parameters": {"type": "object",
  "properties": {}}}}])");

void collect(Parsed& out, const std::vector<ToolEvent>& events) {
  for (const ToolEvent& event : events) {
    switch (event.kind) {
      case ToolEvent::Kind::kContent:
        out.content += event.text;
        break;
      case ToolEvent::Kind::kReasoning:
        FAIL() << "a tool parser tells no reasoning";
      case ToolEvent::Kind::kBegin:
        EXPECT_EQ(event.index, static_cast<int>(out.calls.size()));
        out.calls.push_back({event.id, event.name, ""});
        break;
      case ToolEvent::Kind::kArguments:
        ASSERT_EQ(event.index, static_cast<int>(out.calls.size()) - 1);
        out.calls.back().arguments += event.text;
        break;
    }
  }
}

Parsed parse(std::string_view name, const std::vector<std::string_view>& pieces) {
  int next = 0;
  ToolParser parser =
      ToolParser::create(name, kTools, [&] { return "call_" + std::to_string(next++); });
  Parsed out;
  for (const std::string_view piece : pieces) collect(out, parser.push(piece));
  collect(out, parser.finish());
  out.incomplete = parser.incomplete();
  return out;
}

struct Row {
  const char* parser;
  std::string text;
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  bool incomplete = false;
};

const std::string kBegin = "<｜tool▁calls▁begin｜>", kEnd = "<｜tool▁calls▁end｜>",
                  kOne = "<｜tool▁call▁begin｜>", kOneEnd = "<｜tool▁call▁end｜>",
                  kSep = "<｜tool▁sep｜>";

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      // GLM
      {"glm45",
       "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Kabul</"
       "arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
       "",
       {{"get_weather", R"({"city": "Kabul", "days": 3})"}}},
      {"glm47",
       "Sure.<tool_call>get_weather<arg_key>city</arg_key><arg_value>a "
       "\"b\"\n\\c</arg_value></tool_call>",
       "Sure.",
       {{"get_weather", R"({"city": "a \"b\"\n\\c"})"}}},
      {"glm",
       "<tool_call>ping\n</tool_call>\n<tool_call>ping</tool_call>\n",
       "",
       {{"ping", "{}"}, {"ping", "{}"}}},
      {"glm",
       "<tool_call>get_weather\n<arg_key>city</arg_key><arg_value>12</arg_value><arg_key>exact</"
       "arg_key><arg_value>True</arg_value>"
       "<arg_key>tags</arg_key><arg_value>[\"x\", "
       "1]</arg_value><arg_key>note</arg_key><arg_value>null</arg_value></tool_call>",
       "",
       {{"get_weather", R"({"city": "12", "exact": true, "tags": ["x", 1], "note": null})"}}},
      {"glm",
       "<tool_call>get_weather\n<arg_key>note</arg_key><arg_value>12</arg_value><arg_key>score</"
       "arg_key><arg_value>12</arg_value>"
       "<arg_key>unit</arg_key><arg_value>celsius</arg_value><arg_key>other</"
       "arg_key><arg_value>{\"k\": [1.5]}</arg_value>"
       "<arg_key>days</arg_key><arg_value>many</arg_value></tool_call>",
       "",
       {{"get_weather",
         R"({"note": "12", "score": 12, "unit": "celsius", "other": {"k": [1.5]}, "days": )"
         R"("many"})"}}},
      {"glm",
       "<tool_call>get_weather\n<arg_key>city</arg_key><arg_value>a</arg_valuex < "
       "b</arg_value></tool_call>Done.",
       "Done.",
       {{"get_weather", R"({"city": "a</arg_valuex < b"})"}}},
      {"glm",
       "<tool_call>get_weather\n<arg_key>city</arg_key><arg_value>Par",
       "<tool_call>get_weather\n<arg_key>city</arg_key><arg_value>Par",
       {}},
      {"glm", "<tool_call>get_wea", "<tool_call>get_wea", {}},
      {"glm", "<tool_call>two words and more\n", "<tool_call>two words and more\n", {}, false},
      {"glm", "a <tool_call> b <tool_call>ping</tool_call>", "a <tool_call> b ", {{"ping", "{}"}}},
      {"glm", "x < y and </tool_call>", "x < y and </tool_call>", {}},
      {"glm", " \n", " \n", {}},
      {"glm", "", "", {}},
      {"glm", "text</tool", "text</tool", {}},
      // Hermes, Qwen
      {"hermes",
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": "
       "2}}\n</tool_call>",
       "",
       {{"get_weather", R"({"city": "Rome", "days": 2})"}}},
      {"qwen25",
       "Looking.\n<tool_call>{\"arguments\": {\"a\": [1, {\"b\": null}]}, \"name\": "
       "\"f\"}</tool_call>\n<tool_call>\n{\"name\": \"ping\"}\n</tool_call>",
       "Looking.\n",
       {{"f", R"({"a": [1, {"b": null}]})"}, {"ping", "{}"}}},
      {"qwen",
       "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
       "",
       {{"f", R"({"a": 1})"}}},
      {"hermes",
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"line\nbreak </tool_call> "
       "é\"}}</tool_call>",
       "",
       {{"f", "{\"s\": \"line\\u000abreak </tool_call> é\"}"}}},
      {"hermes",
       "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>after",
       "after",
       {{"f", "{}"}}},
      {"hermes",
       "<tool_call>{\"id\": 7, \"name\": \"f\", \"x\": {\"name\": \"g\", \"arguments\": 1}, "
       "\"arguments\": {\"v\": -1.5e3}}</tool_call>",
       "",
       {{"f", R"({"v": -1.5e3})"}}},
      {"hermes",
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}",
       "",
       {{"f", R"({"a": 1})"}}},
      {"hermes",
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tr",
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tr",
       {}},
      {"hermes",
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": }}</tool_call>",
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": }}</tool_call>",
       {}},
      {"hermes", "<tool_call>{\"na", "<tool_call>{\"na", {}},
      {"hermes", "<tool_call>[1]</tool_call>", "<tool_call>[1]</tool_call>", {}},
      {"hermes",
       "<tool_call>{\"arguments\": {}}</tool_call>",
       "<tool_call>{\"arguments\": {}}</tool_call>",
       {}},
      {"hermes", "<tool_call>{\"name\": \"ping\"}</tool_", "", {{"ping", "{}"}}},
      {"hermes",
       "<tool_call>{\"name\": \"ping\"}<tool_call>{\"name\": \"f\"}",
       "",
       {{"ping", "{}"}, {"f", "{}"}}},
      // Llama
      {"llama3_json",
       "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}",
       "",
       {{"get_weather", R"({"city": "Oslo"})"}}},
      {"llama3",
       "<|python_tag|>{\"name\": \"ping\", \"parameters\": {}}; {\"name\": \"ping\", "
       "\"parameters\": {\"a\": 1}}",
       "",
       {{"ping", "{}"}, {"ping", R"({"a": 1})"}}},
      {"llama3",
       "\n{\"name\": \"unknown\", \"parameters\": {}}",
       "\n{\"name\": \"unknown\", \"parameters\": {}}",
       {}},
      {"llama3", "{\"answer\": 42}", "{\"answer\": 42}", {}},
      {"llama3",
       "See {\"name\": \"ping\", \"parameters\": {}}",
       "See {\"name\": \"ping\", \"parameters\": {}}",
       {}},
      {"llama3", "{not json", "{not json", {}},
      {"llama3", "<|python_tag|>print(1)", "<|python_tag|>print(1)", {}},
      // Mistral
      {"mistral",
       "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bonn\"}, \"id\": "
       "\"abc\"}, {\"name\": \"ping\", \"arguments\": {}}]",
       "",
       {{"get_weather", R"({"city": "Bonn"})"}, {"ping", "{}"}}},
      {"mistral",
       "Ok[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Bonn\"}[TOOL_CALLS]ping{}",
       "Ok",
       {{"get_weather", R"({"city": "Bonn"})"}, {"ping", "{}"}}},
      {"mistral",
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\"",
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\"",
       {}},
      {"mistral", "[TOOL_CALLS", "[TOOL_CALLS", {}},
      // DeepSeek
      {"deepseekv3",
       "Hm." + kBegin + kOne + "function" + kSep +
           "get_weather\n```json\n{\"city\": \"Rom\"}\n```" + kOneEnd + "\n" + kOne + "function" +
           kSep + "ping\n```json\n{}\n```" + kOneEnd + kEnd,
       "Hm.",
       {{"get_weather", R"({"city": "Rom"})"}, {"ping", "{}"}}},
      {"deepseekv31",
       kBegin + kOne + "ping" + kSep + "{\"a\": 1}" + kOneEnd + kEnd,
       "",
       {{"ping", R"({"a": 1})"}}},
      {"deepseekv3",
       kBegin + kOne + "function" + kSep + "f\n```json\n{\"a\": \"",
       kBegin + kOne + "function" + kSep + "f\n```json\n{\"a\": \"",
       {}},
      {"deepseekv3", kBegin + "text", kBegin + "text", {}},
      {"deepseekv3", kBegin + kOne + "function", kBegin + kOne + "function", {}},
  };
  return all;
}

Parsed expected(const Row& row) {
  Parsed out;
  out.content = row.content;
  for (const auto& [name, arguments] : row.calls)
    out.calls.push_back({"call_" + std::to_string(out.calls.size()), name, arguments});
  out.incomplete = row.incomplete;
  return out;
}

void expect_equal(const Parsed& got, const Parsed& wanted) {
  EXPECT_EQ(got.content, wanted.content);
  EXPECT_EQ(got.incomplete, wanted.incomplete);
  ASSERT_EQ(got.calls.size(), wanted.calls.size());
  for (std::size_t i = 0; i < got.calls.size(); ++i) {
    EXPECT_EQ(got.calls[i].id, wanted.calls[i].id);
    EXPECT_EQ(got.calls[i].name, wanted.calls[i].name);
    EXPECT_EQ(got.calls[i].arguments, wanted.calls[i].arguments);
  }
}

TEST(ToolParser, Rows) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(std::string(row.parser) + ": " + row.text);
    const Parsed got = parse(row.parser, {row.text});
    expect_equal(got, expected(row));
    if (row.incomplete) continue;
    for (const Call& call : got.calls)
      EXPECT_TRUE(parse_json(call.arguments).ok()) << call.arguments;
  }
}

TEST(ToolParser, AnyCutGivesTheSame) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(std::string(row.parser) + ": " + row.text);
    const std::string_view text = row.text;
    for (std::size_t cut = 0; cut <= text.size(); ++cut)
      ASSERT_EQ(parse(row.parser, {text.substr(0, cut), text.substr(cut)}), expected(row))
          << "cut at " << cut;
    std::vector<std::string_view> bytes;
    for (std::size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
    EXPECT_EQ(parse(row.parser, bytes), expected(row));
  }
}

// A call of more than 512 bytes streams: fragments come before a value is closed.
TEST(ToolParser, LongArgumentsStream) {
  const std::string text(600, 'x');
  ToolParser parser = ToolParser::create("glm45", kTools);
  Parsed out;
  collect(out, parser.push("<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>" + text));
  ASSERT_EQ(out.calls.size(), 1u);
  EXPECT_EQ(out.calls[0].arguments, "{\"city\": \"" + text);
  ToolParser json = ToolParser::create("hermes", kTools);
  Parsed streamed;
  collect(streamed, json.push("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"" + text));
  ASSERT_EQ(streamed.calls.size(), 1u);
  EXPECT_EQ(streamed.calls[0].arguments, "{\"a\": \"" + text);
}

TEST(ToolParser, IdsAreRandom) {
  const auto id = [] {
    ToolParser parser = ToolParser::create("glm45", kTools);
    Parsed out;
    collect(out, parser.push("<tool_call>ping</tool_call>"));
    return out.calls.at(0).id;
  };
  const std::string a = id(), b = id();
  EXPECT_NE(a, b);
  EXPECT_EQ(a.size(), 29u);
  EXPECT_TRUE(a.starts_with("call_"));
  // Mistral's templates refuse ids of any other length.
  ToolParser mistral = ToolParser::create("mistral", kTools);
  EXPECT_EQ(mistral.push("[TOOL_CALLS]ping[ARGS]{}").at(0).id.size(), 9u);
}

// R14: a hundred thousand unclosed marks.
TEST(ToolParser, HostileOutputIsLinear) {
  const std::pair<const char*, std::string> hostile[] = {
      {"glm45", "<tool_call>"},
      {"glm45", "<tool_call>f\n<arg_key>"},
      {"glm45", "<tool_call>f\n"},
      {"glm45", "<"},
      {"glm45", "<tool_call>a<arg_key>b</arg_key><arg_value>"},
      {"hermes", "<tool_call>"},
      {"hermes", "<tool_call>{"},
      {"hermes", "<tool_call>{\"arguments\": "},
      {"hermes", "<tool_call>{\"arguments\": \""},
      {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": ["},
      {"mistral", "[TOOL_CALLS]"},
      {"mistral", "[TOOL_CALLS]["},
      {"mistral", "[TOOL_CALLS]a"},
      {"llama3", "<|python_tag|>"},
      {"llama3", "{"},
      {"llama3", "{\"name\": "},
      {"deepseekv3", kBegin},
      {"deepseekv3", kBegin + kOne},
      {"deepseekv3", kBegin + kOne + "f" + kSep}};
  for (const auto& [name, piece] : hostile) {
    SCOPED_TRACE(piece);
    // Four times the text takes about four times as long, not sixteen times; the millisecond is the
    // clock's resolution.
    const auto milliseconds = [&, parser = name, word = piece](int count) {
      std::string text;
      for (int i = 0; i < count; ++i) text += word;
      const double start = thread_milliseconds();
      const Parsed got = parse(parser, {text});
      const double taken = thread_milliseconds() - start;
      EXPECT_TRUE(!got.calls.empty() || got.content == text);
      return taken;
    };
    double large = 0, bound = 0;
    for (int run = 0; run == 0 || (large >= bound && run < 5); ++run) {
      large = milliseconds(40'000);
      bound = 9 * (milliseconds(10'000) + 1);
    }
    EXPECT_LT(large, bound);
  }
}

// Random splices of the formats' words: no crash, any cut gives the same result, and complete calls
// have JSON arguments.
TEST(ToolParser, RandomTextIsParsedTheSameInPieces) {
  const std::string words[] = {"<tool_call>",
                               "</tool_call>",
                               "<arg_key>",
                               "</arg_key>",
                               "<arg_value>",
                               "</arg_value>",
                               "ping",
                               "\n",
                               " ",
                               "{",
                               "}",
                               "\"name\"",
                               ":",
                               "\"ping\"",
                               "\"arguments\"",
                               "{\"a\": 1}",
                               ",",
                               "[",
                               "]",
                               "[TOOL_CALLS]",
                               "[ARGS]",
                               "<|python_tag|>",
                               ";",
                               kBegin,
                               kEnd,
                               kOne,
                               kOneEnd,
                               kSep,
                               "function",
                               "```json\n",
                               "```",
                               "x",
                               "1",
                               "\\",
                               "世",
                               "{\"name\": \"ping\", \"arguments\": ",
                               "{\"name\": \"ping\", \"parameters\": {}}"};
  std::mt19937 random(11);
  int calls = 0;
  for (int round = 0; round < 20'000; ++round) {
    const ToolFormat& format = tool_formats()[random() % tool_formats().size()];
    if (format.syntax == CallSyntax::kChannels) continue;
    const std::string name(format.name);
    std::string text;
    const std::vector<std::string> marks = tool_parser_marks(name);
    for (int i = static_cast<int>(random() % 14); i > 0; --i)
      text +=
          random() % 3 == 0 ? marks[random() % marks.size()] : words[random() % std::size(words)];
    const Parsed all = parse(name, {text});
    std::vector<std::string_view> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + random() % 5;
      pieces.push_back(std::string_view(text).substr(at, size));
      at += size;
    }
    ASSERT_EQ(all, parse(name, pieces)) << name << ": " << text;
    calls += static_cast<int>(all.calls.size());
    if (all.incomplete) continue;
    for (const Call& call : all.calls)
      ASSERT_TRUE(parse_json(call.arguments).ok())
          << name << ": " << text << " -> " << call.arguments;
  }
  EXPECT_GT(calls, 150);
}

// Output of the bundled model: its own template turns the parsed reasoning, content and calls back
// into the same words.
TEST(ToolParser, BundledModelsRecords) {
  std::ifstream file(source_dir() + "/tests/golden/sluice-tiny.json", std::ios::binary);
  const Json records = parse_json_or_throw(std::string(std::istreambuf_iterator<char>(file), {}),
                                           "sluice-tiny.json");
  int tools = 0;
  for (const Json& record : records) {
    if (record["kind"] != "tool") continue;
    std::string output = record["output"].get<std::string>();
    const std::string end = "<|observation|>";
    ASSERT_TRUE(output.ends_with(end));
    output.resize(output.size() - end.size());
    ReasoningParser reasoning = ReasoningParser::create(
        "glm45", reasoning_start(record["prompt"].get<std::string>(), "glm45"));
    ToolParser parser = ToolParser::create("glm45", record["tools"]);
    Parsed out;
    collect(out, parser.push(reasoning.push(output).content));
    collect(out, parser.push(reasoning.finish().content));
    collect(out, parser.finish());
    EXPECT_EQ(out.content, "");
    EXPECT_FALSE(parser.incomplete());
    ASSERT_EQ(out.calls.size(), 1u);
    const Json arguments = *parse_json(out.calls[0].arguments);
    std::string again = "<tool_call>" + out.calls[0].name + "\n";
    for (const auto& [key, value] : arguments.items())
      again += "<arg_key>" + key + "</arg_key>\n<arg_value>" +
               (value.is_string() ? value.get<std::string>() : value.dump()) + "</arg_value>\n";
    EXPECT_TRUE(output.ends_with(again + "</tool_call>")) << output;
    ++tools;
  }
  EXPECT_GT(tools, 0);
}

TEST(ToolParser, UnknownNameListsTheKnownOnes) {
  try {
    ToolParser::create("nosuch", kTools);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    for (const std::string& name : known_tool_parsers())
      EXPECT_NE(error.message().find(name), std::string::npos);
  }
  EXPECT_EQ(tool_parser_name("deepseekv31"), "deepseek_v31");
  EXPECT_THROW(tool_parser_name(""), Error);
}

}  // namespace
}  // namespace sluice
