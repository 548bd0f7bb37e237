// A mixture whose experts have places by a map, on several ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/error.h"
#include "distributed/testing/in_process.h"
#include "layers/testing/small_moe.h"

namespace sluice {
namespace {

using testing::InProcessCommunicator;
using testing::InProcessGroup;

using Outcome = testing::MoeOutcome;

constexpr std::int64_t kTokens = 300, kHidden = testing::kMoeHidden, kWidth = testing::kMoeWidth;

ModelConfig config_with(const MoeConfig& moe) {
  return testing::small_moe(moe, 3);
}

// All ranks have the same result.
Outcome run_on_ranks(const ModelConfig& config, const MoeNames& names, DType compute, int ranks,
                     int groups, const ExpertMaps& maps, std::int64_t tokens = kTokens) {
  InProcessGroup group(ranks);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      InProcessCommunicator communicator(group, rank);
      outcomes[static_cast<std::size_t>(rank)] =
          testing::run_small_moe(config, names, compute, tokens, &communicator, groups, maps);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.out, outcomes[0].out);
    EXPECT_EQ(outcome.choices, outcomes[0].choices);
    EXPECT_EQ(outcome.group_choices, outcomes[0].group_choices);
  }
  return outcomes[0];
}

struct Family {
  const char* what;
  MoeNames names;
  MoeConfig moe;
};
const Family kFamilies[] = {
    {"one by one", kQwenMoeNames, {.norm_topk_prob = true}},
    {"beside shared experts",
     kDeepseekMoeNames,
     {.shared_expert_intermediate_size = kWidth, .norm_topk_prob = true}},
    {"alternating with biases", kGptOssMoeNames, {.norm_topk_prob = true, .swiglu_limit = 1.5}},
    {"transposed", kLlama4MoeNames, {.weigh_input = true, .scoring = RouterScoring::kSigmoid}},
};

const ExpertMap kMaps[] = {
    {0, 1, 2, 3, 4, 5, 0, 1},
    {5, 4, 0, 2, 1, 3, 0, 5},  // in no order
    {0, 0, 1, 2, 3, 4, 5, 0},  // three places of one expert, two in one group
    {3, 5, 1, 2, 4, 0, 3, 2},
};

// Where places may change, pairs are summed one by one, so a map leaves no trace in the bits. They
// depend on the ranks of a group alone, which share columns.
TEST(ExpertPlaces, ResultsHaveTheSameBitsWithEveryMap) {
  for (const Family& family : kFamilies) {
    SCOPED_TRACE(family.what);
    const ModelConfig config = config_with(family.moe);
    for (const DType compute : {DType::kF32, DType::kBF16})
      for (const int group_ranks : {1, 2}) {
        const Outcome first = run_on_ranks(config, family.names, compute, 2 * group_ranks, 2,
                                           {.layers = {kMaps[0]}, .moves = true});
        for (const ExpertMap& map : kMaps) {
          const Outcome other = run_on_ranks(config, family.names, compute, 2 * group_ranks, 2,
                                             {.layers = {map}, .moves = true});
          EXPECT_EQ(other.out, first.out);
          EXPECT_EQ(other.choices, first.choices);
        }
        // A token's bits depend on no other token.
        const Outcome some = run_on_ranks(config, family.names, compute, 2 * group_ranks, 2,
                                          {.layers = {kMaps[1]}, .moves = true}, 7);
        EXPECT_TRUE(std::equal(some.out.begin(), some.out.end(), first.out.begin()));
      }
  }
}

TEST(ExpertPlaces, ResultsAreThoseOfOneRank) {
  for (const Family& family : kFamilies) {
    SCOPED_TRACE(family.what);
    const ModelConfig config = config_with(family.moe);
    const std::vector<float> whole =
        testing::run_small_moe(config, family.names, DType::kF32, kTokens).out;
    float largest = 0;
    for (const float value : whole) largest = std::max(largest, std::abs(value));
    for (const bool moves : {false, true})
      for (const int ranks : {2, 4})
        for (const ExpertMap& map : kMaps) {
          const std::vector<float> out = run_on_ranks(config, family.names, DType::kF32, ranks, 2,
                                                      {.layers = {map}, .moves = moves})
                                             .out;
          // As in Moe.TheRanksResultsAddUp: the order of summation differs alone.
          for (std::size_t i = 0; i < out.size(); ++i)
            ASSERT_NEAR(out[i], whole[i], 4 * kWidth * std::ldexp(1.0, -24) * (1 + largest)) << i;
        }
  }
}

// Routing does not know of places: experts are chosen equally often with every map.
TEST(ExpertPlaces, EveryChoiceIsCountedOnceAndReplicasShareTheLoad) {
  const ModelConfig config = config_with({.norm_topk_prob = true});
  for (const ExpertMap& map : kMaps) {
    const Outcome outcome =
        run_on_ranks(config, kQwenMoeNames, DType::kF32, 2, 2, {.layers = {map}, .moves = true});
    std::int64_t all = 0;
    for (const std::int64_t count : outcome.choices) all += count;
    EXPECT_EQ(all, kTokens * 3);
    EXPECT_EQ(outcome.group_choices[0] + outcome.group_choices[1], kTokens * 3);
    // A hash deals the tokens of an expert over its places: five standard deviations.
    const std::vector<double> counts(outcome.choices.begin(), outcome.choices.end());
    EXPECT_NEAR(static_cast<double>(outcome.group_choices[0]), group_loads(map, counts, 2)[0],
                5 * std::sqrt(0.25 * 3 * kTokens));
  }
}

TEST(ExpertPlaces, AGroupHasTheExpertsOfItsPlaces) {
  const ExpertShare share = placed_share({5, 4, 0, 2, 1, 3, 0, 5}, false, kWidth, 3, 4, 2);
  EXPECT_EQ(share.experts, (std::vector<std::int64_t>{0, 1, 3, 5}));  // in ascending order
  EXPECT_EQ(share.columns.begin, kWidth / 2);
  EXPECT_TRUE(share.lacks_some(6));
  const ExpertShare moving = placed_share({5, 4, 0, 2, 1, 3, 0, 5}, true, kWidth, 0, 4, 2);
  EXPECT_EQ(moving.experts, (std::vector<std::int64_t>{5, 4, 0, 2}));
  EXPECT_FALSE(placed_share({0, 1, 1, 0}, false, kWidth, 0, 2, 2).lacks_some(2));
}

TEST(ExpertPlaces, AMapThatLeavesOutAnExpertIsNoMap) {
  ExpertLayer layer;
  std::vector<std::int32_t> table(3 * 3);
  layer.replicas = Tensor::dense(table.data(), DType::kI32, {3, 3});
  layer.set_map({0, 1, 2, 2});
  EXPECT_EQ(table, (std::vector<std::int32_t>{1, 0, 0, 1, 1, 0, 2, 2, 3}));
  EXPECT_THROW(layer.set_map({0, 1, 1, kNoExpert}), Error);
  EXPECT_THROW(layer.set_map({0, 1, 2, 3}), Error);
}

}  // namespace
}  // namespace sluice
