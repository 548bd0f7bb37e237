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

}  // namespace
}  // namespace sluice::cuda
