// Weights in fragments (kernels/types/int_fragments.h) of all formats, whose numbers are exact.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/types/fp4.h"
#include "kernels/types/int_fragments.h"
#include "ops/packing.h"
#include "ops/testing/support.h"

namespace sluice::ops::coded {

inline constexpr std::int64_t kRows = 24;  // one and a half tiles

// Codes in turn, and powers of two as scales.
struct Coded {
  Weight w;
  std::vector<std::byte> bytes;
  FragmentUnit unit;
  int offset;

  Coded(Format format, std::int64_t group, DType scale, std::int64_t columns, int first = 0,
        std::int64_t rows = kRows)
      : offset(first) {
    w.format = format, w.layout = Layout::kFragments, w.group = group;
    w.input = DType::kBF16, w.scale = scale, w.rows = rows, w.columns = columns;
    unit = fragment_unit(w);
    bytes.resize(static_cast<std::size_t>(fragment_bytes(w)));
    w.data = Tensor::dense(bytes.data(), DType::kU8, {1, fragment_bytes(w)});
    for (std::int64_t n = 0; n < rows; ++n)
      for (std::int64_t k = 0; k < columns; ++k) {
        const int row = static_cast<int>(n % 16), column = static_cast<int>(k % 128);
        const int group_of_unit = column / (128 / unit.groups);
        std::uint8_t* to = reinterpret_cast<std::uint8_t*>(bytes.data()) +
                           (n / 16 * fragment_units(columns) + k / 128) * unit.bytes();
        const auto [byte, shift] = unit.code_at(row, column);
        to[byte] = static_cast<std::uint8_t>(to[byte] | code(n, k) << shift);
        put_scale(to + unit.scale_at(group_of_unit, row), n, k);
        if (unit.has_factors) {
          const float factor = factor_of(n);
          std::memcpy(to + unit.factor_at(row), &factor, sizeof factor);
        }
        if (unit.has_zeros)
          to[unit.zero_at(group_of_unit, row)] = static_cast<std::uint8_t>(zero(n, k));
      }
  }

  int code(std::int64_t n, std::int64_t k) const {
    const int code = static_cast<int>((n * 31 + k + offset) % (1 << unit.bits));
    // Checkpoints with NaN are refused.
    return w.format == Format::kFp8 && (code & 127) == 127 ? 0 : code;
  }
  int zero(std::int64_t n, std::int64_t k) const {
    return unit.has_zeros ? static_cast<int>((n + k / w.group * 5) % 16) : unit.middle();
  }
  // NVFP4: every scale but NaN, and powers of two as factors.
  int e4m3(std::int64_t n, std::int64_t k) const {
    return static_cast<int>((n * 5 + k / w.group * 3) % 127);
  }
  static float factor_of(std::int64_t n) {
    return std::ldexp(1.0f, -static_cast<int>(n / kFactorRows));
  }
  // float16 has these as subnormal numbers, too.
  int exponent(std::int64_t n, std::int64_t k) const {
    return -24 + static_cast<int>((n + k / w.group * 3) % 20);
  }
  void put_scale(std::uint8_t* to, std::int64_t n, std::int64_t k) const {
    const float scale = std::ldexp(1.0f, exponent(n, k));
    if (unit.has_factors) {
      *to = static_cast<std::uint8_t>(e4m3(n, k));
    } else if (unit.scale_bytes == 4) {
      std::memcpy(to, &scale, 4);
    } else if (unit.scale_bytes == 1) {
      *to = static_cast<std::uint8_t>(mx_scale_code(scale));
    } else {
      const auto bits = w.scale == DType::kBF16 ? std::bit_cast<std::uint16_t>(BF16(scale))
                                                : std::bit_cast<std::uint16_t>(F16(scale));
      std::memcpy(to, &bits, 2);
    }
  }
  double number(std::int64_t n, std::int64_t k) const {
    const auto at = static_cast<std::size_t>(code(n, k));
    if (w.format == Format::kNvFp4)
      return static_cast<double>(kE2M1[at]) * e4m3_values()[static_cast<std::size_t>(e4m3(n, k))] *
             factor_of(n);
    const double value = w.format == Format::kFp8     ? e4m3_values()[at]
                         : w.format == Format::kMxFp4 ? kE2M1[at]
                                                      : code(n, k) - zero(n, k);
    return std::ldexp(value, exponent(n, k));
  }
};

struct Form {
  Format format;
  std::int64_t group;
  DType scale;
};
inline constexpr Form kForms[] = {
    {Format::kInt4, 32, DType::kF16},      {Format::kInt4, 64, DType::kF16},
    {Format::kInt4, 128, DType::kBF16},    {Format::kInt4Zero, 32, DType::kF16},
    {Format::kInt4Zero, 64, DType::kBF16}, {Format::kInt4Zero, 128, DType::kF16},
    {Format::kInt8, 32, DType::kF16},      {Format::kInt8, 64, DType::kF32},
    {Format::kInt8, 128, DType::kF32},     {Format::kMxFp4, 32, DType::kF16},
    {Format::kFp8, 128, DType::kF32},      {Format::kNvFp4, 16, DType::kF16}};

}  // namespace sluice::ops::coded
