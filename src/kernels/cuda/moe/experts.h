// Kernels of the expert MLPs that fused_experts() chooses from (experts_plan.h). Arguments as in
// fused_experts().
#pragma once

#include "kernels/types/op_params.h"
#include "tensor/context.h"

namespace sluice::cuda {

using ops::ExpertParams;
using ops::MoeWorkspace;

// x and the weights in bfloat16, rows on 16 bytes; at most kMaxStreamedPairs (token, expert) pairs.
void stream_experts(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2,
                    const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                    const MoeWorkspace& workspace, const Tensor& out);

// The same for up to eight tokens, in two launches. The result is added to sum [tokens, hidden]
// f32.
bool pipeline_experts_fit(std::int64_t tokens, std::int64_t top_k, std::int64_t experts,
                          std::int64_t hidden, std::int64_t width, int sm);
void pipeline_experts(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2,
                      const Tensor& weights, const Tensor& ids, Activation activation,
                      const MoeWorkspace& workspace, const Tensor& sum);

// The same for any number of pairs, on Hopper.
void tile_experts(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2,
                  const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                  const MoeWorkspace& workspace, const Tensor& out);

// Pairs (token, expert), numbered token * top_k + j, by expert and ascending within an expert:
// order [pairs]. Those of expert e are from begin[e] to begin[e + 1]. -1 has no expert. On Hopper.
void sort_expert_pairs(Context& ctx, const Tensor& ids, int experts, std::int32_t* begin,
                       std::int32_t* order);

// out[t] = sum over j of weights[t, j] down[t * top_k + j], in ascending order of j. Pairs with id
// -1 are left out.
void sum_expert_pairs(Context& ctx, const float* down, const Tensor& weights, const Tensor& ids,
                      const ExpertParams& params, const Tensor& out);

}  // namespace sluice::cuda
