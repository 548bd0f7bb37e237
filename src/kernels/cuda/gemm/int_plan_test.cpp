#include "kernels/cuda/gemm/int_plan.h"

#include <gtest/gtest.h>

#include "kernels/cuda/common/shared_memory.h"

namespace sluice::cuda {
namespace {

// Bytes of a unit: 4 bits in one group, NVFP4, 4 bits with zeros in four groups, 8 bits in four
// groups.
constexpr std::int64_t kUnits[] = {1056, 1168, 1216, 2176};

TEST(IntPlan, FewRowsAreReadAtOnceUnlessOrderMustNotDependOnThem) {
  for (const std::int64_t k : {4096, 14336}) EXPECT_EQ(int_rows_at_once({.m = 1, .k = k}), 1);
  EXPECT_EQ(int_rows_at_once({.m = 2, .k = 4096}), 2);
  EXPECT_EQ(int_rows_at_once({.m = 3, .k = 4096}), 0);
  EXPECT_EQ(int_rows_at_once({.m = 2, .k = 14336}), 0);
  // What is fused pays for more rows.
  EXPECT_EQ(int_rows_at_once({.m = 4, .k = 4096, .gated = true}), 4);
  EXPECT_EQ(int_rows_at_once({.m = 5, .k = 4096, .gated = true}), 0);
  EXPECT_EQ(int_rows_at_once({.m = 8, .k = 4096, .bits = 8, .gated = true}), 8);
  EXPECT_EQ(int_rows_at_once({.m = 9, .k = 128, .bits = 8, .gated = true}), 0);
  for (const std::int64_t m : {1, 8, 300})
    EXPECT_EQ(int_rows_at_once({.m = m, .k = 4096, .deterministic = true}), 0);
  // Other GPUs have no tiles.
  for (const std::int64_t m : {1, 8, 300}) {
    EXPECT_EQ(int_rows_at_once({.m = m, .k = 4096, .deterministic = true, .sm = 80}), 1);
    EXPECT_GE(int_rows_at_once({.m = m, .k = 4096, .sm = 80}), 1);
  }
}

TEST(IntPlan, ManyRowsWidenTheWeightsInEqualParts) {
  EXPECT_FALSE(widens_int_weights(256, false, true, 90));
  EXPECT_TRUE(widens_int_weights(257, false, true, 90));
  for (const bool deterministic : {false, true})
    for (const bool library : {false, true})
      for (const int sm : {80, 90})
        EXPECT_EQ(widens_int_weights(8192, deterministic, library, sm),
                  !deterministic && library && sm == 90);
  constexpr std::int64_t kBytes = 64 << 20;
  EXPECT_EQ(widened_at_once(28672, 4096, kBytes), 7168);
  EXPECT_EQ(widened_at_once(4096, 14336, kBytes), 2048);
  EXPECT_EQ(widened_at_once(100, 14336, kBytes), 128);
  EXPECT_EQ(widened_at_once(6144, 4096, kBytes), 6144);
  for (const std::int64_t rows : {16, 4096, 5000, 152064})
    for (const std::int64_t k : {128, 2048, 4104, 53248}) {
      const std::int64_t at_once = widened_at_once(rows, k, kBytes);
      EXPECT_EQ(at_once % 128, 0);
      EXPECT_LE(at_once * k * 2, kBytes);
    }
}

TEST(IntPlan, SkinnyLaunchesFitInSharedMemory) {
  for (const int sm : {80, 86, 90})
    for (const bool gated : {false, true})
      for (const std::int64_t unit : kUnits)
        for (const std::int64_t k : {128, 4096, 14336})
          for (std::int64_t m = 1; m <= 8; ++m) {
            const int bits = unit > 2000 ? 8 : 4;
            const std::int64_t rows =
                int_rows_at_once({.m = m, .k = k, .bits = bits, .gated = gated, .sm = sm});
            if (rows == 0) continue;
            const IntSkinnyPlan plan = plan_int_skinny({.m = rows,
                                                        .n = 4096,
                                                        .k = k,
                                                        .bits = bits,
                                                        .unit_bytes = unit,
                                                        .gated = gated,
                                                        .num_sms = 100,
                                                        .sm = sm});
            if (plan.stages == 0) {
              EXPECT_NE(sm, 90);
              continue;
            }
            EXPECT_LE(plan.shared_bytes, max_shared_bytes(sm));
            EXPECT_EQ(plan.tiles, 256);
            EXPECT_TRUE(plan.blocks == 100 || (sm == 90 && plan.blocks == 200));
            // Of an SM: 228 KiB, of which each CTA has 1 KiB for the system.
            if (plan.blocks == 200) {
              EXPECT_LE(2 * (plan.shared_bytes + 2048), 228 << 10);
              EXPECT_GT(3 * (plan.shared_bytes + 1024), 228 << 10);
            }
            if (sm == 90) {
              EXPECT_GE(plan.stages, 2) << m << " x " << k << " units of " << unit;
            }
          }
}

TEST(IntPlan, TwoCtasShareAnSmWhereTheirRowsFit) {
  IntSkinnyInputs inputs{.m = 1, .n = 4096, .k = 4096, .unit_bytes = 1088, .num_sms = 132};
  IntSkinnyPlan plan = plan_int_skinny(inputs);
  EXPECT_EQ(plan.blocks, 256);  // tiles
  EXPECT_EQ(plan.stages, (kIntStages<4, 1>));
  EXPECT_GT(plan.shared_bytes, max_shared_bytes(90) / 3);
  inputs.n = 14336;
  EXPECT_EQ(plan_int_skinny(inputs).blocks, 264);
  inputs.k = 30000;  // 59 KiB of x, so that fewer units are in flight
  EXPECT_EQ(plan_int_skinny(inputs).blocks, 264);
  EXPECT_EQ(plan_int_skinny(inputs).stages, (kFewIntStages<4, 1>));
  inputs.k = 45000;  // 88 KiB
  plan = plan_int_skinny(inputs);
  EXPECT_EQ(plan.blocks, 132);
  EXPECT_EQ(plan.stages, (kIntStages<4, 1>));
  inputs = {.m = 1, .n = 4096, .k = 4096, .unit_bytes = 1088, .num_sms = 108, .sm = 80};
  EXPECT_EQ(plan_int_skinny(inputs).blocks, 108);
}

TEST(IntPlan, TilesFitAndSplitsDependOnTheShape) {
  for (const std::int64_t unit : kUnits)
    for (const std::int64_t m : {1, 16, 17, 32, 33, 64, 65, 8192})
      for (const bool deterministic : {false, true}) {
        const IntTileInputs inputs{.m = m,
                                   .n = 4096,
                                   .k = 14336,
                                   .unit_bytes = unit,
                                   .num_sms = 132,
                                   .scratch_bytes = 32 << 20,
                                   .deterministic = deterministic};
        const IntTilePlan plan = plan_int_tiles(inputs);
        const int ctas = int_ctas_per_sm(plan.rows, plan.wide * plan.deep);
        EXPECT_LE(ctas * (plan.shared_bytes + 2048), 228 << 10);
        EXPECT_GE(plan.stages, 2);
        EXPECT_LE(plan.stages, kMaxIntTileStages);
        EXPECT_GE(plan.rows, std::min<std::int64_t>(m, 16));
        EXPECT_TRUE(plan.rows >= m || plan.rows == 128);
        EXPECT_LE(plan.blocks, 132 * ctas);
        EXPECT_TRUE(plan.wide * plan.deep == 4 || (plan.wide == 2 && plan.deep == 1));
        if (deterministic) {
          EXPECT_EQ(plan.splits, 1);
          EXPECT_EQ(plan.deep, 1);
        }
        if (!deterministic && m <= 64) {
          EXPECT_GT(plan.splits, 1);  // 32 tiles alone would leave most SMs idle
        }
        const std::int64_t tiles = (m + plan.rows - 1) / plan.rows * (4096 / (64 * plan.wide));
        EXPECT_LE(tiles, 16384);  // a counter each
        if (plan.splits > 1) {
          EXPECT_LE(tiles * plan.splits * 64 * plan.wide * plan.rows * 4, inputs.scratch_bytes);
        }
      }
}

// On an H200, 4 bits, microseconds with 1, 2, 3 and 4 CTAs for the columns:
//
//             16 rows                    64 rows
//   qkv       10.0, 12.5, 15.8, 16.2     19.7, 15.4, 24.8, 23.3
//   o         8.6, 8.0, 11.3, 11.6       19.7, 14.7, 13.4, 13.4
//   gate_up   24.1, 34.9, 48.5           39.3, 43.9, 61.1
//   down      20.7, 14.3, 19.3, 18.0     49.7, 30.0, 23.7, 21.3
TEST(IntPlan, ChoosesTheSplitsThatWereFastest) {
  const auto splits = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return plan_int_tiles({.m = m,
                           .n = n,
                           .k = k,
                           .unit_bytes = 1072,
                           .num_sms = 132,
                           .scratch_bytes = 32 << 20})
        .splits;
  };
  EXPECT_EQ(splits(16, 6144, 4096), 1);
  EXPECT_EQ(splits(16, 4096, 4096), 2);
  EXPECT_EQ(splits(16, 24576, 4096), 1);
  EXPECT_EQ(splits(16, 4096, 12288), 2);
  EXPECT_EQ(splits(64, 6144, 4096), 2);
  EXPECT_GE(splits(64, 4096, 4096), 3);
  EXPECT_EQ(splits(64, 24576, 4096), 1);
  EXPECT_EQ(splits(64, 4096, 12288), 4);
}

}  // namespace
}  // namespace sluice::cuda
