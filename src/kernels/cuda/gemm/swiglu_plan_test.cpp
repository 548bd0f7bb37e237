#include "kernels/cuda/gemm/swiglu_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::cuda {
namespace {

SwigluInputs inputs(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.m = m,
          .n = n,
          .k = k,
          .x = DType::kBF16,
          .w = DType::kBF16,
          .out = DType::kBF16,
          .sm = 90,
          .num_sms = 132};
}

TEST(SwigluPlan, OnlyBfloat16OnHopper) {
  EXPECT_TRUE(fuses_swiglu(inputs(8192, 12288, 4096)));
  for (const auto change :
       {+[](SwigluInputs& f) { f.x = DType::kF32; }, +[](SwigluInputs& f) { f.w = DType::kF16; },
        +[](SwigluInputs& f) { f.out = DType::kF32; }, +[](SwigluInputs& f) { f.aligned = false; },
        +[](SwigluInputs& f) { f.biased = true; }, +[](SwigluInputs& f) { f.known = false; },
        +[](SwigluInputs& f) { f.deterministic = true; }, +[](SwigluInputs& f) { f.sm = 89; },
        +[](SwigluInputs& f) { f.sm = 100; }, +[](SwigluInputs& f) { f.k = 192; },
        +[](SwigluInputs& f) { f.num_sms = 1; }}) {
    SwigluInputs other = inputs(8192, 12288, 4096);
    change(other);
    EXPECT_FALSE(fuses_swiglu(other));
  }
}

TEST(SwigluPlan, OnlyWhereTilesFillTheGpu) {
  // As measured on an H200: the MLPs of Qwen3-8B, Llama-3.2-1B and DeepSeek-V3.2.
  for (const std::int64_t m : {768, 1536, 3072, 4096, 8192})
    EXPECT_TRUE(fuses_swiglu(inputs(m, 12288, 4096))) << m;
  for (const std::int64_t m : {0, 1, 64, 256, 384, 512, 1024, 2048})
    EXPECT_FALSE(fuses_swiglu(inputs(m, 12288, 4096))) << m;
  for (const std::int64_t m : {384, 768, 1536, 3072, 4096, 8192})
    EXPECT_TRUE(fuses_swiglu(inputs(m, 8192, 2048))) << m;
  for (const std::int64_t m : {256, 512, 1024, 2048})
    EXPECT_FALSE(fuses_swiglu(inputs(m, 8192, 2048))) << m;
  for (const std::int64_t m : {1536, 3072, 4096, 8192})
    EXPECT_TRUE(fuses_swiglu(inputs(m, 18432, 7168))) << m;
  for (const std::int64_t m : {384, 512, 768, 1024, 2048})
    EXPECT_FALSE(fuses_swiglu(inputs(m, 18432, 7168))) << m;
}

TEST(SwigluPlan, EveryTileIsTakenOnce) {
  for (const int rows : {1, 5, 6, 7, 22, 33})
    for (const int columns : {1, 5, 96}) {
      std::vector<int> taken(static_cast<std::size_t>(rows * columns));
      for (int t = 0; t < rows * columns; ++t) {
        const SwigluPlace place = swiglu_place(t, rows, columns);
        ASSERT_TRUE(place.row >= 0 && place.row < rows && place.column >= 0 &&
                    place.column < columns)
            << rows << " x " << columns;
        ++taken[static_cast<std::size_t>(place.row * columns + place.column)];
      }
      for (const int times : taken) EXPECT_EQ(times, 1) << rows << " x " << columns;
    }
}

TEST(SwigluPlan, NeighboursShareRowsAndColumns) {
  // 66 clusters of a GPU at once: a band of rows, and as few columns as hold them.
  for (int t = 0; t < 66; ++t) {
    const SwigluPlace place = swiglu_place(t, 22, 96);
    EXPECT_LT(place.row, kSwigluBand);
    EXPECT_LT(place.column, 11);
  }
}

}  // namespace
}  // namespace sluice::cuda
