#include "kernels/cuda/moe/experts_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

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

}  // namespace
}  // namespace sluice::cuda
