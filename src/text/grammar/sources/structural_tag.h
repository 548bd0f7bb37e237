// Structural tags: free text with marked parts, as XGrammar, vLLM and SGLang name them.
//
//   {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<f="],
//     "tags": [{"begin": "<f=a>", "content": {"type": "json_schema", "json_schema": {}},
//               "end": "</f>"}]}}
//
// Formats: const_string, json_schema (style json), regex, grammar, any_text, sequence, or,
// optional, plus, star, repeat, tag, triggered_tags, tags_with_separator. The older form with
// `structures` and `triggers` beside each other is read, too. Formats of tokens and of XML are
// refused by name.
#pragma once

#include <string_view>

#include "text/grammar/grammar.h"
#include "text/grammar/schema/schema.h"
#include "text/grammar/vocabulary.h"

namespace sluice::grammar {

// `text` where it may be spelled by special tokens: as plain text, or with each special token of
// the vocabulary in it as that token.
NodeId marked_text(Grammar& grammar, std::string_view text, const Vocabulary& vocabulary);

// Faults: 400 `invalid_structural_tag`, `unsupported_structural_tag` with the place as a JSON
// pointer, and those of schemas, patterns and grammars.
Result<NodeId> add_structural_tag(Grammar& grammar, std::string_view tag,
                                  const Vocabulary& vocabulary, const SchemaOptions& options);

}  // namespace sluice::grammar
