#include "ops/fused.h"

#include "ops/arguments.h"
#include "ops/attention.h"
#include "ops/moe.h"
#include "ops/op_table.h"

namespace sluice::ops {
namespace {

void expect_norm_linear(const Context& ctx, const Tensor& x, const RowNorm& norm, const Tensor& w,
                        const Tensor& bias, const Tensor& normed, const Tensor& out) {
  expect(ctx, "norm_linear x", x, {-1, -1}, kFloat);
  expect(ctx, "norm_linear norm", norm.weight, {x.dim(1)}, kWeight);
  expect(ctx, "norm_linear w", w, {-1, x.dim(1)}, kWeight);
  if (bias.defined()) expect(ctx, "norm_linear bias", bias, {w.dim(0)}, kWeight);
  expect(ctx, "norm_linear normed", normed, {x.dim(0), x.dim(1)}, kPlane);
  expect(ctx, "norm_linear out", out, {x.dim(0), w.dim(0)}, kFloat);
}

}  // namespace

bool fuses_rows(const Context& ctx, std::int64_t rows, bool experts) {
  return ctx.device.kind == DeviceKind::kCuda && !ctx.deterministic &&
         (!experts || rows <= kMaxFusedRows);
}

void norm_linear(Context& ctx, const Tensor& x, const RowNorm& norm, const Tensor& w,
                 const Tensor& bias, const Tensor& normed, const Tensor& out) {
  expect_norm_linear(ctx, x, norm, w, bias, normed, out);
  if (runs(ctx)) bodies(ctx).norm_linear(ctx, x, norm, w, bias, normed, out);
}

void norm_gate_up(Context& ctx, const Tensor& x, const RowNorm& norm, const Tensor& w,
                  const Tensor& bias, Activation activation, const Tensor& normed,
                  const Tensor& both, const Tensor& out) {
  if (norm.weight.defined()) {
    expect_norm_linear(ctx, x, norm, w, bias, normed, both);
  } else {
    expect(ctx, "norm_gate_up x", x, {-1, -1}, kPlane);
    expect(ctx, "norm_gate_up w", w, {-1, x.dim(1)}, kWeight);
    if (bias.defined()) expect(ctx, "norm_gate_up bias", bias, {w.dim(0)}, kWeight);
    expect(ctx, "norm_gate_up both", both, {x.dim(0), w.dim(0)}, kFloat);
  }
  expect(ctx, "norm_gate_up out", out, {x.dim(0), w.dim(0) / 2}, kPlane);
  check(w.dim(0) % 2 == 0, "norm_gate_up: {} rows are not gates and ups", w.dim(0));
  if (runs(ctx)) bodies(ctx).norm_gate_up(ctx, x, norm, w, bias, activation, normed, both, out);
}

void linear_add(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias,
                const Tensor& product, const Tensor& sum) {
  expect(ctx, "linear_add x", x, {-1, -1}, kPlane);
  expect(ctx, "linear_add w", w, {-1, x.dim(1)}, kWeight);
  if (bias.defined()) expect(ctx, "linear_add bias", bias, {w.dim(0)}, kWeight);
  expect(ctx, "linear_add product", product, {x.dim(0), w.dim(0)}, kFloat);
  expect(ctx, "linear_add sum", sum, {x.dim(0), w.dim(0)}, kFloat);
  if (runs(ctx)) bodies(ctx).linear_add(ctx, x, w, bias, product, sum);
}

void norm_route(Context& ctx, const Tensor& x, const RowNorm& norm, const Tensor& router,
                const Tensor& router_bias, const Tensor& correction_bias,
                const RouterParams& params, const Tensor& normed, const Tensor& logits,
                const Tensor& rounded, const Tensor& weights, const Tensor& ids) {
  expect_norm_linear(ctx, x, norm, router, router_bias, normed, logits);
  expect(ctx, "norm_route normed", normed, {x.dim(0), x.dim(1)}, kFloat);
  expect(ctx, "norm_route rounded", rounded, {x.dim(0), x.dim(1)}, kPlane);
  expect_route(ctx, logits, correction_bias, params, weights, ids);
  if (runs(ctx))
    bodies(ctx).norm_route(ctx, x, norm, router, router_bias, correction_bias, params, normed,
                           logits, rounded, weights, ids);
}

void experts_add(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2,
                 const Tensor& weights, const Tensor& ids, Activation activation,
                 const MoeWorkspace& workspace, const Tensor& product, const Tensor& sum) {
  expect_fused_experts(ctx, x, w13, w2, weights, ids, activation, workspace, product);
  expect(ctx, "experts_add sum", sum, {x.dim(0), x.dim(1)}, kFloat);
  if (runs(ctx))
    bodies(ctx).experts_add(ctx, x, w13, w2, weights, ids, activation, workspace, product, sum);
}

void rotate_write_and_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                             const HeadRotation& rotation, const Tensor& slots,
                             const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                             const PagedRows& rows, const AttentionParams& params,
                             const Tensor& mixed, const Tensor& out) {
  expect_write_and_attend(ctx, q, k, v, slots, k_plane, v_plane, kv_heads, rows, params, mixed);
  expect(ctx, "rotate_write_and_attend out", out, {q.dim(0), q.dim(1), mixed.dim(2)}, kPlane);
  if (rotation.defined()) {
    const Tensor& cos_sin = rotation.cos_sin;
    expect(ctx, "rotate_write_and_attend cos_sin", cos_sin, {q.dim(0), -1}, kFloat);
    check(cos_sin.dim(1) % 2 == 0 && cos_sin.dim(1) <= q.dim(2),
          "rotate_write_and_attend: {} of {} elements are rotated", cos_sin.dim(1), q.dim(2));
    for (const Tensor* weight : {&rotation.q_weight, &rotation.k_weight})
      if (weight->defined())
        expect(ctx, "rotate_write_and_attend weight", *weight, {q.dim(2)}, kWeight);
  }
  if (runs(ctx))
    bodies(ctx).rotate_write_and_attend(ctx, q, k, v, rotation, slots, k_plane, v_plane, kv_heads,
                                        rows, params, mixed, out);
}

}  // namespace sluice::ops
