// How far the rules of a tokenizer file may lengthen a text.
//
// Rules follow one another, so thirty that each double a text make gigabytes of a word. Real files
// stay far below these bounds: the longest compatibility decomposition has 11 times the bytes of
// its character, and a byte map behind it twice as many.
#pragma once

#include <cstddef>

#include "base/error.h"

namespace sluice {

inline constexpr std::size_t kMaxTextGrowth = 64;         // times the length
inline constexpr std::size_t kMaxTextGrowthBytes = 1024;  // and so much more
inline constexpr std::size_t kMaxTokenizerSteps = 256;  // of a normalizer, pre-tokenizer or decoder
// different regular expressions of one of these
inline constexpr std::size_t kMaxTokenizerPatterns = 64;

// Error{kBadInput} where `now` bytes are more than may come of `before`.
inline void check_query_scaling(std::size_t before, std::size_t now) {
  if (now > kMaxTextGrowth * before + kMaxTextGrowthBytes)
    fail(ErrorKind::kBadInput,
         "the tokenizer's rules make more than {} bytes of a text of {}; allowed are {} times its "
         "length and {} more: "
         "correct the normalizer, pre_tokenizer or decoder of the tokenizer",
         now - 1, before, kMaxTextGrowth, kMaxTextGrowthBytes);
}

}  // namespace sluice
