#include "kernels/cuda/moe/experts_plan.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/error.h"
#include "kernels/cuda/common/shared_memory.h"

namespace sluice::cuda {
namespace {

TEST(ExpertsPlan, ExpertsOfSmallBatchesStream) {
  const ExpertsInputs few{.pairs = 256,
                          .experts = 128,
                          .hidden = 2048,
                          .width = 768,
                          .x = DType::kBF16,
                          .w = DType::kBF16,
                          .sm = 90};
  EXPECT_EQ(choose_experts(few), ExpertsKernel::kStream);
  ExpertsInputs other = few;
  other.pairs = 769;
  EXPECT_EQ(choose_experts(other), ExpertsKernel::kTiles);
  other.sm = 80;
  EXPECT_EQ(choose_experts(other), ExpertsKernel::kStream);
  other.sm = 86;  // too little shared memory
  EXPECT_EQ(choose_experts(other), ExpertsKernel::kRows);
  other.sm = 80;
  other.pairs = kMaxStreamedPairs + 1;
  EXPECT_EQ(choose_experts(other), ExpertsKernel::kRows);
  EXPECT_EQ(streamed_rows(512, 128), 8);
  EXPECT_EQ(streamed_rows(513, 128), 16);
  EXPECT_EQ(expert_row_groups(1024, 128), 1);
  EXPECT_EQ(expert_row_groups(32768, 128), 2);
  // A rank of four with 32 experts computes a quarter of the pairs.
  other = few;
  other.pairs = 512, other.experts = 32, other.groups = 4;
  EXPECT_EQ(choose_experts(other), ExpertsKernel::kStream);
  other.groups = 1;
  EXPECT_EQ(choose_experts(other), ExpertsKernel::kTiles);
  other.pairs = kMaxStreamedPairs + 1, other.groups = 64;
  EXPECT_EQ(choose_experts(other), ExpertsKernel::kTiles);
  other = few;
  other.deterministic = true;
  for (const std::int64_t pairs : {8, 769, 100000}) {
    other.pairs = pairs;
    other.sm = 90;
    EXPECT_EQ(choose_experts(other), ExpertsKernel::kTiles) << pairs;
    other.sm = 80;
    EXPECT_EQ(choose_experts(other), ExpertsKernel::kRows) << pairs;
  }
  other = few;
  other.x = DType::kF32;
  EXPECT_EQ(choose_experts(other), ExpertsKernel::kRows);
  other = few;
  other.width = 767;
  EXPECT_EQ(choose_experts(other), ExpertsKernel::kRows);
}

TEST(ExpertsPlan, TilesFillTheirWaves) {
  // Gate and up of Qwen3-30B-A3B on 132 SMs: 384 tiles of 128 are 1.45 waves of 264 CTAs, 768 of 64
  // are 1.94 waves of 396.
  EXPECT_EQ(expert_tile_columns(256, 32, 1536, 132), 64);
  EXPECT_EQ(expert_tile_columns(1024, 128, 1536, 132), 128);
  EXPECT_EQ(expert_tile_columns(256, 32, 2048, 132), 128);
  EXPECT_EQ(expert_tile_columns(8, 32, 1536, 132), 64);
}

// gpt-oss-20b, Qwen3-30B-A3B and wide ones, units of 4 and 8 bits: two CTAs fit on an SM of Hopper
// where the plan counts on it, and three do not.
TEST(FragmentExpertsPlan, TwoCtasOfAnSmFit) {
  struct Shape {
    std::int64_t hidden, width, top_k, experts;
  };
  bool two_downs = false, one_down = false;
  for (const Shape& shape : {Shape{2880, 2880, 4, 32}, Shape{2048, 768, 8, 128},
                             Shape{7168, 2048, 8, 256}, Shape{4096, 14336, 2, 8}})
    for (const int bits : {4, 8})
      for (const int sm : {86, 90})
        for (std::int64_t tokens = 1; tokens <= 8; ++tokens) {
          const FragmentExpertsPlan plan =
              plan_fragment_experts({.tokens = tokens,
                                     .top_k = shape.top_k,
                                     .experts = shape.experts,
                                     .hidden = shape.hidden,
                                     .width = shape.width,
                                     .up = {bits, bits == 4 ? 1088 : 2176},
                                     .down = {bits, bits == 4 ? 1088 : 2176},
                                     .num_sms = 50,
                                     .sm = sm});
          if (plan.gate_blocks == 0) continue;
          struct Launch {
            std::int64_t blocks, bytes, declared;
          };
          for (const auto& [blocks, bytes, declared] :
               {Launch{plan.gate_blocks, plan.gate_bytes, kGateDeclaredBytes},
                Launch{plan.down_blocks, plan.down_bytes, kSumDeclaredBytes}}) {
            EXPECT_LE(bytes, max_shared_bytes(sm));
            EXPECT_TRUE(blocks == 50 || (sm == 90 && blocks == 100)) << blocks;
            // Of an SM: 228 KiB, of which each CTA has 1 KiB for the system.
            if (blocks == 50) continue;
            EXPECT_LE(2 * (bytes + declared + 1024), 228 << 10);
            EXPECT_GT(3 * (bytes + 1024), 228 << 10);
          }
          if (plan.down_pairs > 0) {
            EXPECT_LE(2 * (plan.pair_bytes + kSumDeclaredBytes + 1024), 228 << 10);
            EXPECT_GT(3 * (plan.pair_bytes + 1024), 228 << 10);
          }
          if (sm == 90) (plan.down_blocks == 100 ? two_downs : one_down) = true;
        }
  EXPECT_TRUE(two_downs && one_down);
}

// As many tiles as a CTA has, as many as threads store at once, and no more than fit.
TEST(FragmentExpertsPlan, TilesBetweenBarriersFitTheirCta) {
  const auto plan_of = [](std::int64_t tokens, std::int64_t hidden, std::int64_t width, int bits) {
    return plan_fragment_experts({.tokens = tokens,
                                  .top_k = 4,
                                  .experts = 32,
                                  .hidden = hidden,
                                  .width = width,
                                  .up = {bits, bits == 4 ? 1088 : 2112},
                                  .down = {bits, bits == 4 ? 1088 : 2112},
                                  .num_sms = 132,
                                  .sm = 90});
  };
  EXPECT_EQ(plan_of(1, 2880, 2880, 4).gate_tiles, 6);  // 1440 tiles of 264 CTAs
  EXPECT_EQ(plan_of(1, 2880, 64, 4).gate_tiles, 1);
  EXPECT_EQ(plan_of(8, 2880, 768, 4).gate_tiles, 4);  // one CTA an SM, 32 rows
  EXPECT_EQ(plan_of(8, 2048, 768, 4).gate_tiles, 1);  // two CTAs leave no room
  EXPECT_EQ(plan_of(2, 2880, 8192, 4).gate_tiles, 8);
  const FragmentExpertsPlan narrow = plan_of(1, 2048, 4096, 8), wide = plan_of(8, 7168, 1024, 8);
  EXPECT_EQ(narrow.gate_blocks, 2 * 132);  // two CTAs leave room for fewer than eight
  EXPECT_GT(narrow.gate_tiles, 1);
  EXPECT_LT(narrow.gate_tiles, 8);
  EXPECT_GT(wide.gate_blocks, 0);
  EXPECT_EQ(wide.gate_tiles, 1);
  // Pairs of CTAs share tiles of `down` where both fit on an SM and tiles are few.
  EXPECT_EQ(plan_of(1, 2880, 2880, 4).down_pairs, 132);  // of 180 tiles
  EXPECT_EQ(plan_of(1, 2048, 768, 8).down_pairs, 128);
  EXPECT_EQ(plan_of(1, 4352, 768, 4).down_pairs, 0);  // 272 tiles
  EXPECT_EQ(wide.down_pairs, 0);
  EXPECT_EQ(plan_of(4, 2048, 768, 8).down_pairs, 128);
  const FragmentExpertsPlan deep = plan_of(4, 2048, 4096, 4);
  EXPECT_GT(deep.down_blocks, 0);
  EXPECT_EQ(deep.down_pairs, 0);  // no two of them fit
  EXPECT_LE(2 * (plan_of(4, 2048, 768, 8).pair_bytes + kSumDeclaredBytes + 1024), 228 << 10);
}

}  // namespace
}  // namespace sluice::cuda
