// Fused operations of a layer. With few rows a GPU runs each in one launch. Elsewhere their parts
// run one after the other, with the bits of the separate operations. Each op takes the memory that
// the separate operations need.
#pragma once

#include "kernels/types/kv_plane.h"
#include "kernels/types/op_params.h"
#include "tensor/context.h"

namespace sluice::ops {

// Whether to fuse GEMMs of `rows` rows with the operations around them. On a GPU, fuse: with few
// rows the launch dominates, with many rows the memory traffic between two kernels does. Layers
// with experts gain for few rows only. False if ctx.deterministic.
bool fuses_rows(const Context& ctx, std::int64_t rows, bool experts);

// out = linear(rms_norm(x), w) + bias. The norm is rounded to the dtype of `normed`.
void norm_linear(Context& ctx, const Tensor& x,  // [M, K] f32
                 const RowNorm& norm,            // weight [K]
                 const Tensor& w,                // [N, K] f32, bf16 or f16
                 const Tensor& bias,             // [N], or undefined
                 const Tensor& normed,           // [M, K] f32 or bf16: overwritten
                 const Tensor& out);             // [M, N] f32

// out = act_and_mul(linear(rms_norm(x), w) + bias). With many rows a GPU may round the gate/up
// projections to bfloat16 if `out` is bfloat16.
void norm_gate_up(
    Context& ctx, const Tensor& x,  // [M, K] f32, or bf16 when it is not normalised
    const RowNorm& norm,  // weight [K]; undefined: x is multiplied as it is, `normed` is not used
    const Tensor& w,      // [2 N, K]: gate rows, then up rows
    const Tensor& bias,   // [2 N], or undefined
    Activation activation,
    const Tensor& normed,  // [M, K] f32 or bf16: overwritten
    const Tensor& both,    // [M, 2 N] f32: overwritten
    const Tensor& out);    // [M, N] f32 or bf16

// sum += linear(x, w) + bias.
void linear_add(Context& ctx, const Tensor& x,  // [M, K] f32 or bf16
                const Tensor& w,                // [N, K]
                const Tensor& bias,             // [N], or undefined
                const Tensor& product,          // [M, N] f32: overwritten
                const Tensor& sum);             // [M, N] f32

// rounded = rms_norm(x) in the dtype of `rounded`. weights and ids = route() of linear(rms_norm(x),
// router) + router_bias.
void norm_route(Context& ctx, const Tensor& x,  // [M, K] f32
                const RowNorm& norm,            // weight [K]
                const Tensor& router,           // [E, K] f32, bf16 or f16
                const Tensor& router_bias,      // [E], or undefined
                const Tensor& correction_bias, const RouterParams& params,  // see route()
                const Tensor& normed,   // [M, K] f32: overwritten
                const Tensor& logits,   // [M, E] f32: overwritten
                const Tensor& rounded,  // [M, K] f32 or bf16
                const Tensor& weights,  // [M, top_k] f32
                const Tensor& ids);     // [M, top_k] int32

// sum += fused_experts(x), with row-major weights and an activation only.
void experts_add(Context& ctx, const Tensor& x,  // [M, K] f32 or bf16
                 const Tensor& w13,              // [E, 2 I, K]
                 const Tensor& w2,               // [E, K, I]
                 const Tensor& weights, const Tensor& ids, Activation activation,
                 const MoeWorkspace& workspace,
                 const Tensor& product,  // [M, K] f32: overwritten
                 const Tensor& sum);     // [M, K] f32

// Four steps: norm_and_rotate_heads() if `rotation` is defined, kv_write, attention into `mixed`
// (write_and_attend()), and rounding of `mixed` to `out` unless both are the same tensor.
// Overwrites q and k. A GPU takes one launch if every row belongs to a sequence of its own.
void rotate_write_and_attend(Context& ctx, const Tensor& q,  // [T, h, d] f32
                             const Tensor& k,                // [T, kv * d] f32, strided rows
                             const Tensor& v,                // [T, kv * dv] f32, strided rows
                             const HeadRotation& rotation,
                             const Tensor& slots,  // [T] int64
                             const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                             const PagedRows& rows, const AttentionParams& params,
                             const Tensor& mixed,  // [T, h, dv] f32: overwritten
                             const Tensor& out);   // [T, h, dv] f32 or bf16

}  // namespace sluice::ops
