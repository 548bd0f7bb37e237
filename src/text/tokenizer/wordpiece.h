// WordPiece: the longest token that is a prefix of the word, then the longest continuation, to the
// word's end; or unk for the whole word. Without continuations (WordLevel) a word is a token or
// unk. Source: tokenizers `models/wordpiece/mod.rs`, `models/wordlevel/mod.rs`; BERT
// `tokenization.py`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/token_trie.h"

namespace sluice {

struct WordPieceOptions {
  std::string unk_token = "[UNK]";
  std::string continuing_subword_prefix = "##";
  std::size_t max_input_chars_per_word = 100;  // longer words are unk
  bool whole_words = false;                    // WordLevel
};

// Immutable; any thread.
class WordPieceModel {
 public:
  // `vocab` outlives the model. Error{kBadInput}: unk_token is not a token.
  WordPieceModel(const TokenTable& vocab, WordPieceOptions options, std::string_view what);

  // Appends the ids of one word, valid UTF-8. O(bytes * longest token) at most.
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  bool cut(std::string_view word, std::vector<std::int32_t>& ids) const;

  const TokenTable& vocab_;
  WordPieceOptions options_;
  std::int32_t unk_ = 0;
  TokenTrie beginnings_, continuations_;
};

}  // namespace sluice
