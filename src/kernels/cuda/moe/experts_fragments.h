// Kernels of expert MLPs with weights in fragments (kernels/types/int_fragments.h).
#pragma once

#include "kernels/cuda/gemm/gemm_int.h"
#include "kernels/cuda/moe/experts.h"
#include "kernels/cuda/moe/experts_plan.h"

namespace sluice::cuda {

struct FragmentExperts {
  std::int64_t experts = 0, hidden = 0, width = 0;
  std::int64_t w13_bytes = 0, w2_bytes = 0;  // of an expert
};

// Few tokens; params without weigh_input, and with SiLU or GELU by tanh where nothing is clamped.
// sum [tokens, hidden] f32 := the result, or its sum with the result (`adds`).
void pipeline_experts_fragments(Context& ctx, const Tensor& x, const IntWeights& w13,
                                const IntWeights& w2, const FragmentExperts& shape,
                                const Tensor& weights, const Tensor& ids,
                                const ExpertParams& params, const Tensor& hidden, const Tensor& sum,
                                bool adds, const FragmentExpertsPlan& plan);
// Any number of tokens, on Hopper. Arguments as in fused_experts().
void tile_experts_fragments(Context& ctx, const Tensor& x, const IntWeights& w13,
                            const IntWeights& w2, const FragmentExperts& shape,
                            const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                            const MoeWorkspace& workspace, const Tensor& out);

}  // namespace sluice::cuda
