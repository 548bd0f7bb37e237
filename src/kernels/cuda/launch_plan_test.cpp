#include "kernels/cuda/launch_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sluice::cuda {
namespace {

GemmFacts facts(std::int64_t m, DType x, DType w, bool library = true) {
  return {.m = m, .n = 4096, .k = 4096, .x = x, .w = w, .library = library};
}

TEST(LaunchPlan, ProductsOfEqualTypesWithManyRowsGoToTheLibrary) {
  EXPECT_EQ(choose_gemm(facts(1, DType::kBF16, DType::kBF16)), GemmKernel::kRows);
  EXPECT_EQ(choose_gemm(facts(8, DType::kBF16, DType::kBF16)), GemmKernel::kRows);
  EXPECT_EQ(choose_gemm(facts(9, DType::kBF16, DType::kBF16)), GemmKernel::kLibrary);
  EXPECT_EQ(choose_gemm(facts(64, DType::kF32, DType::kF32)), GemmKernel::kRows);
  EXPECT_EQ(choose_gemm(facts(65, DType::kF32, DType::kF32)), GemmKernel::kLibrary);
}

TEST(LaunchPlan, WhatTheLibraryDoesNotServeStaysHere) {
  EXPECT_EQ(choose_gemm(facts(512, DType::kF32, DType::kBF16)), GemmKernel::kTiled);
  EXPECT_EQ(choose_gemm(facts(512, DType::kBF16, DType::kBF16, false)), GemmKernel::kTiled);
  EXPECT_EQ(choose_gemm(facts(32, DType::kBF16, DType::kBF16, false)), GemmKernel::kRows);
  GemmFacts crooked = facts(512, DType::kBF16, DType::kBF16);
  crooked.aligned = false;
  EXPECT_EQ(choose_gemm(crooked), GemmKernel::kTiled);
  GemmFacts narrow = facts(512, DType::kF32, DType::kF32);
  narrow.n = 1;
  EXPECT_EQ(choose_gemm(narrow), GemmKernel::kTiled);
}

TEST(LaunchPlan, OneKernelForEveryBatchWhereItMustBeDeterministic) {
  for (const std::int64_t m : {1, 8, 9, 64, 65, 8192})
    for (const DType x : {DType::kF32, DType::kBF16}) {
      GemmFacts f = facts(m, x, DType::kBF16);
      f.deterministic = true;
      EXPECT_EQ(choose_gemm(f), GemmKernel::kRows) << m;
    }
}

TEST(LaunchPlan, RowsAtOnceCoverSmallBatches) {
  EXPECT_EQ(gemm_rows_at_once(1), 1);
  EXPECT_EQ(gemm_rows_at_once(2), 2);
  EXPECT_EQ(gemm_rows_at_once(3), 4);
  EXPECT_EQ(gemm_rows_at_once(5), 8);
  EXPECT_EQ(gemm_rows_at_once(1000), 8);
}

TEST(LaunchPlan, AttentionTilesHoldHeadsFirst) {
  EXPECT_EQ(choose_attention_tile(4096, 1, 4, false).tokens, 2);
  EXPECT_EQ(choose_attention_tile(64, 64, 4, false).tokens, 1);    // decode: a token a sequence
  EXPECT_EQ(choose_attention_tile(4096, 1, 1, false).tokens, 8);
  EXPECT_EQ(choose_attention_tile(4096, 1, 1, true).tokens, 1);
  for (const std::int64_t group : {1, 3, 7, 8, 16, 128})
    EXPECT_LE(choose_attention_tile(4096, 1, group, false).rows(), kMaxTileRows) << group;
}

TEST(LaunchPlan, AttentionFitsTheSharedMemoryOfEveryGpu) {
  for (const std::int64_t value_dim : {1, 64, 128, 192, 256, 512, 1024}) {
    const AttentionLaunch launch = plan_attention(kMaxTileRows, 1152, value_dim);
    EXPECT_GE(launch.columns * launch.threads, value_dim);
    EXPECT_LE(launch.shared_bytes, 99 << 10);   // compute capability 8.6 and 8.9
  }
  EXPECT_THROW(plan_attention(1, 64, 1025), Error);
}

}  // namespace
}  // namespace sluice::cuda
