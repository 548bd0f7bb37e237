#include "ops/fused.h"

#include <array>

#include "kernels/cuda/attention/fused_attention.h"
#include "ops/activation.h"
#include "ops/arguments.h"
#include "ops/attention.h"
#include "ops/dispatch.h"
#include "ops/elementwise.h"
#include "ops/gemm.h"
#include "ops/heads.h"
#include "ops/kv.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/packing.h"
#include "ops/ranks.h"

namespace sluice::ops {
namespace {

// Fused kernels of a GPU choose by the number of rows, so deterministic runs go step by step.
bool may_fuse(const Context& ctx) {
  return ctx.device.kind == DeviceKind::kCpu || !ctx.deterministic;
}

void expect_rotate_and_attend(const Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                              const HeadRotation& rotation, const Tensor& slots,
                              const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                              const PagedRows& rows, const AttentionParams& params,
                              const Tensor& mixed, const Tensor& out) {
  expect_write_and_attend(ctx, q, k, v, slots, k_plane, v_plane, kv_heads, rows, params, mixed);
  expect(ctx, "rotate_write_and_attend out", out, {q.dim(0), q.dim(1), mixed.dim(2)}, kPlane);
  if (!rotation.defined()) return;
  const Tensor& cos_sin = rotation.cos_sin;
  expect(ctx, "rotate_write_and_attend cos_sin", cos_sin, {q.dim(0), -1}, kFloat);
  check(cos_sin.dim(1) % 2 == 0 && cos_sin.dim(1) <= q.dim(2),
        "rotate_write_and_attend: {} of {} elements are rotated", cos_sin.dim(1), q.dim(2));
  for (const Tensor* weight : {&rotation.q_weight, &rotation.k_weight})
    if (weight->defined())
      expect(ctx, "rotate_write_and_attend weight", *weight, {q.dim(2)}, kWeight);
}

// Whether x is a norm that a fused operation can do.
bool is_norm_alone(const NormedRows& x) {
  return x.stream != nullptr && !x.stream->pending;
}

// Experts are fused for few rows: more of them gain from tiles.
bool are_few(const Tensor& x) {
  return x.dim(0) <= kMaxFusedRows;
}

void expect_normed(const Context& ctx, const NormedRows& x, std::int64_t columns) {
  if (x.stream == nullptr) return;
  expect(ctx, "norm x", x.stream->hidden, {-1, columns}, kFloat);
  expect(ctx, "norm weight", x.norm.weight, {columns}, kWeight);
}

// The stream and memory for a branch of `columns`.
void expect_residual(const Context& ctx, const Residual& sum, std::int64_t rows,
                     std::int64_t columns) {
  expect(ctx, "residual branch", sum.branch, {rows, columns}, kFloat);
  if (!sum.keeps_branch) expect(ctx, "residual hidden", sum.hidden, {rows, columns}, kFloat);
  check(!sum.pending, "a branch is still to be added to the stream");
}

// x in the form that w reads, in memory of ctx.arena.
Tensor input_of(Context& ctx, const NormedRows& x, const Weight& w) {
  return prepared(ctx, x.stream == nullptr ? x.rows : rows_of(ctx, x, w.input), w);
}

// out := x in the form that w reads.
void prepare_into(Context& ctx, const Tensor& x, const Weight& w, const Tensor& out) {
  if (out.data == x.data) return;
  if (prepared_shape(ctx, w, x.dim(0)).are_numbers(w))
    convert(ctx, x, out);
  else
    prepare_rows(ctx, x, w, out);
}

}  // namespace

void add_branch(Context& ctx, Residual& stream) {
  if (stream.pending) add(ctx, stream.hidden, stream.branch, stream.hidden);
  stream.pending = false;
}

Tensor rows_of(Context& ctx, const NormedRows& x, DType dtype) {
  if (x.stream == nullptr) return rounded_to(ctx, x.rows, dtype);
  Residual& stream = *x.stream;
  const Tensor normed = ctx.arena->take(dtype, {stream.hidden.dim(0), stream.hidden.dim(1)});
  if (stream.pending)
    add_rms_norm(ctx, stream.branch, stream.hidden, x.norm.weight, x.norm.eps, normed);
  else
    rms_norm(ctx, stream.hidden, x.norm.weight, x.norm.eps, normed);
  stream.pending = false;
  return normed;
}

void norm_linear(const WeightOps& row, Context& ctx, const NormedRows& x, const Weight& w,
                 const Tensor& bias, const Tensor& out) {
  expect_normed(ctx, x, w.columns);
  Arena::Scope scope(*ctx.arena);
  if (row.norm_linear == nullptr || !is_norm_alone(x) || !may_fuse(ctx))
    return linear(ctx, input_of(ctx, x, w), w, bias, out);
  const PreparedRows shape = prepared_shape(ctx, w, x.count());
  const Tensor normed = ctx.arena->take(shape.dtype, {x.count(), shape.elements});
  expect_linear(ctx, normed, w, bias, out);
  if (runs(ctx)) row.norm_linear(ctx, x.stream->hidden, x.norm, w, bias, normed, out);
}

void linear_add(const WeightOps& row, Context& ctx, const Tensor& x, const Weight& w,
                const Tensor& bias, bool reduce, Residual& sum) {
  expect_residual(ctx, sum, x.dim(0), w.rows);
  if (row.linear_add == nullptr || reduce || sum.keeps_branch || !may_fuse(ctx)) {
    linear(ctx, x, w, bias, sum.branch);
    sum.pending = true;
    if (reduce) add_over_ranks(ctx, sum);
    return;
  }
  expect_linear(ctx, x, w, bias, sum.branch);
  if (runs(ctx)) row.linear_add(ctx, x, w, bias, sum.branch, sum.hidden);
}

void norm_gate_up(const WeightOps& row, Context& ctx, const NormedRows& x, const Weight& w,
                  const Tensor& bias, Activation activation, const Weight& next,
                  const Tensor& out) {
  const PreparedRows shape = prepared_shape(ctx, next, x.count());
  // A row's kernels write numbers, or what their own format reads.
  const bool fuses = may_fuse(ctx) && next.layout == w.layout &&
                     (!w.is_row_major() || next.format == w.format || shape.are_numbers(next));
  expect_normed(ctx, x, w.columns);
  check(w.rows == 2 * next.columns, "gate_up: {} rows for {} columns of the next GEMM", w.rows,
        next.columns);
  expect(ctx, "gate_up out", out, {x.count(), shape.elements}, {shape.dtype});
  Arena::Scope scope(*ctx.arena);
  const Tensor both = ctx.arena->take(DType::kF32, {x.count(), w.rows});
  if (row.norm_gate_up != nullptr && fuses && is_norm_alone(x)) {
    const PreparedRows input = prepared_shape(ctx, w, x.count());
    const Tensor normed = ctx.arena->take(input.dtype, {x.count(), input.elements});
    expect_linear(ctx, normed, w, bias, both);
    if (runs(ctx))
      row.norm_gate_up(ctx, x.stream->hidden, x.norm, w, bias, activation, normed, both, next, out);
    return;
  }
  const Tensor input = input_of(ctx, x, w);
  if (row.gate_up != nullptr && fuses) {
    expect_linear(ctx, input, w, bias, both);
    if (runs(ctx)) row.gate_up(ctx, input, w, bias, activation, both, next, out);
    return;
  }
  linear(ctx, input, w, bias, both);
  if (shape.are_numbers(next)) return act_and_mul(ctx, activation, both, out);
  const Tensor inner = ctx.arena->take(DType::kF32, {x.count(), next.columns});
  act_and_mul(ctx, activation, both, inner);
  prepare_rows(ctx, inner, next, out);
}

void norm_linear(Context& ctx, const NormedRows& x, const Weight& w, const Tensor& bias,
                 const Tensor& out) {
  norm_linear(weight_ops(ctx, w), ctx, x, w, bias, out);
}

void linear_add(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias, bool reduce,
                Residual& sum) {
  linear_add(weight_ops(ctx, w), ctx, x, w, bias, reduce, sum);
}

void norm_gate_up(Context& ctx, const NormedRows& x, const Weight& w, const Tensor& bias,
                  Activation activation, const Weight& next, const Tensor& out) {
  norm_gate_up(weight_ops(ctx, w), ctx, x, w, bias, activation, next, out);
}

void norm_route(Context& ctx, const NormedRows& x, const Weight& router, const Tensor& router_bias,
                const Tensor& correction_bias, const RouterParams& params, const Weight& next,
                const Tensor& rows, const Tensor& weights, const Tensor& ids) {
  const PreparedRows shape = prepared_shape(ctx, next, x.count());
  const WeightOps& row = weight_ops(ctx, router);
  expect_normed(ctx, x, router.columns);
  expect(ctx, "norm_route rows", rows, {x.count(), shape.elements}, {shape.dtype});
  Arena::Scope scope(*ctx.arena);
  const Tensor logits = ctx.arena->take(DType::kF32, {x.count(), router.rows});
  if (row.norm_route != nullptr && is_norm_alone(x) && may_fuse(ctx) && are_few(rows) &&
      (next.is_row_major() || next.layout == Layout::kFragments)) {
    const Tensor normed = ctx.arena->take(DType::kF32, {x.count(), router.columns});
    expect_linear(ctx, normed, router, router_bias, logits);
    expect_route(ctx, logits, correction_bias, params, weights, ids);
    if (runs(ctx))
      row.norm_route(ctx, x.stream->hidden, x.norm, router, router_bias, correction_bias, params,
                     normed, logits, rows, weights, ids);
    return;
  }
  const Tensor normed = rows_of(ctx, x, DType::kF32);
  linear(ctx, normed, router, router_bias, logits);
  route(ctx, logits, correction_bias, params, weights, ids);
  prepare_into(ctx, normed, next, rows);
}

void experts_add(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                 const Tensor& weights, const Tensor& ids, const ExpertParams& params, bool reduce,
                 Residual& sum) {
  const WeightOps& row = weight_ops(ctx, w13);
  expect_residual(ctx, sum, x.dim(0), w2.rows);
  Arena::Scope scope(*ctx.arena);
  const MoeWorkspace workspace =
      take_moe_workspace(*ctx.arena, x.dim(0), ids.dim(1), w13.count, w2.rows, w2.columns,
                         prepared_shape(ctx, w2, x.dim(0)));
  const bool takes_params = row.adds_every_expert || params.activation_only();
  if (row.experts_add == nullptr || !takes_params || reduce || sum.keeps_branch || !are_few(x) ||
      !may_fuse(ctx)) {
    fused_experts(ctx, x, w13, w2, weights, ids, params, workspace, sum.branch);
    sum.pending = true;
    if (reduce) add_over_ranks(ctx, sum);
    return;
  }
  expect_fused_experts(ctx, x, w13, w2, weights, ids, params, workspace, sum.branch);
  if (runs(ctx))
    row.experts_add(ctx, x, w13, w2, weights, ids, params, workspace, sum.branch, sum.hidden);
}

void rotate_write_and_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                             const HeadRotation& rotation, const Tensor& slots,
                             const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                             const PagedRows& rows, const AttentionParams& params,
                             const Tensor& mixed, const Tensor& out) {
  expect_rotate_and_attend(ctx, q, k, v, rotation, slots, k_plane, v_plane, kv_heads, rows, params,
                           mixed, out);
  if (rows.runs.places.defined())
    expect(ctx, "rotate_write_and_attend places", rows.runs.places, {q.dim(0)}, kIndex);
  on_device<cpu::rotate_write_and_attend, cuda::rotate_write_and_attend>(
      ctx, q, k, v, rotation, slots, k_plane, v_plane, kv_heads, rows, params, mixed, out);
}

void rotate_write_then_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                              const HeadRotation& rotation, const Tensor& slots,
                              const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                              const PagedRows& rows, const AttentionParams& params,
                              const Tensor& mixed, const Tensor& out, const Tensor& from_slots,
                              const Tensor& to_slots) {
  expect_rotate_and_attend(ctx, q, k, v, rotation, slots, k_plane, v_plane, kv_heads, rows, params,
                           mixed, out);
  if (from_slots.defined()) {
    expect(ctx, "rotate_write_then_attend from_slots", from_slots, {-1}, kSlot);
    expect(ctx, "rotate_write_then_attend to_slots", to_slots, {from_slots.dim(0)}, kSlot);
  }
  if (ctx.device.kind != DeviceKind::kCpu) {
    if constexpr (kHasCuda) {
      if (runs(ctx))
        cuda::rotate_write_then_attend(ctx, q, k, v, rotation, slots, k_plane, v_plane, kv_heads,
                                       rows, params, mixed, out, from_slots, to_slots);
    }
    return;
  }
  if (rotation.defined())
    norm_and_rotate_heads(ctx, q, heads_of_rows(k, kv_heads), rotation.q_weight, rotation.k_weight,
                          rotation.eps, rotation.cos_sin, rotation.interleaved);
  kv_write(ctx, k, slots, k_plane);
  kv_write(ctx, v, slots, v_plane);
  if (from_slots.defined())
    kv_move(ctx, std::array<KvPlane, 2>{k_plane, v_plane}, from_slots, to_slots);
  paged_attention(ctx, q, k_plane, v_plane, kv_heads, rows, params, mixed);
  if (out.data != mixed.data) convert(ctx, mixed, out);
}

}  // namespace sluice::ops
