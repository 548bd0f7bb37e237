#include "sampling/row_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace sluice {
namespace {

std::vector<float> random_row(std::size_t n, std::uint64_t seed, float scale) {
  std::mt19937_64 gen(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> row(n);
  for (float& x : row) x = normal(gen);
  return row;
}

TEST(RowMath, LogSumExpAgreesWithDoubles) {
  for (std::size_t n : {1u, 17u, 320u, 4096u}) {
    const std::vector<float> row = random_row(n, n, 5);
    const float max = *std::ranges::max_element(row);
    double sum = 0;
    for (float x : row) sum += std::exp(static_cast<double>(x) - max);
    // Each term is within 2e-7 of itself and its argument within half an ulp of 2^5, so the log is
    // within 3e-6.
    EXPECT_NEAR(log_sum_exp(row, max), std::log(sum) + max, 3e-6);
  }
}

TEST(RowMath, TopLogprobsBreaksTiesByLowerId) {
  std::vector<float> row(50, 1.0f);
  row[30] = 2.0f;
  row[7] = 2.0f;
  const auto top = top_logprobs(row, 4, 0.5);
  ASSERT_EQ(top.size(), 4u);
  EXPECT_EQ(top[0], (TokenLogprob{7, 1.5f}));
  EXPECT_EQ(top[1], (TokenLogprob{30, 1.5f}));
  EXPECT_EQ(top[2], (TokenLogprob{0, 0.5f}));
  EXPECT_EQ(top[3], (TokenLogprob{1, 0.5f}));
  EXPECT_TRUE(top_logprobs(row, 0, 0).empty());
  EXPECT_TRUE(top_logprobs(row, -1, 0).empty());
  EXPECT_EQ(top_logprobs(row, 99, 0).size(), 50u);
}

TEST(RowMath, UniformNumbersAreUniformOverSeedsAndPositions) {
  // 64 bins, 64,000 numbers: chi-square has 63 degrees of freedom; 118 is exceeded with probability
  // 3e-5.
  const auto chi_square = [](auto&& number) {
    std::vector<double> bins(64, 0);
    for (int i = 0; i < 64000; ++i) ++bins[static_cast<std::size_t>(number(i) * 64)];
    double sum = 0;
    for (double b : bins) sum += (b - 1000) * (b - 1000) / 1000;
    return sum;
  };
  EXPECT_LT(chi_square([](int i) { return uniform_at(7, i); }), 118);
  EXPECT_LT(chi_square([](int i) { return uniform_at(static_cast<std::uint64_t>(i), 5); }), 118);
  EXPECT_LT(chi_square([](int i) { return uniform_at(static_cast<std::uint64_t>(i), i); }), 118);
  EXPECT_NE(uniform_at(1, 2), uniform_at(2, 1));
}

}  // namespace
}  // namespace sluice
