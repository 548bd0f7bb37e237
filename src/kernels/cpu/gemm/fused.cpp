// Fused operations of ops/fused.h: a CPU runs their parts one after the other.
#include "kernels/cpu/cpu.h"

namespace sluice::cpu {

void norm_linear(Context& ctx, const Tensor& x, const RowNorm& norm, const Tensor& w,
                 const Tensor& bias, const Tensor& normed, const Tensor& out) {
  rms_norm(ctx, x, norm.weight, norm.eps, normed);
  linear(ctx, normed, w, bias, out);
}

void norm_gate_up(Context& ctx, const Tensor& x, const RowNorm& norm, const Tensor& w,
                  const Tensor& bias, Activation activation, const Tensor& normed,
                  const Tensor& both, const Tensor& out) {
  if (norm.weight.defined())
    norm_linear(ctx, x, norm, w, bias, normed, both);
  else
    linear(ctx, x, w, bias, both);
  act_and_mul(ctx, activation, both, out);
}

void linear_add(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias,
                const Tensor& product, const Tensor& sum) {
  linear(ctx, x, w, bias, product);
  add(ctx, sum, product, sum);
}

void norm_route(Context& ctx, const Tensor& x, const RowNorm& norm, const Tensor& router,
                const Tensor& router_bias, const Tensor& correction_bias,
                const RouterParams& params, const Tensor& normed, const Tensor& logits,
                const Tensor& rounded, const Tensor& weights, const Tensor& ids) {
  norm_linear(ctx, x, norm, router, router_bias, normed, logits);
  route(ctx, logits, correction_bias, params, weights, ids);
  convert(ctx, normed, rounded);
}

void experts_add(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2,
                 const Tensor& weights, const Tensor& ids, Activation activation,
                 const MoeWorkspace& workspace, const Tensor& product, const Tensor& sum) {
  fused_experts(ctx, x, w13, w2, weights, ids, activation, workspace, product);
  add(ctx, sum, product, sum);
}

}  // namespace sluice::cpu
