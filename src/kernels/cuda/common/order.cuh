// Scores as integers of the same order.
#pragma once

#include <cstdint>

namespace sluice::cuda {

// Unsigned integers in the order of the scores; NaN counts as -inf, -0 as 0. At least 0x007FFFFF.
__device__ inline std::uint32_t order_key(float score) {
  const float value = isnan(score) ? -INFINITY : score + 0.0f;
  const std::uint32_t bits = __float_as_uint(value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The score of a key, but for NaN and -0.
__device__ inline float score_of_key(std::uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

}  // namespace sluice::cuda
