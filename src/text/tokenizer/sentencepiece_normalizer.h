// SentencePiece's normalisation of a text, by the normalizer_spec of a tokenizer.model. Source:
// sentencepiece `normalizer.cc` (Normalizer::Normalize, PrefixMatcher).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/token_trie.h"

namespace sluice {

struct SentencePieceNormalizerOptions {
  enum DummyPrefix {
    kNever,
    kAtStart,
    kAlways
  };  // kAtStart: where the text begins the whole input

  DummyPrefix dummy_prefix = kAlways;       // a space at the beginning of a text
  bool remove_extra_whitespaces = true;     // at both ends all, in between all but one
  bool escape_whitespaces = true;           // ' ' becomes U+2581
  bool treat_whitespace_as_suffix = false;  // the dummy prefix is a suffix
};

// Immutable; any thread.
class SentencePieceNormalizer {
 public:
  // `user_defined`: texts that stay unchanged; its keys need not outlive the normalizer.
  SentencePieceNormalizer(SentencePieceNormalizerOptions options, std::optional<Charsmap> charsmap,
                          TokenTrie user_defined)
      : options_(options), charsmap_(std::move(charsmap)), user_defined_(std::move(user_defined)) {}

  // Whether no character is dropped and no text becomes shorter.
  bool keeps_everything() const { return !charsmap_ && !options_.remove_extra_whitespaces; }

  // `text` is valid UTF-8, and so is the result. O(n). Error{kBadInput} beyond the limits of
  // text_growth.h.
  std::string apply(std::string_view text, bool at_start) const;

 private:
  struct Step {
    std::string_view text;  // the replacement of the next `length` bytes
    std::size_t length;
  };
  Step next(std::string_view text) const;

  SentencePieceNormalizerOptions options_;
  std::optional<Charsmap> charsmap_;
  TokenTrie user_defined_;
};

}  // namespace sluice
