// Reading weights in fragments on a GPU; kernels/types/int_fragments.h defines the layout.
#pragma once

#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/common/halves.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/gemm/block_fragments.cuh"
#include "kernels/cuda/gemm/gemm_int.h"
#include "kernels/types/int_fragments.h"

namespace sluice::cuda {

inline constexpr int kUnitRows = 16, kFragmentUnitColumns = 128;
inline constexpr int kUnitMmas = kFragmentUnitColumns / 16;

// Kinds of more than four bits have fewer stages.
template <IntKind kKind>
inline constexpr int kBitsOf =
    kIsBlocks<kKind> ? block_unit_of(kKind).bits()
                     : (kKind == IntKind::kInt8 || kKind == IntKind::kFp8 ? 8 : 4);
// Of a unit; of blocks what all lanes of a warp copy together.
template <IntKind kKind>
inline constexpr int kCodeBytes =
    kIsBlocks<kKind> ? block_unit_of(kKind).bytes() / (16 * kWarp) * (16 * kWarp)
                     : kUnitRows * kFragmentUnitColumns * kBitsOf<kKind> / 8;
template <IntKind kKind>
inline constexpr int kScaleBytes = kKind == IntKind::kFp8                               ? 4
                                   : kKind == IntKind::kFp4 || kKind == IntKind::kNvFp4 ? 1
                                                                                        : 2;

// What is subtracted from nibbles of the rows g and g + 8 of a lane: two bfloat16 that are 128 + z,
// for each row.
struct FragmentZeros {
  std::uint32_t row[2];

  static __device__ FragmentZeros middle() { return {{0x43084308u, 0x43084308u}}; }
  // Those of a group of a unit, of neighbouring rows g and g + 8.
  static __device__ FragmentZeros at(const unsigned char* unit, int groups, int group, int g) {
    const std::uint32_t pair = *reinterpret_cast<const std::uint16_t*>(
        unit + kCodeBytes<IntKind::kInt4> + groups * (kUnitRows * 2) + group * kUnitRows + 2 * g);
    return {{__byte_perm(pair, 0x43u, 0x4040), __byte_perm(pair, 0x43u, 0x4141)}};
  }
};

// The fragments of one MMA: rows g and g + 8 of columns 2 t and 2 t + 8, each with its neighbour.
// Nibble i is the even column of register i, nibble i + 4 the odd one. A nibble in the mantissa of
// 128 is 128 + q.
__device__ inline void nibbles_to_fragments(std::uint32_t word, const FragmentZeros& zeros,
                                            std::uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::uint32_t with_128;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;"  // (word & mask) | 128.0
        : "=r"(with_128)
        : "r"(word >> (4 * i)), "r"(0x000F000Fu), "r"(0x43004300u));
    a[i] = subtract_bf16(with_128, zeros.row[i % 2]);
  }
}

inline constexpr int kFp4Groups = kFragmentUnitColumns / 32;  // of a unit

// What makes bfloat16 of e2m1 in rows g and g + 8 of a lane, for each two times the same number.
struct Fp4Scales {
  std::uint32_t row[2];

  static __device__ Fp4Scales one() { return {{0x7E807E80u, 0x7E807E80u}}; }  // 2^126
  // Those of a group of a unit. Scales are at most 1.
  static __device__ Fp4Scales at(const unsigned char* unit, int group, int g) {
    // 2^(s + 126): s + 127 is stored, and 126 more is the exponent of bfloat16.
    const std::uint32_t pair = *reinterpret_cast<const std::uint16_t*>(
                                   unit + kCodeBytes<IntKind::kFp4> + group * kUnitRows + 2 * g) +
                               0x7E7Eu;
    return {{__byte_perm(pair, 0, 0x0404) >> 1, __byte_perm(pair, 0, 0x1414) >> 1}};
  }
};

// The same of e2m1: exponent and mantissa in the places of bfloat16's are the number times 2^-126,
// also for the subnormal one, and multiplying is exact.
__device__ inline void e2m1_to_fragments(std::uint32_t word, const Fp4Scales& scales,
                                         std::uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t size = i < 2 ? word << (6 - 4 * i) : word >> (4 * i - 6),
                        placed = (size & 0x01C001C0u) | (word << (12 - 4 * i) & 0x80008000u);
    a[i] = multiply_bf16(placed, scales.row[i % 2]);
  }
}

// The same in float16, times 2^-14 and without scales.
inline constexpr float kHalfE2m1 = 0x1p14f;  // what is missing
__device__ inline void e2m1_to_halves(std::uint32_t word, std::uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t size = i < 3 ? word << (9 - 4 * i) : word >> 3;
    a[i] = (size & 0x0E000E00u) | (word << (12 - 4 * i) & 0x80008000u);
  }
}

// e4m3 scales of four groups of 16 columns (IntKind::kNvFp4), of the rows g and g + 8 of a lane:
// two groups in a register, as bfloat16 or as float16. e2m1 times its scale is exact in both.
// Either is 2^-14 of the number, which fragment_scales() makes good.
template <bool kHalves>
struct NvScales {
  std::uint32_t row[2][2];

  // Of columns [64 half, 64 half + 64) of a unit.
  static __device__ NvScales at(const unsigned char* unit, int half, int g) {
    const uint2 both = *reinterpret_cast<const uint2*>(unit + kCodeBytes<IntKind::kNvFp4> +
                                                       half * (kUnitRows * 4) + g * 8);
    NvScales out;
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const std::uint32_t four = r == 0 ? both.x : both.y;
        if constexpr (kHalves) {
          out.row[r][pair] = e4m3_pair(pair == 0 ? four & 0xFFFFu : four >> 16);
        } else {
          // Exponent and mantissa in the places of bfloat16's are the scale times 2^-120. 2^112 of
          // it is wanted, in two multiplications.
          const std::uint32_t placed = __byte_perm(four, 0, pair == 0 ? 0x1404 : 0x3424) >> 4;
          out.row[r][pair] = multiply_bf16(multiply_bf16(placed, 0x79807980u), 0x79807980u);
        }
      }
    return out;
  }
  // Fragments of one MMA of the four: the columns of group `step`.
  __device__ void to_fragments(std::uint32_t word, int step, std::uint32_t (&a)[4]) const {
    Fp4Scales scales;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      scales.row[r] = __byte_perm(row[r][step / 2], 0, step % 2 == 0 ? 0x1010 : 0x3232);
    if constexpr (kHalves) {
      e2m1_to_halves(word, a);
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = multiply_f16(a[i], scales.row[i % 2]);
    } else {
      e2m1_to_fragments(word, scales, a);
    }
  }
};

// Bytes of registers 0 and 1, then those of 2 and 3.
template <IntKind kKind>
__device__ inline void bytes_to_fragments(std::uint32_t low, std::uint32_t high,
                                          std::uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = i < 2 ? low : high;
    if constexpr (kKind == IntKind::kInt8) {
      // A byte in the mantissa of 2^23 is 2^23 + q.
      constexpr float kMiddle = 8388608.0f + 128.0f;
      const float even =
                      __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7650 + i % 2 * 2)) - kMiddle,
                  odd =
                      __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7651 + i % 2 * 2)) - kMiddle;
      // An integer of 8 bits has no other bits than those of its bfloat16.
      a[i] = __byte_perm(__float_as_uint(even), __float_as_uint(odd), 0x7632);
    } else {
      // e4m3 in the high byte of each half. Its exponent has a bias of 7, that of bfloat16 127.
      const std::uint32_t pair = __byte_perm(word, 0, i % 2 == 0 ? 0x1404 : 0x3424);
      a[i] = multiply_bf16((pair & 0x80008000u) | (pair >> 4 & 0x07F007F0u), 0x7B807B80u);
    }
  }
}

// The same in float16, for rows of x in float16.
template <IntKind kKind>
__device__ inline void bytes_to_halves(std::uint32_t low, std::uint32_t high,
                                       std::uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = i < 2 ? low : high;
    if constexpr (kKind == IntKind::kInt8) {
      // A byte in the mantissa of 2^10 is 2^10 + q.
      const std::uint32_t pair = __byte_perm(word, 0x64646464u, i % 2 == 0 ? 0x4140 : 0x4342);
      a[i] = subtract_f16(pair, 0x64806480u);
    } else {
      a[i] = e4m3_pair(i % 2 == 0 ? word & 0xFFFFu : word >> 16);
    }
  }
}

// Scales of a group of a unit, of neighbouring rows g and g + 8, in float32. kNvFp4: of the unit,
// beside those of NvScales.
template <IntKind kKind>
__device__ inline float2 fragment_scales(const unsigned char* unit, int group, int g,
                                         bool in_bf16) {
  const unsigned char* from =
      unit + kCodeBytes<kKind> + (group * kUnitRows + 2 * g) * kScaleBytes<kKind>;
  if constexpr (kKind == IntKind::kFp8) {
    return *reinterpret_cast<const float2*>(from);
  } else if constexpr (kKind == IntKind::kNvFp4) {
    constexpr int kAt = kCodeBytes<kKind> + kUnitRows * (kFragmentUnitColumns / 16);
    const float2 two =
        *reinterpret_cast<const float2*>(unit + kAt + g / ops::kFactorRows * sizeof(float2));
    return {two.x * kHalfE2m1, two.y * kHalfE2m1};
  } else if constexpr (kKind == IntKind::kFp4) {
    // Exponents alone; that of 2^-127 is subnormal.
    const std::uint32_t pair = *reinterpret_cast<const std::uint16_t*>(from);
    return {__uint_as_float(max((pair & 0xFFu) << 23, 1u << 22)),
            __uint_as_float(max(pair >> 8 << 23, 1u << 22))};
  } else {
    const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(from);
    if (in_bf16) return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u)};
    return __half22float2(*reinterpret_cast<const __half2*>(&pair));
  }
}

// Calls body.template operator()<kind, fine>(). Fine: groups of 32 or 64 columns.
template <class Body>
void with_int_kind(const IntWeights& w, Body&& body) {
  const auto with_groups = [&]<IntKind kKind>() {
    if (w.groups == 1)
      body.template operator()<kKind, false>();
    else
      body.template operator()<kKind, true>();
  };
  switch (w.kind) {
    case IntKind::kInt4:
      return with_groups.template operator()<IntKind::kInt4>();
    case IntKind::kInt8:
      return with_groups.template operator()<IntKind::kInt8>();
    case IntKind::kFp8:
      return body.template operator()<IntKind::kFp8, false>();
    case IntKind::kFp4:
      return body.template operator()<IntKind::kFp4, true>();
    case IntKind::kQ2K:
      return body.template operator()<IntKind::kQ2K, false>();
    case IntKind::kQ3K:
      return body.template operator()<IntKind::kQ3K, false>();
    case IntKind::kQ4K:
      return body.template operator()<IntKind::kQ4K, false>();
    case IntKind::kQ5K:
      return body.template operator()<IntKind::kQ5K, false>();
    case IntKind::kQ6K:
      return body.template operator()<IntKind::kQ6K, false>();
    case IntKind::kQ41:
      return body.template operator()<IntKind::kQ41, false>();
    case IntKind::kQ50:
      return body.template operator()<IntKind::kQ50, false>();
    case IntKind::kQ51:
      return body.template operator()<IntKind::kQ51, false>();
    case IntKind::kIQ4XS:
      return body.template operator()<IntKind::kIQ4XS, false>();
    case IntKind::kIQ4NL:
      return body.template operator()<IntKind::kIQ4NL, false>();
    case IntKind::kNvFp4:  // its groups have scales in the fragments
      return body.template operator()<IntKind::kNvFp4, false>();
  }
}

}  // namespace sluice::cuda
