// What the sampling of a step takes after its forward was launched. Plain values.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

// The tokens that a row of logits may become, as of a grammar. Bit t % 32 of bits[t / 32] is token
// t; a token behind the last bit may not come.
struct TokenMask {
  std::int32_t logit_row = 0;       // index in Batch::logit_rows, of a row with has_mask
  std::vector<std::uint32_t> bits;  // [ceil(vocab / 32)]
  // The row is one of a draft that the grammar does not follow: it is not sampled.
  bool is_skipped = false;

  bool allows(std::int32_t token) const {
    const auto word = static_cast<std::size_t>(token) / 32;
    return word < bits.size() && (bits[word] >> (token % 32) & 1) != 0;
  }
};

struct SampleInputs {
  std::vector<TokenMask> masks;  // one for each logit row with has_mask, ascending
};

}  // namespace sluice
