#include "kernels/cuda/mla_plan.h"

#include <gtest/gtest.h>

namespace sluice::cuda {
namespace {

TEST(MlaPlan, OnlyPublishedSizesOnHopperAreFast) {
  const MlaFacts good{.latent = 512, .rope = 64, .plane = DType::kBF16, .sm = 90};
  EXPECT_TRUE(mla_is_fast(good));
  for (const auto change : {+[](MlaFacts& f) { f.latent = 256; }, +[](MlaFacts& f) { f.rope = 32; },
                            +[](MlaFacts& f) { f.plane = DType::kF32; }, +[](MlaFacts& f) { f.aligned = false; },
                            +[](MlaFacts& f) { f.deterministic = true; }, +[](MlaFacts& f) { f.sm = 80; },
                            +[](MlaFacts& f) { f.sm = 100; }}) {
    MlaFacts facts = good;
    change(facts);
    EXPECT_FALSE(mla_is_fast(facts));
  }
}

TEST(MlaPlan, FewRowsAreSplitUntilTheGpuIsFull) {
  MlaSplitFacts facts{.rows = 1, .heads = 128, .max_keys = 32768, .scratch_bytes = 64 << 20, .multiprocessors = 132};
  EXPECT_EQ(mla_splits(facts), 64);
  facts.rows = 8;
  EXPECT_EQ(mla_splits(facts), 8);
  facts.rows = 66;
  EXPECT_EQ(mla_splits(facts), 1);
  facts.rows = 1;
  facts.max_keys = 2048;
  EXPECT_EQ(mla_splits(facts), 16);
  facts.max_keys = 1;
  EXPECT_EQ(mla_splits(facts), 1);
  facts.max_keys = 32768;
  facts.scratch_bytes = mla_partial_bytes(128, 3) + 1;   // room for three
  EXPECT_EQ(mla_splits(facts), 3);
  facts.rows = 0;
  EXPECT_EQ(mla_splits(facts), 64);   // no row, no partial result
}

}  // namespace
}  // namespace sluice::cuda
