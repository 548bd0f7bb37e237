#include "ops/moe.h"

#include <algorithm>

#include "kernels/cpu/moe/place_experts.h"
#include "kernels/cuda/moe/place_experts.h"
#include "ops/arguments.h"
#include "ops/dispatch.h"
#include "ops/elementwise.h"
#include "ops/gemm.h"
#include "ops/packing.h"

namespace sluice::ops {
namespace {

// Tokens per block of fused_experts: enough rows for each expert, and a bound on the workspace. A
// GPU needs hundreds of rows per expert before GEMM time exceeds the time to read the weights.
constexpr std::int64_t kBlockTokens = 512;
constexpr std::int64_t kGpuBlockTokens = 4096;
// Tokens whose pairs are summed over the ranks at once: a bound on memory.
constexpr std::int64_t kPairBlockTokens = 256;

void expect_cpu(const Context& ctx, const char* what) {
  check(ctx.device.kind == DeviceKind::kCpu, "{} on a GPU", what);
}

}  // namespace

void expect_route(const Context& ctx, const Tensor& logits, const Tensor& correction_bias,
                  const RouterParams& params, const Tensor& weights, const Tensor& ids) {
  expect(ctx, "route logits", logits, {-1, -1}, kFloat);
  const std::int64_t experts = logits.dim(1);
  if (correction_bias.defined())
    expect(ctx, "route correction_bias", correction_bias, {experts}, kFloat);
  expect(ctx, "route weights", weights, {logits.dim(0), params.top_k}, kFloat);
  expect(ctx, "route ids", ids, {logits.dim(0), params.top_k}, kIndex);
  check(correction_bias.defined() == (params.method == TopkMethod::kNoauxTc),
        "route: a correction bias belongs to noaux_tc, and only there");
  if (params.method == TopkMethod::kSparseMixer)
    check(params.top_k == 2 && experts >= 2,
          "route: the sparse mixer takes 2 experts, not {} of {}", params.top_k, experts);
  check(experts <= kMaxExperts && params.top_k >= 1 && params.top_k <= experts,
        "route: {} of {} experts, at most {} in all", params.top_k, experts, kMaxExperts);
  if (params.method != TopkMethod::kGreedy && params.n_group > 1)
    check(params.n_group <= kMaxGroups && experts % params.n_group == 0 && params.topk_group >= 1 &&
              params.topk_group <= params.n_group &&
              params.top_k <= experts / params.n_group * params.topk_group,
          "route: {} experts from {} of {} groups of {} experts", params.top_k, params.topk_group,
          params.n_group, experts);
}

void route(Context& ctx, const Tensor& logits, const Tensor& correction_bias,
           const RouterParams& params, const Tensor& weights, const Tensor& ids) {
  expect_route(ctx, logits, correction_bias, params, weights, ids);
  on_device<cpu::route, cuda::route>(ctx, logits, correction_bias, params, weights, ids);
}

void place_experts(Context& ctx, const Tensor& places, const Tensor& ids) {
  expect_dense(ctx, "place_experts places", places, {-1}, kIndex);
  expect(ctx, "place_experts ids", ids, {-1, -1}, kIndex);
  on_device<cpu::place_experts, cuda::place_experts>(ctx, places, ids);
}

MoeWorkspaceShape fused_experts_workspace(std::int64_t tokens, std::int64_t top_k,
                                          std::int64_t experts, DeviceKind device) {
  const std::int64_t block = device == DeviceKind::kCpu ? kBlockTokens : kGpuBlockTokens;
  const std::int64_t pairs = std::clamp<std::int64_t>(tokens, 1, block) * top_k;
  return {.pairs = pairs, .order = 2 * pairs + experts + 1};
}

MoeWorkspace take_moe_workspace(Arena& arena, std::int64_t tokens, std::int64_t top_k,
                                std::int64_t experts, std::int64_t hidden,
                                std::int64_t intermediate, PreparedRows inner) {
  const MoeWorkspaceShape shape =
      fused_experts_workspace(tokens, top_k, experts, arena.device().kind);
  return {.gate_up = arena.take(DType::kF32, {shape.pairs, 2 * intermediate}),
          .hidden = arena.take(inner.dtype, {shape.pairs, inner.elements}),
          .down = arena.take(DType::kF32, {shape.pairs, hidden}),
          .order = arena.take(DType::kI32, {shape.order})};
}

void expect_fused_experts(const Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                          const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                          const MoeWorkspace& workspace, const Tensor& out) {
  const std::int64_t tokens = x.dim(0), hidden = w2.rows, intermediate = w2.columns,
                     experts = w2.count;
  check(experts <= kMaxExperts, "fused_experts: {} experts, at most {}", experts, kMaxExperts);
  PreparedRows first{x.dtype, hidden}, second{x.dtype, intermediate};
  if (w13.is_row_major()) {
    expect(ctx, "fused_experts x", x, {-1, hidden}, kPlane);
    expect_dense(ctx, "fused_experts w2", w2.data, {experts, hidden, intermediate}, kWeight);
    expect_dense(ctx, "fused_experts w13", w13.data, {experts, 2 * intermediate, hidden},
                 {w2.data.dtype});
  } else {
    first = prepared_shape(ctx, w13, tokens);
    second = prepared_shape(ctx, w2, tokens);
    expect(ctx, "fused_experts x", x, {-1, first.elements}, {first.dtype});
    expect_dense(ctx, "fused_experts w2", w2.data, {experts, packed_bytes(ctx, w2)}, {DType::kU8});
    expect_dense(ctx, "fused_experts w13", w13.data, {experts, packed_bytes(ctx, w13)},
                 {DType::kU8});
    check(w13.rows == 2 * intermediate && w13.columns == hidden,
          "fused_experts: w13 [{}, {}], w2 [{}, {}]", w13.rows, w13.columns, w2.rows, w2.columns);
  }
  expect(ctx, "fused_experts ids", ids, {tokens, -1}, kIndex);
  const std::int64_t top_k = ids.dim(1);
  expect(ctx, "fused_experts weights", weights, {tokens, top_k}, kFloat);
  expect_dense(ctx, "fused_experts gate_up", workspace.gate_up, {-1, 2 * intermediate}, kFloat);
  const std::int64_t pairs = workspace.gate_up.dim(0);
  expect_dense(ctx, "fused_experts hidden", workspace.hidden, {pairs, second.elements},
               {second.dtype});
  expect_dense(ctx, "fused_experts down", workspace.down, {pairs, hidden}, kFloat);
  expect_dense(ctx, "fused_experts order", workspace.order, {2 * pairs + experts + 1}, kIndex);
  expect(ctx, "fused_experts out", out, {tokens, hidden}, kFloat);
  check(top_k >= 1 && pairs >= top_k,
        "fused_experts: a workspace of {} pairs for {} experts a token", pairs, top_k);
  if (params.up_bias.defined())
    expect_dense(ctx, "fused_experts up_bias", params.up_bias, {experts, 2 * intermediate}, kFloat);
  if (params.down_bias.defined())
    expect_dense(ctx, "fused_experts down_bias", params.down_bias, {experts, hidden}, kFloat);
  check(params.clamp >= 0 && params.alpha > 0, "fused_experts: clamp {}, alpha {}", params.clamp,
        params.alpha);
}

void fused_experts(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                   const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                   const MoeWorkspace& workspace, const Tensor& out) {
  expect_fused_experts(ctx, x, w13, w2, weights, ids, params, workspace, out);
  if (runs(ctx))
    weight_ops(ctx, w13).experts(ctx, x, w13, w2, weights, ids, params, workspace, out);
}

void count_choices(Context& ctx, const Tensor& ids, const Tensor& choices) {
  expect_cpu(ctx, "count_choices");
  expect(ctx, "count_choices ids", ids, {-1, -1}, kIndex);
  expect_dense(ctx, "count_choices choices", choices, {-1}, {DType::kI64});
  if (runs(ctx)) cpu::count_choices(ids, choices);
}

void place_replicas(Context& ctx, const ExpertPlaces& places, const Tensor& weights,
                    const Tensor& ids) {
  expect_cpu(ctx, "place_replicas");
  expect_dense(ctx, "place_replicas replicas", places.replicas, {-1, -1}, kIndex);
  expect_dense(ctx, "place_replicas choices", places.choices, {places.replicas.dim(0)},
               {DType::kI64});
  expect_dense(ctx, "place_replicas group_choices", places.group_choices, {-1}, {DType::kI64});
  expect(ctx, "place_replicas ids", ids, {-1, -1}, kIndex);
  expect(ctx, "place_replicas weights", weights, {ids.dim(0), ids.dim(1)}, kFloat);
  const std::int64_t groups = places.group_choices.dim(0);
  check(groups > 0 && places.num_places % groups == 0, "place_replicas: {} places of {} groups",
        places.num_places, groups);
  if (runs(ctx))
    cpu::place_replicas({.replicas = places.replicas,
                         .choices = places.choices,
                         .group_choices = places.group_choices,
                         .group_places = places.num_places / groups,
                         .first_place = places.first_place},
                        weights, ids);
}

void sum_pairs(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
               const Tensor& weights, const Tensor& ids, const ExpertParams& params,
               const Tensor& out) {
  expect_cpu(ctx, "sum_pairs");
  const std::int64_t tokens = x.dim(0), top_k = ids.dim(1), hidden = w2.rows;
  expect(ctx, "sum_pairs ids", ids, {tokens, -1}, kIndex);
  expect_dense(ctx, "sum_pairs out", out, {tokens, hidden}, kFloat);
  const std::int64_t block = std::min(tokens, kPairBlockTokens);
  if (block == 0) return;
  Arena::Scope scope(*ctx.arena);
  const Tensor token_of = ctx.arena->take(DType::kI32, {block * top_k});
  const Tensor rows = ctx.arena->take(x.dtype, {block * top_k, x.dim(1)});
  const Tensor pairs = ctx.arena->take(DType::kF32, {block * top_k, hidden});
  const Tensor pair_weights = ctx.arena->take(DType::kF32, {block * top_k, 1});
  const Tensor pair_ids = ctx.arena->take(DType::kI32, {block * top_k, 1});
  // A block's pairs are one block of fused_experts(), which reads the weights of an expert once.
  const MoeWorkspace workspace =
      take_moe_workspace(*ctx.arena, block, top_k, w13.count, hidden, w2.columns,
                         prepared_shape(ctx, w2, block * top_k));
  for (std::int64_t first = 0; first < tokens; first += block) {
    const std::int64_t count = std::min(block, tokens - first), num_pairs = count * top_k;
    if (runs(ctx))
      for (std::int64_t pair = 0; pair < num_pairs; ++pair) {
        const std::int64_t t = pair / top_k, j = pair % top_k;
        token_of.ptr<std::int32_t>()[pair] = static_cast<std::int32_t>(t);
        pair_weights.ptr<float>()[pair] = weights.at(first + t).ptr<float>()[j];
        pair_ids.ptr<std::int32_t>()[pair] = ids.at(first + t).ptr<std::int32_t>()[j];
      }
    gather_rows(ctx, x.rows(first, count), token_of.rows(0, num_pairs), rows.rows(0, num_pairs));
    const Tensor results = pairs.rows(0, num_pairs);
    fused_experts(ctx, rows.rows(0, num_pairs), w13, w2, pair_weights.rows(0, num_pairs),
                  pair_ids.rows(0, num_pairs), params, workspace, results);
    sum_over_ranks(ctx, results);
    if (runs(ctx)) cpu::add_pairs(ctx, results, out.rows(first, count));
  }
}

}  // namespace sluice::ops
