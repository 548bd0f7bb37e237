// The `normalizer` of tokenizer.json: it maps text to text before the text is split. Source:
// tokenizers `normalizers/`.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/pre_tokenizer_regex.h"
#include "text/tokenizer/sentencepiece_normalizer.h"
#include "text/unicode.h"

namespace sluice {

struct NormalizerStep {
  enum Kind {
    kForm,
    kLowercase,
    kPrepend,
    kReplace,
    kStrip,
    kStripAccents,
    kByteLevel,
    kPrecompiled,          // `charsmap`, by grapheme clusters
    kNmt,                  // drops controls, turns unusual white space into ' '
    kCleanText,            // BERT: as kNmt, with other sets of characters
    kPadChinese,           // BERT: ' ' around every Chinese character
    kDropNonspacingMarks,  // BERT
    kSentencePiece,        // all steps of a tokenizer.model
  };
  Kind kind = kForm;
  NormalForm form = NormalForm::kNfc;
  std::string content;  // kPrepend: the text to add; kReplace: the replacement
  std::string literal;  // kReplace: the text to replace, unless `regex` is set
  std::shared_ptr<const SplitRegex> regex;
  std::shared_ptr<const Charsmap> charsmap;
  std::shared_ptr<const SentencePieceNormalizer> sentencepiece;
  bool left = true;  // kStrip
  bool right = true;
};

// Immutable; any thread.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }
  // A text of n bytes has at least n / max_shrink() bytes afterwards; 0 means that there is no such
  // bound.
  std::size_t max_shrink() const;
  // `text` is valid UTF-8, and so is the result. `at_start`: the text begins the whole input. Time
  // O(n log n). Error{kBadInput} beyond the limits of text_growth.h, also from the functions below.
  // `keeps_start`, if given, becomes false when characters at the beginning were dropped.
  std::string apply(std::string_view text, bool at_start, SplitRegex::Scratch& scratch,
                    bool* keeps_start = nullptr) const;

 private:
  std::vector<NormalizerStep> steps_;
};

// Replaces every match.
std::string replace_matches(std::string_view text, const SplitRegex& regex, std::string_view by,
                            SplitRegex::Scratch& scratch);
// Replaces every occurrence of non-empty `from`.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace sluice
