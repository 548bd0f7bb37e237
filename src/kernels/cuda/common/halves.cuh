// float16 holds all numbers of e4m3, e2m1 and 8-bit integers. Kernels that multiply these use it.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace sluice::cuda {

// Two float16, the first one in the low half.
__device__ inline std::uint32_t pack_f16(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}

// a - b of two bfloat16; exact for integers of 8 bits.
__device__ inline std::uint32_t subtract_bf16(std::uint32_t a, std::uint32_t b) {
  std::uint32_t out;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
#else
  // a + (-1) b
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(b), "r"(0xBF80BF80u), "r"(a));
#endif
  return out;
}
__device__ inline std::uint32_t subtract_f16(std::uint32_t a, std::uint32_t b) {
  std::uint32_t out;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
__device__ inline std::uint32_t multiply_bf16(std::uint32_t a, std::uint32_t b) {
  std::uint32_t out;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(0x80008000u));  // + -0
  return out;
}

__device__ inline std::uint32_t multiply_f16(std::uint32_t a, std::uint32_t b) {
  std::uint32_t out;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}

// Two e4m3 numbers of the low 16 bits as float16.
__device__ inline std::uint32_t e4m3_pair(std::uint32_t pair) {
  const __half2_raw both =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3);
  return both.x | static_cast<std::uint32_t>(both.y) << 16;
}

// The power of two by which a row with this largest absolute value is below 2^10; and its
// inverse. Infinity and NaN stay what they are.
struct RowPower {
  float factor = 1, inverse = 1;

  static __device__ RowPower of(float largest) {
    const std::uint32_t exponent = min(max(__float_as_uint(largest) >> 23 & 0xFFu, 20u), 254u);
    return {__uint_as_float((263 - exponent) << 23), __uint_as_float((exponent - 9) << 23)};
  }
};

}  // namespace sluice::cuda
