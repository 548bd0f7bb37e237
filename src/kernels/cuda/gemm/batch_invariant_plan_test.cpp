#include "kernels/cuda/gemm/batch_invariant_plan.h"

#include <gtest/gtest.h>

namespace sluice::cuda {
namespace {

constexpr int kHopper = 132;

TEST(BatchInvariantPlan, FewRowsStreamWeightsOnEverySm) {
  for (const std::int64_t m : {1, 8}) {
    EXPECT_EQ(plan_batch_invariant(m, 4096, kHopper).tile, BatchInvariantTile::k8x32);
    EXPECT_EQ(plan_batch_invariant(m, 4096, kHopper).blocks, 128);
    EXPECT_EQ(plan_batch_invariant(m, 6144, kHopper).blocks, 192);
    EXPECT_EQ(plan_batch_invariant(m, 151936, kHopper).tile, BatchInvariantTile::k8x64);
    EXPECT_EQ(plan_batch_invariant(m, 151936, kHopper).blocks, 264);
  }
  EXPECT_EQ(plan_batch_invariant(9, 4096, kHopper).tile, BatchInvariantTile::k64x64);
  EXPECT_EQ(plan_batch_invariant(64, 151936, kHopper).tile, BatchInvariantTile::k64x64);
}

TEST(BatchInvariantPlan, TilesGrowWithTheRows) {
  EXPECT_EQ(plan_batch_invariant(128, 4096, kHopper).tile, BatchInvariantTile::k64x64);
  EXPECT_EQ(plan_batch_invariant(512, 4096, kHopper).tile, BatchInvariantTile::k128x128);
  EXPECT_EQ(plan_batch_invariant(512, 24576, kHopper).tile, BatchInvariantTile::k128x256);
  EXPECT_EQ(plan_batch_invariant(8192, 4096, kHopper).tile, BatchInvariantTile::k128x256);
}

TEST(BatchInvariantPlan, WithoutClustersTilesStaySmaller) {
  EXPECT_EQ(plan_batch_invariant(8192, 4096, kHopper, false).tile, BatchInvariantTile::k128x128);
  EXPECT_EQ(plan_batch_invariant(8192, 4096, 1).blocks % 2, 0);
}

TEST(BatchInvariantPlan, EveryCtaHasWorkAndPipelinesFitInMemory) {
  constexpr std::int64_t kStageBytes[] = {5 << 10, 9 << 10, 16 << 10, 32 << 10, 48 << 10};
  constexpr std::int64_t kRows[] = {8, 8, 64, 128, 128}, kColumns[] = {32, 64, 64, 128, 256};
  for (const std::int64_t m : {1, 7, 64, 65, 300, 1000, 8192})
    for (const std::int64_t n : {1, 8, 1000, 6144, 24576, 151936}) {
      const BatchInvariantPlan plan = plan_batch_invariant(m, n, kHopper);
      const auto i = static_cast<std::size_t>(plan.tile);
      const std::int64_t rows = (m + kRows[i] - 1) / kRows[i],
                         columns = (n + kColumns[i] - 1) / kColumns[i];
      EXPECT_GE(plan.blocks, 1);
      EXPECT_LE(plan.stages, 20);  // barriers of tile_pipeline_sm90.cuh
      EXPECT_LE(plan.blocks, plan.tile == BatchInvariantTile::k128x256
                                 ? (rows + 1) / 2 * 2 * columns
                                 : rows * columns);
      // A CTA has 227 KiB. An SM has 228 KiB, and each CTA reserves 1 KiB of them.
      const std::int64_t bytes = plan.stages * kStageBytes[i] + 2048,
                         beside = plan.blocks > kHopper ? 2 : 1;
      EXPECT_LE(beside * (bytes + 1024), 228 << 10) << m << " x " << n;
    }
}

}  // namespace
}  // namespace sluice::cuda
