// Matrix products with weights [out, in]: as they are stored, in float32, bfloat16 or float16,
// widened exactly; or repacked (ops/packing.h), which then also says what x must be.
//
// Products are accumulated in float32. The order of summation depends on K only: the same row of x
// gives the same bits alone or among others, for every number of threads, at every place in w
// (docs/architecture.md, Numerics).
#pragma once

#include "kernels/types/weight_matrix.h"
#include "tensor/context.h"

namespace sluice::ops {

// out = x w^T + bias. x and out do not overlap.
void linear(Context& ctx, const Tensor& x,  // [M, K] f32 or bf16, strided rows; bf16 for kBf16Tiles
            const WeightMatrix& w,          // [N, K]; plain: f32, bf16 or f16, strided rows
            const Tensor& bias,             // [N] f32, bf16 or f16; undefined ({}): none
            const Tensor& out);             // [M, N] f32, strided rows

// out[m, i] = w[i] x[m, i] for each head i: absorbed MLA's q_nope x W_UK (w = [h, latent, nope])
// and o x W_UV (w = [h, v, latent]).
void linear_heads(Context& ctx, const Tensor& x,  // [M, h, K] f32 or bf16, strided; stride 1 over K
                  const Tensor& w,                // [h, N, K] f32, bf16 or f16; stride 1 over K
                  const Tensor& out);             // [M, h, N] f32, strided; stride 1 over N

}  // namespace sluice::ops
