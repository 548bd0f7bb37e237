// The lightning indexer. Its numbers are small integers, whose sums are exact in any order: the choice must be equal,
// ties included.
#include "batch.h"
#include "ops/indexer.h"
#include "oracle.h"

namespace sluice::oracle {

void check_index(Bench& bench) {
  for (const std::int64_t n : {1, 2, 64, 128, 4096}) {
    Twin x(bench, DType::kF32, {9, n}, 4), heads(bench, DType::kF32, {5, 3, n}, n);
    x.fill(91);
    heads.fill(92);
    // The additions are the same ones; 1 / sqrt(n) may differ by its last bit.
    const Allowed allowed{.relative = 4 * kUnit};
    bench.compare("hadamard", fmt::format("{}", n), {{&x, allowed}}, [&](Context& ctx) { ops::hadamard(ctx, x(ctx)); });
    bench.compare("hadamard", fmt::format("heads of {}", n), {{&heads, allowed}},
                  [&](Context& ctx) { ops::hadamard(ctx, heads(ctx)); });
  }
  const Batch batch(bench, {900, 70, 5000, 33}, {{0, 880, 900}, {1, 60, 70}, {2, 4999, 5000}, {3, 0, 33}});
  struct Shape {
    std::int64_t heads, dim, topk;
  };
  for (const Shape& s : {Shape{64, 128, 512}, Shape{4, 32, 16}, Shape{3, 17, 1}, Shape{8, 64, 2048}, Shape{1, 128, 64}})
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const std::int64_t tokens = batch.tokens();
      Twin q(bench, DType::kF32, {tokens, s.heads, s.dim}, 16), weights(bench, DType::kF32, {tokens, s.heads}, 1);
      Twin keys(bench, dtype, {batch.slots(), s.dim}), indices(bench, DType::kI32, {tokens, s.topk}, 3);
      q.set([](std::int64_t t, std::int64_t h, std::int64_t i) { return static_cast<double>((t * 7 + h * 5 + i * 3) % 5 - 2); });
      weights.set([](std::int64_t t, std::int64_t h, std::int64_t) { return 0.25 * static_cast<double>((t + h * 3) % 7 - 2); });
      keys.set([](std::int64_t slot, std::int64_t i, std::int64_t) {
        return static_cast<double>((slot * 13 + slot / 64 * 7 + i * (slot % 11 + 1)) % 7 - 3);
      });
      bench.compare("index_topk", fmt::format("{} heads of {}, the best {} {}", s.heads, s.dim, s.topk, dtype_name(dtype)),
                    {{&indices, {.exact = true}}}, [&](Context& ctx) {
        const ops::IndexWorkspaceShape shape = ops::index_topk_workspace(tokens, batch.longest());
        const Tensor workspace = ctx.arena->take(DType::kF32, {shape.rows, shape.max_len});
        ops::index_topk(ctx, q(ctx), weights(ctx), keys(ctx), batch.rows(ctx), workspace, indices(ctx));
      });
    }
}

}  // namespace sluice::oracle
