// Rows of the latent plane (MLA) in 8 bits. The latent is e4m3 numbers (DType::kF8E4M3) or, on a
// CPU, integers (DType::kI8), and 128 neighbours share a scale, a power of two. The rotated key
// stays bfloat16:
//
//   latent bytes | rope bfloat16 | a byte e of each group: the scale is 2^(e - 127), 255: NaN
//
// with zeros behind the latent up to two bytes, and behind the row up to four. A number times its
// scale is exact in bfloat16. SGLang and vLLM (`fp8_ds_mla`) have the same groups with float32
// scales.
#pragma once

#include <cstdint>

namespace sluice::ops {

inline constexpr std::int64_t kLatentGroup = 128;

struct LatentRow {
  std::int64_t latent = 0, rope = 0;  // numbers

  constexpr std::int64_t groups() const { return (latent + kLatentGroup - 1) / kLatentGroup; }
  constexpr std::int64_t rope_at() const { return (latent + 1) / 2 * 2; }
  constexpr std::int64_t exponents_at() const { return rope_at() + 2 * rope; }
  constexpr std::int64_t bytes() const { return (exponents_at() + groups() + 3) / 4 * 4; }
};

}  // namespace sluice::ops
