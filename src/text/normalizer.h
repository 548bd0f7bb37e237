// The `normalizer` of tokenizer.json: text in, text out, before it is split.
// Source: tokenizers `normalizers/`.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/pre_tokenizer_regex.h"
#include "text/unicode.h"

namespace sluice {

struct NormalizerStep {
  enum Kind { kForm, kLowercase, kPrepend, kReplace, kStrip, kStripAccents, kByteLevel };
  Kind kind = kForm;
  NormalForm form = NormalForm::kNfc;
  std::string content;  // kPrepend: what; kReplace: by what
  std::string literal;  // kReplace: what, unless `regex` is set
  std::shared_ptr<const SplitRegex> regex;
  bool left = true;  // kStrip
  bool right = true;
};

// Immutable; any thread.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }
  // `text` is valid UTF-8, and so is the result. Time O(n log n).
  std::string apply(std::string_view text, SplitRegex::Scratch& scratch) const;

 private:
  std::vector<NormalizerStep> steps_;
};

// Replaces every occurrence of non-empty `from`.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace sluice
