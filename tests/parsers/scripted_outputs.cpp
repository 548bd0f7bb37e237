#include "scripted_outputs.h"

#include <iterator>

#include "encode_calls.h"
#include "text/parsers/lenient_json.h"
#include "text/parsers/reasoning_parser.h"
#include "text/parsers/tool_format.h"

namespace sluice {
namespace {

using Random = std::mt19937;

// Values with digits, escapes and marks that a parser must not touch; the first column is for a
// property of any type, the second for one that is stated to be a string.
const char* const kValues[] = {"1",
                               "-0.0",
                               "1.0",
                               "1.50",
                               "1E3",
                               "1e400",
                               "12345678901234567890123",
                               "true",
                               "null",
                               "[]",
                               "[1, {\"b\": [null, 2.5]}]",
                               "{\"x\": {\"y\": \"z\"}}",
                               "\"Rome\"",
                               "\"\\u00e9\\n\\\"q\\\" \\\\ \\ud83d\\ude00\"",
                               "\"</tool_call> <tool_call> [ARGS] {\\\"name\\\": 1}\"",
                               "\"日本 🌤️ }] , :\""};
const char* const kStrings[] = {"Rome", "",     "a \"b\" \\c", "two\nlines\n", "  indented",
                                "true", "0042", "</arg_valu",  "東京 🌤️",      "{\"a\": 1}"};
const char* const kTexts[] = {
    "Let me look.",     "a < b && c > d",          "Sure:\n\n1. one\n2. two",
    "天気は晴れです。", "It is {\"answer\": 42}.", "```json\n{\"name\": \"x\"}\n```"};
const char* const kThoughts[] = {"Hmm.", "I need\nthe tool, so < I call it.", "第一步: {a}"};
const char* const kFaults[] = {"",  ",",       "}",  "]",  "\"",   "{",    "'", "\\",
                               ":", " and so", "\n", "<",  "</",   "[",    "x", "//",
                               "`", "```",     "é",  ", ", "None", "<tool"};

template <class List>
const auto& pick(const List& list, Random& random) {
  return list[random() % std::size(list)];
}

bool chance(int percent, Random& random) {
  return static_cast<int>(random() % 100) < percent;
}

EncodedCall make_call(Random& random) {
  EncodedCall call;
  call.name = chance(20, random) ? "ping" : "get_weather";
  if (call.name == "ping") return call;
  const char* const keys[] = {"a", "b", "c", "d"};
  for (std::size_t i = 0; i < random() % 4; ++i)
    call.members.emplace_back(keys[i], pick(kValues, random));
  if (chance(60, random))
    call.members.emplace_back("s", "\"" + escape_json_string(pick(kStrings, random)) + "\"");
  if (chance(3, random)) call.members.emplace_back("s2", "\"" + std::string(700, 'y') + "\"");
  return call;
}

// As the family's template writes calls; objects may have their members in the other order.
std::string in_format(const ToolFormat& format, const std::vector<EncodedCall>& calls,
                      Random& random) {
  std::vector<std::string> ids;
  for (std::size_t i = 0; chance(50, random) && i < calls.size(); ++i)
    ids.push_back("abc" + std::to_string(100000 + i));
  std::string out;
  const bool is_marked_bare = format.name == "llama3_json" && chance(30, random);
  if (is_marked_bare) out = format.open;
  return out + encode_calls(format, calls, ids);
}

// One fault: a byte or a stretch less, or something that does not belong there.
void mar(std::string& text, Random& random) {
  if (text.empty()) return;
  const auto is_inner = [&](std::size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  std::size_t from = random() % text.size(),
              to = from + 1 + random() % (chance(70, random) ? 2 : 30);
  while (is_inner(from)) --from;
  to = std::min(to, text.size());
  while (is_inner(to)) ++to;
  const int how = static_cast<int>(random() % 3);
  if (how == 0) text.erase(from, to - from);
  if (how == 1) text.insert(from, pick(kFaults, random));
  if (how == 2) text.replace(from, to - from, pick(kFaults, random));
}

}  // namespace

const Json& scripted_tools() {
  static const Json tools = Json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
     "properties": {"s": {"type": "string"}, "s2": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "ping"}}])");
  return tools;
}

ScriptedOutput make_output(const std::string& tool_parser, Random& random) {
  ScriptedOutput out;
  out.tool_parser = tool_parser;
  const ToolFormat& format = find_tool_format(tool_parser);
  const bool is_bare = !format.bare.empty();
  std::string thought;
  if (chance(50, random)) {
    std::vector<std::string> names;
    for (const ReasoningFormat& row : reasoning_formats())
      if (row.kind == ReasoningKind::kMarks) names.emplace_back(row.name);
    out.reasoning_parser = pick(names, random);
    const std::vector<std::string> marks = reasoning_parser_marks(out.reasoning_parser);
    const bool opened = chance(50, random);
    out.prompt = "<|assistant|>" + (opened ? marks[0] + "\n" : "");
    if (reasoning_start(out.prompt, out.reasoning_parser) == ReasoningStart::kInside ||
        chance(70, random)) {
      out.reasoning = pick(kThoughts, random);
      thought = (opened ? "" : marks[0]) + out.reasoning + "\n";
      // A call ends an open thought, where its format has an opening mark.
      const bool closes = is_bare || chance(75, random);
      thought += closes ? marks[1] + "\n\n" : "";
      if (!closes) out.text = "open";
    }
  }
  const bool is_open = !out.text.empty();
  out.text = thought;
  std::vector<EncodedCall> calls;
  const std::size_t count = is_open ? 1 + random() % 2 : random() % 4;
  for (std::size_t i = 0; i < count; ++i) calls.push_back(make_call(random));
  if (!is_open && (!is_bare || calls.empty()) && chance(50, random)) {
    out.content = pick(kTexts, random);
    out.text += out.content;
  }
  if (!calls.empty()) out.text += in_format(format, calls, random);
  for (const EncodedCall& call : calls) out.calls.push_back({call.name, call.arguments()});
  if (!is_open && !is_bare && !calls.empty() && chance(20, random)) {
    const std::string after = pick(kTexts, random);
    out.content += after;
    out.text += after;
  }
  if (chance(40, random)) {
    out.is_marred = true;
    for (int i = 1 + static_cast<int>(random() % 2); i > 0; --i) mar(out.text, random);
  }
  if (chance(25, random)) {
    std::size_t size = random() % (out.text.size() + 1);
    while (size > 0 && size < out.text.size() &&
           (static_cast<unsigned char>(out.text[size]) & 0xC0) == 0x80)
      --size;
    out.text.resize(size);
    out.is_marred = true;
    out.is_cut = chance(50, random);
  }
  return out;
}

}  // namespace sluice
