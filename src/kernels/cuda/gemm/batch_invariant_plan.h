// Tiles of the batch-invariant GEMM (gemm_batch_invariant_sm90.cu): pure functions of shapes and
// device, tested without a GPU.
#pragma once

#include <cstdint>

namespace sluice::cuda {

// Rows by columns of a CTA's tile. All tiles give the same bits.
enum class BatchInvariantTile : std::uint8_t { k8x32, k8x64, k64x64, k128x128, k128x256 };

struct BatchInvariantPlan {
  BatchInvariantTile tile = BatchInvariantTile::k64x64;
  int stages = 1;  // of the pipeline
  // Persistent CTAs. With k128x256 two CTAs are a cluster and share weights.
  int blocks = 1;
};
// Up to 64 rows the weights are streamed once. With more rows tiles grow as long as every SM has
// work. `pairs`: whether CTAs may be clusters of two.
BatchInvariantPlan plan_batch_invariant(std::int64_t m, std::int64_t n, int num_sms,
                                        bool pairs = true);

}  // namespace sluice::cuda
