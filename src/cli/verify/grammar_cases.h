// Cases of grammars: a schema, a regular expression or EBNF, with texts that it must accept and
// texts that it must refuse.
//
//   for (const GrammarCase& one : read_grammar_cases(path)) ...
//
// A file holds one JSON object a line, also compressed with gzip. The grammar stands in `schema` (a
// JSON value, taken as it is written), `schema_text`, `regex` or `ebnf`; `valid` and `invalid` are
// lists of texts. `captures` has a list of [name, text] for each text of `valid`. `tools`, a list
// of tools as requests have it, with `format`, the name of a call format, stands for one or more
// calls of them. Lines with `make` instead of these have no grammar and are left out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/sources/grammar_source.h"

namespace sluice {

struct GrammarCase {
  std::string id, group, expect;
  grammar::GrammarSource source;
  std::vector<std::string> valid, invalid;
  std::vector<std::string> captures;  // of each valid text, as JSON; empty: they are not compared
  // must be accepted where keys come in any order, and where undeclared keys are allowed
  std::vector<std::string> reordered, open;
};

// Error{kBadInput} names the file and the line.
std::vector<GrammarCase> read_grammar_cases(const std::string& path);

// The same JSON text without white space, with indents of two, and with characters of strings
// spelled \uXXXX: all that are not ASCII, and the first of each string.
std::string compact_json(std::string_view text);
std::string pretty_json(std::string_view text);
std::string escaped_json(std::string_view text);

}  // namespace sluice
