// text/parsers/tool_parser.h and text/parsers/reasoning_parser.h: any output of a model. The first
// byte selects the format, the second the cuts of the text. The cuts must not matter, and the
// arguments of a complete call are JSON.
#include <algorithm>
#include <map>

#include "base/hash.h"
#include "base/json.h"
#include "fuzz_support.h"
#include "fuzz_target.h"
#include "text/parsers/reasoning_parser.h"
#include "text/parsers/tool_parser.h"

namespace sluice::fuzz {
namespace {

const Json& tools() {
  static const Json json = parse_json_or_throw(
      R"([{"type":"function","function":{"name":"get_weather","parameters":{"type":"object",
        "properties":
          {"city":{"type":"string"},"days":{"type":"integer"},"units":{"type":["string","null"]},
          "at":{"type":"object"}}}}},
          {"type":"function","function":{"name":"add","parameters":{"type":"object","properties":
          {"a":{"type":"number"},"b":{"type":"number"}}}}}])",
      "tools");
  return json;
}

// `text` in pieces whose lengths follow from `seed`; one piece when it is 0.
std::vector<std::string_view> cut(std::string_view text, unsigned seed) {
  std::vector<std::string_view> pieces;
  std::uint64_t state = seed;
  while (!text.empty()) {
    const std::size_t length =
        seed == 0 ? text.size()
                  : std::min<std::size_t>(text.size(), 1 + mix64(state++) % (seed % 16 + 1));
    pieces.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return pieces;
}

// Numbers beyond a double are JSON, too.
bool is_json(const std::string& text) {
  try {
    return !Json::parse(text).is_discarded();
  } catch (const Json::out_of_range&) {
    return true;
  } catch (const Json::parse_error&) {
    return false;
  }
}

struct Calls {
  std::string content;
  std::vector<std::string> names, arguments;
  bool incomplete = false;
  bool operator==(const Calls&) const = default;
};

Calls parse_calls(const std::string& format, std::string_view text, unsigned seed) {
  ToolParser parser = ToolParser::create(format, tools(), [] { return std::string("call_0"); });
  Calls calls;
  const auto take = [&](const std::vector<ToolEvent>& events) {
    for (const ToolEvent& event : events) {
      if (event.kind == ToolEvent::Kind::kContent) {
        calls.content += event.text;
      } else if (event.kind == ToolEvent::Kind::kBegin) {
        must_hold(event.index == static_cast<int>(calls.names.size()),
                  "calls are numbered in order");
        calls.names.push_back(event.name);
        calls.arguments.emplace_back();
      } else {
        must_hold(event.index + 1 == static_cast<int>(calls.names.size()),
                  "arguments belong to the last call");
        calls.arguments.back() += event.text;
      }
    }
  };
  for (const std::string_view piece : cut(text, seed)) take(parser.push(piece));
  take(parser.finish());
  calls.incomplete = parser.incomplete();
  must_hold(parser.num_calls() == static_cast<int>(calls.names.size()),
            "as many calls as begin events");
  return calls;
}

std::pair<std::string, std::string> parse_reasoning(const std::string& format,
                                                    std::string_view text, unsigned seed,
                                                    bool starts_inside) {
  ReasoningParser parser = ReasoningParser::create(format, starts_inside);
  std::pair<std::string, std::string> all;
  const auto take = [&](const ReasoningDelta& delta) {
    all.first += delta.reasoning;
    all.second += delta.content;
  };
  for (const std::string_view piece : cut(text, seed)) take(parser.push(piece));
  take(parser.finish());
  return all;
}

}  // namespace

void run_one(std::string_view input) {
  if (input.size() < 2) return;
  static const std::vector<std::string> tool_formats = known_tool_parsers();
  static const std::vector<std::string> reasoning_formats = known_reasoning_parsers();
  const unsigned which = static_cast<unsigned char>(input[0]),
                 seed = static_cast<unsigned char>(input[1]);
  const std::string_view text = input.substr(2);

  const std::string& format = tool_formats[which % tool_formats.size()];
  const Calls whole = parse_calls(format, text, 0);
  must_hold(parse_calls(format, text, seed) == whole,
            "the cuts of the text do not matter to tool calls");
  if (!whole.incomplete)
    for (const std::string& arguments : whole.arguments) {
      // The detokenizer never yields invalid UTF-8. Lone surrogates are valid JSON (RFC 8259, 8.2),
      // but this test's parser refuses them.
      if (std::ranges::any_of(arguments, [](char c) { return (c & 0x80) != 0; })) continue;
      if (arguments.find("\\ud") != std::string::npos ||
          arguments.find("\\uD") != std::string::npos)
        continue;
      must_hold(is_json(arguments), "arguments of a whole call are JSON: " + arguments);
    }

  const std::string& reasoning = reasoning_formats[which % reasoning_formats.size()];
  must_hold(parse_reasoning(reasoning, text, seed, which >= 128) ==
                parse_reasoning(reasoning, text, 0, which >= 128),
            "the cuts of the text do not matter to reasoning");
}

std::vector<std::string> seeds() {
  const std::string texts[] = {
      "<think>\nlet me see\n</think>\n\nHello "
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
      "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call><tool_call>add\n<arg_key>a</"
      "arg_key>\n<arg_value>1.5</arg_value>\n</tool_call>",
      "text\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"P\\u00e1ris "
      "\\\"x\\\"\", \"at\": {\"a\": [1, {}]}}}\n</tool_call> more",
      "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": -2e3}}, {\"name\": "
      "\"add\", \"arguments\": {}}]",
      "[TOOL_CALLS]add[ARGS]{\"a\": 1}",
      "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}",
      "{\"name\": \"add\", \"parameters\": {\"a\": 1}}",
      "<\xEF\xBD\x9Ctool\xE2\x96\x81"
      "calls\xE2\x96\x81"
      "begin\xEF\xBD\x9C><\xEF\xBD\x9Ctool\xE2\x96\x81"
      "call\xE2\x96\x81"
      "begin\xEF\xBD\x9C>function<\xEF\xBD\x9Ctool\xE2\x96\x81sep\xEF\xBD\x9C>add\n"
      "```json\n{\"a\": 1}\n```<\xEF\xBD\x9Ctool\xE2\x96\x81"
      "call\xE2\x96\x81"
      "end\xEF\xBD\x9C><\xEF\xBD\x9Ctool\xE2\x96\x81"
      "calls\xE2\x96\x81"
      "end\xEF\xBD\x9C>",
      "plain < text <tool <tool_cal </think> [TOOL"};
  std::vector<std::string> all;
  const std::size_t formats =
      std::max(known_tool_parsers().size(), known_reasoning_parsers().size());
  for (std::size_t i = 0; i < formats; ++i)
    for (const std::string& text : texts) {
      std::string seed;
      seed += static_cast<char>(i);
      seed += static_cast<char>(3 + i);
      all.push_back(seed + text);
    }
  return all;
}

}  // namespace sluice::fuzz
