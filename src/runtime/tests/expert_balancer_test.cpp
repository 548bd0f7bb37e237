// When experts are rebalanced, and how their moves are dealt over steps.
#include "runtime/expert_balancer.h"

#include <gtest/gtest.h>

#include "tensor/buffer.h"

namespace sluice {
namespace {

constexpr int kExperts = 8, kPlaces = 10, kGroups = 2, kHottest = 4;

// Layers without weights, whose experts are counted by hand.
class Layers {
 public:
  Layers(int count, std::int64_t expert_bytes) {
    for (int i = 0; i < count; ++i) {
      ExpertLayer layer;
      layer.number = i;
      layer.groups = kGroups;
      layer.moves = true;
      layer.first_rank_bytes = layer.other_rank_bytes = expert_bytes;
      layer.replicas = take(DType::kI32, {kExperts, 4});
      layer.choices = take(DType::kI64, {kExperts});
      layer.group_choices = take(DType::kI64, {kGroups});
      layer.set_map(trivial_map(kExperts, kPlaces));
      layers.push_back(std::move(layer));
    }
  }

  // A step in which expert 4, of group 0 alone, gets most tokens.
  void count_step() {
    for (ExpertLayer& layer : layers) {
      for (int e = 0; e < kExperts; ++e)
        layer.choices.ptr<std::int64_t>()[e] += e == kHottest ? 90 : 10;
      layer.group_choices.ptr<std::int64_t>()[0] += 120;
      layer.group_choices.ptr<std::int64_t>()[1] += 40;
    }
  }
  // What the ranks do with the moves of a step.
  void run(const Step& step) {
    for (const ExpertMove& move : step.expert_moves) {
      ExpertLayer& layer = layers[static_cast<std::size_t>(move.layer)];
      ExpertMap map = layer.map;
      map[static_cast<std::size_t>(move.to)] =
          move.end == layer.first_rank_bytes ? move.expert : kNoExpert;
      layer.set_map(std::move(map));
    }
  }

  std::vector<ExpertLayer> layers;

 private:
  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape) {
    memory_.push_back(std::make_unique<Buffer>(Tensor::dense(nullptr, dtype, shape).bytes()));
    const Tensor tensor = memory_.back()->tensor(dtype, shape);
    std::fill_n(static_cast<std::byte*>(tensor.data), tensor.bytes(), std::byte{});
    return tensor;
  }
  std::vector<std::unique_ptr<Buffer>> memory_;
};

TEST(ExpertBalancer, WaitsForItsStepsAndThenSplitsTheHottestExpert) {
  Layers world(3, 1000);
  ExpertBalancer balancer({.num_iterations = 5, .layers_per_chunk = 1}, world.layers);
  int moving_steps = 0;
  Step step;  // one for all, as a loop uses its steps again
  for (int i = 0; i < 40; ++i) {
    step.id = static_cast<std::uint64_t>(i);
    step.hash = hash_step(step);
    balancer.plan(step);
    EXPECT_EQ(step.hash, hash_step(step));
    EXPECT_TRUE(i >= 5 || step.expert_moves.empty());
    moving_steps += step.expert_moves.empty() ? 0 : 1;
    world.run(step);
    for (std::size_t l = 0; l < world.layers.size(); ++l)
      EXPECT_TRUE(balancer.is_rebalancing() || balancer.maps()[l] == world.layers[l].map);
    world.count_step();
    balancer.step_done(0.01, step.expert_moves.empty() ? 0 : 1e-4);
  }
  EXPECT_EQ(moving_steps, 3);  // a layer at a time
  EXPECT_GE(balancer.report().rebalances, 1u);
  for (const ExpertLayer& layer : world.layers) {
    // Both groups have the hottest expert, and nearly equal loads.
    const std::vector<double> counts{10, 10, 10, 10, 90, 10, 10, 10};
    EXPECT_EQ(replica_counts(layer.map, kExperts)[kHottest], 2);
    EXPECT_GT(balancedness(group_loads(layer.map, counts, kGroups)), 0.9);
  }
  EXPECT_NEAR(balancer.report().balancedness, 80.0 / 120, 1e-9);
}

TEST(ExpertBalancer, SlicesFitIntoAPartOfAStep) {
  constexpr std::int64_t kBytes = 40 << 20;
  constexpr double kBytesPerSecond = 2e9, kStep = 0.02;
  Layers world(2, kBytes);
  ExpertBalancer balancer({.num_iterations = 70, .layers_per_chunk = 1}, world.layers);
  double longest = 0;
  std::int64_t moved = 0, num_slices = 0;
  for (int i = 0; i < 2000; ++i) {
    Step step;
    balancer.plan(step);
    std::int64_t bytes = 0;
    for (const ExpertMove& move : step.expert_moves) bytes += move.end - move.begin;
    world.run(step);
    const double move_s = static_cast<double>(bytes) / kBytesPerSecond;
    longest = std::max(longest, move_s);
    moved += bytes;
    num_slices += bytes > 0 ? 1 : 0;
    world.count_step();
    balancer.step_done(kStep + move_s, move_s);
  }
  // 4 % of 20 ms is 0.8 ms, and 1.6 MB at this rate.
  EXPECT_LE(longest, ExpertBalancer::kMaxSliceShare * kStep * 1.01);
  EXPECT_GT(moved, 0);
  EXPECT_EQ(moved % kBytes, 0);
  EXPECT_LT(num_slices, moved / 1'000'000);
}

TEST(ExpertBalancer, NothingMovesWhereLoadIsBalanced) {
  Layers world(1, 1000);
  ExpertBalancer balancer({.num_iterations = 2, .min_utilization = 0.6}, world.layers);
  for (int i = 0; i < 20; ++i) {
    Step step;
    balancer.plan(step);
    EXPECT_TRUE(step.expert_moves.empty());
    world.count_step();  // balanced to 0.67 with the trivial map
    balancer.step_done(0.01, 0);
  }
  EXPECT_EQ(balancer.report().rebalances, 0u);
}

TEST(ExpertBalancer, WithoutIterationsItOnlyMeasures) {
  Layers world(1, 1000);
  ExpertBalancer balancer({}, world.layers);
  for (int i = 0; i < 64; ++i) {
    Step step;
    balancer.plan(step);
    EXPECT_TRUE(step.expert_moves.empty());
    world.count_step();
    balancer.step_done(0.01, 0);
  }
  EXPECT_NEAR(balancer.report().balancedness, 80.0 / 120, 1e-9);
  EXPECT_FALSE(ExpertBalancer({}, {}).is_on());
}

}  // namespace
}  // namespace sluice
