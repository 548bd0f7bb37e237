// Decode attention over bfloat16 pages, and the choice of splits for every type of pages
// (attention_decode_kernel.cuh).
#include "kernels/cuda/attention/attention_decode_kernel.cuh"

namespace sluice::cuda {
namespace {

using namespace decode;

bool launch_bf16(Context& ctx, DecodeArgs& args, std::int64_t kv_heads, const DecodePlan& plan) {
  const bool wide = plan.head_tiles == 2;
  switch (args.a.dim) {
    case 64:
      return wide ? launch<64, 2, 4, Bf16Pages>(ctx, args, kv_heads, plan)
                  : launch<64, 1, 4, Bf16Pages>(ctx, args, kv_heads, plan);
    case 96:
      return wide ? launch<96, 2, 3, Bf16Pages>(ctx, args, kv_heads, plan)
                  : launch<96, 1, 3, Bf16Pages>(ctx, args, kv_heads, plan);
    case 128:
      return wide ? launch<128, 2, 3, Bf16Pages>(ctx, args, kv_heads, plan)
                  : launch<128, 1, 3, Bf16Pages>(ctx, args, kv_heads, plan);
    default:
      return launch<256, 1, 2, Bf16Pages>(ctx, args, kv_heads, plan);
  }
}

bool launch_plan(Context& ctx, DecodeArgs& args, std::int64_t kv_heads, const DecodePlan& plan) {
  args.splits = plan.splits, args.head_blocks = plan.head_blocks, args.heads_each = plan.heads_each,
  args.is_cluster = plan.is_cluster;
  return args.a.is_fp8 ? launch_fp8(ctx, args, kv_heads, plan)
                       : launch_bf16(ctx, args, kv_heads, plan);
}

}  // namespace

void attend_single_rows(Context& ctx, const PagedArgs& a, std::int64_t kv_heads,
                        bool single_rows_only, const NewHeads& heads) {
  DecodeInputs inputs{.rows = a.tokens,
                      .kv_heads = kv_heads,
                      .group = a.group,
                      .dim = a.dim,
                      .max_pages = a.max_pages,
                      .num_sms = ctx.cuda->info().num_sms,
                      .clusters = ctx.cuda->info().sm >= 90};
  DecodeArgs args{.a = a, .heads = heads, .single_rows_only = single_rows_only};
  if (launch_plan(ctx, args, kv_heads, plan_decode(inputs))) return;
  inputs.clusters = false;
  launch_plan(ctx, args, kv_heads, plan_decode(inputs));
}

}  // namespace sluice::cuda
