// Rows of int8 with weights of int8, against the definition in kernels/types/int8_rows.h.
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/gemm.h"
#include "ops/testing/int8_matrix.h"

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
