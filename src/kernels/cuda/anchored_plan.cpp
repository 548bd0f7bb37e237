#include "kernels/cuda/anchored_plan.h"

#include <algorithm>

namespace sluice::cuda {
namespace {

constexpr std::int64_t kFewRows = 8;
// What follows from the sizes of stages in gemm_anchored_sm90.cu: rings of about 100 KiB stand in a multiprocessor twice.
constexpr int kStagesOf8x32 = 20, kStagesOf8x64 = 11, kStagesOf64x64 = 6, kStagesOf64x64Alone = 12;
constexpr int kStagesOf128x128 = 6, kStagesOf128x256 = 4;

struct Size {
  AnchoredTile tile;
  std::int64_t rows, columns;   // of a block, or of a pair of them
  int blocks;
  double share;                 // of what the products of the largest tiles reach
};
constexpr Size kSizes[] = {{AnchoredTile::k64x64, 64, 64, 1, 0.4},
                           {AnchoredTile::k128x128, 128, 128, 1, 0.75},
                           {AnchoredTile::k128x256, 256, 256, 2, 1.0}};

std::int64_t tiles_of(std::int64_t m, std::int64_t n, const Size& size) {
  return (m + size.rows - 1) / size.rows * ((n + size.columns - 1) / size.columns);
}

// How long the busiest multiprocessor works.
double cost_of(std::int64_t m, std::int64_t n, const Size& size, int multiprocessors) {
  const std::int64_t slots = std::max(multiprocessors / size.blocks, 1), turns = (tiles_of(m, n, size) + slots - 1) / slots;
  return static_cast<double>(turns * size.rows * size.columns / size.blocks) / size.share;
}

}  // namespace

AnchoredPlan plan_anchored(std::int64_t m, std::int64_t n, int multiprocessors, bool pairs) {
  const std::int64_t twice = std::int64_t{2} * multiprocessors;
  if (m <= kFewRows) {
    const bool narrow = n <= std::int64_t{64} * multiprocessors;
    const std::int64_t columns = narrow ? 32 : 64;
    return {.tile = narrow ? AnchoredTile::k8x32 : AnchoredTile::k8x64,
            .stages = narrow ? kStagesOf8x32 : kStagesOf8x64,
            .blocks = static_cast<int>(std::min((n + columns - 1) / columns, twice))};
  }
  const Size* best = &kSizes[0];
  for (const Size& size : kSizes) {
    if (m <= 64 || (size.blocks > 1 && !pairs)) break;
    if (cost_of(m, n, size, multiprocessors) < cost_of(m, n, *best, multiprocessors)) best = &size;
  }
  const std::int64_t tiles = tiles_of(m, n, *best);
  AnchoredPlan plan{.tile = best->tile};
  switch (best->tile) {
    case AnchoredTile::k128x256: plan.stages = kStagesOf128x256; break;
    case AnchoredTile::k128x128: plan.stages = kStagesOf128x128; break;
    default: plan.stages = tiles <= multiprocessors ? kStagesOf64x64Alone : kStagesOf64x64;
  }
  const std::int64_t most = best->tile == AnchoredTile::k64x64 ? twice : multiprocessors / best->blocks;
  plan.blocks = static_cast<int>(std::min(tiles, std::max<std::int64_t>(most, 1))) * best->blocks;
  return plan;
}

}  // namespace sluice::cuda
