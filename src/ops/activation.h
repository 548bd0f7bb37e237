// Element-wise functions of MLPs. `out` may not overlap the inputs, except in sigmoid_mul, where it
// may be x.
#pragma once

#include "kernels/types/op_params.h"
#include "tensor/context.h"

namespace sluice::ops {

// out[t, i] = act(gate_up[t, i]) * gate_up[t, I + i]
void act_and_mul(Context& ctx, Activation activation,
                 const Tensor& gate_up,  // [T, 2 I] f32, strided rows
                 const Tensor& out);     // [T, I] f32 or bf16 (rounded to nearest even)

// out[t, i] = act(x[t, i]).
void activate(Context& ctx, Activation activation,
              const Tensor& x,     // [T, I] f32, strided rows
              const Tensor& out);  // [T, I] f32 or bf16 (rounded to nearest even)

// xIELU (arXiv 2411.13010; transformers XIELUActivation): with a = softplus(alpha_p) and b = beta +
// softplus(alpha_n), out = a x^2 + beta x for x > 0, else b (expm1(min(x, eps)) - x) + beta x.
void xielu(Context& ctx, const Tensor& x,  // [T, I] f32, strided rows
           const Tensor& params,           // [4] f32: alpha_p, alpha_n, beta, eps
           const Tensor& out);             // [T, I] f32 or bf16

inline void silu_and_mul(Context& ctx, const Tensor& gate_up, const Tensor& out) {
  act_and_mul(ctx, Activation::kSilu, gate_up, out);
}

// out = x * sigmoid(gate): the shared expert's gate of Qwen2-MoE.
void sigmoid_mul(Context& ctx, const Tensor& x,  // [T, H] f32
                 const Tensor& gate,             // [T, 1] f32
                 const Tensor& out);             // [T, H] f32

}  // namespace sluice::ops
