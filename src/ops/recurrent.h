// Ops of recurrent layers, in float32: a short causal convolution, and a state matrix per head.
// Both keep state per sequence from step to step. May be called by any thread that owns `ctx`.
// Wrong shapes are bugs (Error{kBug}).
//
// Tokens of a sequence are processed one by one, in order. So a result has the same bits however a
// prompt is cut into steps, and whatever else is in the batch. States are updated in place. No slot
// is two sequences'. A sequence may continue the one before it: drafts are sequences of one row.
#pragma once

#include "kernels/types/recurrent_params.h"
#include "tensor/context.h"

namespace sluice::ops {

// y_t = f(bias + sum_j weight[j] x_{t - K + 1 + j}) in each channel, with f = silu or identity. x
// is 0 before the start. The state is the last K - 1 inputs, oldest first. Sources: transformers
// Qwen3NextGatedDeltaNet, Lfm2ShortConv (conv1d).
void causal_conv(Context& ctx, const Tensor& x,  // [T, C] f32, strided rows
                 const Tensor& weight,  // [K, C] f32, dense; K from kMinConvTaps to kMaxConvTaps
                 const Tensor& bias,    // [C] f32; undefined: none
                 bool silu, const SequenceRows& rows,
                 const Tensor& state,  // [slots, (K - 1) C] f32
                 const Tensor& out);   // [T, C] f32, strided rows; may be x

// Per head, with a state S [dk, dv]:
//   S = diag(decay_t) S;  u = beta_t (v_t - S^T k_t), without delta beta_t v_t;  S = S + k_t u^T
//   out_t = S^T q_t + skip v_t
// With delta: the gated delta rule (Yang et al., "Gated Delta Networks", arXiv 2412.06464, equation
// 10). With a decay per channel as well: Kimi Delta Attention (arXiv 2510.26692). Without delta:
// the recurrence of Mamba-2 (Dao and Gu, arXiv 2405.21060, section 2), with q = C, k = B, v = x,
// beta = step.
void recurrent_scan(Context& ctx, const ScanInputs& in, const SequenceRows& rows,
                    const Tensor& state,  // [slots, recurrent_state_elements(hv, dk, dv)] f32
                    const Tensor& out);   // [T, hv, dv] f32, strided; stride 1 over dv

// step = softplus(x + bias) limited to [min_step, max_step] (max_step 0: no upper limit). decay =
// exp(rate * step).
void decay_gates(Context& ctx, const Tensor& x,  // [T, n] f32, strided rows
                 const Tensor& bias,             // [n] f32
                 const Tensor& rate,             // [n] f32: -exp(A_log)
                 float min_step, float max_step,
                 const Tensor& step,    // [T, n] f32, or undefined: not wanted; may be x
                 const Tensor& decay);  // [T, n] f32

// out = 1 / (1 + exp(-x)); out may be x.
void sigmoid(Context& ctx, const Tensor& x,  // [T, n] f32, strided rows
             const Tensor& out);             // [T, n] f32

// out = x * fn(gate); out may be x or gate.
void gated_mul(Context& ctx, Gate fn,
               const Tensor& x,     // [T, n] or [T, heads, n] f32, strided; stride 1 over n
               const Tensor& gate,  // as x
               const Tensor& out);  // as x

}  // namespace sluice::ops
