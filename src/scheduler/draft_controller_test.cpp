// How many drafts pay, by what they cost and how often they are right.
#include "scheduler/draft_controller.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace sluice {
namespace {

using Offers = std::vector<DraftController::Offer>;

// A GPU's: rows cost little, until they cost as much as they are.
DraftCosts cheap_rows() {
  return {.steps = {{1, 0.005}, {8, 0.0051}, {64, 0.006}, {256, 0.012}, {512, 0.024}}};
}

TEST(DraftController, TakesTheNumberThatBringsMostTokensASecond) {
  const DraftController controller(cheap_rows());
  const auto best = [&](double chance, int sequences, int other_rows = 0) {
    return controller.choose(Offers(static_cast<std::size_t>(sequences), {chance, 20}), other_rows,
                             20);
  };
  EXPECT_EQ(best(0, 1), 0);
  EXPECT_EQ(best(0.01, 1), 0) << "a gain of noise";
  EXPECT_EQ(best(1, 1), 20);
  EXPECT_GE(best(0.5, 1), 3);
  EXPECT_LT(best(0.5, 1), best(0.8, 1));
  EXPECT_LT(best(0.8, 64), best(0.8, 1)) << "rows of many sequences cost more";
  EXPECT_EQ(best(0.3, 256), 0);
  EXPECT_LE(best(0.5, 8, 512), best(0.5, 8)) << "beside a chunk of a prompt";
  // What is not offered cannot be taken.
  EXPECT_EQ(controller.choose(Offers{{0.9, 2}, {0.9, 0}}, 0, 20), 2);
  EXPECT_EQ(controller.choose(Offers{{0.9, 7}}, 0, 3), 3);
  EXPECT_EQ(controller.choose(Offers{}, 0, 3), 0);
}

TEST(DraftController, CountsWhatDraftsCost) {
  DraftCosts costs = cheap_rows();
  costs.first_pass_s = costs.next_pass_s = 0.001;
  const DraftController controller(costs);
  EXPECT_EQ(controller.choose(Offers{{0.15, 7}}, 0, 7), 0);
  EXPECT_EQ(controller.choose(Offers{{0.5, 7}}, 0, 7), 1);
  EXPECT_GE(controller.choose(Offers{{0.9, 7}}, 0, 7), 5);
}

TEST(DraftController, WithoutCostsAllDraftsAreTaken) {
  EXPECT_EQ(DraftController({}).choose(Offers{{0, 4}}, 0, 4), 4);
}

TEST(DraftController, LearnsFromASequenceAndFromAll) {
  DraftController controller(cheap_rows());
  DraftAcceptance good, bad, none;
  for (int i = 0; i < 50; ++i) {
    good.add(4, 4, DraftController::kMemoryOfOne);
    bad.add(4, 0, DraftController::kMemoryOfOne);
    controller.add(4, i % 2 == 0 ? 4 : 0);
  }
  EXPECT_GT(controller.chance(good), 0.9);
  EXPECT_LT(controller.chance(bad), 0.25);
  EXPECT_NEAR(controller.chance(none), 0.8, 0.05) << "four of five were right";
  // A text that turns is noticed within some steps.
  for (int i = 0; i < 12; ++i) good.add(4, 0, DraftController::kMemoryOfOne);
  EXPECT_LT(controller.chance(good), 0.5);
}

// The estimate is the chance by which drafts are made right.
TEST(DraftController, EstimatesTheChance) {
  std::mt19937 random(3);
  for (const double chance : {0.1, 0.5, 0.9}) {
    DraftAcceptance seen;
    double sum = 0;
    for (int i = 0; i < 4000; ++i) {
      int accepted = 0;
      while (accepted < 5 && std::uniform_real_distribution<>(0, 1)(random) < chance) ++accepted;
      seen.add(5, accepted, DraftController::kMemoryOfAll);
      if (i >= 1000) sum += seen.chance(0.7) / 3000;
    }
    EXPECT_NEAR(sum, chance, 0.03);
  }
}

TEST(DraftController, ProbesMoreSeldomWhileNothingIsRight) {
  DraftController controller(cheap_rows());
  const auto steps_to_probe = [&] {
    int steps = 1;
    while (!controller.probes()) ++steps;
    return steps;
  };
  EXPECT_EQ(steps_to_probe(), 32);
  EXPECT_EQ(steps_to_probe(), 64);
  for (int i = 0; i < 10; ++i) steps_to_probe();
  EXPECT_EQ(steps_to_probe(), 512);
  controller.add(2, 1);
  EXPECT_EQ(steps_to_probe(), 32);
}

TEST(DraftCosts, LieOnLinesBetweenWhatWasMeasured) {
  const DraftCosts costs{.steps = {{1, 1}, {5, 3}, {9, 3}}, .first_pass_s = 2, .next_pass_s = 1};
  EXPECT_TRUE(costs.are_known());
  EXPECT_DOUBLE_EQ(costs.step_s(3), 2);
  EXPECT_DOUBLE_EQ(costs.step_s(7), 3);
  EXPECT_DOUBLE_EQ(costs.step_s(100), 3);
  EXPECT_DOUBLE_EQ(costs.draft_s(0), 0);
  EXPECT_DOUBLE_EQ(costs.draft_s(3), 4);
}

}  // namespace
}  // namespace sluice
