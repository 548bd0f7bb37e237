// Expert MLPs with weights in fragments for up to eight tokens: integers and e2m1, and the choice
// of kernels.
#include "kernels/cuda/moe/experts_fragments.cuh"

namespace sluice::cuda {

void pipeline_experts_fragments(Context& ctx, const Tensor& x, const IntWeights& w13,
                                const IntWeights& w2, const FragmentExperts& shape,
                                const Tensor& weights, const Tensor& ids,
                                const ExpertParams& params, const Tensor& hidden, const Tensor& sum,
                                bool adds, const FragmentExpertsPlan& plan) {
  FragmentExpertArgs up{.x = static_cast<const Bf16*>(x.data),
                        .w = w13,
                        .expert_bytes = shape.w13_bytes,
                        .hidden = static_cast<Bf16*>(hidden.data),
                        .ids = {.of = ids.ptr<std::int32_t>(),
                                .stride = ids.stride[0],
                                .tokens = static_cast<int>(x.dim(0)),
                                .top_k = static_cast<int>(ids.dim(1)),
                                .experts = static_cast<int>(shape.experts)},
                        .weights = weights.ptr<float>(),
                        .x_stride = x.stride[0],
                        .hidden_stride = hidden.stride[0],
                        .weights_stride = weights.stride[0],
                        .n = static_cast<int>(shape.width),
                        .k = static_cast<int>(shape.hidden),
                        .staged_stride = static_cast<int>(int_staged_stride(shape.hidden)),
                        .rules = rules_of(params, weights, shape.width, shape.hidden),
                        .adds = adds};
  // The down projection reads the hidden rows of the pairs.
  FragmentExpertArgs down = up;
  up.gate_tiles = plan.gate_tiles;
  down.x = up.hidden, down.x_stride = up.hidden_stride;
  down.w = w2, down.expert_bytes = shape.w2_bytes;
  down.sum = sum.ptr<float>(), down.sum_stride = sum.stride[0];
  down.n = up.k, down.k = up.n;
  down.staged_stride = static_cast<int>(int_staged_stride(shape.width));
  with_int_kind(w13, [&]<IntKind kKind, bool kFine>() {
    if constexpr (kIsBlocks<kKind>)
      launch_block_gates(ctx, up, plan);
    else
      launch_gates<kKind, kFine>(ctx, up, plan);
  });
  with_int_kind(w2, [&]<IntKind kKind, bool kFine>() {
    if constexpr (kIsBlocks<kKind>)
      launch_block_sums(ctx, down, plan);
    else
      launch_sums<kKind, kFine>(ctx, down, plan);
  });
}

}  // namespace sluice::cuda
