#include "ops/gemm.h"

#include "ops/arguments.h"
#include "ops/dispatch.h"
#include "ops/packing.h"

namespace sluice::ops {

void expect_linear(const Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                   const Tensor& out) {
  const PreparedRows shape = prepared_shape(ctx, w, x.dim(0));
  if (is_quantised(w.format) && w.is_row_major()) {
    expect(ctx, "linear w", w.data, {w.rows, w.columns},
           {w.format == Format::kInt8 ? DType::kI8 : DType::kF8E4M3});
    if (w.group == 0)
      expect(ctx, "linear scales", w.scales, {w.rows}, kFloat);
    else
      expect(ctx, "linear scales", w.scales, {fp8_groups(w.columns, w.group), -1}, kFloat);
    if (shape.are_numbers(w))
      expect(ctx, "linear x", x, {-1, w.columns}, kPlane);
    else
      expect(ctx, "linear x", x, {-1, shape.elements}, {shape.dtype});
  } else if (w.is_row_major()) {
    expect(ctx, "linear x", x, {-1, -1}, kPlane);
    expect(ctx, "linear w", w.data, {-1, x.dim(1)}, kWeight);
  } else {
    expect(ctx, "linear x", x, {-1, shape.elements}, {shape.dtype});
    expect(ctx, "linear w", w.data, {1, packed_bytes(ctx, w)}, {DType::kU8});
  }
  if (bias.defined()) expect(ctx, "linear bias", bias, {w.rows}, kWeight);
  expect(ctx, "linear out", out, {x.dim(0), w.rows}, kFloat);
}

void linear(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias, const Tensor& out) {
  expect_linear(ctx, x, w, bias, out);
  const WeightOps& row = weight_ops(ctx, w);
  check(row.linear != nullptr, "weights of the form {} are multiplied as experts alone", row.name);
  if (runs(ctx)) row.linear(ctx, x, w, bias, out);
}

void sum_over_ranks(Context& ctx, const Tensor& x) {
  if (runs(ctx)) ctx.communicator->all_reduce(x);
}

void linear_heads(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& out) {
  expect(ctx, "linear_heads x", x, {-1, -1, -1}, kPlane);
  expect(ctx, "linear_heads w", w, {x.dim(1), -1, x.dim(2)}, kWeight);
  expect(ctx, "linear_heads out", out, {x.dim(0), x.dim(1), w.dim(1)}, kFloat);
  on_device<cpu::linear_heads, cuda::linear_heads>(ctx, x, w, out);
}

}  // namespace sluice::ops
