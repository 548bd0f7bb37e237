// Rows of int8 with weights of int8, against the definition in kernels/types/int8_rows.h.
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/types/int_fragments.h"
#include "ops/gemm.h"
#include "ops/packing.h"
#include "ops/testing/support.h"

namespace sluice::ops {
namespace {

struct Shape {
  std::int64_t m, n, k;
};
// One to all sizes of register tiles, partial tiles, units and pieces, and more than a block of
// rows.
constexpr Shape kShapes[] = {{1, 16, 128},  {2, 40, 136},   {3, 16, 32},
                             {4, 24, 8},    {5, 33, 264},   {6, 16, 1024},
                             {7, 100, 400}, {11, 48, 3072}, {98, 20, 160}};

// Random codes in [-128, 127], and a scale of each row.
struct Int8Matrix {
  Weight w;
  std::vector<std::byte> bytes;
  std::vector<int> codes;
  std::vector<float> scales;

  Int8Matrix(std::int64_t n, std::int64_t k, DType scale, unsigned seed) {
    w.format = Format::kInt8, w.layout = Layout::kFragments, w.group = kFragmentColumns;
    w.input = DType::kBF16, w.scale = scale, w.int8_rows = true;
    w.rows = n, w.columns = k;
    bytes.resize(static_cast<std::size_t>(fragment_bytes(w)));
    w.data = Tensor::dense(bytes.data(), DType::kU8, {1, fragment_bytes(w)});
    std::mt19937 random(seed);
    const FragmentUnit unit = fragment_unit(w);
    auto* const all = reinterpret_cast<std::uint8_t*>(bytes.data());
    for (std::int64_t u = 0; u < fragment_tiles(n) * fragment_units(k); ++u)
      std::memset(all + u * unit.bytes(), 128, static_cast<std::size_t>(unit.code_bytes()));
    for (std::int64_t row = 0; row < n; ++row) {
      scales.push_back(std::ldexp(1 + static_cast<float>(random() % 128) / 128, -9));
      for (std::int64_t column = 0; column < k; ++column) {
        codes.push_back(static_cast<int>(random() % 256) - 128);
        std::uint8_t* const to = all + (row / 16 * fragment_units(k) + column / 128) * unit.bytes();
        const auto [byte, shift] =
            unit.code_at(static_cast<int>(row % 16), static_cast<int>(column % 128));
        to[byte] = static_cast<std::uint8_t>(codes.back() + 128);
        put_scale(to + unit.scale_at(0, static_cast<int>(row % 16)), scales.back());
      }
    }
  }
  void put_scale(std::uint8_t* to, float scale) const {
    const BF16 brain(scale);
    const F16 half(scale);
    if (w.scale == DType::kF32) std::memcpy(to, &scale, 4);
    if (w.scale == DType::kBF16) std::memcpy(to, &brain, 2);
    if (w.scale == DType::kF16) std::memcpy(to, &half, 2);
  }

  // Row n of the weight times a row of x.
  float product(const std::vector<float>& x, std::int64_t n, float bias) const {
    float largest = 0;
    for (const float number : x) largest = std::max(largest, std::abs(number));
    const float factor = largest > 0 ? 127 / largest : 0;
    long sum = 0;
    for (std::size_t k = 0; k < x.size(); ++k)
      sum += std::lrint(x[k] * factor) * codes[static_cast<std::size_t>(n * w.columns) + k];
    return static_cast<float>(sum) * (largest / 127 * scales[static_cast<std::size_t>(n)]) + bias;
  }
};

std::vector<float> row_of(const Owned& x, std::int64_t m, std::int64_t columns) {
  std::vector<float> row;
  for (std::int64_t k = 0; k < columns; ++k) row.push_back(static_cast<float>(get(x, {m, k})));
  return row;
}

TEST(Int8Rows, SumsAreExact) {
  unsigned seed = 0;
  for (const CpuIsa isa : isas()) {
    Machine machine(isa);
    for (const auto& [m, n, k] : kShapes) {
      const DType scale = std::array{DType::kBF16, DType::kF16, DType::kF32}[++seed % 3];
      const Int8Matrix matrix(n, k, scale, seed);
      Owned x(DType::kBF16, {m, k}), out(DType::kF32, {m, n}), bias(DType::kF32, {n});
      fill(x, seed);
      fill(bias, seed + 1);
      for (std::int64_t column = 0; column < k && m > 2; ++column) put(x, {1, column}, 0);
      linear(machine.ctx, x, matrix.w, bias, out);
      for (std::int64_t row = 0; row < m; ++row) {
        const std::vector<float> of_x = row_of(x, row, k);
        for (std::int64_t column = 0; column < n; ++column)
          ASSERT_EQ(get(out, {row, column}),
                    matrix.product(of_x, column, static_cast<float>(get(bias, {column}))))
              << static_cast<int>(isa) << ": " << m << " x " << n << " x " << k << ", " << row
              << ", " << column;
      }
    }
  }
}

// What a GPU has (Layout::kRows), on the CPU's body.
TEST(Int8Rows, WeightsInRowsGiveTheSameBits) {
  Machine machine(detect_cpu_isa());
  for (const auto& [m, n, k] : kShapes) {
    Int8Matrix matrix(n, k, DType::kF32, 4);
    Weight in_rows = weight_form(machine.ctx, Format::kInt8, DType::kBF16, 0);
    std::vector<std::int8_t> codes(matrix.codes.begin(), matrix.codes.end());
    in_rows.rows = n, in_rows.columns = k;
    in_rows.data = Tensor::dense(codes.data(), DType::kI8, {n, k});
    in_rows.scales = Tensor::dense(matrix.scales.data(), DType::kF32, {n});
    Owned x(DType::kBF16, {m, k}), out(DType::kF32, {m, n}), wanted(DType::kF32, {m, n}),
        bias(DType::kF32, {n});
    fill(x, 5);
    fill(bias, 6);
    for (std::int64_t column = 0; column < k && m > 2; ++column) put(x, {1, column}, 0);
    if (m > 4) put(x, {3, k / 2}, INFINITY);
    linear(machine.ctx, x, matrix.w, bias, wanted);
    linear(machine.ctx, x, in_rows, bias, out);
    for (std::int64_t row = 0; row < m; ++row)
      for (std::int64_t column = 0; column < n; ++column)
        ASSERT_TRUE(get(out, {row, column}) == get(wanted, {row, column}) ||
                    (row == 3 && std::isnan(get(out, {row, column})) &&
                     std::isnan(get(wanted, {row, column}))))
            << m << " x " << n << " x " << k << ", " << row << ", " << column;
  }
}

// The largest codes and numbers: no sum of two products leaves 16 bits.
TEST(Int8Rows, LargestNumbersDoNotSaturate) {
  for (const CpuIsa isa : isas()) {
    Machine machine(isa);
    Int8Matrix matrix(16, 256, DType::kF16, 1);
    std::ranges::fill(matrix.codes, -128);
    const FragmentUnit unit = fragment_unit(matrix.w);
    for (std::int64_t u = 0; u < 2; ++u)
      std::memset(matrix.bytes.data() + u * unit.bytes(), 0,
                  static_cast<std::size_t>(unit.code_bytes()));
    for (const float sign : {1.0f, -1.0f}) {
      Owned x(DType::kBF16, {4, 256}), out(DType::kF32, {4, 16});
      for (std::int64_t row = 0; row < 4; ++row)
        for (std::int64_t column = 0; column < 256; ++column) put(x, {row, column}, sign * 3);
      linear(machine.ctx, x, matrix.w, {}, out);
      for (std::int64_t column = 0; column < 16; ++column)
        EXPECT_EQ(get(out, {3, column}), matrix.product(row_of(x, 3, 256), column, 0));
    }
  }
}

TEST(Int8Rows, WhatIsNoNumberStaysInItsRow) {
  for (const CpuIsa isa : isas()) {
    Machine machine(isa);
    const Int8Matrix matrix(40, 136, DType::kF16, 3);
    Owned x(DType::kBF16, {5, 136}), out(DType::kF32, {5, 40}), other(DType::kF32, {5, 40});
    fill(x, 1);
    linear(machine.ctx, x, matrix.w, {}, other);
    put(x, {1, 130}, NAN);
    put(x, {3, 7}, -INFINITY);
    linear(machine.ctx, x, matrix.w, {}, out);
    for (std::int64_t n = 0; n < 40; ++n) {
      EXPECT_TRUE(std::isnan(get(out, {1, n})));
      EXPECT_TRUE(std::isnan(get(out, {3, n})));
      for (const std::int64_t m : {0, 2, 4}) EXPECT_EQ(get(out, {m, n}), get(other, {m, n}));
    }
  }
}

}  // namespace
}  // namespace sluice::ops
