#include "ops/norm.h"

#include "ops/arguments.h"
#include "ops/dispatch.h"

namespace sluice::ops {
namespace {

void expect_rows(const Context& ctx, const char* what, const Tensor& x, const Tensor& like,
                 DTypes dtypes = kFloat) {
  if (like.rank == 3)
    expect(ctx, what, x, {like.dim(0), like.dim(1), like.dim(2)}, dtypes);
  else
    expect(ctx, what, x, {like.dim(0), like.dim(1)}, dtypes);
}

}  // namespace

void rms_norm(Context& ctx, const Tensor& x, const Tensor& weight, float eps, const Tensor& out) {
  expect_rows(ctx, "rms_norm x", x, x);
  expect(ctx, "rms_norm weight", weight, {x.dim(-1)}, kWeight);
  expect_rows(ctx, "rms_norm out", out, x, kPlane);
  on_device<cpu::rms_norm, cuda::rms_norm>(ctx, x, weight, eps, out);
}

void add_rms_norm(Context& ctx, const Tensor& x, const Tensor& residual, const Tensor& weight,
                  float eps, const Tensor& out) {
  expect(ctx, "add_rms_norm x", x, {-1, -1}, kFloat);
  expect_rows(ctx, "add_rms_norm residual", residual, x);
  expect(ctx, "add_rms_norm weight", weight, {x.dim(1)}, kWeight);
  expect_rows(ctx, "add_rms_norm out", out, x, kPlane);
  check(residual.data != x.data || x.numel() == 0 || ctx.dry_run,
        "add_rms_norm: the residual is x itself");
  on_device<cpu::add_rms_norm, cuda::add_rms_norm>(ctx, x, residual, weight, eps, out);
}

void layer_norm(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                const Tensor& out) {
  expect_rows(ctx, "layer_norm x", x, x);
  expect(ctx, "layer_norm weight", weight, {x.dim(-1)}, kWeight);
  if (bias.defined()) expect(ctx, "layer_norm bias", bias, {x.dim(-1)}, kWeight);
  expect_rows(ctx, "layer_norm out", out, x);
  on_device<cpu::layer_norm, cuda::layer_norm>(ctx, x, weight, bias, eps, out);
}

}  // namespace sluice::ops
