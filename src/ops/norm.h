// Normalisation over the last dimension, in float32. May be called by any thread that owns `ctx`.
// Wrong shapes are bugs (Error{kBug}).
//
// Rows may be strided. x has rank 2 [T, H] or 3 [T, heads, d] (per-head norms of slices of a fused
// qkv row). `out` has x's shape and may be x itself. Weights are f32, bf16 or f16 and are widened
// exactly.
#pragma once

#include "tensor/context.h"

namespace sluice::ops {

// out = x * rsqrt(mean(x^2) + eps) * weight        (transformers LlamaRMSNorm in float32)
void rms_norm(Context& ctx, const Tensor& x,  // [T, H] or [T, heads, H] f32
              const Tensor& weight,           // [H]
              float eps,
              const Tensor& out);  // as x, f32, or bf16: rounded at the end

// residual += x; out = rms_norm(residual)
void add_rms_norm(Context& ctx, const Tensor& x,  // [T, H] f32
                  const Tensor& residual,         // [T, H] f32, in and out
                  const Tensor& weight,           // [H]
                  float eps,
                  const Tensor& out);  // [T, H] f32, may be x; or bf16: rounded at the end

// out = (x - mean) * rsqrt(biased variance + eps) * weight + bias
void layer_norm(Context& ctx, const Tensor& x,  // [T, H] or [T, heads, H] f32
                const Tensor& weight,           // [H]
                const Tensor& bias,             // [H], or undefined: none
                float eps,
                const Tensor& out);  // as x, f32

}  // namespace sluice::ops
