#include "kernels/cuda/attention/mla_plan.h"

#include <gtest/gtest.h>

namespace sluice::cuda {
namespace {

TEST(MlaPlan, OnlyPublishedSizesOnHopperAreFast) {
  const MlaInputs good{.latent = 512, .rope = 64, .plane = DType::kBF16, .sm = 90};
  EXPECT_TRUE(mla_is_fast(good));
  for (const auto change :
       {+[](MlaInputs& f) { f.latent = 256; }, +[](MlaInputs& f) { f.rope = 32; },
        +[](MlaInputs& f) { f.plane = DType::kF32; }, +[](MlaInputs& f) { f.plane = DType::kI8; },
        +[](MlaInputs& f) { f.aligned = false; }, +[](MlaInputs& f) { f.deterministic = true; },
        +[](MlaInputs& f) { f.sm = 80; }, +[](MlaInputs& f) { f.sm = 100; }}) {
    MlaInputs inputs = good;
    change(inputs);
    EXPECT_FALSE(mla_is_fast(inputs));
    // The form of the plane changes nothing else.
    if (inputs.plane != good.plane) continue;
    inputs.plane = DType::kF8E4M3;
    EXPECT_FALSE(mla_is_fast(inputs));
  }
  MlaInputs codes = good;
  codes.plane = DType::kF8E4M3;
  EXPECT_TRUE(mla_is_fast(codes));
}

TEST(MlaPlan, FewRowsAreSplitUntilTheGpuIsFull) {
  MlaSplitInputs inputs{
      .rows = 1, .heads = 128, .max_keys = 32768, .scratch_bytes = 64 << 20, .num_sms = 132};
  EXPECT_EQ(mla_splits(inputs), 64);
  inputs.rows = 8;
  EXPECT_EQ(mla_splits(inputs), 8);
  inputs.rows = 66;
  EXPECT_EQ(mla_splits(inputs), 1);
  inputs.rows = 1;
  inputs.max_keys = 2048;
  EXPECT_EQ(mla_splits(inputs), 16);
  inputs.max_keys = 1;
  EXPECT_EQ(mla_splits(inputs), 1);
  inputs.max_keys = 32768;
  inputs.scratch_bytes = mla_partial_bytes(128, 3) + 1;  // room for three
  EXPECT_EQ(mla_splits(inputs), 3);
  inputs.rows = 0;
  EXPECT_EQ(mla_splits(inputs), 64);  // no row, no partial result
}

}  // namespace
}  // namespace sluice::cuda
