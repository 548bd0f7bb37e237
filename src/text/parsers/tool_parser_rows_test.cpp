// Faults that every family of models may make, in every row of the table.
#include <gtest/gtest.h>

#include "text/parsers/lenient_json.h"
#include "text/parsers/tool_parser.h"

namespace sluice {
namespace {

using Calls = std::vector<std::pair<std::string, std::string>>;  // name, arguments

const Json kTools = Json::parse(R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
   "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}},
  {"type": "function", "function": {"name": "ping"}}])");

struct Parsed {
  std::string content = {};
  Calls calls = {};
  bool incomplete = false;
  bool operator==(const Parsed&) const = default;
};

void PrintTo(const Parsed& parsed, std::ostream* out) {
  *out << ::testing::PrintToString(parsed.content) << " " << ::testing::PrintToString(parsed.calls)
       << (parsed.incomplete ? " incomplete" : "");
}

Parsed parse_pieces(std::string_view name, std::string_view text, std::size_t piece, bool holds) {
  ToolParser parser = ToolParser::create(name, kTools);
  if (holds) parser.hold_calls();
  Parsed out;
  const auto take = [&](const std::vector<ToolEvent>& events) {
    for (const ToolEvent& event : events) {
      if (event.kind == ToolEvent::Kind::kContent) out.content += event.text;
      if (event.kind == ToolEvent::Kind::kBegin) out.calls.emplace_back(event.name, "");
      if (event.kind == ToolEvent::Kind::kArguments) out.calls.back().second += event.text;
    }
  };
  for (std::size_t at = 0; at < text.size(); at += piece) take(parser.push(text.substr(at, piece)));
  take(parser.finish());
  out.incomplete = parser.incomplete();
  return out;
}

// The same for any cut.
Parsed parse(std::string_view name, std::string_view text, bool holds = false) {
  const Parsed whole = parse_pieces(name, text, text.size() + 1, holds);
  for (const std::size_t piece : {1u, 2u, 3u, 7u})
    EXPECT_EQ(parse_pieces(name, text, piece, holds), whole) << name << ": " << text;
  return whole;
}

std::string strung(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (const std::string_view part : parts) out += part;
  return out;
}

std::string open_of(const ToolFormat& format) {
  return std::string(format.open.empty() ? format.other_opens[0] : format.open);
}

// A call as the row spells it, between the marks of its block. `arguments` are JSON's text, or the
// text of the one value `city`.
std::string inner(const ToolFormat& format, std::string_view arguments, std::string_view city) {
  const ToolFormat& f = format;
  switch (format.syntax) {
    case CallSyntax::kObject:
      return strung({f.list_open, "{\"", f.name_key, "\": \"get_weather\", \"", f.arguments_key,
                     "\": ", arguments, "}", f.list_close});
    case CallSyntax::kNamed:
      return strung({f.call_open, f.type, "get_weather", f.name_close, arguments, f.arguments_close,
                     f.call_close, f.call_tail});
    case CallSyntax::kTagged:
      return strung({f.call_open, "get_weather", f.name_close, f.after_name, f.key_open, "city",
                     f.string_key_close.empty() ? f.key_close : f.string_key_close, f.value_open,
                     city, f.value_close, f.call_close, f.call_tail});
    case CallSyntax::kKeywords:
      return strung({f.list_open, "get_weather(city=\"", city, "\")", f.list_close});
    case CallSyntax::kBraces:
      return strung({f.call_open, "get_weather{city:", f.quote, city, f.quote, "}"});
    case CallSyntax::kChannels:
      break;
  }
  return {};
}

template <class Use>
void for_each_row(Use use) {
  int rows = 0;
  for (const ToolFormat& format : tool_formats()) {
    if (format.syntax == CallSyntax::kChannels) continue;
    SCOPED_TRACE(std::string(format.name));
    use(format);
    ++rows;
  }
  EXPECT_GT(rows, 30);
}

const Calls kRome = {{"get_weather", R"({"city": "Rome"})"}};
constexpr std::string_view kRomeJson = R"({"city": "Rome"})";

TEST(ToolParserRows, DoubledMarksAreOne) {
  for_each_row([](const ToolFormat& format) {
    const std::string open = open_of(format), close(format.close),
                      call = inner(format, kRomeJson, "Rome");
    EXPECT_EQ(parse(format.name, open + call + close), (Parsed{"", kRome}));
    EXPECT_EQ(parse(format.name, open + open + call + close), (Parsed{"", kRome}));
    EXPECT_EQ(parse(format.name, "Hm. " + open + "\n" + open + call + close),
              (Parsed{"Hm. ", kRome}));
    EXPECT_EQ(parse(format.name, open + call + close + close), (Parsed{"", kRome}));
    const Parsed behind = parse(format.name, open + call + close + "\n" + close + "\nBye.");
    EXPECT_EQ(trimmed(behind.content), "Bye.");
    EXPECT_EQ(behind.calls, kRome);
    EXPECT_EQ(parse(format.name, open + call + close + open), (Parsed{"", kRome}));
    // Marks that no call follows are text, however many.
    EXPECT_EQ(parse(format.name, "Hm. " + open + open + "!").content, "Hm. " + open + open + "!");
  });
  const std::string section = "<|tool_calls_section_begin|>", one = "<|tool_call_begin|>";
  EXPECT_EQ(
      parse("kimi_k2", section + one + one + "functions.get_weather:0<|tool_call_argument_begin|>" +
                           std::string(kRomeJson) + "<|tool_call_end|>"),
      (Parsed{"", kRome}));
}

TEST(ToolParserRows, BlocksWithoutACallAreDropped) {
  for_each_row([](const ToolFormat& format) {
    const std::string open = open_of(format), close(format.close);
    if (!close.empty()) {
      EXPECT_EQ(parse(format.name, open + close), Parsed{});
      EXPECT_EQ(parse(format.name, open + "\n" + close + "Hello").content, "Hello");
    }
    if (!format.is_list() || format.syntax == CallSyntax::kNamed) return;
    EXPECT_EQ(parse(format.name, open + "[]" + close), Parsed{});
    EXPECT_EQ(parse(format.name, "Hm. " + open + "[ ]" + close + "Hello").content, "Hm. Hello");
    EXPECT_EQ(parse(format.name, open + "[1]" + close).content, open + "[1]" + close);
    EXPECT_EQ(parse(format.name, "[]").content, "[]");
  });
  EXPECT_EQ(parse("kimi_k2", "Done.<|tool_calls_section_begin|><|tool_calls_section_end|>").content,
            "Done.");
  // A text may speak of its marks.
  const std::string text = "Use <tool_call></tool_call>.";
  EXPECT_EQ(parse("hermes", text).content, text);
}

TEST(ToolParserRows, ArgumentsOfAnotherNameAreNoCall) {
  for_each_row([](const ToolFormat& format) {
    if (!format.takes_objects()) return;
    const std::string open = open_of(format), close(format.close), name(format.name_key);
    const std::string head = open + std::string(format.list_open) + "{\"" + name +
                             "\": \"get_weather\"",
                      tail = "}" + std::string(format.list_close) + close;
    for (const char* members : {R"(, "args": {"city": "Rome"})", R"(, "input": {"city": "Rome"})",
                                R"(, "city": "Rome")", R"(, "params": {"city": "Rome"},)"}) {
      const std::string text = head + members + tail;
      EXPECT_EQ(parse(format.name, text), Parsed{text});
    }
    const std::string lengthy = head + ", \"args\": {\"city\": \"" + std::string(700, 'x') + "\"}";
    EXPECT_EQ(parse(format.name, lengthy + tail), Parsed{lengthy + tail});
    EXPECT_EQ(parse(format.name, lengthy + tail, true), Parsed{lengthy + tail});
    // Other members do not matter beside arguments, and a call may have none.
    EXPECT_EQ(parse(format.name, head + R"(, "x": 1, "arguments": {"city": "Rome"})" + tail).calls,
              kRome);
    std::string bare = head + R"(, "type": "function", "id": "abcDEF123")";
    if (!format.id_key.empty()) bare += ", \"" + std::string(format.id_key) + "\": \"0\"";
    EXPECT_EQ(parse(format.name, bare + tail).calls, (Calls{{"get_weather", "{}"}}));
    EXPECT_EQ(parse(format.name, bare + "," + tail).calls, (Calls{{"get_weather", "{}"}}));
  });
}

// A call of any length is mended in the same way, streamed or not.
TEST(ToolParserRows, LongCallsAreMended) {
  const std::string x(700, 'x');
  const std::pair<std::string, std::string> arguments[] = {
      {"{\"city\": \"" + x + "\",}", "{\"city\": \"" + x + "\"}"},
      {"{\"city\": \"" + x + "\", \"l\": [1, 2 , ], }", "{\"city\": \"" + x + "\", \"l\": [1, 2]}"},
      {"{\"city\": '" + x + "\"it\\'s\\x41', \"t\": True, \"n\": [None, False]}",
       "{\"city\": \"" + x + "\\\"it's\\u0041\", \"t\": true, \"n\": [null, false]}"},
      {"{\"a\": None, 'city': \"" + x + "\"}", "{\"a\": null, \"city\": \"" + x + "\"}"},
      {"{\"city\": \"" + x + "\\u00e9\\\\\"}}", "{\"city\": \"" + x + "\\u00e9\\\\\"}"}};
  for_each_row([&](const ToolFormat& format) {
    if (format.syntax != CallSyntax::kObject && format.syntax != CallSyntax::kNamed) return;
    for (const auto& [written, meant] : arguments)
      for (const bool holds : {false, true}) {
        const Parsed out =
            parse(format.name,
                  open_of(format) + inner(format, written, "") + std::string(format.close), holds);
        ASSERT_EQ(out.calls.size(), 1u) << out.content;
        const auto got = read_json_text(out.calls[0].second), want = read_json_text(meant);
        ASSERT_TRUE(got && got->is_strict) << out.calls[0].second;
        EXPECT_EQ(Json::parse(got->text), Json::parse(want->text));
        EXPECT_EQ(out.content, "");
        EXPECT_FALSE(out.incomplete);
      }
  });
}

TEST(ToolParserRows, LongCallsMayLackTheirOuterBrace) {
  const std::string x(700, 'x'), arguments = "{\"city\": \"" + x + "\"}";
  for_each_row([&](const ToolFormat& format) {
    if (format.syntax != CallSyntax::kObject) return;
    std::string call = open_of(format) + inner(format, arguments, "");
    call.erase(call.rfind('}'), 1);
    const Parsed out = parse(format.name, call + std::string(format.close));
    EXPECT_EQ(out.calls, (Calls{{"get_weather", arguments}}));
    EXPECT_EQ(out.content, "");
    EXPECT_FALSE(out.incomplete);
  });
}

// What a whole answer gives as text, a stream gives as it is: only the arguments' own brackets.
TEST(ToolParserRows, OtherFaultsOfLongCalls) {
  const std::string x(700, 'x'), broken = "{\"city\": \"" + x + "\", oops, \"a\": [1}";
  for_each_row([&](const ToolFormat& format) {
    if (format.syntax != CallSyntax::kObject && format.syntax != CallSyntax::kNamed) return;
    const std::string text =
        open_of(format) + inner(format, broken, "") + std::string(format.close);
    EXPECT_EQ(parse(format.name, text, true), Parsed{text});
    const Parsed out = parse(format.name, text);
    ASSERT_EQ(out.calls.size(), 1u);
    EXPECT_TRUE(out.incomplete);
    EXPECT_TRUE(out.calls[0].second.starts_with(broken.substr(0, broken.size() - 1)));
  });
  const std::string text =
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"city\": \"" + x + "\", oops}}</tool_call>";
  EXPECT_EQ(parse("hermes", text).calls[0].second, "{\"city\": \"" + x + "\", oops}");
}

TEST(ToolParserRows, TheClosingMarkOfAValueMayBeMissing) {
  for_each_row([](const ToolFormat& f) {
    if (f.syntax != CallSyntax::kTagged) return;
    const std::string call = inner(f, "", "Rome"), open(f.open), close(f.close),
                      value_close(f.value_close);
    std::string lacking = call;
    lacking.erase(lacking.find(value_close), value_close.size());
    EXPECT_EQ(parse(f.name, open + lacking + close), (Parsed{"", kRome}));
    // A line break belongs to the frame only in rows that pad values.
    const std::string line(f.pads_values ? "\n" : "");
    EXPECT_EQ(parse(f.name, open + lacking + line + close + "\n" + open + call + close),
              (Parsed{"", {kRome[0], kRome[0]}}));
    // A value that has its mark may hold the ends of calls, and more.
    const std::string end = std::string(f.call_close) + std::string(f.call_tail) + close;
    for (const std::string& city : {end, "a " + end + " b", end + open,
                                    std::string(f.call_close) + "x", end + std::string(5000, 'y')})
      EXPECT_EQ(parse(f.name, open + inner(f, "", city) + close).calls,
                (Calls{{"get_weather", "{\"city\": \"" + escape_json_string(city) + "\"}"}}));
  });
  EXPECT_EQ(parse("qwen3_coder",
                  "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</function>\n"
                  "</tool_call>"),
            (Parsed{"", kRome}));
}

TEST(ToolParserRows, AKeyHoldsNoMarks) {
  const std::string text =
      "<tool_call>get_weather\n<arg_key>city<arg_value>5</arg_value><arg_key>x</arg_key>"
      "<arg_value>1</arg_value></tool_call>";
  EXPECT_EQ(parse("glm45", text), Parsed{text});
  for_each_row([](const ToolFormat& f) {
    if (f.syntax != CallSyntax::kTagged || f.value_open.empty()) return;
    const std::string head =
        strung({f.open, f.call_open, "get_weather", f.name_close, f.after_name, f.key_open, "a"});
    for (const std::string_view mark : {f.key_open, f.value_open, f.value_close, f.close}) {
      const std::string broken = strung(
          {head, mark, "b", f.key_close, f.value_open, "1", f.value_close, f.call_close, f.close});
      EXPECT_TRUE(parse(f.name, broken).calls.empty()) << broken;
    }
  });
}

TEST(ToolParserRows, AnObjectInPlaceOfTags) {
  for_each_row([](const ToolFormat& f) {
    if (f.syntax != CallSyntax::kTagged) return;
    const std::string head =
                          strung({f.open, f.call_open, "get_weather", f.name_close, f.after_name}),
                      tail = strung({f.after_pair, f.call_close, f.call_tail, f.close});
    EXPECT_EQ(parse(f.name, head + std::string(kRomeJson) + tail), (Parsed{"", kRome}));
    EXPECT_EQ(parse(f.name, head + R"({"city": 'Rome',})" + tail), (Parsed{"", kRome}));
    const std::string broken = head + R"({"city": oops})" + tail;
    EXPECT_EQ(parse(f.name, broken), Parsed{broken});
  });
}

}  // namespace
}  // namespace sluice
