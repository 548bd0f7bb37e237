// Which tiles a product takes whose outputs do not depend on the rows beside them
// (gemm_batch_invariant_sm90.cu): pure functions of shapes and facts, tested without a GPU.
#pragma once

#include <cstdint>

namespace sluice::cuda {

// Rows by columns of a block's part of the output. All have the bits of one another.
enum class BatchInvariantTile : std::uint8_t { k8x32, k8x64, k64x64, k128x128, k128x256 };

inline constexpr int kMaxBatchInvariantStages = 20;

struct BatchInvariantPlan {
  BatchInvariantTile tile = BatchInvariantTile::k64x64;
  int stages = 1;  // of the ring that rows and weights go through
  // a block takes one tile after the other; pairs of blocks that share weights for k128x256
  int blocks = 1;
};
// Up to 8 and up to 64 rows weights are streamed; tiles grow with the rows beyond, as far as every
// multiprocessor has work. `pairs`: whether blocks may run in pairs.
BatchInvariantPlan plan_batch_invariant(std::int64_t m, std::int64_t n, int num_sms,
                                        bool pairs = true);

}  // namespace sluice::cuda
