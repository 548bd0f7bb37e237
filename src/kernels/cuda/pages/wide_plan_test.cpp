#include "kernels/cuda/pages/wide_plan.h"

#include <gtest/gtest.h>

namespace sluice::cuda {
namespace {

// 32,768 tokens of one sequence: 8 heads of 128 are 128 MiB of keys and values.
constexpr WideInputs kLong{.tokens = 8192,
                           .seqs = 1,
                           .max_pages = 641,
                           .run_seqs = 1,
                           .run_pages = 512,
                           .group = 4,
                           .kv_heads = 8,
                           .dim = 128,
                           .memory_bytes = kMaxWideBytes};

TEST(WidePages, AllHeadsAreWidenedAtOnceWhereTheyFit) {
  const WidePlan plan = plan_wide_pages(kLong);
  EXPECT_EQ(plan.heads, 8);
  EXPECT_EQ(plan.k_at % 1024, 0);
  EXPECT_GE(plan.k_at, 4 * wide_index_numbers(kLong));
  EXPECT_EQ(plan.v_at - plan.k_at, 64 << 20);
  EXPECT_EQ(plan.bytes - plan.v_at, 64 << 20);
}

TEST(WidePages, HeadsTakeTurnsOfEqualSizeWhereMemoryIsShort) {
  WideInputs inputs = kLong;
  inputs.memory_bytes = 100 << 20;  // six heads fit, so two turns of four
  EXPECT_EQ(plan_wide_pages(inputs).heads, 4);
  inputs.memory_bytes = 64 << 20;  // three fit beside the index: three turns
  EXPECT_EQ(plan_wide_pages(inputs).heads, 3);
  inputs.memory_bytes = 17 << 20;
  EXPECT_EQ(plan_wide_pages(inputs).heads, 1);
  inputs.memory_bytes = 16 << 20;  // the index takes what the head lacks
  EXPECT_EQ(plan_wide_pages(inputs).heads, 0);
  inputs.memory_bytes = 0;
  EXPECT_EQ(plan_wide_pages(inputs).heads, 0);
  for (const std::int64_t mib : {17, 40, 64, 100, 256}) {
    inputs.memory_bytes = mib << 20;
    EXPECT_LE(plan_wide_pages(inputs).bytes, inputs.memory_bytes) << mib;
  }
}

TEST(WidePages, FewRowsOfASequenceDoNotPay) {
  WideInputs inputs = kLong;
  inputs.tokens = 32;
  EXPECT_EQ(plan_wide_pages(inputs).heads, 8);
  inputs.tokens = 31;
  EXPECT_EQ(plan_wide_pages(inputs).heads, 0);
  // Decode rows beside the run do not count.
  inputs.tokens = 231, inputs.seqs = 201;
  EXPECT_EQ(plan_wide_pages(inputs).heads, 0);
  inputs.tokens = 232;
  EXPECT_GT(plan_wide_pages(inputs).heads, 0);
  inputs.run_seqs = 2;  // two runs of 16 rows
  EXPECT_EQ(plan_wide_pages(inputs).heads, 0);
}

TEST(WidePages, NothingIsWidenedWithoutKnownRuns) {
  WideInputs inputs = kLong;
  inputs.run_seqs = inputs.run_pages = 0;
  EXPECT_EQ(plan_wide_pages(inputs).heads, 0);
}

TEST(WidePages, NoStepTakesMoreThanWhatIsMeasured) {
  for (const std::int64_t seqs : {1, 3, 32})
    for (const std::int64_t max_pages : {1, 33, 641, 16385})
      for (std::int64_t pages = 1; pages <= seqs * max_pages; pages = pages * 3 / 2 + 1) {
        WideInputs inputs = kLong;
        inputs.seqs = seqs, inputs.max_pages = max_pages;
        inputs.run_pages = pages;
        EXPECT_LE(plan_wide_pages(inputs).bytes, max_wide_bytes(inputs));
      }
}

}  // namespace
}  // namespace sluice::cuda
