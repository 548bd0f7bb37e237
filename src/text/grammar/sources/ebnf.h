// GBNF, the grammars of llama.cpp, to a Grammar.
//
//   root  ::= "[" item ("," item)* "]"     # a comment
//   item  ::= [a-z]+ | "\u00e9" | root | [0-9]{2,4} | .
//
// Rules are `name ::= alternatives`; names have letters, digits, '-' and '_', and also '.'. Terms
// are literals, classes, '.', names and groups, with * + ? {n} {n,} {n,m}. A rule ends where a line
// begins with the next rule; inside parentheses, and behind '|' or '::=', lines may go on.
// Behind a rule's name may stand [capture] or [capture="name"], as in Lark (lark.h).
// Escapes: \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH. Left recursion is allowed.
#pragma once

#include <string_view>

#include "text/grammar/grammar.h"

namespace sluice::grammar {

// The node of the rule `root`. Faults: 400 `invalid_grammar` (with line and column),
// `undefined_rule`, `grammar_too_large`.
Result<NodeId> parse_ebnf(Grammar& grammar, std::string_view text, std::string_view root = "root");

}  // namespace sluice::grammar
