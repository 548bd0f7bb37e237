#include "ops/ranks.h"

#include <algorithm>
#include <numeric>

#include "ops/arguments.h"
#include "ops/dispatch.h"
#include "ops/elementwise.h"
#include "tensor/format.h"
#include "tensor/residual_sum.h"

namespace sluice::ops {

void add_over_ranks(Context& ctx, Residual& sum) {
  sum.pending = true;
  if (!runs(ctx)) return;
  if (!sum.parts.empty()) {
    check(sum.keeps_branch, "a sum in parts whose branch is added at once");
    return ctx.communicator->reduce_scatter(sum.branch, sum.parts);
  }
  auto* const adder = sum.keeps_branch ? nullptr : dynamic_cast<ResidualSum*>(ctx.communicator);
  if (adder != nullptr && adder->add_sum(sum.branch, sum.hidden))
    sum.pending = false;
  else
    ctx.communicator->all_reduce(sum.branch);
}

void gather_columns(Context& ctx, const Tensor& x, const Tensor& out) {
  const std::int64_t size = ctx.communicator == nullptr ? 1 : ctx.communicator->size();
  expect(ctx, "gather_columns x", x, {-1, -1}, kFloat);
  expect(ctx, "gather_columns out", out, {x.dim(0), size * x.dim(1)}, kFloat);
  check(x.dense() && out.dense(), "gather_columns: {} or {} has gaps", x, out);
  if (!runs(ctx)) return;
  // [ranks, M, N]: a rank's columns of all rows.
  Tensor by_rank = out;
  by_rank.rank = 3;
  by_rank.shape = {size, x.dim(0), x.dim(1)};
  by_rank.stride = {x.dim(1), out.dim(1), 1};
  ctx.communicator->all_gather(x, by_rank);
}

void gather_groups(Context& ctx, std::span<const std::int64_t> rows, const Tensor& x,
                   const Tensor& out) {
  const auto size = static_cast<std::int64_t>(ctx.communicator->size());
  const auto groups = static_cast<std::int64_t>(rows.size());
  check(groups > 0 && size % groups == 0, "gather_groups: {} groups of {} ranks", groups, size);
  const std::int64_t ranks = size / groups, own = rows[static_cast<std::size_t>(ctx.rank / ranks)];
  const std::int64_t most = *std::ranges::max_element(rows);
  expect(ctx, "gather_groups x", x, {own, -1}, kWeight);
  expect(ctx, "gather_groups out", out,
         {std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), x.dim(1)}, {x.dtype});
  check(x.dense() && out.dense(), "gather_groups: {} or {} has gaps", x, out);
  // A plan of memory counts what steps of other groups' rows take.
  if (ranks == 1 && out.dim(0) == size * most && runs(ctx))
    return ctx.communicator->all_gather(x, out);
  // All ranks post as many rows as the largest group has.
  Arena::Scope scope(*ctx.arena);
  const Tensor post = own == most ? x : ctx.arena->take(x.dtype, {most, x.dim(1)});
  const Tensor posts = ctx.arena->take(x.dtype, {size * most, x.dim(1)});
  if (!runs(ctx) || most == 0) return;
  if (own < most) convert(ctx, x, post.rows(0, own));
  ctx.communicator->all_gather(post, posts);
  std::int64_t at = 0;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t count = rows[static_cast<std::size_t>(group)];
    convert(ctx, posts.rows(group * ranks * most, count), out.rows(at, count));
    at += count;
  }
}

void embedding_of_share(Context& ctx, const Tensor& ids, const Weight& table,
                        std::int64_t first_row, const Tensor& out) {
  check(ctx.device.kind == DeviceKind::kCpu, "a share of an embedding on a GPU");
  const std::int64_t rows = table.is_row_major() ? table.data.dim(0) : table.rows;
  Arena::Scope scope(*ctx.arena);
  const Tensor own = ctx.arena->take(DType::kI32, {ids.dim(0)});
  const auto is_own = [&](std::int64_t t) {
    const std::int64_t row = ids.ptr<std::int32_t>()[t] - first_row;
    return row >= 0 && row < rows;
  };
  if (runs(ctx))
    for (std::int64_t t = 0; t < ids.dim(0); ++t)
      own.ptr<std::int32_t>()[t] =
          is_own(t) ? static_cast<std::int32_t>(ids.ptr<std::int32_t>()[t] - first_row) : 0;
  embedding(ctx, own, table, out);
  if (!runs(ctx)) return;
  for (std::int64_t t = 0; t < ids.dim(0); ++t)
    if (!is_own(t)) std::fill_n(out.at(t).ptr<float>(), out.dim(1), 0.0f);
}

}  // namespace sluice::ops
