// Quantised tiles on AMX, over a model of its tiles (kernels/cpu/isa/amx_model.h), on any processor
// with AVX-512 VNNI: the bits are those of AVX2.
#include "kernels/cpu/gemm/quant_tiles.h"
#include "kernels/cpu/isa/isa_prelude.h"
#include "ops/packing.h"
#include "ops/testing/support.h"
#include "tensor/buffer.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")

#include "kernels/cpu/gemm/quant_avx512_lanes.h"

#include "kernels/cpu/gemm/quant_vnni_lanes.h"

#include "kernels/cpu/isa/amx_model.h"

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/gemm/quant_tiles_impl.h"

#include "kernels/cpu/gemm/quant_row_impl.h"

#include "kernels/cpu/gemm/quant_amx_impl.h"

#pragma GCC pop_options

namespace sluice::ops {
namespace {

struct Kind {
  Format format;
  cpu::QuantTileProduct amx;
};
constexpr Kind kKinds[] = {{Format::kInt8, cpu::amx_product<cpu::QuantKind::kInt8>},
                           {Format::kInt4, cpu::amx_product<cpu::QuantKind::kInt4>},
                           {Format::kInt4Min, cpu::amx_product<cpu::QuantKind::kInt4Min>}};

// Rows of w, columns, and a group's.
struct Shape {
  std::int64_t n, k, group;
};
constexpr Shape kShapes[] = {{16, 32, 32},    {80, 128, 128},  {37, 96, 32},
                             {130, 2080, 32}, {70, 1100, 128}, {64, 1024, 32}};

// Blocks of Q4_1: a float16 scale, a float16 minimum, 32 nibbles.
std::vector<std::byte> random_blocks(std::int64_t count) {
  std::mt19937 random(5);
  std::vector<std::byte> blocks;
  for (std::int64_t i = 0; i < count; ++i) {
    for (const F16 value : {F16(0.01f), F16(-0.07f)})
      for (const int shift : {0, 8}) blocks.push_back(static_cast<std::byte>(value.bits >> shift));
    for (int byte = 0; byte < 16; ++byte) blocks.push_back(static_cast<std::byte>(random()));
  }
  return blocks;
}

TEST(AmxQuant, HasTheBitsOfAvx2) {
  if (detect_cpu_isa() < CpuIsa::kAvx512Vnni) GTEST_SKIP() << "this processor has no VNNI";
  Machine machine(CpuIsa::kAvx2);
  for (const auto& [format, amx] : kKinds)
    for (const auto& [n, k, group] : kShapes) {
      // Minima come from GGUF alone, in blocks of 32.
      if (format == Format::kInt4Min && group != 32) continue;
      Weight w = weight_form(machine.ctx, format, DType::kF32, group);
      w.rows = n, w.columns = k, w.count = 1;
      Buffer memory(packed_bytes(machine.ctx, w));
      w.data = memory.tensor(DType::kU8, {1, packed_bytes(machine.ctx, w)});
      const cpu::TileKernels& wanted = cpu::quant_tile_kernels(CpuIsa::kAvx2, format);
      if (format == Format::kInt4Min) {
        std::vector<std::byte> blocks = random_blocks(n * k / 32);
        wanted.pack(Tensor::dense(blocks.data(), DType::kU8, {n, k / 32 * 20}), w, 0, 0);
      } else {
        Owned values(DType::kF32, {n, k});
        fill(values, static_cast<unsigned>(n));
        wanted.pack(values, w, 0, 0);
      }
      for (const std::int64_t m : {1, 2, 4, 15, 16, 17, 40}) {
        Owned x(DType::kF32, {m + 2, k}), bias(DType::kF32, {n});
        fill(x, static_cast<unsigned>(m));
        fill(bias, 3);
        const std::int64_t row_bytes = (wanted.input_bytes(w) + 63) / 64 * 64;
        std::vector<std::byte> prepared(static_cast<std::size_t>((m + 2) * row_bytes + 64));
        std::byte* const rows =
            prepared.data() + (64 - reinterpret_cast<std::uintptr_t>(prepared.data()) % 64) % 64;
        for (std::int64_t row = 0; row < m + 2; ++row)
          wanted.prepare(w, &x.data<float>()[row * k], 0, k, rows + row * row_bytes);
        std::vector<std::int32_t> listed;
        for (std::int64_t row = 0; row < m; ++row)
          listed.push_back(static_cast<std::int32_t>(m + 1 - row));
        for (const bool is_listed : {false, true}) {
          Owned seen(DType::kF32, {m, n}, 5), right(DType::kF32, {m, n}, 5);
          cpu::TileProduct args{.x = rows,
                                .x_stride = row_bytes,
                                .x_rows = is_listed ? listed.data() : nullptr,
                                .w = static_cast<const std::byte*>(w.data.data),
                                .rows = n,
                                .columns = k,
                                .group = group,
                                .bias = {bias.data<float>(), DType::kF32},
                                .out = seen.data<float>(),
                                .out_stride = n + 5};
          // Tiles in two pieces, the first one not of whole panels.
          const std::int64_t tiles = cpu::num_tiles(n), cut = tiles / 2;
          amx(args, 0, m, 0, cut);
          amx(args, 0, m, cut, tiles);
          args.out = right.data<float>();
          wanted.product(args, 0, m, 0, tiles);
          EXPECT_EQ(seen.bytes, right.bytes)
              << "format " << static_cast<int>(format) << ", " << m << " x " << n << " x " << k
              << ", groups of " << group << (is_listed ? ", listed" : "");
        }
      }
    }
  EXPECT_EQ(cpu::amx_faults, 0);
}

}  // namespace
}  // namespace sluice::ops
