// Regular expressions over names of modules, as compressed-tensors and GPTQ write them in a
// configuration. An automaton runs them: the work is at most states times characters.
//
//   if (const auto regex = NameRegex::read(".*\\.mlp\\.(gate|up)_proj$")) regex->matches(name);
//
// Literals, '.', classes, \d \w \s and their complements, groups, '|', '*', '+', '?', {m,n}, '^'
// and '$'. Immutable; any thread.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace sluice {

class NameRegex {
 public:
  // Nothing: the pattern has another part, as a lookahead, or is too large.
  static std::optional<NameRegex> read(std::string_view pattern);
  // Whether a match begins at the beginning of `name`, as Python's re.match. The end is free.
  bool matches(std::string_view name) const;

 private:
  enum class Kind : std::uint8_t { kBytes, kSplit, kJump, kBegin, kEnd, kMatch };
  using Bytes = std::bitset<256>;
  // Targets are relative, so that parts of a program can be moved and repeated.
  struct Step {
    Kind kind = Kind::kMatch;
    int first = 1, second = 0;  // kSplit: both; kJump: `first`
    Bytes bytes = {};           // kBytes
  };
  class Reader;

  std::vector<Step> steps_;
};

}  // namespace sluice
