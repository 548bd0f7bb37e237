// What the front ends of grammars as text (GBNF, Lark) share: parts of rules, and places in a text.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/grammar/grammar.h"

namespace sluice::grammar {

// A part of a rule: a language where no rule is used, else a node. Languages are matched without
// the machine's stack, so a part stays a language as long as it can.
struct Part {
  bool is_language = true;
  LanguageId language{};
  NodeId node{};
};

NodeId node_of(Grammar& grammar, const Part& part);
Part concat_of(Grammar& grammar, std::span<const Part> parts);
Part any_of(Grammar& grammar, std::span<const Part> parts);
Part repeat_of(Grammar& grammar, const Part& part, std::uint64_t min, std::uint64_t max);

// The attributes of a rule as they stand between brackets: `capture`, or `capture="name"`. Without
// a value the name is the rule's. Fault `unsupported_grammar` for others.
Result<std::string> read_capture(std::string_view attributes, std::string_view rule,
                                 std::string_view place);

// "line 3, column 7" of a byte of `text`.
std::string place_in(std::string_view text, std::size_t position);

}  // namespace sluice::grammar
