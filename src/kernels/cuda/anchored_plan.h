// Which tiles a product takes whose outputs do not depend on the rows beside them (gemm_anchored_sm90.cu): pure functions of
// shapes and facts, tested without a GPU.
#pragma once

#include <cstdint>

namespace sluice::cuda {

// Rows by columns of a block's part of the output. All have the bits of one another.
enum class AnchoredTile : std::uint8_t { k8x32, k8x64, k64x64, k128x128, k128x256 };

inline constexpr int kMostAnchoredStages = 20;

struct AnchoredPlan {
  AnchoredTile tile = AnchoredTile::k64x64;
  int stages = 1;   // of the ring that rows and weights go through
  int blocks = 1;   // a block takes one tile after the other; pairs of blocks that share weights for k128x256
};
// Up to 8 and up to 64 rows weights are streamed; tiles grow with the rows beyond, as far as every multiprocessor has work.
// `pairs`: whether blocks may run in pairs.
AnchoredPlan plan_anchored(std::int64_t m, std::int64_t n, int multiprocessors, bool pairs = true);

}  // namespace sluice::cuda
