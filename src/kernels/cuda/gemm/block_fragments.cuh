// Reading units of GGUF's blocks on a GPU; kernels/types/block_units.h defines them.
#pragma once

#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/common/halves.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/gemm/gemm_int.h"
#include "kernels/types/block_units.h"

namespace sluice::cuda {

template <IntKind kKind>
inline constexpr bool kIsBlocks = block_unit_of(kKind).exists();

// Four numbers of a table from code kFrom on, a byte each: the sign, then seven bits of the size.
constexpr std::uint32_t four_iq4_numbers(int from) {
  std::uint32_t four = 0;
  for (int i = 0; i < 4; ++i) {
    const int number = ops::kIq4Numbers[from + i];
    four |= static_cast<std::uint32_t>(number < 0 ? 128 - number : number) << 8 * i;
  }
  return four;
}
template <int kFrom>
inline constexpr std::uint32_t kFourIq4Numbers = four_iq4_numbers(kFrom);

// Looks up the four codes in the low nibbles of `codes`, a byte each. A selector of __byte_perm has
// three bits, so both halves of the table are read, and bit 3 chooses.
__device__ inline std::uint32_t iq4_numbers(std::uint32_t codes) {
  const std::uint32_t at = codes & 0x7777u,
                      low = __byte_perm(kFourIq4Numbers<0>, kFourIq4Numbers<4>, at),
                      high = __byte_perm(kFourIq4Numbers<8>, kFourIq4Numbers<12>, at);
  return __byte_perm(low, high, (codes >> 1 & 0x4444u) | 0x3210u);
}

// x left by a number of bits, which may be negative.
__device__ inline std::uint32_t moved(std::uint32_t x, int left) {
  return left >= 0 ? x << left : x >> -left;
}

// Half a unit of a lane: the rows g and g + 8 of 64 columns, which are four MMAs.
template <IntKind kKind>
class BlockFragments {
  static constexpr ops::BlockUnit kForm = block_unit_of(kKind);
  static constexpr int kLowBytes = kForm.low_bytes(), kScalesAt = kForm.scales_at(),
                       kMoreAt = kForm.more_at(), kDAt = kForm.d_at(), kDBytes = kForm.d_bytes();

 public:
  static constexpr bool kHasMinima = kForm.has_minima;
  static constexpr int kGroups = kForm.groups / 2, kSteps = 4 / kGroups;  // MMAs of a group

  __device__ BlockFragments(const unsigned char* unit, int half, int lane) {
    const unsigned char* codes = unit + lane * 16;
    if constexpr (kForm.low_bits == 4)
      low_ = *reinterpret_cast<const uint4*>(codes + half * 512);
    else
      *reinterpret_cast<uint2*>(&low_) = *reinterpret_cast<const uint2*>(codes + half * 8);
    if constexpr (kForm.high_bits == 2)
      high_ = *reinterpret_cast<const uint2*>(codes + kLowBytes + half * 8);
    if constexpr (kForm.high_bits == 1)
      high_.x = *reinterpret_cast<const std::uint32_t*>(unit + kLowBytes + lane * 8 + half * 4);
    read_groups(unit, half, lane / 4);
  }

  // A weight is s code + c, or s code without minima. Codes of MMA `step` are exact: 128 + u, u
  // less its offset, or the number of a table.
  __device__ void to_codes(int step, std::uint32_t (&a)[4]) const {
    constexpr std::uint32_t kZero = 0x4300u + kForm.offset;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = pair_of(step, i);
      if constexpr (!kHasMinima && !kForm.has_table)
        a[i] = subtract_bf16(a[i], kZero << 16 | kZero);
    }
  }
  __device__ float s(int r, int group) const { return scale_[r][group]; }
  __device__ float c(int r, int group) const { return base_[r][group]; }

  // Weights of MMA `step`, rounded to bfloat16.
  __device__ void to_weights(int step, std::uint32_t (&a)[4]) const {
    const int group = step / kSteps;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t pair = pair_of(step, i);
      const float s = scale_[i % 2][group], c = base_[i % 2][group];
      a[i] = pack_bf16(fmaf(__uint_as_float(pair << 16), s, c),
                       fmaf(__uint_as_float(pair & 0xFFFF0000u), s, c));
    }
  }

 private:
  // Two numbers of a table as bfloat16, of register i. Their signs are in bits 15 and 31, and 128
  // plus a size is a size in the mantissa of 128. The compiler looks up all registers at once.
  __device__ std::uint32_t numbers_of(int step, int i) const {
    const std::uint32_t codes = word(low_, step),
                        pair = __byte_perm(iq4_numbers(codes), iq4_numbers(codes >> 16),
                                           0x4400 + 0x1111 * i),
                        size = subtract_bf16((pair & 0x007F007Fu) | 0x43004300u, 0x43004300u);
    return size | (pair & 0x80008000u);
  }
  // Two codes of register i. A code in the mantissa of 128 is 128 + u.
  __device__ std::uint32_t pair_of(int step, int i) const {
    if constexpr (kForm.has_table) return numbers_of(step, i);
    const std::uint32_t low = kForm.low_bits == 4 ? word(low_, step) >> (4 * i)
                                                  : word(low_, step / 2) >> (2 * i + step % 2 * 8);
    constexpr std::uint32_t kMask = kForm.low_bits == 4 ? 0x000F000Fu : 0x00030003u;
    std::uint32_t pair;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;"  // (low & mask) | 128.0
        : "=r"(pair)
        : "r"(low), "r"(kMask), "r"(0x43004300u));
    if constexpr (kForm.high_bits == 2)
      pair |= moved(step < 2 ? high_.x : high_.y, 4 - 2 * i - step % 2 * 8) & 0x00300030u;
    if constexpr (kForm.high_bits == 1)
      pair |= moved(high_.x, kForm.low_bits - i - step * 4) & (0x00010001u << kForm.low_bits);
    return pair;
  }
  static __device__ std::uint32_t word(const uint4& four, int i) {
    return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
  }
  // Byte j of four.
  static __device__ float byte_of(std::uint32_t four, int j) {
    return __uint_as_float(__byte_perm(four, 0x4B000000u, 0x7440 + j)) - 8388608.0f;
  }
  static __device__ std::uint32_t half_at(const unsigned char* from) {
    return *reinterpret_cast<const std::uint16_t*>(from);
  }

  // Scales and minima of the groups of a row, a byte each. `raised`: what the scales have more.
  struct Groups {
    std::uint32_t scales, minima = 0;
    int raised = 0;
  };
  static __device__ Groups groups_of(const unsigned char* unit, int half, int place) {
    const unsigned char* scales = unit + kScalesAt + place * kForm.scale_bytes;
    if constexpr (kKind == IntKind::kQ4K || kKind == IntKind::kQ5K) {
      const std::uint32_t low = half_at(scales + half * 2), more = unit[kMoreAt + place * 2 + half];
      return {low & 0x3F3Fu, (low >> 6 & 0x0303u) | ((more | more << 4) & 0x0F0Fu) << 2};
    } else if constexpr (kKind == IntKind::kQ3K) {
      std::uint32_t low = half_at(scales + half * 2), more = unit[kMoreAt + place * 2 + half];
      low = (low | low << 8) & 0x00FF00FFu;
      low = (low | low << 4) & 0x0F0F0F0Fu;
      more = (more | more << 12) & 0x000F000Fu;
      more = (more | more << 6) & 0x03030303u;
      return {low | more << 4, 0, 32};
    } else if constexpr (kKind == IntKind::kIQ4XS) {
      return {half_at(scales + half * 2) ^ 0x8080u, 0, 128};
    } else {
      const std::uint32_t four = *reinterpret_cast<const std::uint32_t*>(scales + half * 4);
      if constexpr (kKind == IntKind::kQ2K)
        return {four & 0x0F0F0F0Fu, four >> 4 & 0x0F0F0F0Fu};
      else  // with a sign
        return {four ^ 0x80808080u, 0, 128};
    }
  }

  __device__ void set(int r, int group, float s, float lowered) {
    scale_[r][group] = s;
    base_[r][group] = kForm.has_table ? 0.0f : fmaf(-(ops::kCodeBase + kForm.offset), s, -lowered);
  }
  __device__ void read_groups(const unsigned char* unit, int half, int g) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int place = 2 * g + r;
      const unsigned char* const from = unit + kDAt + place * kDBytes;
      if constexpr (kForm.scale_bytes > 0) {
        float2 d{0, 0};  // d, d_min
        if constexpr (kHasMinima)
          d = __half22float2(*reinterpret_cast<const __half2*>(from));
        else
          d.x = __half2float(*reinterpret_cast<const __half*>(from));
        const Groups groups = groups_of(unit, half, place);
#pragma unroll
        for (int j = 0; j < kGroups; ++j)
          set(r, j, d.x * (byte_of(groups.scales, j) - static_cast<float>(groups.raised)),
              kHasMinima ? d.y * byte_of(groups.minima, j) : 0);
      } else if constexpr (kHasMinima) {  // d and m of each group
        const uint2 both = *reinterpret_cast<const uint2*>(from + half * 8);
#pragma unroll
        for (int j = 0; j < kGroups; ++j) {
          const std::uint32_t own = j == 0 ? both.x : both.y;
          const float2 d = __half22float2(*reinterpret_cast<const __half2*>(&own));
          set(r, j, d.x, -d.y);
        }
      } else {  // d of each group
        const float2 d = __half22float2(*reinterpret_cast<const __half2*>(from + half * 4));
        set(r, 0, d.x, 0);
        set(r, 1, d.y, 0);
      }
    }
  }

  uint4 low_;
  uint2 high_;
  float scale_[2][kGroups], base_[2][kGroups];
};

}  // namespace sluice::cuda
