#include "kernels/cpu/sampling/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/error.h"
#include "kernels/types/sample_math.h"

namespace sluice::draw {
namespace {

constexpr std::uint64_t kOne = std::uint64_t{1} << 40;  // the weight 1

std::vector<float> random_row(std::size_t n, std::uint64_t seed, float scale) {
  std::mt19937_64 gen(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> row(n);
  for (float& x : row) x = normal(gen);
  return row;
}

TEST(Draw, ExpIsAccurateAndExactAtZero) {
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

TEST(Draw, MaxSeesNanAndInfinityAnywhere) {
  ThreadPool pool(3);
  for (std::size_t n : {1u, 5u, 16u, 33u, 1000u})
    for (std::size_t at = 0; at < n; at += std::max<std::size_t>(1, n / 7)) {
      std::vector<float> row = random_row(n, n, 3);
      EXPECT_TRUE(row_max(row).finite);
      EXPECT_EQ(row_max(row).value, *std::ranges::max_element(row));
      EXPECT_EQ(row_max(pool, row).first, first_equal(row, row_max(row).value));
      for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
        std::vector<float> broken = row;
        broken[at] = bad;
        EXPECT_FALSE(row_max(broken).finite) << n << " " << at << " " << bad;
        EXPECT_FALSE(row_max(pool, broken).finite) << n << " " << at << " " << bad;
      }
    }
  const std::vector<float> nothing(20, -std::numeric_limits<float>::infinity());
  EXPECT_FALSE(row_max(nothing).finite);
  EXPECT_FALSE(row_max(pool, nothing).finite);
  std::vector<float> banned(40, -std::numeric_limits<float>::infinity());
  banned[13] = banned[29] = -2;
  EXPECT_TRUE(row_max(pool, banned).finite);
  EXPECT_EQ(row_max(pool, banned).first, 13);
}

// The definitions of the filters, by a full sort in double precision.
std::vector<bool> kept_by_definition(const std::vector<float>& weights, const Filters& f) {
  std::vector<int> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) { return weights[a] > weights[b]; });
  std::uint64_t total = 0;
  for (const float w : weights) total += mass_of(w);
  std::size_t count = weights.size();
  if (f.top_k > 0) count = std::min<std::size_t>(count, f.top_k);
  std::uint64_t base = total;
  if (f.min_p > 0) {
    base = 0;
    for (std::size_t i = 0; i < count; ++i) base += mass_of(weights[order[i]]);
  }
  if (f.top_p < 1) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += mass_of(weights[order[i]]);
      if (sum >= mass_wanted(f.top_p, base)) count = i + 1;
    }
  }
  std::vector<bool> kept(weights.size(), false);
  for (std::size_t i = 0; i < count; ++i)
    kept[order[i]] = weights[order[i]] >= f.min_p && weights[order[i]] > 0;
  return kept;
}

TEST(Draw, FiltersKeepWhatTheDefinitionsKeep) {
  const std::vector<Filters> table = {
      {1, 1, 0},       {5, 1, 0},      {40, 1, 0},     {-1, 0.3f, 0},        {-1, 0.95f, 0},
      {10, 0.5f, 0},   {3, 0.99f, 0},  {-1, 1, 0.1f},  {-1, 1, 1.0f},        {20, 0.8f, 0.05f},
      {2, 0.9f, 0.5f}, {-1, 1e-6f, 0}, {100000, 1, 0}, {300, 0.9999f, 1e-4f}};
  for (std::size_t n : {1u, 2u, 50u, 700u})
    for (float scale : {0.0f, 0.5f, 4.0f})
      for (const Filters& f : table) {
        std::vector<float> weights = random_row(n, n + 1, scale);  // scale 0: all are tied
        const std::uint64_t total = weights_in_place(weights, row_max(weights).value, 1.0f);
        const std::vector<bool> wanted = kept_by_definition(weights, f);
        std::vector<float> filtered = weights;
        const std::uint64_t sum = filter_in_place(filtered, f, total);
        std::uint64_t wanted_sum = 0;
        for (std::size_t i = 0; i < n; ++i) {
          EXPECT_EQ(filtered[i], wanted[i] ? weights[i] : 0.0f)
              << "n " << n << " scale " << scale << " k " << f.top_k << " p " << f.top_p << " min "
              << f.min_p << " at " << i;
          wanted_sum += mass_of(filtered[i]);
        }
        EXPECT_EQ(sum, wanted_sum);
      }
}

TEST(Draw, JointAndSequentialTopPDiffer) {
  // p = .4 .3 .2 .1. top_p = .6 of the whole vocabulary needs two tokens. top_p = .6 of the best
  // three (sum .9) needs .54: two as well. But .45 of the total needs two tokens, and .45 of .4 +
  // .3 needs one.
  const std::vector<float> weights = {1.0f, 0.75f, 0.5f, 0.25f};
  std::vector<float> joint = weights;
  filter_in_place(joint, {2, 0.45f, 0}, kOne * 5 / 2);
  EXPECT_GT(joint[1], 0);
  std::vector<float> sequential = weights;
  filter_in_place(sequential, {2, 0.45f, 1e-3f}, kOne * 5 / 2);
  EXPECT_EQ(sequential[1], 0);
}

TEST(Draw, DrawFollowsTheCumulativeSum) {
  std::vector<float> weights(2000, 0.0f);
  weights[3] = 1;
  weights[900] = 2;
  weights[1999] = 1;
  EXPECT_EQ(draw(weights, 4 * kOne, 0.0), 3);
  EXPECT_EQ(draw(weights, 4 * kOne, 0.2499), 3);
  EXPECT_EQ(draw(weights, 4 * kOne, 0.25), 900);
  EXPECT_EQ(draw(weights, 4 * kOne, 0.7499), 900);
  EXPECT_EQ(draw(weights, 4 * kOne, 0.75), 1999);
  EXPECT_EQ(draw(weights, 4 * kOne, 1 - 0x1p-53),
            1999);  // multiplied with a large sum, u would round up to the sum
  EXPECT_THROW(draw(weights, 5 * kOne, 0.99), Error);
}

TEST(Draw, MassIsTheWeightInUnits) {
  EXPECT_EQ(mass_of(0.0f), 0u);
  EXPECT_EQ(mass_of(1.0f), kOne);
  EXPECT_EQ(mass_of(0x1p-40f), 1u);
  EXPECT_EQ(mass_of(0x1p-41f), 0u);  // halves go to the even neighbour
  EXPECT_EQ(mass_of(0x1.8p-40f), 2u);
  EXPECT_EQ(mass_of(0.1f),
            static_cast<std::uint64_t>(std::nearbyint(static_cast<double>(0.1f) * 0x1p40)));
}

}  // namespace
}  // namespace sluice::draw
