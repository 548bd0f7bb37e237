#include "kernels/cpu/common/rotate.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"

namespace sluice::cpu {

void norm_and_rotate_head(const Context& ctx, float* x, std::int64_t d, const Tensor& weight,
                          float eps, const float* cos_sin, std::int64_t half, bool interleaved) {
  if (weight.defined())
    kernels(ctx).rms_norm({.x = x, .weight = weight_vector(weight), .out = x, .n = d, .eps = eps});
  rotate_head(x, cos_sin, half, interleaved);
}

// Head by head: a head stays in L1 between its norm and its rotation.
void norm_and_rotate_heads(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& q_weight,
                           const Tensor& k_weight, float eps, const Tensor& cos_sin,
                           bool interleaved) {
  const std::int64_t heads = q.dim(1), all = heads + k.dim(1), d = q.dim(2),
                     half = cos_sin.dim(1) / 2;
  parallel(ctx, q.dim(0) * all, 2 * d, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t t = i / all, head = i % all;
      float* x = head < heads ? at<float>(q, t, head) : at<float>(k, t, head - heads);
      norm_and_rotate_head(ctx, x, d, head < heads ? q_weight : k_weight, eps,
                           row<float>(cos_sin, t), half, interleaved);
    }
  });
}

}  // namespace sluice::cpu
