// The tokens of a text that a grammar leaves little choice about, as drafts.
//
//   const std::string text = constraint.likely(kDraftBytes * max_drafts);
//   append_drafts(tokenizer, vocabulary, text, max_drafts, drafts);
//
// They are those that the tokenizer gives the text in the middle of another, since models write
// their texts so. Where the tokenizer changes the text, there are none. Special tokens are named as
// in a grammar (text/grammar/vocabulary.h). Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/grammar/vocabulary.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {

// Of a token. A longer text has more tokens than are wanted, or its last ones come next time.
inline constexpr std::size_t kDraftBytes = 8;

// Appends at most `max_drafts` tokens.
void append_drafts(const Tokenizer& tokenizer, const grammar::Vocabulary& vocabulary,
                   std::string_view text, int max_drafts, std::vector<std::int32_t>& drafts);

}  // namespace sluice
