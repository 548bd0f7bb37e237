#include "kernels/cuda/attention/index_plan.h"

#include <gtest/gtest.h>

namespace sluice::cuda {
namespace {

TEST(IndexPlan, TheFastKernelTakesHeadsOf128OnHopper) {
  const IndexInputs good{.heads = 64, .dim = 128, .plane = DType::kBF16, .sm = 90};
  EXPECT_TRUE(index_is_fast(good));
  for (const auto change :
       {+[](IndexInputs& f) { f.heads = 32; }, +[](IndexInputs& f) { f.plane = DType::kU8; }}) {
    IndexInputs inputs = good;
    change(inputs);
    EXPECT_TRUE(index_is_fast(inputs));
  }
  for (const auto change :
       {+[](IndexInputs& f) { f.heads = 63; }, +[](IndexInputs& f) { f.heads = 72; },
        +[](IndexInputs& f) { f.dim = 64; }, +[](IndexInputs& f) { f.plane = DType::kF32; },
        +[](IndexInputs& f) { f.aligned = false; }, +[](IndexInputs& f) { f.sm = 80; },
        +[](IndexInputs& f) { f.deterministic = true; }}) {
    IndexInputs inputs = good;
    change(inputs);
    EXPECT_FALSE(index_is_fast(inputs));
  }
}

TEST(IndexPlan, RowsOfOneSequenceShareItsKeys) {
  IndexScoresInputs inputs{.rows = 2048, .seqs = 1, .heads = 64, .max_keys = 32768, .num_sms = 132};
  IndexScoresPlan plan = plan_index_scores(inputs);
  EXPECT_TRUE(plan.many_rows);
  EXPECT_EQ(plan.rows_of_block, 4);
  EXPECT_EQ(plan.parts, 2);  // 512 groups of rows, not quite four waves of 264 blocks
  inputs.heads = 32;
  EXPECT_EQ(plan_index_scores(inputs).rows_of_block, 8);
  inputs.rows = 3;  // too few to be a run
  EXPECT_FALSE(plan_index_scores(inputs).many_rows);
}

TEST(IndexPlan, RowsThatDecodeAreSharedOutUntilTheGpuIsFull) {
  IndexScoresInputs inputs{.rows = 1, .seqs = 1, .heads = 64, .max_keys = 131072, .num_sms = 132};
  EXPECT_EQ(plan_index_scores(inputs).parts, 396);
  inputs.max_keys = 3000;
  EXPECT_EQ(plan_index_scores(inputs).parts, 47);  // a page each
  inputs = {.rows = 32, .seqs = 32, .heads = 64, .max_keys = 131072, .num_sms = 132};
  EXPECT_EQ(plan_index_scores(inputs).parts, 49);
  EXPECT_EQ(plan_index_scores(inputs).rows_of_block, 1);
  inputs.rows = inputs.seqs = 4096;
  EXPECT_EQ(plan_index_scores(inputs).parts, 1);
}

TEST(IndexPlan, FewRowsHaveBlocksForTheirScoresUntilTheGpuIsFull) {
  EXPECT_EQ(plan_select(1, 3000, 132).cluster, 1);
  EXPECT_EQ(plan_select(1, 16384, 132).cluster, 8);
  EXPECT_EQ(plan_select(32, 131072, 132).cluster, 8);
  EXPECT_EQ(plan_select(64, 131072, 132).cluster, 4);
  EXPECT_EQ(plan_select(4096, 131072, 132).cluster, 1);
}

TEST(IndexPlan, TheSampleAllowsForMoreThanIsWanted) {
  EXPECT_EQ(sample_of(kSelectCandidates, 2048).wanted, 0);  // all may be candidates
  for (const int length : {kSelectCandidates + 1, 32768, 131072, 1000000})
    for (const int topk : {1, 16, 256, 2048}) {
      const SelectSample sample = sample_of(length, topk);
      EXPECT_GE(sample.wanted * sample.share, topk + 4 * sample.share) << length << ' ' << topk;
      EXPECT_LE(sample.wanted * sample.share, 3 * kSelectCandidates / 4) << length << ' ' << topk;
      EXPECT_LE(sample.wanted, length / sample.share / 2)
          << length << ' ' << topk;  // the sample has so many
    }
}

}  // namespace
}  // namespace sluice::cuda
