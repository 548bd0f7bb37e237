#include "ops/activation.h"

#include "base/error.h"
#include "ops/arguments.h"
#include "ops/dispatch.h"

namespace sluice::ops {
namespace {

void expect_plain(Activation activation) {
  check(activation != Activation::kXielu, "xielu has parameters: it is an operation of its own");
}

}  // namespace

void act_and_mul(Context& ctx, Activation activation, const Tensor& gate_up, const Tensor& out) {
  expect_plain(activation);
  expect(ctx, "act_and_mul out", out, {-1, -1}, kPlane);
  expect(ctx, "act_and_mul gate_up", gate_up, {out.dim(0), 2 * out.dim(1)}, kFloat);
  on_device<cpu::act_and_mul, cuda::act_and_mul>(ctx, activation, gate_up, out);
}

void activate(Context& ctx, Activation activation, const Tensor& x, const Tensor& out) {
  expect_plain(activation);
  expect(ctx, "activate x", x, {-1, -1}, kFloat);
  expect(ctx, "activate out", out, {x.dim(0), x.dim(1)}, kPlane);
  on_device<cpu::activate, cuda::activate>(ctx, activation, x, out);
}

void xielu(Context& ctx, const Tensor& x, const Tensor& params, const Tensor& out) {
  expect(ctx, "xielu x", x, {-1, -1}, kFloat);
  expect(ctx, "xielu params", params, {4}, kFloat);
  expect(ctx, "xielu out", out, {x.dim(0), x.dim(1)}, kPlane);
  on_device<cpu::xielu, cuda::xielu>(ctx, x, params, out);
}

void sigmoid_mul(Context& ctx, const Tensor& x, const Tensor& gate, const Tensor& out) {
  expect(ctx, "sigmoid_mul x", x, {-1, -1}, kFloat);
  expect(ctx, "sigmoid_mul gate", gate, {x.dim(0), 1}, kFloat);
  expect(ctx, "sigmoid_mul out", out, {x.dim(0), x.dim(1)}, kFloat);
  on_device<cpu::sigmoid_mul, cuda::sigmoid_mul>(ctx, x, gate, out);
}

}  // namespace sluice::ops
