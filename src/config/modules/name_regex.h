// Regular expressions over names of modules, as compressed-tensors and GPTQ write them in a
// configuration. PCRE2 runs them, with a limit on backtracking.
//
//   if (const auto regex = NameRegex::read(".*\\.mlp\\.(gate|up)_proj$")) regex->matches(name);
//
// Immutable; any thread.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

namespace sluice {

class NameRegex {
 public:
  // Nothing: the pattern is no regular expression, or is longer than 4096 bytes.
  static std::optional<NameRegex> read(std::string_view pattern);
  // Whether a match begins at the beginning of `name`, as Python's re.match. The end is free.
  // False beyond the limit, too.
  bool matches(std::string_view name) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace sluice
