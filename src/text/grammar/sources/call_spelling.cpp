#include "text/grammar/sources/call_spelling.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "text/parsers/tool_parser.h"

namespace sluice::grammar {
namespace {

constexpr std::string_view kTool = "f", kValue = "x";
constexpr std::size_t kMaxPlainKey = 64;

// Every format spells names.
bool is_name(std::string_view key) {
  return !key.empty() && key.size() <= kMaxPlainKey &&
         std::isdigit(static_cast<unsigned char>(key[0])) == 0 &&
         std::ranges::all_of(key, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

// KEY with kValue, a string.
std::string pair(const ToolFormat& format, std::string_view key) {
  if (format.syntax == CallSyntax::kKeywords) return fmt::format("{}=\"{}\"", key, kValue);
  if (format.syntax == CallSyntax::kBraces)
    return fmt::format("{}:{}{}{}", key, format.quote, kValue, format.quote);
  const std::string_view key_close =
      format.string_key_close.empty() ? format.key_close : format.string_key_close;
  const std::string_view pad = format.pads_values ? "\n" : "";
  return fmt::format("{}{}{}{}{}{}{}{}{}{}", format.key_open, key, key_close, format.after_key,
                     format.value_open, pad, kValue, pad, format.value_close, format.after_pair);
}

std::string arguments(const ToolFormat& format, const std::vector<std::string>& keys) {
  std::vector<std::string> pairs;
  for (const std::string& key : keys) pairs.push_back(pair(format, key));
  switch (format.syntax) {
    case CallSyntax::kKeywords:
      return fmt::format("({})", fmt::join(pairs, ", "));
    case CallSyntax::kBraces:
      return fmt::format("{{{}}}", fmt::join(pairs, ","));
    default:
      return fmt::format("{}{}{}", format.name_close, format.after_name, fmt::join(pairs, ""));
  }
}

std::string block(const ToolFormat& format, std::string_view arguments) {
  return fmt::format("{}{}{}{}{}{}{}{}{}{}{}{}{}", format.open, format.list_open,
                     format.before_call, format.call_open, format.type, kTool, arguments,
                     format.arguments_close, format.call_close, format.call_tail, format.after_call,
                     format.list_close, format.close);
}

}  // namespace

bool can_spell_key(const ToolFormat& format, const std::string& key) {
  if (is_name(key)) return true;
  const std::vector<std::string> keys = {"a", key, "b"};
  Json wanted = Json::object(), properties = Json::object();
  for (const std::string& one : keys) {
    wanted[one] = kValue;
    properties[one] = {{"type", "string"}};
  }
  Json tools = Json::array();
  tools.push_back(
      {{"name", kTool}, {"parameters", {{"type", "object"}, {"properties", properties}}}});
  ToolParser parser = ToolParser::create(format.name, tools, [] { return std::string("id"); });
  parser.hold_calls();
  std::vector<ToolEvent> events = parser.push(block(format, arguments(format, keys)));
  std::ranges::move(parser.finish(), std::back_inserter(events));
  std::string read;
  for (const ToolEvent& event : events) {
    if (event.kind == ToolEvent::Kind::kContent || event.index != 0) return false;
    if (event.kind == ToolEvent::Kind::kArguments) read += event.text;
  }
  const Result<Json> found = parse_json(read);
  return !parser.incomplete() && found && *found == wanted;
}

}  // namespace sluice::grammar
