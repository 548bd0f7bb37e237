// Lark grammars, as vLLM and llguidance take them, to a Grammar.
//
//   start: "[" [item ("," item)*] "]"      // a comment, also behind '#'
//   ?item: NAME | NUMBER -> number | start
//   NAME.2: /[a-z]\w*/i | "a".."f" "x"i ~ 2..4
//   %import common.NUMBER
//   %ignore /[ \t]+/
//   year[capture]: /\d{4}/               // also [capture="name"]
//
// Rules have lower case, terminals upper case. Strings, patterns, ranges and terminals of a rule
// may be followed by what is ignored, and so may the beginning of the text. Every way to cut a text
// into terminals counts, as with Lark's `dynamic_complete` lexer. Marks of trees (?rule, !rule,
// aliases) and priorities mean nothing for the language.
//
// Refused by name: templates, %declare, %override, %extend, imports beyond `common`, flags of
// patterns but `i`, and llguidance's own additions but `capture` (other attributes, special tokens,
// %json, ...).
#pragma once

#include <string_view>

#include "text/grammar/grammar.h"

namespace sluice::grammar {

// Whether vLLM takes the text for Lark: it is not empty, and no line outside comments has '::='.
bool is_lark(std::string_view text);

// The node of the rule `start`, or of the first rule where there is none. Faults: 400
// `invalid_grammar` and `unsupported_grammar` (with line and column), `undefined_rule`,
// `grammar_too_large`, and those of patterns.
Result<NodeId> parse_lark(Grammar& grammar, std::string_view text);

// Lark, or GBNF from its rule `root` on.
Result<NodeId> parse_grammar(Grammar& grammar, std::string_view text);

}  // namespace sluice::grammar
