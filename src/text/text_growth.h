// The limit on how far the rules of a tokenizer file may lengthen a text.
//
// Rules follow one another, so thirty rules that each double a text make gigabytes of a word. Real
// files stay far below these limits. The longest compatibility decomposition has 11 times the bytes
// of its character, and a byte map after it doubles them.
#pragma once

#include <cstddef>

#include "base/error.h"

namespace sluice {

inline constexpr std::size_t kMaxTextGrowth = 64;         // factor of the length
inline constexpr std::size_t kMaxTextGrowthBytes = 1024;  // bytes in addition
// steps of a normalizer, pre-tokenizer or decoder
inline constexpr std::size_t kMaxTokenizerSteps = 256;
// different regular expressions of a normalizer, pre-tokenizer or decoder
inline constexpr std::size_t kMaxTokenizerPatterns = 64;

// Error{kBadInput} if `now` bytes exceed the limit for `before` bytes.
inline void check_growth(std::size_t before, std::size_t now) {
  if (now > kMaxTextGrowth * before + kMaxTextGrowthBytes)
    fail(ErrorKind::kBadInput,
         "the tokenizer's rules make more than {} bytes of a text of {}; allowed are {} times its "
         "length and {} more: "
         "correct the normalizer, pre_tokenizer or decoder of the tokenizer",
         now - 1, before, kMaxTextGrowth, kMaxTextGrowthBytes);
}

}  // namespace sluice
