// Token texts to text: the `decoder` of tokenizer.json, or SentencePiece's rules, as a list of
// stages.
//
// Stages that depend on one token alone are applied to every token once, at load; the other stages
// run in Detokenizer. Source: tokenizers `decoders/`; sentencepiece `sentencepiece_processor.cc`
// (Decode).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/pre_tokenizer_regex.h"

namespace sluice {

struct DecoderStage {
  enum Kind {
    kReplace,  // every `from`, or match of `regex`, becomes `to`
    kStrip,    // up to `start` times `from` at the beginning, up to `stop` times at the end; one
               // character
    kByteFallback,  // <0xXX> are bytes; in a run that is not valid UTF-8 as a whole, each becomes
                    // U+FFFD
    kByteLevel,     // texts in the byte alphabet are bytes; all are concatenated and read as UTF-8
    kMetaspace,     // `from` becomes ' ', and is dropped in the first token
    kWordPiece,     // a token without the prefix `from`, except the first, gets a leading ' '; the
                    // prefix is dropped
    kBpeSuffix,     // `from` becomes ' ', and is dropped in the last token
    kCtc,  // repeated tokens and `from` (the blank) are dropped, `to` (the word delimiter) becomes
           // ' '
    kSentencePiece,  // U+2581 becomes ' ', except at the beginning of the text; <0xXX> are bytes
    kSpaces,         // no decoder: ' ' between tokens
  };
  Kind kind = kSpaces;
  std::string from, to;
  std::shared_ptr<const SplitRegex> regex;
  int start = 0, stop = 0;
  bool cleanup = false;  // kWordPiece, kCtc: no ' ' before punctuation and English contractions
  bool byte_fallback = false;  // kSentencePiece
  // kSentencePiece: the text begins with a dummy prefix, or without spaces
  bool strips_first = false;
  bool strips_every = false;  // kSentencePiece: one U+2581 of each token until there is text
  bool on_text = false;       // kReplace, kStrip: after a stage that merges all tokens

  // Whether the result for a token depends only on that token.
  bool is_of_token() const { return !on_text && (kind == kReplace || kind == kStrip); }
};

// Immutable after the last add; any thread.
class TokenDecoder {
 public:
  explicit TokenDecoder(std::vector<DecoderStage> stages);

  // `text` is the token in the vocabulary's spelling.
  void add(std::int32_t id, std::string_view text, bool special);

  struct Token {
    std::string_view text;  // input of the stages
    // text that the token adds if it is neither the first nor the last
    std::string_view bytes;
    bool is_special;
  };
  bool contains(std::int32_t id) const {
    return id >= 0 && static_cast<std::size_t>(id) < entries_.size() &&
           entries_[static_cast<std::size_t>(id)].present;
  }
  Token token(std::int32_t id) const {
    const Entry& entry = entries_[static_cast<std::size_t>(id)];
    const std::string_view all = bytes_;
    return {all.substr(entry.text, entry.text_length), all.substr(entry.bytes, entry.bytes_length),
            entry.is_special};
  }
  const std::vector<DecoderStage>& stages() const { return stages_; }
  std::int32_t size() const { return static_cast<std::int32_t>(entries_.size()); }
  std::size_t longest_bytes() const { return longest_bytes_; }

 private:
  struct Entry {
    std::size_t text = 0, bytes = 0;
    std::uint32_t text_length = 0, bytes_length = 0;
    bool present = false;
    bool is_special = false;
  };
  std::vector<DecoderStage> edits_, stages_;
  std::string bytes_;
  std::vector<Entry> entries_;
  std::size_t longest_bytes_ = 0;
};

// Functions common to the stages. This one returns the byte of "<0xXX>", or -1.
int byte_of_token(std::string_view text);
// kReplace and kStrip of a whole token.
std::string edit_token(const DecoderStage& stage, std::string_view text);
// kWordPiece of a token except the first, kCtc of any token.
std::string word_piece(const DecoderStage& stage, std::string_view text, bool first);
std::string ctc_piece(const DecoderStage& stage, std::string_view text);

}  // namespace sluice
