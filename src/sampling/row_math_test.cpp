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

TEST(RowMath, ExpIsAccurateAndExactAtZero) {
  EXPECT_EQ(exp_nonpositive(0.0f), 1.0f);
  EXPECT_EQ(exp_nonpositive(-88.0f), 0.0f);
  EXPECT_EQ(exp_nonpositive(-std::numeric_limits<float>::infinity()), 0.0f);
  double worst = 0;
  for (int i = 0; i <= 860000; ++i) {
    const float x = -static_cast<float>(i) * 1e-4f;
    const double truth = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(exp_nonpositive(x) - truth) / truth);
  }
  EXPECT_LT(worst, 2e-7);
}

TEST(RowMath, MaxSeesNanAndInfinityAnywhere) {
  for (std::size_t n : {1u, 5u, 16u, 33u, 1000u})
    for (std::size_t at = 0; at < n; at += std::max<std::size_t>(1, n / 7)) {
      std::vector<float> row = random_row(n, n, 3);
      EXPECT_TRUE(row_max(row).finite);
      EXPECT_EQ(row_max(row).value, *std::ranges::max_element(row));
      for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
        std::vector<float> broken = row;
        broken[at] = bad;
        EXPECT_FALSE(row_max(broken).finite) << n << " " << at << " " << bad;
      }
    }
  const std::vector<float> nothing(20, -std::numeric_limits<float>::infinity());
  EXPECT_FALSE(row_max(nothing).finite);
}

TEST(RowMath, LogSumExpAgreesWithDoubles) {
  for (std::size_t n : {1u, 17u, 320u, 4096u}) {
    const std::vector<float> row = random_row(n, n, 5);
    const float max = *std::ranges::max_element(row);
    double sum = 0;
    for (float x : row) sum += std::exp(static_cast<double>(x) - max);
    // Each term is within 2e-7 of itself and its argument within half an ulp of 2^5, so the log is within
    // 3e-6.
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

// The definitions of the filters, by a full sort in double.
std::vector<bool> kept_by_definition(const std::vector<float>& weights, const Filters& f) {
  std::vector<int> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) { return weights[a] > weights[b]; });
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t count = weights.size();
  if (f.top_k > 0) count = std::min<std::size_t>(count, f.top_k);
  double base = total;
  if (f.min_p > 0) {
    base = 0;
    for (std::size_t i = 0; i < count; ++i) base += weights[order[i]];
  }
  if (f.top_p < 1) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += weights[order[i]];
      if (sum >= f.top_p * base) count = i + 1;
    }
  }
  std::vector<bool> kept(weights.size(), false);
  for (std::size_t i = 0; i < count; ++i)
    kept[order[i]] = weights[order[i]] >= f.min_p && weights[order[i]] > 0;
  return kept;
}

TEST(RowMath, FiltersKeepWhatTheDefinitionsKeep) {
  const std::vector<Filters> table = {
      {1, 1, 0},       {5, 1, 0},      {40, 1, 0},     {-1, 0.3f, 0},        {-1, 0.95f, 0},
      {10, 0.5f, 0},   {3, 0.99f, 0},  {-1, 1, 0.1f},  {-1, 1, 1.0f},        {20, 0.8f, 0.05f},
      {2, 0.9f, 0.5f}, {-1, 1e-6f, 0}, {100000, 1, 0}, {300, 0.9999f, 1e-4f}};
  for (std::size_t n : {1u, 2u, 50u, 700u})
    for (float scale : {0.0f, 0.5f, 4.0f})
      for (const Filters& f : table) {
        std::vector<float> weights = random_row(n, n + 1, scale);  // scale 0: all are tied
        const double total = weights_in_place(weights, row_max(weights).value, 1.0f);
        const std::vector<bool> wanted = kept_by_definition(weights, f);
        std::vector<float> filtered = weights;
        const double sum = filter_in_place(filtered, f, total);
        double wanted_sum = 0;
        for (std::size_t i = 0; i < n; ++i) {
          EXPECT_EQ(filtered[i], wanted[i] ? weights[i] : 0.0f)
              << "n " << n << " scale " << scale << " k " << f.top_k << " p " << f.top_p << " min " << f.min_p
              << " at " << i;
          wanted_sum += filtered[i];
        }
        EXPECT_NEAR(sum, wanted_sum, 1e-9 * n);
      }
}

TEST(RowMath, JointAndSequentialTopPDiffer) {
  // p = .4 .3 .2 .1: of the whole vocabulary .6 needs two tokens; of the best three (sum .9) .6 needs .54:
  // two as well, but .45 of everything needs two and .45 of .4 + .3 needs one.
  const std::vector<float> weights = {1.0f, 0.75f, 0.5f, 0.25f};
  std::vector<float> joint = weights;
  filter_in_place(joint, {2, 0.45f, 0}, 2.5);
  EXPECT_GT(joint[1], 0);
  std::vector<float> sequential = weights;
  filter_in_place(sequential, {2, 0.45f, 1e-3f}, 2.5);
  EXPECT_EQ(sequential[1], 0);
}

TEST(RowMath, DrawFollowsTheCumulativeSum) {
  std::vector<float> weights(2000, 0.0f);
  weights[3] = 1;
  weights[900] = 2;
  weights[1999] = 1;
  EXPECT_EQ(draw(weights, 4, 0.0), 3);
  EXPECT_EQ(draw(weights, 4, 0.2499), 3);
  EXPECT_EQ(draw(weights, 4, 0.25), 900);
  EXPECT_EQ(draw(weights, 4, 0.7499), 900);
  EXPECT_EQ(draw(weights, 4, 0.75), 1999);
  // A total that is too large by rounding still gives a token that can be drawn.
  EXPECT_EQ(draw(weights, 4.0000001, 0.99999999999), 1999);
  weights[1999] = 0;
  EXPECT_EQ(draw(weights, 3.0000001, 0.99999999999), 900);
}

TEST(RowMath, UniformNumbersAreUniformOverSeedsAndPositions) {
  // 64 bins, 64,000 numbers: chi-square has 63 degrees of freedom; 118 is exceeded with probability 3e-5.
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
