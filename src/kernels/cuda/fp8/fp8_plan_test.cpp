#include "kernels/cuda/fp8/fp8_plan.h"

#include <gtest/gtest.h>

#include "kernels/cuda/gemm/weight_pipeline_shape.h"

namespace sluice::cuda {
namespace {

constexpr int kHopper = 132;

std::int64_t at_once(std::int64_t m, std::int64_t k, bool in_groups = true) {
  return fp8_rows_at_once(m, k, in_groups, false, 90);
}

TEST(Fp8Plan, FewRowsAreReadAtOnceAndManyArePrepared) {
  for (const bool in_groups : {false, true})
    for (const std::int64_t k : {4096, 12288, 28672}) EXPECT_EQ(at_once(1, k, in_groups), 1);
  EXPECT_EQ(at_once(2, 4096), 2);
  EXPECT_EQ(at_once(3, 4096), 0);
  EXPECT_EQ(at_once(4, 2048), 4);
  EXPECT_EQ(at_once(2, 12288), 0);
  EXPECT_EQ(at_once(2, 128, false), 0);
  EXPECT_EQ(at_once(1, 131072), 0);
  // One kernel for every m in deterministic runs.
  for (const bool in_groups : {false, true})
    for (const std::int64_t m : {1, 8, 100})
      EXPECT_EQ(fp8_rows_at_once(m, 4096, in_groups, true, 90), 0);
}

TEST(Fp8Plan, OtherGpusTakeFewRowsAfterFewRows) {
  for (const bool in_groups : {false, true}) {
    EXPECT_EQ(fp8_rows_at_once(100, 4096, in_groups, false, 80), 5);
    EXPECT_EQ(fp8_rows_at_once(3, 4096, in_groups, false, 80), 3);
    EXPECT_EQ(fp8_rows_at_once(100, 4096, in_groups, true, 80), 1);
    EXPECT_EQ(fp8_rows_at_once(1, 4096, in_groups, true, 80), 1);
  }
}

TEST(Fp8Plan, EverythingReadAtOnceFitsInSharedMemory) {
  for (const int sm : {80, 90})
    for (const std::int64_t k : {16, 400, 4096, 12288, 28672})
      for (const bool gated : {false, true}) {
        const std::int64_t m = fp8_rows_at_once(8, k, true, false, sm);
        if (m == 0) continue;
        const Fp8SkinnyPlan plan = plan_fp8_skinny(
            {.m = m, .n = 4100, .k = k, .gated = gated, .num_sms = kHopper, .sm = sm});
        EXPECT_GT(plan.stages, 1) << m << " x " << k << " on " << sm;
        EXPECT_EQ(plan.tiles, 257);
        EXPECT_EQ(plan.blocks, kHopper);
      }
}

TEST(Fp8Plan, RowsOfXBeginInAlternatingHalvesOfTheBanks) {
  for (const std::int64_t k : {16, 128, 400, 12288}) {
    EXPECT_EQ(fp8_staged_bytes(k) % 128, 64);
    EXPECT_GE(fp8_staged_bytes(k), k + 64);
  }
}

TEST(Fp8Plan, TilesGrowWithTheRows) {
  EXPECT_EQ(plan_fp8_tiles(1, 2112, kHopper).stages, 20);
  EXPECT_EQ(plan_fp8_tiles(8, 24576, kHopper).tile, Fp8Tile::k8x64);
  EXPECT_EQ(plan_fp8_tiles(9, 4096, kHopper).tile, Fp8Tile::k16x64);
  EXPECT_EQ(plan_fp8_tiles(16, 24576, kHopper).tile, Fp8Tile::k16x64);
  EXPECT_EQ(plan_fp8_tiles(17, 4096, kHopper).tile, Fp8Tile::k64x64);
  EXPECT_EQ(plan_fp8_tiles(64, 4096, kHopper).tile, Fp8Tile::k64x64);
  EXPECT_EQ(plan_fp8_tiles(64, 24576, kHopper).tile, Fp8Tile::k64x128);
  EXPECT_EQ(plan_fp8_tiles(128, 16384, kHopper).tile, Fp8Tile::k128x128);
  EXPECT_EQ(plan_fp8_tiles(8192, 4096, kHopper).tile, Fp8Tile::k256x128);
  EXPECT_EQ(plan_fp8_tiles(8192, 4096, kHopper, false).tile, Fp8Tile::k128x128);
}

TEST(Fp8Plan, EveryCtaHasWorkAndPipelinesFitInMemory) {
  constexpr std::int64_t kStageBytes[] = {9 << 10,  10 << 10, 16 << 10,
                                          24 << 10, 32 << 10, 32 << 10};
  constexpr std::int64_t kRows[] = {8, 16, 64, 64, 128, 128},
                         kColumns[] = {64, 64, 64, 128, 128, 128};
  for (const std::int64_t m : {1, 7, 16, 17, 64, 65, 300, 1000, 8192})
    for (const std::int64_t n : {1, 8, 1000, 6144, 24576, 151936}) {
      const Fp8TilePlan plan = plan_fp8_tiles(m, n, kHopper);
      const auto i = static_cast<std::size_t>(plan.tile);
      const std::int64_t rows = (m + kRows[i] - 1) / kRows[i],
                         columns = (n + kColumns[i] - 1) / kColumns[i];
      EXPECT_GE(plan.blocks, 1);
      EXPECT_LE(plan.blocks,
                plan.tile == Fp8Tile::k256x128 ? (rows + 1) / 2 * 2 * columns : rows * columns);
      // A CTA has 227 KiB. An SM has 228 KiB, and each CTA reserves 1 KiB of them.
      const std::int64_t bytes = plan.stages * (kStageBytes[i] + kColumns[i] / 4) + 2048;
      EXPECT_LE(bytes + 1024, 228 << 10) << m << " x " << n;
      EXPECT_LE(plan.blocks, kHopper);
    }
}

}  // namespace
}  // namespace sluice::cuda
