// Expert MLPs with blocks of GGUF files in fragments (kernels/types/block_units.h) for many tokens:
// the gate and up projections.
#include "kernels/cuda/moe/experts_fragments_sm90.cuh"

namespace sluice::cuda {

void launch_block_gates(Context& ctx, const GroupedArgs& args, const GroupedPlan& plan) {
  with_int_kind(args.w, [&]<IntKind kKind, bool kFine>() {
    if constexpr (kIsBlocks<kKind>) launch_grouped<kKind, kFine, true>(ctx, args, plan);
  });
}

}  // namespace sluice::cuda
