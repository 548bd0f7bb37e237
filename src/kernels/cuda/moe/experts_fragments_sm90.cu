// Expert MLPs with weights in fragments for many tokens: integers and e2m1, and the order of
// kernels.
#include "kernels/cuda/moe/experts_fragments_sm90.cuh"

namespace sluice::cuda {
namespace {

constexpr int kGatherThreads = 256;

// 2. Grid: sorted pairs. Rows of 16 bytes.
__global__ void __launch_bounds__(kGatherThreads)
    gather_pairs_kernel(const Bf16* x, std::int64_t x_stride, const std::int32_t* begin,
                        const std::int32_t* order, int experts, int top_k, int k, Bf16* out) {
  begin_dependent();
  const std::int64_t row = blockIdx.x;
  if (row >= begin[experts]) return;
  const Bf16* const from = x + order[row] / top_k * x_stride;
  for (int i = static_cast<int>(threadIdx.x) * 8; i < k; i += kGatherThreads * 8)
    *reinterpret_cast<uint4*>(out + row * k + i) = *reinterpret_cast<const uint4*>(from + i);
}

template <bool kGated>
void launch(Context& ctx, const GroupedArgs& args, const GroupedPlan& plan) {
  with_int_kind(args.w, [&]<IntKind kKind, bool kFine>() {
    if constexpr (!kIsBlocks<kKind>)
      launch_grouped<kKind, kFine, kGated>(ctx, args, plan);
    else if constexpr (kGated)
      launch_block_gates(ctx, args, plan);
    else
      launch_block_downs(ctx, args, plan);
  });
}

}  // namespace

void tile_experts_fragments(Context& ctx, const Tensor& x, const IntWeights& w13,
                            const IntWeights& w2, const FragmentExperts& shape,
                            const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                            const MoeWorkspace& workspace, const Tensor& out) {
  const std::int64_t top_k = ids.dim(1);
  // The workspace holds the pairs of a block of tokens. Their rows of x lie where the down
  // projection writes, after the last read of them.
  const std::int64_t block = workspace.hidden.dim(0) / top_k;
  auto* const rows = static_cast<Bf16*>(workspace.down.data);
  for (std::int64_t first = 0; first < x.dim(0); first += block) {
    const std::int64_t tokens = std::min(block, x.dim(0) - first), pairs = tokens * top_k;
    const Tensor some = ids.rows(first, tokens), from = x.rows(first, tokens);
    std::int32_t* const begin = workspace.order.ptr<std::int32_t>();
    std::int32_t* const order = begin + shape.experts + 1;
    sort_expert_pairs(ctx, some, static_cast<int>(shape.experts), begin, order);
    launch_dependent(ctx, "rows of pairs", gather_pairs_kernel, static_cast<unsigned>(pairs),
                     kGatherThreads, 0, static_cast<const Bf16*>(from.data), from.stride[0], begin,
                     order, static_cast<int>(shape.experts), static_cast<int>(top_k),
                     static_cast<int>(shape.hidden), rows);
    const GroupedInputs inputs{.pairs = pairs_of_rank(pairs, params.groups),
                               .experts = shape.experts,
                               .n = 2 * shape.width,
                               .unit_bytes = w13.unit_bytes,
                               .num_sms = ctx.cuda->info().num_sms};
    const GroupedPlan up_plan = plan_grouped(inputs);
    GroupedInputs down_inputs = inputs;
    down_inputs.n = shape.hidden, down_inputs.unit_bytes = w2.unit_bytes;
    const GroupedPlan down_plan = plan_grouped(down_inputs);
    const auto units_of = [&](const IntWeights& w, std::int64_t n, std::int64_t expert_bytes) {
      return map_of_units(w, blocks_for(n, kUnitRows), shape.experts, expert_bytes,
                          GroupedShape::kWide, GroupedShape::kDeep);
    };
    GroupedArgs up{
        .x = map_of_boxes(rows, pairs, shape.hidden, shape.hidden, up_plan.rows),
        .units = units_of(w13, 2 * shape.width, shape.w13_bytes),
        .w = w13,
        .begin = begin,
        .order = order,
        .hidden = static_cast<Bf16*>(workspace.hidden.data),
        .hidden_stride = workspace.hidden.stride[0],
        .experts = static_cast<int>(shape.experts),
        .stages = up_plan.stages,
        .n = static_cast<int>(2 * shape.width),
        .rules = rules_of(params, weights.rows(first, tokens), shape.width, shape.hidden)};
    launch<true>(ctx, up, up_plan);
    GroupedArgs down = up;
    down.x = map_of_boxes(up.hidden, pairs, shape.width, up.hidden_stride, down_plan.rows);
    down.units = units_of(w2, shape.hidden, shape.w2_bytes);
    down.w = w2;
    down.down = workspace.down.ptr<float>();
    down.stages = down_plan.stages;
    down.n = static_cast<int>(shape.hidden);
    launch<false>(ctx, down, down_plan);
    sum_expert_pairs(ctx, down.down, weights.rows(first, tokens), some, params,
                     out.rows(first, tokens));
  }
}

}  // namespace sluice::cuda
