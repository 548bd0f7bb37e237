// GEMMs with integer weights in fragments, beside those of bfloat16 in `products`. "of_copy" counts
// the bytes of the weights as they lie in memory.
#include "gpu/kernels.h"
#include "kernels/types/int_fragments.h"
#include "ops/gemm.h"
#include "ops/packing.h"

namespace sluice {
namespace {

using ops::Format;

struct Matrix {
  const char* name;
  std::int64_t n, k;
};
constexpr Matrix kMatrices[] = {{"llama-8b qkv", 6144, 4096},
                                {"llama-8b o", 4096, 4096},
                                {"llama-8b gate_up", 28672, 4096},
                                {"llama-8b down", 4096, 14336}};
struct Kind {
  const char* name;
  Format format;
  std::int64_t group;
  bool reordered;
};
constexpr Kind kKinds[] = {{"int4 g128", Format::kInt4, 128, false},
                           {"int4 zeros g128", Format::kInt4Zero, 128, false},
                           {"int4 zeros g128 reordered", Format::kInt4Zero, 128, true},
                           {"int4 g32", Format::kInt4, 32, false},
                           {"int8 g128", Format::kInt8, 128, false},
                           {"nvfp4", Format::kNvFp4, 16, false},
                           {"q2_k", ops::kQ2K, 32, false},
                           {"q3_k", ops::kQ3K, 32, false},
                           {"q4_k", ops::kQ4K, 32, false},
                           {"q5_k", ops::kQ5K, 32, false},
                           {"q6_k", ops::kQ6K, 32, false},
                           {"q4_1", Format::kInt4Min, 32, false}};

}  // namespace

void int_weights(Bench& bench) {
  Context& ctx = bench.machine.ctx;
  Arena arena(std::int64_t{2} << 30, ctx.device);
  ctx.arena = &arena;
  for (const Kind& kind : kKinds)
    for (const Matrix& matrix : kMatrices) {
      ops::Weight w = ops::weight_form(ctx, kind.format, DType::kBF16, kind.group);
      w.rows = matrix.n, w.columns = matrix.k;
      const std::int64_t weight_bytes = ops::fragment_bytes(w);
      const int sets = sets_for(weight_bytes / 2);
      // Random bytes, among them scales: times do not depend on the numbers.
      Tensor data = bench.take(DType::kBF16, {sets, weight_bytes / 2});
      if (kind.reordered)
        w.order = bench.integers({matrix.k}, [&](std::int64_t i) {
          return static_cast<std::int32_t>((i * 1021) % matrix.k);
        });
      const auto weight = [&](int i) {
        ops::Weight one = w;
        one.data = Tensor::dense(data.at(i).data, DType::kU8, {1, weight_bytes}, ctx.device);
        return one;
      };
      const bool is_gate_up = matrix.n == 28672;
      for (const std::int64_t m : {1, 2, 4, 8, 16, 32, 64, 256, 8192}) {
        if (m == 8192 && kind.group != 128 && kind.group != 16) continue;
        Arena::Scope scope(arena);
        const Tensor x = bench.take(DType::kBF16, {m, matrix.k}),
                     out = bench.take(DType::kF32, {m, matrix.n}, false);
        const double bytes = static_cast<double>(weight_bytes + 2 * m * matrix.k),
                     work = 2.0 * static_cast<double>(m) * static_cast<double>(matrix.n * matrix.k);
        const std::string label = fmt::format("{} x {} {}", m, matrix.name, kind.name);
        bench.time("linear_int", label, bytes + static_cast<double>(4 * m * matrix.n), work, sets,
                   [&](int i) { ops::linear(ctx, x, weight(i), {}, out); });
        if (!is_gate_up || m > 16) continue;
        const Tensor hidden = bench.take(DType::kF32, {m, matrix.k}),
                     norm = bench.take(DType::kF32, {matrix.k}),
                     inner = bench.take(DType::kBF16, {m, matrix.n / 2}, false);
        ops::Weight next = w;
        next.rows = 16, next.columns = matrix.n / 2;
        bench.time("norm_gate_up_int", label, bytes + static_cast<double>(m * matrix.n), work, sets,
                   [&](int i) {
                     ops::Residual stream{.hidden = hidden, .branch = {}};
                     ops::norm_gate_up(ctx, {stream, {norm, 1e-5f}}, weight(i), {},
                                       Activation::kSilu, next, inner);
                   });
      }
      bench.clear();
    }
  ctx.arena = nullptr;
}

}  // namespace sluice
