#include "ops/heads.h"

#include "ops/arguments.h"
#include "ops/dispatch.h"

namespace sluice::ops {

void norm_and_rotate_heads(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& q_weight,
                           const Tensor& k_weight, float eps, const Tensor& cos_sin,
                           bool interleaved) {
  expect(ctx, "norm_and_rotate_heads q", q, {-1, -1, -1}, kFloat);
  expect(ctx, "norm_and_rotate_heads k", k, {q.dim(0), -1, q.dim(2)}, kFloat);
  if (q_weight.defined())
    expect(ctx, "norm_and_rotate_heads q_weight", q_weight, {q.dim(2)}, kWeight);
  if (k_weight.defined())
    expect(ctx, "norm_and_rotate_heads k_weight", k_weight, {q.dim(2)}, kWeight);
  expect(ctx, "norm_and_rotate_heads cos_sin", cos_sin, {q.dim(0), -1}, kFloat);
  check(cos_sin.dim(1) % 2 == 0 && cos_sin.dim(1) <= q.dim(2),
        "norm_and_rotate_heads: {} of {} elements are rotated", cos_sin.dim(1), q.dim(2));
  on_device<cpu::norm_and_rotate_heads, cuda::norm_and_rotate_heads>(ctx, q, k, q_weight, k_weight,
                                                                     eps, cos_sin, interleaved);
}

}  // namespace sluice::ops
