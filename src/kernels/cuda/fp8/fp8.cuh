// Rounding to e4m3 and back on a GPU; kernels/types/fp8.h defines the arithmetic.
#pragma once

#include <cuda_fp8.h>

#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/types/fp8.h"

namespace sluice::cuda {

// Of a group whose largest absolute value has these bits: NaN and infinity sort above numbers.
__device__ inline ops::Fp8Scale fp8_scale(unsigned largest_bits) {
  if (largest_bits >= 0x7F800000u) return {__uint_as_float(0x7FC00000u), 0};
  const float largest = __uint_as_float(largest_bits), scale = largest / ops::kMaxE4M3;
  if (scale < 1.17549435e-38f) return {};  // the smallest normal number
  return {scale, ops::kMaxE4M3 / largest};
}

__device__ inline unsigned abs_bits(float x) {
  return __float_as_uint(x) & 0x7FFFFFFFu;
}
__device__ inline unsigned largest_of(const float4& v) {
  return max(max(abs_bits(v.x), abs_bits(v.y)), max(abs_bits(v.z), abs_bits(v.w)));
}
// The largest over the lanes, in all of them.
__device__ inline unsigned warp_max(unsigned x) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kAllLanes, x);
#else
  __trap();
#endif
}

// Four numbers times `factor` as e4m3, the first in the lowest byte. A factor of 0 gives zeros.
__device__ inline std::uint32_t to_e4m3(const float4& v, float factor) {
  if (factor == 0) return 0;
  const __nv_fp8x2_storage_t low = __nv_cvt_float2_to_fp8x2({v.x * factor, v.y * factor},
                                                            __NV_SATFINITE, __NV_E4M3),
                             high = __nv_cvt_float2_to_fp8x2({v.z * factor, v.w * factor},
                                                             __NV_SATFINITE, __NV_E4M3);
  return low | static_cast<std::uint32_t>(high) << 16;
}

// Four neighbouring elements, which begin on 4 elements.
__device__ inline float4 load_four(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}
__device__ inline float4 load_four(const Bf16* p) {
  const uint2 raw = *reinterpret_cast<const uint2*>(p);
  return {__uint_as_float(raw.x << 16), __uint_as_float(raw.x & 0xFFFF0000u),
          __uint_as_float(raw.y << 16), __uint_as_float(raw.y & 0xFFFF0000u)};
}

// c += a b with int8 and m16n8k32, lanes as in mma_e4m3(). Exact.
__device__ inline void mma_s8(std::int32_t (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                              std::uint32_t b1) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  __trap();
#endif
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
inline constexpr float kE4m3SumScale = 1;  // of what mma_e4m3() adds up

// c += a b with e4m3 and m16n8k32, for lane = 4 g + t: a = {(g, 4t), (g + 8, 4t), (g, 16 + 4t),
// (g + 8, 16 + 4t)}, b = {(4t, g), (16 + 4t, g)}, each with three neighbours along k; c as in
// kernels/cuda/common/mma.cuh. Hopper converts e4m3 to float16, so its sums are float32.
__device__ inline void mma_e4m3(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#else
// Two e4m3 numbers, in bytes 1 and 3 of x, as float16 times 2^-8: the bits move to their places,
// and the exponent keeps the bias of e4m3. This is exact also for subnormals; NaN is not kept.
__device__ inline std::uint32_t e4m3_to_halves(std::uint32_t x) {
  return (x & 0x80008000u) | (x >> 1 & 0x3F803F80u);
}
// Bytes 0 and 1, and bytes 2 and 3 of x.
__device__ inline std::uint32_t low_halves(std::uint32_t x) {
  return e4m3_to_halves(__byte_perm(x, 0, 0x1404));
}
__device__ inline std::uint32_t high_halves(std::uint32_t x) {
  return e4m3_to_halves(__byte_perm(x, 0, 0x3424));
}

inline constexpr float kE4m3SumScale = 256 * 256;  // each factor has 2^-8

__device__ inline void mma_e4m3(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1) {
  mma_m16n8k16_f16(c, {low_halves(a[0]), low_halves(a[1]), high_halves(a[0]), high_halves(a[1])},
                   low_halves(b0), high_halves(b0));
  mma_m16n8k16_f16(c, {low_halves(a[2]), low_halves(a[3]), high_halves(a[2]), high_halves(a[3])},
                   low_halves(b1), high_halves(b1));
}
#endif

}  // namespace sluice::cuda
