#include "kernels/cuda/gemm/gemm_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/cuda/common/shared_memory.h"

namespace sluice::cuda {
namespace {

GemmInputs inputs(std::int64_t m, DType x, DType w, bool library = true) {
  return {.m = m, .n = 4096, .k = 4096, .x = x, .w = w, .library = library};
}

TEST(GemmPlan, GemmsOfEqualTypesWithManyRowsGoToTheLibrary) {
  EXPECT_EQ(choose_gemm(inputs(9, DType::kBF16, DType::kBF16)), GemmKernel::kLibrary);
  EXPECT_EQ(choose_gemm(inputs(64, DType::kF32, DType::kF32)), GemmKernel::kRows);
  EXPECT_EQ(choose_gemm(inputs(65, DType::kF32, DType::kF32)), GemmKernel::kLibrary);
}

TEST(GemmPlan, SmallBatchesInBfloat16StreamTheWeights) {
  EXPECT_EQ(choose_gemm(inputs(16, DType::kBF16, DType::kBF16, true)), GemmKernel::kLibrary);
  EXPECT_EQ(choose_gemm(inputs(16, DType::kBF16, DType::kBF16, false)), GemmKernel::kSkinny);
  for (const std::int64_t m : {1, 8})
    for (const bool library : {false, true}) {
      EXPECT_EQ(choose_gemm(inputs(m, DType::kBF16, DType::kBF16, library)), GemmKernel::kSkinny)
          << m;
      EXPECT_EQ(choose_gemm(inputs(m, DType::kF32, DType::kBF16, library)), GemmKernel::kRows) << m;
    }
  GemmInputs crooked = inputs(1, DType::kBF16, DType::kBF16);
  crooked.aligned = false;
  EXPECT_EQ(choose_gemm(crooked), GemmKernel::kRows);
  GemmInputs odd = inputs(1, DType::kBF16, DType::kBF16);
  odd.k = 4100;
  EXPECT_EQ(choose_gemm(odd), GemmKernel::kRows);
}

TEST(GemmPlan, FewColumnsOfMixedTypesShareK) {
  GemmInputs router = inputs(128, DType::kF32, DType::kBF16);
  router.n = 256, router.k = 7168, router.sm = 90;
  EXPECT_EQ(choose_gemm(router), GemmKernel::kSplit);
  for (const auto change :
       {+[](GemmInputs& i) { i.n = 4096; }, +[](GemmInputs& i) { i.k = 512; },
        +[](GemmInputs& i) { i.sm = 80; }, +[](GemmInputs& i) { i.aligned = false; }}) {
    GemmInputs other = router;
    change(other);
    EXPECT_EQ(choose_gemm(other), GemmKernel::kTiled);
  }
  router.m = 64;
  EXPECT_EQ(choose_gemm(router), GemmKernel::kRows);
  router.x = router.w, router.m = 128;
  EXPECT_EQ(choose_gemm(router), GemmKernel::kLibrary);
  router.deterministic = true, router.x = DType::kF32;
  EXPECT_EQ(choose_gemm(router), GemmKernel::kRows);
}

// GEMMs of one row on an H200.
SkinnyInputs of_row(std::int64_t n, std::int64_t k) {
  return {.m = 1, .n = n, .k = k, .num_sms = 132, .sm = 90};
}

TEST(GemmPlan, AGemmHasOneCtaAnSmUnlessItAddsToTheResidual) {
  EXPECT_EQ(2 * plan_skinny(of_row(4096, 4096)).shared_bytes, 227 << 10);
  SkinnyInputs sum = of_row(4096, 4096);
  sum.add = true;
  EXPECT_LT(plan_skinny(sum).shared_bytes, 100 << 10);
  EXPECT_EQ(plan_skinny(sum).stages, 5);
}

TEST(GemmPlan, SkinnyGemmsFitInSharedMemory) {
  for (const int sm : {75, 80, 86, 89, 90, 100, 120})
    for (const bool gated : {false, true})
      for (const bool norm : {false, true})
        for (const std::int64_t m : {1, 3, 8, 16})
          for (const std::int64_t k : {8, 2048, 4096, 14336, 53248}) {
            SkinnyInputs f{
                .m = m, .n = 4096, .k = k, .gated = gated, .norm = norm, .num_sms = 108, .sm = sm};
            const SkinnyPlan plan = plan_skinny(f);
            EXPECT_TRUE(plan.stages == 0 || plan.shared_bytes + 1024 <= max_shared_bytes(sm))
                << sm << ' ' << m << ' ' << k;
            // A GEMM without SwiGLU and norm runs wherever kSkinny does.
            EXPECT_TRUE(plan.stages > 0 || gated || norm || sm < 80) << sm << ' ' << m << ' ' << k;
          }
  SkinnyInputs gates{
      .m = 1, .n = 8192, .k = 2048, .gated = true, .norm = true, .num_sms = 128, .sm = 89};
  EXPECT_EQ(plan_skinny(gates).stages, 2);
  gates.sm = 80;
  EXPECT_EQ(plan_skinny(gates).stages, 3);
  gates = {.m = 8, .n = 8192, .k = 2048, .gated = true, .norm = true, .num_sms = 128, .sm = 89};
  EXPECT_EQ(plan_skinny(gates).stages,
            0);  // x does not fit: the operations run one after the other
}

TEST(GemmPlan, ManyRowsAreNotNormalisedByEveryBlock) {
  SkinnyInputs f = of_row(4096, 4096);
  f.norm = true;
  f.m = 4;
  EXPECT_GT(plan_skinny(f).stages, 0);
  f.m = 5;
  EXPECT_EQ(plan_skinny(f).stages, 0);
}

TEST(GemmPlan, WhatTheLibraryDoesNotServeStaysHere) {
  EXPECT_EQ(choose_gemm(inputs(512, DType::kF32, DType::kBF16)), GemmKernel::kTiled);
  EXPECT_EQ(choose_gemm(inputs(512, DType::kBF16, DType::kBF16, false)), GemmKernel::kTiled);
  EXPECT_EQ(choose_gemm(inputs(32, DType::kBF16, DType::kBF16, false)), GemmKernel::kRows);
  GemmInputs crooked = inputs(512, DType::kBF16, DType::kBF16);
  crooked.aligned = false;
  EXPECT_EQ(choose_gemm(crooked), GemmKernel::kTiled);
  GemmInputs narrow = inputs(512, DType::kF32, DType::kF32);
  narrow.n = 1;
  EXPECT_EQ(choose_gemm(narrow), GemmKernel::kTiled);
}

TEST(GemmPlan, OneKernelForEveryBatchWhereItMustBeDeterministic) {
  for (const std::int64_t m : {1, 8, 9, 64, 65, 8192})
    for (const DType x : {DType::kF32, DType::kBF16}) {
      GemmInputs f = inputs(m, x, DType::kBF16);
      f.deterministic = true;
      EXPECT_EQ(choose_gemm(f), GemmKernel::kRows) << m;
    }
}

TEST(GemmPlan, OnHopperThatIsAKernelOfTensorCores) {
  for (const std::int64_t m : {1, 8, 9, 64, 65, 8192}) {
    GemmInputs f = inputs(m, DType::kBF16, DType::kBF16);
    f.deterministic = true;
    f.sm = 90;
    EXPECT_EQ(choose_gemm(f), GemmKernel::kBatchInvariant) << m;
    f.sm = 80;
    EXPECT_EQ(choose_gemm(f), GemmKernel::kRows) << m;
    f.sm = 90;
    f.batch = 16;
    EXPECT_EQ(choose_gemm(f), GemmKernel::kRows) << m;
    f.batch = 1;
    f.aligned = false;
    EXPECT_EQ(choose_gemm(f), GemmKernel::kRows) << m;
    f.aligned = true;
    f.x = DType::kF32;
    EXPECT_EQ(choose_gemm(f), GemmKernel::kRows) << m;
  }
}

TEST(GemmPlan, RowsAtOnceCoverSmallBatches) {
  EXPECT_EQ(gemm_rows_at_once(1), 1);
  EXPECT_EQ(gemm_rows_at_once(2), 2);
  EXPECT_EQ(gemm_rows_at_once(3), 4);
  EXPECT_EQ(gemm_rows_at_once(5), 8);
  EXPECT_EQ(gemm_rows_at_once(1000), 8);
}

}  // namespace
}  // namespace sluice::cuda
