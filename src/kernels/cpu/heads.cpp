#include "kernels/cpu/cpu.h"

namespace sluice::cpu {

// Heads stay in the first-level cache between the two passes over a token's row only when there are few tokens; the
// arithmetic is what costs.
void norm_and_rotate_heads(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& q_weight, const Tensor& k_weight,
                           float eps, const Tensor& cos_sin, bool interleaved) {
  if (q_weight.defined()) rms_norm(ctx, q, q_weight, eps, q);
  if (k_weight.defined()) rms_norm(ctx, k, k_weight, eps, k);
  rope(ctx, cos_sin, q.slice(2, 0, cos_sin.dim(1)), interleaved);
  rope(ctx, cos_sin, k.slice(2, 0, cos_sin.dim(1)), interleaved);
}

}  // namespace sluice::cpu
