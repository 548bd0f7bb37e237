// Kernels of experts' MLPs that fused_experts() chooses from (launch_plan.h); arguments as there.
#pragma once

#include "kernels/cpu/types.h"
#include "tensor/context.h"

namespace sluice::cuda {

using ops::Activation;
using ops::MoeWorkspace;

// x and the weights in bfloat16, rows on 16 bytes; at most kMaxStreamedPairs (token, expert) pairs.
void stream_experts(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2, const Tensor& weights,
                    const Tensor& ids, Activation activation, const MoeWorkspace& workspace, const Tensor& out);

}  // namespace sluice::cuda
