// Rows of latents in e4m3 (kernels/types/latent_rows.h) in kernels.
#pragma once

#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>

namespace sluice::cuda {

inline constexpr int kNanExponent = 255;

// The scale that the exponent byte of a group says.
__device__ inline float latent_scale(int exponent) {
  return exponent == kNanExponent ? NAN : __uint_as_float(static_cast<unsigned>(exponent) << 23);
}

// Multiplies two pairs of bfloat16; exact where one has powers of two.
__device__ inline std::uint32_t times_pair(std::uint32_t x, std::uint32_t y) {
  const __nv_bfloat162 both = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&x),
                                      *reinterpret_cast<const __nv_bfloat162*>(&y));
  return *reinterpret_cast<const std::uint32_t*>(&both);
}

// A pair of scales as bfloat16.
__device__ inline std::uint32_t latent_scale_pair(std::uint32_t exponent) {
  return exponent == kNanExponent ? 0x7FFF7FFFu : exponent * 0x00800080u;
}

// Two e4m3 numbers, each in the high byte of 16 bits, times a pair of scales. Numbers are never
// NaN, because a group with NaN has that scale. The exponent of a number becomes the low bits of
// bfloat16's. That is 2^-120 of the number, also of a subnormal one.
__device__ inline std::uint32_t widen_pair(std::uint32_t codes, std::uint32_t scales) {
  constexpr std::uint32_t kTo120 = (120 + 127) << 7;  // 2^120
  const std::uint32_t small = (codes & 0x80008000u) | ((codes >> 4) & 0x07F007F0u);
  // Twice, because one factor for both steps may be beyond bfloat16.
  return times_pair(times_pair(small, kTo120 | kTo120 << 16), scales);
}

}  // namespace sluice::cuda
