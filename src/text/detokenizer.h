// Token ids, one at a time, to text that can be sent at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace sluice {

// The pieces that push and finish return join to Tokenizer::decode of the same ids. Every piece is valid
// UTF-8, ends at a character's end, and is never taken back: bytes that may be the start of a character are
// held (three at most; with <0xXX> tokens, the whole run, since one bad byte in it changes how all are read).
// One thread; the Tokenizer outlives it. O(bytes of the token) amortised.
class Detokenizer {
 public:
  // `kept`: special tokens that are text all the same, because a parser looks for them.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens, std::vector<std::int32_t> kept = {})
      : decoder_(&tokenizer.decoder()), skip_special_(skip_special_tokens), kept_(std::move(kept)) {}

  // Ids that are no token add nothing.
  std::string push(std::int32_t id);
  // The held bytes, where an unfinished character is U+FFFD. The next push begins a new text.
  std::string finish();

 private:
  void push_bytes(std::string& out);
  void push_piece(std::string_view bytes, bool is_byte, std::string& out);
  void flush_byte_run(std::string& out);
  void emit(std::string_view text, std::string& out);

  const TokenDecoder* decoder_;
  bool skip_special_;
  std::vector<std::int32_t> kept_;
  bool begun_ = false;     // a token has been taken
  int num_stripped_ = 0;   // kPieces: how often the start of the text was stripped
  bool stripping_ = true;  // kPieces: nothing but stripped text so far
  std::string held_;
};

}  // namespace sluice
