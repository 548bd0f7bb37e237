// Expert MLPs with blocks of GGUF files in fragments (kernels/types/block_units.h) for up to eight
// tokens.
#include "kernels/cuda/moe/experts_fragments.cuh"

namespace sluice::cuda {

void launch_block_gates(Context& ctx, const FragmentExpertArgs& up,
                        const FragmentExpertsPlan& plan) {
  with_int_kind(up.w, [&]<IntKind kKind, bool kFine>() {
    if constexpr (kIsBlocks<kKind>) launch_gates<kKind, kFine>(ctx, up, plan);
  });
}

void launch_block_sums(Context& ctx, const FragmentExpertArgs& down,
                       const FragmentExpertsPlan& plan) {
  with_int_kind(down.w, [&]<IntKind kKind, bool kFine>() {
    if constexpr (kIsBlocks<kKind>) launch_sums<kKind, kFine>(ctx, down, plan);
  });
}

}  // namespace sluice::cuda
