// The tree of a parsed regular expression, and its language.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/language_store.h"

namespace sluice::grammar {

struct RegexNode {
  enum Kind {
    kPure,    // `language`
    kConcat,  // children
    kAlternate,
    kRepeat,  // the child, from min to max times
    kStart,
    kEnd,
    kWordBoundary,
    kLookahead,
    kLookbehind,
    kGroup,  // the child, under `name`; of read_regex alone
  };
  Kind kind = kPure;
  LanguageStore::Id language = LanguageStore::kEmpty;
  bool is_negative = false;  // kWordBoundary, kLookahead, kLookbehind
  bool is_literal = false;   // kPure: `literal` is the only text
  bool is_lazy = false;      // kRepeat, of read_regex
  std::u32string literal{};
  std::vector<std::uint32_t> children{};
  std::uint64_t min = 0, max = 0;
  std::size_t position = 0;  // in characters
  std::string name{};
};

struct RegexTree {
  std::vector<RegexNode> nodes;
  std::uint32_t root = 0;
  bool has_start = false;
  std::size_t num_named = 0;  // groups
};

// The tree as the pattern is written: parts are not merged, and named groups are kept. Faults are
// those of parse_regex, but for assertions.
Result<RegexTree> read_regex(LanguageStore& store, std::string_view pattern,
                             const RegexOptions& options);

// Fault `unsupported_regex` where an assertion stands in a place that has no plain language.
Result<LanguageStore::Id> language_of(LanguageStore& store, const RegexTree& tree,
                                      RegexMatch match);

Fault unsupported_regex(std::string_view what, std::size_t position);

}  // namespace sluice::grammar
