// Regular expressions to languages (languages.h).
//
// The dialect is what JSON Schema patterns and `guided_regex` use: literals, '.', classes, groups
// (also named and non-capturing), '|', quantifiers (lazy ones have the same language), anchors,
// \d \w \s and their complements (of ASCII, \s as in ECMA 262), \xHH, \uHHHH, \u{H}, \cX, \0,
// \p{Category} by utf8proc's general categories, (?i) at the beginning, \A and \Z.
//
// Lookahead, \b, \B and lookbehind are no extension of regular languages and are supported where
// the context is plain: lookahead and anchors outside repetitions without a small bound, \b and
// lookbehind behind a part that is not empty. Refused by name: back references, conditionals,
// possessive quantifiers, atomic groups, scripts in \p, '[]', inline flags other than i.
#pragma once

#include <string_view>

#include "text/grammar/language_store.h"
#include "text/grammar/languages.h"

namespace sluice::grammar {

Result<LanguageStore::Id> parse_regex(LanguageStore& store, std::string_view pattern,
                                      const RegexOptions& options);

// A pattern of the program's own, in which nothing is wrong. None where no budget is left: the
// grammar is refused then, whatever its parts are.
LanguageId own_regex(Languages& languages, std::string_view pattern);

}  // namespace sluice::grammar
