#include "ops/gemm.h"

#include "ops/arguments.h"
#include "ops/op_table.h"

namespace sluice::ops {

void linear(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& out) {
  expect(ctx, "linear x", x, {-1, -1}, kPlane);
  expect(ctx, "linear w", w, {-1, x.dim(1)}, kWeight);
  if (bias.defined()) expect(ctx, "linear bias", bias, {w.dim(0)}, kWeight);
  expect(ctx, "linear out", out, {x.dim(0), w.dim(0)}, kFloat);
  if (runs(ctx)) bodies(ctx).linear(ctx, x, w, bias, out);
}

void linear_heads(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& out) {
  expect(ctx, "linear_heads x", x, {-1, -1, -1}, kPlane);
  expect(ctx, "linear_heads w", w, {x.dim(1), -1, x.dim(2)}, kWeight);
  expect(ctx, "linear_heads out", out, {x.dim(0), x.dim(1), w.dim(1)}, kFloat);
  if (runs(ctx)) bodies(ctx).linear_heads(ctx, x, w, out);
}

}  // namespace sluice::ops
