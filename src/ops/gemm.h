// GEMM with weights [out, in]. Weights are row-major (float32, bfloat16 or float16, widened
// exactly) or repacked; ops/packing.h then also defines the form of x.
//
// Sums accumulate in float32. The order of summation depends on K only: a row of x gives the same
// bits alone or among others, for every number of threads, and at every place in w
// (docs/architecture.md, Numerics).
#pragma once

#include "kernels/types/weight.h"
#include "tensor/context.h"

namespace sluice::ops {

// out = x w^T + bias. x and out do not overlap.
void linear(Context& ctx, const Tensor& x,  // [M, K] f32 or bf16, strided rows; else prepared_shape
            const Weight& w,                // [N, K]; in rows: f32, bf16 or f16, strided rows
            const Tensor& bias,             // [N] f32, bf16 or f16; undefined ({}): none
            const Tensor& out);             // [M, N] f32, strided rows
// The checks of its arguments, for operations that contain it.
void expect_linear(const Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                   const Tensor& out);

// x := the sum of x over the ranks that share the model's matrices.
void sum_over_ranks(Context& ctx, const Tensor& x);  // [M, N] f32

// out[m, i] = w[i] x[m, i] for each head i. Absorbed MLA uses it for q_nope W_UK (w = [h, latent,
// nope]) and o W_UV (w = [h, v, latent]).
void linear_heads(Context& ctx, const Tensor& x,  // [M, h, K] f32 or bf16, strided; stride 1 over K
                  const Tensor& w,                // [h, N, K] f32, bf16 or f16; stride 1 over K
                  const Tensor& out);             // [M, h, N] f32, strided; stride 1 over N

}  // namespace sluice::ops
