// Token ids, one at a time, to text that can be sent at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/detokenizer_tokens.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {

// The pieces that push and finish return join to Tokenizer::decode of the same ids. Every piece is
// valid UTF-8, ends at a character's end, and is never taken back: what later tokens may change is
// held. That is three bytes at most, which may be the start of a character; with a ByteFallback
// decoder the whole run of <0xXX> tokens, since one bad byte in it changes how all are read; with a
// BPE decoder the space behind a word; with a Replace or Strip behind Fuse the end of the text that
// these may still take. One thread; the Tokenizer outlives it. O(bytes of the token) amortised.
class Detokenizer {
 public:
  // `kept`: special tokens that are text all the same, because a parser looks for them.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
              std::vector<std::int32_t> kept = {})
      : decoder_(&tokenizer.decoder()),
        skip_special_(skip_special_tokens),
        kept_(std::move(kept)),
        states_(decoder_->stages().size()) {}

  // Ids that are no token add nothing.
  std::string push(std::int32_t id);
  // The held bytes, where an unfinished character is U+FFFD. The next push begins a new text.
  std::string finish();

 private:
  // What a stage remembers from token to token.
  struct State {
    std::string held;
    bool begun = false;  // a token, or some text, has come
    // kStrip: nothing more goes from the start; kSentencePiece: there is text
    bool past_start = false;
    bool space_seen = false;  // kSentencePiece: the last token but bytes lost its U+2581
    int stripped = 0;         // kStrip: how often
  };
  using Text = std::string_view;

  void feed(std::size_t stage, Text text, std::string& out);
  void end(std::size_t stage, std::string& out);
  bool push_bytes(std::size_t stage, bool one_by_one, std::string& out);
  void end_byte_run(std::size_t stage, std::string& out);
  void replace_on_text(std::size_t stage, Text text, std::string& out);
  void strip_on_text(std::size_t stage, Text text, std::string& out);
  void bpe_suffix(std::size_t stage, Text text, std::string& out);
  void sentence_piece(std::size_t stage, Text text, std::string& out);

  const TokenDecoder* decoder_;
  bool skip_special_;
  std::vector<std::int32_t> kept_;
  std::vector<State> states_;  // one a stage
};

}  // namespace sluice
