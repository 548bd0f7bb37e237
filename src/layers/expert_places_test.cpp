// A mixture whose experts have places by a map, on several ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/error.h"
#include "distributed/testing/in_process.h"
#include "layers/moe.h"

namespace sluice {
namespace {

using testing::InProcessCommunicator;
using testing::InProcessGroup;

constexpr std::int64_t kTokens = 300, kHidden = 48, kWidth = 32;

ModelConfig config_with(MoeConfig moe) {
  ModelConfig config;
  config.hidden_size = kHidden;
  moe.num_experts = 6;
  moe.top_k = 3;
  moe.moe_intermediate_size = kWidth;
  config.moe = moe;
  return config;
}

struct Outcome {
  std::vector<float> out;
  std::vector<std::int64_t> choices, group_choices;
};

// What a rank gives for the same tokens, and what it has counted.
Outcome run(const ModelConfig& config, const MoeNames& names, DType compute,
            Communicator* communicator, int groups, const ExpertMaps& maps,
            std::int64_t tokens = kTokens) {
  const WeightSource source = WeightSource::dummy(5, 0.4);
  Context ctx;
  ctx.cpu_isa = detect_cpu_isa();
  ctx.communicator = communicator;
  Arena arena(16 << 20);
  ctx.arena = &arena;
  WeightLoader loader(source, {.compute = compute}, DType::kF32, ctx);
  loader.share_experts(groups, maps);
  const Moe moe = Moe::load(loader.root().sub("layer"), config, names);
  loader.finish([](std::string_view) { return true; });
  const WeightStore store = loader.take_store();
  const std::vector<ExpertLayer> layers = loader.take_expert_layers();
  std::vector<float> x(static_cast<std::size_t>(tokens * kHidden)), out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i * i % 1009));
  ops::Residual branch{.hidden = {},
                       .branch = Tensor::dense(out.data(), DType::kF32, {tokens, kHidden}),
                       .keeps_branch = true};
  moe.forward(ctx, Tensor::dense(x.data(), DType::kF32, {tokens, kHidden}), branch);
  Outcome outcome{.out = std::move(out), .choices = {}, .group_choices = {}};
  if (layers.empty()) return outcome;
  const auto numbers = [](const Tensor& tensor) {
    const auto* first = tensor.ptr<std::int64_t>();
    return std::vector<std::int64_t>(first, first + tensor.numel());
  };
  outcome.choices = numbers(layers[0].choices);
  outcome.group_choices = numbers(layers[0].group_choices);
  return outcome;
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
          run(config, names, compute, &communicator, groups, maps, tokens);
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
    const std::vector<float> whole = run(config, family.names, DType::kF32, nullptr, 1, {}).out;
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
