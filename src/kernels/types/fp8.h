// FP8 weights (Format::kFp8): e4m3 numbers in rows, with float32 scales in a second tensor. Rows of
// x are rounded to e4m3 too, and a product of two rows is
//
//   sum over groups g of  x_scale[g] w_scale[g] (sum over k in g of x[k] w[k])
//
// Weight::group is kFp8Group or 0. With kFp8Group, 128 neighbouring columns are a group. With 0
// there is one group, the row.
//
//   scales of w, kFp8Group   [groups, fp8_scale_stride(rows)]: one for 16 rows of a group
//   scales of w, 0           [rows]
//   a prepared row of x      `columns` bytes of e4m3, then a float32 for each group; zeros up to a
//                            multiple of 16 bytes
//
// e4m3: sign, 4 exponent bits with bias 7, 3 mantissa bits; all ones is NaN, and there is no
// infinity. Source: Micikevicius and others 2022, FP8 formats for deep learning.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace sluice::ops {

inline constexpr std::int64_t kFp8Group = 128;     // columns
inline constexpr std::int64_t kFp8ScaleRows = 16;  // rows of w that share the scale of a group
inline constexpr float kMaxE4M3 = 448;

// An element of a tensor of e4m3.
struct E4M3 {
  std::uint8_t bits = 0;
};

constexpr std::int64_t fp8_groups(std::int64_t columns, std::int64_t group) {
  return group == 0 ? 1 : (columns + group - 1) / group;
}
// Scales from one group of w to the next: whole tiles of 128 rows, so that vector loads stay
// inside.
constexpr std::int64_t fp8_scale_stride(std::int64_t rows) {
  return (rows + 127) / 128 * (128 / kFp8ScaleRows);
}
// Bytes of a prepared row of x; columns is a multiple of 16.
constexpr std::int64_t fp8_row_bytes(std::int64_t columns, std::int64_t group) {
  return (columns + 4 * fp8_groups(columns, group) + 15) / 16 * 16;
}

// The nearest e4m3 number, ties to even; beyond 448 the largest one. NaN stays NaN.
inline std::uint8_t to_e4m3(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint8_t>(bits >> 24 & 0x80u);
  const std::uint32_t size = bits & 0x7FFFFFFFu;
  if (size > 0x7F800000u) return 0x7F;
  if (size < (127u - 6u) << 23)  // subnormal: below 2^-6 the step is 2^-9
    return static_cast<std::uint8_t>(
        sign | static_cast<std::uint8_t>(std::nearbyint(std::abs(x) * 512.0f)));
  // Round to nearest even at mantissa bit 20 and change the exponent bias.
  const std::uint32_t code = ((size + 0x7FFFFu + (size >> 20 & 1u)) >> 20) - ((127u - 7u) << 3);
  return static_cast<std::uint8_t>(sign | (code < 0x7E ? code : 0x7E));
}

// The value of each byte.
inline std::array<float, 256> e4m3_values() {
  std::array<float, 256> all;
  for (int i = 0; i < 256; ++i) {
    const int exponent = i >> 3 & 15, mantissa = i & 7;
    float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                               : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    if ((i & 127) == 127) size = std::numeric_limits<float>::quiet_NaN();
    all[static_cast<std::size_t>(i)] = i < 128 ? size : -size;
  }
  return all;
}

// The scale of a group and the factor that its numbers have before they are rounded. `largest`: the
// largest absolute value of the group. A group of zeros has scale 0; one with NaN or infinity has
// scale NaN, and its numbers are 0.
struct Fp8Scale {
  float scale = 0, factor = 0;
};
inline Fp8Scale fp8_scale(float largest) {
  if (!(largest <= std::numeric_limits<float>::max()))
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  const float scale = largest / kMaxE4M3;
  if (scale < std::numeric_limits<float>::min()) return {};
  return {scale, kMaxE4M3 / largest};
}

}  // namespace sluice::ops
