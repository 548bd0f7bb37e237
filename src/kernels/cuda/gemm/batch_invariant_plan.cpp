#include "kernels/cuda/gemm/batch_invariant_plan.h"

#include <algorithm>

namespace sluice::cuda {
namespace {

constexpr std::int64_t kFewRows = 8;
// Stages of the pipeline, from the stage sizes in gemm_batch_invariant_sm90.cu. With about 100 KiB
// an SM holds two CTAs.
constexpr int kStagesOf8x32 = 20, kStagesOf8x64 = 11, kStagesOf64x64 = 6, kStagesOf64x64Alone = 12;
constexpr int kStagesOf128x128 = 6, kStagesOf128x256 = 4;

struct Size {
  BatchInvariantTile tile;
  std::int64_t rows, columns;  // of a CTA, or of a cluster of two
  int blocks;
  double share;  // of the MMA rate that the largest tiles reach
};
constexpr Size kSizes[] = {{BatchInvariantTile::k64x64, 64, 64, 1, 0.4},
                           {BatchInvariantTile::k128x128, 128, 128, 1, 0.75},
                           {BatchInvariantTile::k128x256, 256, 256, 2, 1.0}};

std::int64_t tiles_of(std::int64_t m, std::int64_t n, const Size& size) {
  return (m + size.rows - 1) / size.rows * ((n + size.columns - 1) / size.columns);
}

// Time of the busiest SM, in output elements at the rate of the largest tiles.
double cost_of(std::int64_t m, std::int64_t n, const Size& size, int num_sms) {
  const std::int64_t slots = std::max(num_sms / size.blocks, 1),
                     turns = (tiles_of(m, n, size) + slots - 1) / slots;
  return static_cast<double>(turns * size.rows * size.columns / size.blocks) / size.share;
}

}  // namespace

BatchInvariantPlan plan_batch_invariant(std::int64_t m, std::int64_t n, int num_sms, bool pairs) {
  const std::int64_t twice = std::int64_t{2} * num_sms;
  if (m <= kFewRows) {
    const bool narrow = n <= std::int64_t{64} * num_sms;
    const std::int64_t columns = narrow ? 32 : 64;
    return {.tile = narrow ? BatchInvariantTile::k8x32 : BatchInvariantTile::k8x64,
            .stages = narrow ? kStagesOf8x32 : kStagesOf8x64,
            .blocks = static_cast<int>(std::min((n + columns - 1) / columns, twice))};
  }
  const Size* best = &kSizes[0];
  for (const Size& size : kSizes) {
    if (m <= 64 || (size.blocks > 1 && !pairs)) break;
    if (cost_of(m, n, size, num_sms) < cost_of(m, n, *best, num_sms)) best = &size;
  }
  const std::int64_t tiles = tiles_of(m, n, *best);
  BatchInvariantPlan plan{.tile = best->tile};
  switch (best->tile) {
    case BatchInvariantTile::k128x256:
      plan.stages = kStagesOf128x256;
      break;
    case BatchInvariantTile::k128x128:
      plan.stages = kStagesOf128x128;
      break;
    default:
      plan.stages = tiles <= num_sms ? kStagesOf64x64Alone : kStagesOf64x64;
  }
  const std::int64_t max_clusters =
      best->tile == BatchInvariantTile::k64x64 ? twice : num_sms / best->blocks;
  plan.blocks =
      static_cast<int>(std::min(tiles, std::max<std::int64_t>(max_clusters, 1))) * best->blocks;
  return plan;
}

}  // namespace sluice::cuda
