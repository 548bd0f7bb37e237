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

// The concatenated pieces of push and finish equal Tokenizer::decode of the same ids. Every piece
// is valid UTF-8, ends at a character boundary, and is never revoked. Text that later tokens may
// change is held:
// - in general at most three bytes, the start of a character;
// - with a ByteFallback decoder a whole run of <0xXX> tokens, since one bad byte changes the whole
// run;
// - with a BPE decoder the space after a word;
// - with Replace or Strip after Fuse the end of the text that they may still change.
//
// One thread; the Tokenizer outlives it. O(bytes of the token) amortised.
class Detokenizer {
 public:
  // `kept`: special tokens that are text nevertheless, because a parser looks for them.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
              std::vector<std::int32_t> kept = {})
      : decoder_(&tokenizer.decoder()),
        skip_special_(skip_special_tokens),
        kept_(std::move(kept)),
        states_(decoder_->stages().size()) {}

  // Ids without a token add nothing.
  std::string push(std::int32_t id);
  // The held bytes, with U+FFFD for an unfinished character. The next push begins a new text.
  std::string finish();
  // The same for an answer, which may end anywhere: the bytes of an unfinished character are none.
  std::string finish_answer();

 private:
  // The state of a stage between tokens.
  struct State {
    std::string held;
    bool begun = false;  // a token, or some text, has come
    // kStrip: no further character is stripped at the start; kSentencePiece: there is text
    bool past_start = false;
    bool space_seen = false;  // kSentencePiece: the last token other than bytes lost its U+2581
    int stripped = 0;         // kStrip: number of stripped characters
  };
  using Text = std::string_view;

  std::string finish(bool drops_unfinished);
  void feed(std::size_t stage, Text text, std::string& out);
  void end(std::size_t stage, bool drops_unfinished, std::string& out);
  bool push_bytes(std::size_t stage, bool one_by_one, std::string& out);
  void end_byte_run(std::size_t stage, std::string& out);
  void replace_on_text(std::size_t stage, Text text, std::string& out);
  void strip_on_text(std::size_t stage, Text text, std::string& out);
  void bpe_suffix(std::size_t stage, Text text, std::string& out);
  void sentence_piece(std::size_t stage, Text text, std::string& out);

  const TokenDecoder* decoder_;
  bool skip_special_;
  std::vector<std::int32_t> kept_;
  std::vector<State> states_;  // one per stage
};

}  // namespace sluice
