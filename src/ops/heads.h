// Preparation of the heads of a layer between the qkv GEMM and attention.
#pragma once

#include "tensor/context.h"

namespace sluice::ops {

// In place, for each head of q and k: RMSNorm over the head if there is a weight (rms_norm()), then
// RoPE of its first r elements (rope()). Either may have no heads.
void norm_and_rotate_heads(
    Context& ctx, const Tensor& q,  // [T, heads, d] f32, strided; stride 1 over d
    const Tensor& k,                // [T, kv_heads, d] f32, strided; stride 1 over d
    const Tensor& q_weight,         // [d] f32, bf16 or f16; undefined: q is not normalised
    const Tensor& k_weight,         // the same for k
    float eps,
    const Tensor& cos_sin,  // [T, r] f32, r <= d: rope_cos_sin()
    bool interleaved);

}  // namespace sluice::ops
