// What parsers of answers tell: content, thoughts and calls, in the order of the text.
#pragma once

#include <string>

namespace sluice {

struct ToolEvent {
  enum class Kind { kContent, kReasoning, kBegin, kArguments };
  Kind kind = Kind::kContent;
  int index = 0;         // number of the call, from 0; kBegin and kArguments
  std::string id, name;  // kBegin
  std::string text;      // kContent, kReasoning, kArguments
};

// A call of at most this many bytes is held until it is whole, so that a fault makes it text.
inline constexpr std::size_t kMaxHeldCall = 512;
inline constexpr std::size_t kMaxToolName = 128;

}  // namespace sluice
