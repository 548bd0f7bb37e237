// Rows of int8 on AMX, over a model of its tiles (kernels/cpu/isa/amx_model.h), on any processor
// with AVX-512: the bits are those of AVX2.
#include "kernels/cpu/fragments/amx_blocks.h"
#include "kernels/cpu/fragments/int8_rows.h"
#include "kernels/cpu/isa/isa_prelude.h"
#include "ops/testing/int8_matrix.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")
#include "kernels/cpu/isa/amx_model.h"

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/fragments/int8_rows_amx_impl.h"

#pragma GCC pop_options

namespace sluice::ops {
namespace {

TEST(AmxInt8Rows, HaveTheBitsOfAvx2) {
  if (detect_cpu_isa() < CpuIsa::kAvx512) GTEST_SKIP() << "this processor has no AVX-512";
  struct Shape {
    std::int64_t m, n, k;
  };
  // Whole and partial tiles of x and w, one and several blocks of steps, pairs, and rows of x.
  constexpr Shape kShapes[] = {{1, 16, 128},    {16, 32, 512},   {17, 40, 640},
                               {32, 16, 8},     {33, 33, 264},   {48, 130, 1152},
                               {515, 300, 528}, {1030, 48, 136}, {513, 24, 64}};
  unsigned seed = 0;
  Machine machine(detect_cpu_isa());
  for (const auto& [m, n, k] : kShapes) {
    const DType scale = std::array{DType::kBF16, DType::kF16, DType::kF32}[++seed % 3];
    const Int8Matrix matrix(n, k, scale, seed);
    Owned x(DType::kBF16, {m, k}), out(DType::kF32, {m, n}, 3), wanted(DType::kF32, {m, n}),
        bias(DType::kF32, {n});
    fill(x, seed);
    fill(bias, seed + 1);
    if (m > 20) put(x, {19, k / 2}, INFINITY);
    cpu::linear_int8_rows(machine.ctx,
                          {.multiply = cpu::multiply_int8_on_amx, .order = cpu::Int8Order::kTiles},
                          x, matrix.w, bias, out);
    cpu::linear_int8_rows(machine.ctx, cpu::int8_kernel(CpuIsa::kAvx2, m), x, matrix.w, bias,
                          wanted);
    for (std::int64_t row = 0; row < m; ++row)
      for (std::int64_t column = 0; column < n; ++column) {
        const double seen = get(out, {row, column}), right = get(wanted, {row, column});
        ASSERT_TRUE(seen == right || (row == 19 && std::isnan(seen) && std::isnan(right)))
            << m << " x " << n << " x " << k << ", " << row << ", " << column << ": " << seen
            << " and " << right;
      }
    EXPECT_EQ(cpu::amx_faults, 0);
  }
}

TEST(AmxInt8Rows, FewRowsKeepVnni) {
  EXPECT_EQ(cpu::int8_kernel(CpuIsa::kAmx, 16).order, cpu::Int8Order::kTwice);
  EXPECT_EQ(cpu::int8_kernel(CpuIsa::kAmx, 17).order, cpu::Int8Order::kTiles);
  EXPECT_EQ(cpu::int8_kernel(CpuIsa::kAvx512Bf16, 100).order, cpu::Int8Order::kTwice);
}

// The model notices what the unit would refuse.
TEST(AmxInt8Rows, ModelCountsWrongShapes) {
  cpu::AmxShapes shapes;
  cpu::amx_zero<0>();
  EXPECT_EQ(cpu::amx_faults.exchange(0), 1);  // no configuration
  shapes.set({.first = 16, .second = 0, .a_bytes = 32});
  cpu::amx_zero<0>();
  cpu::amx_zero<4>();
  cpu::amx_zero<6>();
  cpu::amx_dot_bytes<0, 4, 6>();
  EXPECT_EQ(cpu::amx_faults, 0);
  cpu::amx_dot_bytes<0, 6, 4>();
  EXPECT_EQ(cpu::amx_faults.exchange(0), 1);
}

}  // namespace
}  // namespace sluice::ops
