// Character classes of regular expressions: escapes, brackets, Unicode categories, letter case.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "text/grammar/languages.h"

namespace sluice::grammar {

// What an escape stands for: one character, or a set.
struct ClassEscape {
  bool is_char = false;
  std::vector<CodeRange> ranges;
};

// Reads the escape whose backslash is at `begin`; `at` is behind it, and then behind the escape.
// Positions in faults are in characters.
Result<ClassEscape> parse_escape(const std::u32string& text, std::size_t& at, std::size_t begin,
                                 bool in_brackets);
// Reads the rest of a bracket expression whose '[' is at `begin`.
Result<std::vector<CodeRange>> parse_bracket(const std::u32string& text, std::size_t& at,
                                             std::size_t begin, bool folds_case);

// All code points that are in none of the ranges, which may come in any order.
std::vector<CodeRange> complement_of(std::vector<CodeRange> ranges);
// Adds the characters whose simple lower or upper case is in `ranges`, and theirs.
void fold_case(std::vector<CodeRange>& ranges);

}  // namespace sluice::grammar
