// What rows of x are rounded to, and how their codes are multiplied: e4m3 (kernels/types/fp8.h) or
// int8 (kernels/types/int8_rows.h).
#pragma once

#include "kernels/cuda/common/wgmma_bytes.cuh"
#include "kernels/cuda/fp8/fp8.cuh"
#include "kernels/types/int8_rows.h"

namespace sluice::cuda {

struct E4m3Codes {
  using Sum = float;

  static __device__ ops::Fp8Scale scale(unsigned largest_bits) { return fp8_scale(largest_bits); }
  static __device__ std::uint32_t four(const float4& v, float factor) { return to_e4m3(v, factor); }
  // c += a b, lanes as in mma_e4m3(); the numbers are kMmaScale times too small.
  static constexpr float kMmaScale = kE4m3SumScale;
  static __device__ void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                             std::uint32_t b1) {
    mma_e4m3(c, a, b0, b1);
  }
  // c (+)= 64 rows of a times rows of b, 32 columns of each.
  template <int kCount>
  static __device__ void multiply(float (&c)[kCount], std::uint64_t a, std::uint64_t b, bool add) {
    wgmma_e4m3_m64(c, a, b, add);
  }
};

struct Int8Codes {
  using Sum = std::int32_t;

  // Of a row whose largest absolute value has these bits: NaN and infinity sort above numbers.
  static __device__ ops::Fp8Scale scale(unsigned largest_bits) {
    if (largest_bits >= 0x7F800000u) return {__uint_as_float(0x7FC00000u), 0};
    const float largest = fmaxf(__uint_as_float(largest_bits), ops::kSmallestInt8Row);
    return {largest / ops::kMaxInt8Row, ops::kMaxInt8Row / largest};
  }
  // NaN becomes 0.
  static __device__ std::uint32_t four(const float4& v, float factor) {
    const auto code = [&](float x) {
      return static_cast<std::uint32_t>(__float2int_rn(x * factor)) & 0xFFu;
    };
    return code(v.x) | code(v.y) << 8 | code(v.z) << 16 | code(v.w) << 24;
  }
  static constexpr float kMmaScale = 1;
  static __device__ void mma(std::int32_t (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                             std::uint32_t b1) {
    mma_s8(c, a, b0, b1);
  }
  template <int kCount>
  static __device__ void multiply(std::int32_t (&c)[kCount], std::uint64_t a, std::uint64_t b,
                                  bool add) {
    wgmma_s8_m64(c, a, b, add);
  }
};

}  // namespace sluice::cuda
