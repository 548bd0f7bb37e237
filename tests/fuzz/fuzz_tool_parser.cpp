// text/parsers: any output of a model, through every row of the tables. The first byte selects the
// formats, the second the cuts of the text. The cuts must not matter, and the arguments of a
// complete call are JSON.
#include <algorithm>
#include <map>

#include "base/hash.h"
#include "base/json.h"
#include "encode_calls.h"
#include "fuzz_support.h"
#include "fuzz_target.h"
#include "text/parsers/chat_output.h"

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
  std::string content, reasoning;
  std::vector<std::string> names, arguments;
  bool incomplete = false;
  bool operator==(const Calls&) const = default;
};

// What a chat answer is made of; `seed` cuts the text.
Calls parse_answer(const ToolFormat& format, const ReasoningFormat* reasoning,
                   std::string_view prompt, std::string_view text, unsigned seed, bool is_cut) {
  ChatOutputSettings settings;
  settings.tool_parser = format.name;
  if (reasoning) settings.reasoning_parser = reasoning->name;
  settings.prompt = prompt;
  settings.tools = tools();
  ChatOutput output(settings);
  Calls calls;
  const auto take = [&](const ChatDelta& delta) {
    calls.content += delta.content;
    calls.reasoning += delta.reasoning;
    for (const ToolDelta& piece : delta.tools) {
      if (!piece.name.empty()) {
        must_hold(piece.index == static_cast<int>(calls.names.size()),
                  "calls are numbered in order");
        calls.names.push_back(piece.name);
        calls.arguments.emplace_back();
      }
      must_hold(piece.index + 1 == static_cast<int>(calls.names.size()),
                "arguments belong to the last call");
      calls.arguments.back() += piece.arguments;
    }
  };
  for (const std::string_view piece : cut(text, seed)) {
    ChatDelta delta;
    output.push(piece, delta);
    take(delta);
  }
  ChatDelta last;
  output.finish(last, is_cut);
  take(last);
  calls.incomplete = output.incomplete();
  must_hold(output.num_calls() == static_cast<int>(calls.names.size()), "as many calls as names");
  return calls;
}

std::pair<std::string, std::string> parse_reasoning(const std::string& format,
                                                    std::string_view text, unsigned seed,
                                                    ReasoningStart start) {
  ReasoningParser parser = ReasoningParser::create(format, start);
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
  const unsigned which = static_cast<unsigned char>(input[0]),
                 seed = static_cast<unsigned char>(input[1]);
  const std::string_view text = input.substr(2);

  const ToolFormat& format = tool_formats()[which % tool_formats().size()];
  const ReasoningFormat& thoughts = reasoning_formats()[which % reasoning_formats().size()];
  const Calls whole = parse_answer(format, nullptr, {}, text, 0, false);
  must_hold(parse_answer(format, nullptr, {}, text, seed, false) == whole,
            "the cuts of the text do not matter to tool calls");
  // Thoughts, open in the prompt or not, and calls; the engine ended the text.
  const std::string prompt = seed % 2 == 0 ? std::string() : std::string(thoughts.open);
  must_hold(parse_answer(format, &thoughts, prompt, text, seed, true) ==
                parse_answer(format, &thoughts, prompt, text, 0, true),
            "the cuts of the text do not matter to thoughts and calls");
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

  const std::string reasoning(thoughts.name);
  for (const ReasoningStart start : {ReasoningStart::kUnknown, ReasoningStart::kInside})
    must_hold(
        parse_reasoning(reasoning, text, seed, start) == parse_reasoning(reasoning, text, 0, start),
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
  const std::size_t formats = std::max(tool_formats().size(), reasoning_formats().size());
  const auto add = [&](std::size_t row, const std::string& text) {
    std::string seed;
    seed += static_cast<char>(row);
    seed += static_cast<char>(3 + row);
    all.push_back(seed + text);
  };
  for (std::size_t i = 0; i < formats; ++i) {
    const ToolFormat& format = tool_formats()[i % tool_formats().size()];
    const std::vector<EncodedCall> calls = {
        {"get_weather", {{"city", "\"R\\u00f6m \\\"x\\\"\""}, {"at", "{\"a\": [1, null]}"}}},
        {"add", {{"a", "1.50"}}}};
    add(i, "Hm.\n" + encode_calls(format, calls) + " So.");
    add(i, encode_calls(format, calls));
    for (const std::string& text : texts) add(i, text);
  }
  return all;
}

}  // namespace sluice::fuzz
