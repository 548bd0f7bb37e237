// GEMMs with FP8 weights, beside those of bfloat16 in `products`. "of_bf16" is the share of the
// rate of a large bfloat16 GEMM: FP8 has twice that rate.
#include "gpu/kernels.h"
#include "ops/gemm.h"
#include "ops/packing.h"

namespace sluice {
namespace {

struct Matrix {
  const char* name;
  std::int64_t n, k;
};
constexpr Matrix kMatrices[] = {
    {"qwen3-8b qkv", 6144, 4096},           {"qwen3-8b o", 4096, 4096},
    {"qwen3-8b gate_up", 24576, 4096},      {"qwen3-8b down", 4096, 12288},
    {"deepseek-v3 qkv_a", 2112, 7168},      {"deepseek-v3 q_b", 24576, 1536},
    {"deepseek-v3 o", 7168, 16384},         {"deepseek-v3 gate_up", 36864, 7168},
    {"deepseek-v3 down", 7168, 18432},      {"deepseek-v3 shared", 4096, 7168},
    {"deepseek-v3 shared down", 7168, 2048}};

}  // namespace

void fp8(Bench& bench) {
  Context& ctx = bench.machine.ctx;
  Arena arena(std::int64_t{2} << 30, ctx.device);
  ctx.arena = &arena;
  for (const Matrix& matrix : kMatrices)
    for (const std::int64_t group : {ops::kFp8Group, std::int64_t{0}}) {
      const std::int64_t n = matrix.n, k = matrix.k, groups = ops::fp8_groups(k, group);
      const int sets = sets_for(n * k);
      // Random bytes are random numbers of e4m3.
      Tensor codes = bench.take(DType::kBF16, {sets, n, k / 2});
      codes.dtype = DType::kF8E4M3;
      codes.shape[2] = k, codes.stride[1] = k, codes.stride[0] = n * k;
      const Tensor scales =
          bench.take(DType::kF32, {groups, group == 0 ? n : ops::fp8_scale_stride(n)});
      ops::Weight w = ops::weight_form(ctx, ops::Format::kFp8, DType::kBF16, group);
      w.rows = n, w.columns = k;
      w.scales = group == 0 ? scales.at(0) : scales;
      for (const std::int64_t m : {1, 4, 8, 16, 64, 256, 8192}) {
        if (m == 8192 && n * k > 101000000) continue;
        Arena::Scope scope(arena);
        const Tensor x = bench.take(DType::kBF16, {m, k}),
                     out = bench.take(DType::kF32, {m, n}, false);
        const Tensor ready = ops::prepared(ctx, x, w);
        const double bytes = static_cast<double>(n * k + 2 * m * k + 4 * m * n);
        bench.time("linear_fp8", fmt::format("{} x {} groups of {}", m, matrix.name, group), bytes,
                   2.0 * static_cast<double>(m) * static_cast<double>(n * k), sets, [&](int i) {
                     ops::Weight one = w;
                     one.data = codes.at(i);
                     ops::linear(ctx, ready, one, {}, out);
                   });
      }
      bench.clear();
    }
  ctx.arena = nullptr;
}

}  // namespace sluice
