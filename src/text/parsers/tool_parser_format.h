// A row of the table of tool-call formats (tool_parser.cpp).
#pragma once

#include <array>
#include <string_view>

namespace sluice {

enum class ToolSyntax {
  kGlm,       // open name\n<arg_key>k</arg_key>\n<arg_value>v</arg_value> ... close
  kBlock,     // open {"name", "arguments"} close
  kList,      // open [{"name", "arguments"}, ...], or open name[ARGS]{...}
  kBare,      // {"name", "parameters"} as the whole answer, perhaps after open
  kDeepseek,  // open <call begin> type <sep> name \n```json\n {...} \n``` <call end> ... close
};

struct ToolFormat {
  std::string_view name;
  std::array<std::string_view, 5> aliases;
  ToolSyntax syntax;
  std::string_view open, close;  // close: empty if there is none
};

inline constexpr std::string_view kGlmKey = "<arg_key>", kGlmEndKey = "</arg_key>",
                                  kGlmValue = "<arg_value>", kGlmEndValue = "</arg_value>";
inline constexpr std::string_view kMistralArgs = "[ARGS]", kMistralId = "[CALL_ID]";
inline constexpr std::string_view kDeepseekCall = "<｜tool▁call▁begin｜>",
                                  kDeepseekCallEnd = "<｜tool▁call▁end｜>",
                                  kDeepseekSeparator = "<｜tool▁sep｜>";

// A call of at most this many bytes is held until it is whole, so that a fault makes it text.
inline constexpr std::size_t kMaxHeldCall = 512;
inline constexpr std::size_t kMaxToolName = 128;

inline bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace sluice
