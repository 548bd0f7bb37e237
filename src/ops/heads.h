// What happens to the heads of a layer between the product that makes them and attention.
#pragma once

#include "tensor/context.h"

namespace sluice::ops {

// Each head of q and k is normalised where there is a weight (rms_norm() over the head), then its
// first r elements are rotated (rope()), in place. Either may have no heads.
void norm_and_rotate_heads(
    Context& ctx, const Tensor& q,  // [T, heads, d] f32, strided; stride 1 over d
    const Tensor& k,                // [T, kv_heads, d] f32, strided; stride 1 over d
    const Tensor& q_weight,         // [d] f32, bf16 or f16; undefined: q is not normalised
    const Tensor& k_weight,         // the same for k
    float eps,
    const Tensor& cos_sin,  // [T, r] f32, r <= d: rope_cos_sin()
    bool interleaved);

}  // namespace sluice::ops
