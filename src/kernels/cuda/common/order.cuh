// Scores as unsigned integers of the same order, for radix search.
#pragma once

#include <cstdint>

namespace sluice::cuda {

// NaN counts as -inf and -0 as 0. The key is at least 0x007FFFFF, so 0 may mean "none".
__device__ inline std::uint32_t order_key(float score) {
  const float value = isnan(score) ? -INFINITY : score + 0.0f;
  const std::uint32_t bits = __float_as_uint(value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The inverse, except for NaN and -0.
__device__ inline float score_of_key(std::uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

}  // namespace sluice::cuda
