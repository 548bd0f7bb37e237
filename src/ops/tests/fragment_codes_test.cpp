// What each code of a weight in fragments is worth on a CPU, and what no number may do. A row of x
// with a single 1 gives a column of the weight, exactly.
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/gemm.h"
#include "ops/testing/coded_fragments.h"

namespace sluice::ops {
namespace {

using namespace coded;

TEST(FragmentCodes, EachIsItsNumber) {
  for (const CpuIsa isa : isas()) {
    Machine machine(isa);
    for (const auto& [format, group, scale] : kForms)
      for (const std::int64_t columns : {136, 256}) {
        const Coded matrix(format, group, scale, columns);
        Owned x(DType::kBF16, {columns, columns}), out(DType::kF32, {columns, kRows}),
            one(DType::kF32, {1, kRows});
        for (std::int64_t m = 0; m < columns; ++m)
          for (std::int64_t k = 0; k < columns; ++k) put(x, {m, k}, m == k ? 1 : 0);
        linear(machine.ctx, x, matrix.w, {}, out);
        for (std::int64_t m = 0; m < columns; ++m) {
          linear(machine.ctx, x.view.rows(m, 1), matrix.w, {}, one);
          for (std::int64_t n = 0; n < kRows; ++n) {
            SCOPED_TRACE(::testing::Message()
                         << static_cast<int>(isa) << ": format " << static_cast<int>(format)
                         << " in groups of " << group << ", " << m << ", " << n);
            ASSERT_EQ(get(out, {m, n}), matrix.number(n, m));
            ASSERT_EQ(get(one, {0, n}), matrix.number(n, m));
          }
        }
      }
  }
}

// Numbers of these codes and scales have at most eight bits, so a table has them exactly.
TEST(FragmentCodes, EachIsItsNumberInATable) {
  Machine machine(CpuIsa::kAvx2);
  for (const auto& [format, group, scale] : kForms)
    for (const std::int64_t columns : {136, 256}) {
      const Coded matrix(format, group, scale, columns);
      Owned ids(DType::kI32, {kRows + 1}), out(DType::kF32, {kRows + 1, columns}, 3);
      for (std::int64_t t = 0; t <= kRows; ++t) put(ids, {t}, static_cast<double>(t * 7 % kRows));
      embedding(machine.ctx, ids, matrix.w, out);
      EXPECT_TRUE(gaps_untouched(out));
      for (std::int64_t t = 0; t <= kRows; ++t)
        for (std::int64_t k = 0; k < columns; ++k)
          ASSERT_EQ(get(out, {t, k}), matrix.number(t * 7 % kRows, k))
              << "format " << static_cast<int>(format) << " in groups of " << group << ", " << t
              << ", " << k;
      for (const double other : {-1.0, static_cast<double>(kRows)}) {
        put(ids, {2}, other);
        EXPECT_THROW(embedding(machine.ctx, ids, matrix.w, out), Error);
      }
    }
}

TEST(FragmentCodes, SubnormalE4m3IsExact) {
  for (const CpuIsa isa : isas()) {
    Machine machine(isa);
    for (const int first : {0, 1, 128}) {
      const Coded matrix(Format::kFp8, 128, DType::kF32, 16, first);
      Owned x(DType::kBF16, {16, 16}), out(DType::kF32, {16, kRows});
      for (std::int64_t m = 0; m < 16; ++m)
        for (std::int64_t k = 0; k < 16; ++k) put(x, {m, k}, m == k ? 0x1p-40 : 0);
      linear(machine.ctx, x, matrix.w, {}, out);
      for (std::int64_t m = 0; m < 16; ++m)  // row 0 has the codes `first` to `first` + 15
        EXPECT_EQ(get(out, {m, 0}), matrix.number(0, m) * 0x1p-40) << first << ", " << m;
    }
  }
}

TEST(FragmentCodes, WhatIsNoNumberStaysInItsRow) {
  for (const CpuIsa isa : isas()) {
    Machine machine(isa);
    for (const auto& [format, group, scale] : kForms) {
      const Coded matrix(format, group, scale, 136);
      Owned x(DType::kBF16, {5, 136}), out(DType::kF32, {5, kRows}), other(DType::kF32, {5, kRows});
      fill(x, 1);
      linear(machine.ctx, x, matrix.w, {}, other);
      put(x, {1, 130}, NAN);
      put(x, {3, 7}, INFINITY);
      linear(machine.ctx, x, matrix.w, {}, out);
      for (std::int64_t n = 0; n < kRows; ++n) {
        EXPECT_TRUE(std::isnan(get(out, {1, n})));
        EXPECT_FALSE(std::isfinite(get(out, {3, n})));
        for (const std::int64_t m : {0, 2, 4}) EXPECT_EQ(get(out, {m, n}), get(other, {m, n}));
      }
    }
  }
}

// vdpbf16ps takes subnormal numbers of x for zeros, other forms do not. Either way a sum is off by
// at most these numbers.
TEST(FragmentCodes, SubnormalNumbersOfXAreAtMostLost) {
  for (const CpuIsa isa : isas()) {
    Machine machine(isa);
    for (const auto& [format, group, scale] : kForms) {
      const Coded matrix(format, group, scale, 64, 3);
      Owned x(DType::kBF16, {4, 64}), out(DType::kF32, {4, kRows});
      for (std::int64_t m = 0; m < 4; ++m)
        for (std::int64_t k = 0; k < 64; ++k) put(x, {m, k}, k == 5 ? 0x1p-60 : 0x1p-130);
      linear(machine.ctx, x, matrix.w, {}, out);
      for (std::int64_t n = 0; n < kRows; ++n) {
        double lost = 0, wanted = matrix.number(n, 5) * 0x1p-60;
        for (std::int64_t k = 0; k < 64; ++k) lost += std::abs(matrix.number(n, k)) * 0x1p-130;
        for (std::int64_t m = 0; m < 4; ++m)
          EXPECT_NEAR(get(out, {m, n}), wanted, lost + 4 * kEps * std::abs(wanted));
      }
    }
  }
}

// Blocks of rows, and what is left of them, give the bits of a row alone. Rows of 8,328 columns are
// more than the widened numbers that are kept.
void expect_bits_of_rows_alone(std::int64_t columns, std::int64_t many) {
  for (const CpuIsa isa : isas()) {
    Machine machine(isa);
    for (const auto& [format, group, scale] : kForms) {
      const Coded matrix(format, group, scale, columns, 5);
      Owned x(DType::kBF16, {many, columns}), whole(DType::kF32, {many, kRows}),
          some(DType::kF32, {4, kRows});
      fill(x, 9);
      linear(machine.ctx, x, matrix.w, {}, whole);
      for (const std::int64_t count : {1, 2, 3, 4})
        for (const std::int64_t m : {std::int64_t{0}, std::int64_t{1}, many - 7, many - 4}) {
          linear(machine.ctx, x.view.rows(m, count), matrix.w, {}, some.view.rows(0, count));
          for (std::int64_t i = 0; i < count; ++i)
            for (std::int64_t n = 0; n < kRows; ++n)
              ASSERT_EQ(get(some, {i, n}), get(whole, {m + i, n}))
                  << static_cast<int>(isa) << ": format " << static_cast<int>(format) << ", " << m;
        }
    }
  }
}
TEST(FragmentCodes, BitsDoNotDependOnOtherRows) {
  expect_bits_of_rows_alone(776, 101);
  expect_bits_of_rows_alone(8328, 17);
}

}  // namespace
}  // namespace sluice::ops
