// Expert MLPs with blocks of GGUF files in fragments (kernels/types/block_units.h) for many tokens:
// the down projections.
#include "kernels/cuda/moe/experts_fragments_sm90.cuh"

namespace sluice::cuda {

void launch_block_downs(Context& ctx, const GroupedArgs& args, const GroupedPlan& plan) {
  with_int_kind(args.w, [&]<IntKind kKind, bool kFine>() {
    if constexpr (kIsBlocks<kKind>) launch_grouped<kKind, kFine, false>(ctx, args, plan);
  });
}

}  // namespace sluice::cuda
