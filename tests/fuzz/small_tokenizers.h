// Tokenizers of the fixtures cut to some tens of entries: seeds that are parsed in less than a
// millisecond.
#pragma once

#include <string>
#include <vector>

namespace sluice::fuzz {

// Every tokenizer.json with a short vocabulary, its first merges, and a small character map instead
// of a large one.
std::vector<std::string> small_tokenizer_jsons();
// Every SentencePiece tokenizer.model, cut in the same way.
std::vector<std::string> small_sentencepiece_models();
// A precompiled character map: "A" becomes "bc", U+FF21 "A", U+3000 a space.
std::string small_charsmap();

}  // namespace sluice::fuzz
