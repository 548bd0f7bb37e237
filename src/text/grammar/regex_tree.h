// The tree of a parsed regular expression, and its language.
#pragma once

#include <string>
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
  };
  Kind kind = kPure;
  LanguageStore::Id language = LanguageStore::kEmpty;
  bool is_negative = false;  // kWordBoundary, kLookahead, kLookbehind
  bool is_literal = false;   // kPure: `literal` is the only text
  std::u32string literal{};
  std::vector<std::uint32_t> children{};
  std::uint64_t min = 0, max = 0;
  std::size_t position = 0;  // in characters
};

struct RegexTree {
  std::vector<RegexNode> nodes;
  std::uint32_t root = 0;
  bool has_start = false;
};

// Fault `unsupported_regex` where an assertion stands in a place that has no plain language.
Result<LanguageStore::Id> language_of(LanguageStore& store, const RegexTree& tree,
                                      RegexMatch match);

Fault unsupported_regex(std::string_view what, std::size_t position);

}  // namespace sluice::grammar
