// Decode attention over pages of e4m3 (attention_decode_kernel.cuh). A stage takes half of the
// memory of bfloat16's. The number of stages leaves as many CTAs on an SM as with bfloat16.
#include "kernels/cuda/attention/attention_decode_kernel.cuh"

namespace sluice::cuda::decode {

bool launch_fp8(Context& ctx, DecodeArgs& args, std::int64_t kv_heads, const DecodePlan& plan) {
  const bool wide = plan.head_tiles == 2;
  switch (args.a.dim) {
    case 64:
      return wide ? launch<64, 2, 7, E4m3Pages>(ctx, args, kv_heads, plan)
                  : launch<64, 1, 7, E4m3Pages>(ctx, args, kv_heads, plan);
    case 96:
      return wide ? launch<96, 2, 5, E4m3Pages>(ctx, args, kv_heads, plan)
                  : launch<96, 1, 5, E4m3Pages>(ctx, args, kv_heads, plan);
    case 128:
      return wide ? launch<128, 2, 5, E4m3Pages>(ctx, args, kv_heads, plan)
                  : launch<128, 1, 5, E4m3Pages>(ctx, args, kv_heads, plan);
    default:
      return launch<256, 1, 4, E4m3Pages>(ctx, args, kv_heads, plan);
  }
}

}  // namespace sluice::cuda::decode
