// Bfloat16 tiles on AMX, over a model of its tiles (kernels/cpu/isa/amx_model.h), on any processor
// with AVX-512: many rows have the bits that each of them has alone, on the vector units.
#include "kernels/cpu/isa/isa_prelude.h"
#include "ops/testing/support.h"
#include "tensor/buffer.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")

#include "kernels/cpu/isa/amx_model.h"

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/gemm/amx_steps.h"

#include "kernels/cpu/gemm/tiles_amx_impl.h"

#pragma GCC pop_options

namespace sluice::ops {
namespace {

struct Shape {
  std::int64_t n, k;
};
constexpr Shape kShapes[] = {{16, 32}, {80, 128}, {37, 90}, {130, 2081}, {1100, 40}};

TEST(AmxTiles, ManyRowsHaveTheBitsOfOne) {
  if (detect_cpu_isa() < CpuIsa::kAvx512) GTEST_SKIP() << "this processor has no AVX-512";
  Machine machine(CpuIsa::kAvx2);
  for (const auto& [n, k] : kShapes) {
    const cpu::TileKernels& kernels = cpu::tile_kernels(CpuIsa::kAvx512Bf16, Format::kBf16);
    Weight w;
    w.format = Format::kBf16, w.rows = n, w.columns = k, w.count = 1;
    Buffer memory(kernels.matrix_bytes(w));
    w.data = memory.tensor(DType::kU8, {1, kernels.matrix_bytes(w)});
    Owned values(DType::kBF16, {n, k});
    fill(values, static_cast<unsigned>(n));
    // Products of these are denormal numbers, which AMX takes for zero.
    for (std::int64_t row = 0; row < n; row += 3) put(values, {row, k / 2}, 0x1p-120);
    kernels.pack(values, w, 0, 0);
    for (const std::int64_t m : {2, 15, 16, 17, 32, 40, 550}) {
      if (m * n * k > std::int64_t{30} << 20) continue;
      Owned x(DType::kBF16, {m, k}, 4), bias(DType::kBF16, {n}), many(DType::kF32, {m, n}, 5),
          alone(DType::kF32, {m, n}, 5);
      fill(x, static_cast<unsigned>(m));
      fill(bias, 7);
      for (std::int64_t row = 0; row < m; row += 5) put(x, {row, k / 2}, 0x1p-10);
      cpu::TileProduct args{.x = reinterpret_cast<const std::byte*>(x.data<BF16>()),
                            .x_stride = (k + 4) * 2,
                            .w = static_cast<const std::byte*>(w.data.data),
                            .rows = n,
                            .columns = k,
                            .bias = {bias.data<BF16>(), DType::kBF16},
                            .out = many.data<float>(),
                            .out_stride = n + 5};
      const std::int64_t tiles = cpu::num_tiles(n);
      cpu::amx_product(args, 0, m, 0, tiles);
      args.out = alone.data<float>();
      for (std::int64_t row = 0; row < m; ++row) cpu::amx_product(args, row, row + 1, 0, tiles);
      EXPECT_EQ(many.bytes, alone.bytes) << m << " x " << n << " x " << k;
      if (tiles % 2 != 0) continue;
      // The halves of the tiles, read as two streams.
      std::ranges::fill(alone.bytes, std::byte{0xFF});
      for (std::int64_t row = 0; row < m; ++row)
        cpu::amx_paired_row(args, row, 0, tiles / 2, tiles / 2);
      EXPECT_EQ(many.bytes, alone.bytes) << m << " x " << n << " x " << k;
    }
  }
  EXPECT_EQ(cpu::amx_faults, 0);
}

}  // namespace
}  // namespace sluice::ops
