// How many drafts pay, by what they cost and how often they are right.
#include "scheduler/draft_controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

namespace sluice {
namespace {

using Offers = std::vector<DraftController::Offer>;

// A GPU's: rows cost little, until they cost as much as they are.
DraftCosts cheap_rows() {
  const CostLine line{{{1, 0.005}, {8, 0.0051}, {64, 0.006}, {256, 0.012}, {512, 0.024}}};
  return {.plain = line, .checks = line, .first_pass = {}, .next_pass = {}};
}
// A CPU's: each row costs half a step.
DraftCosts dear_rows() {
  const CostLine line{{{1, 0.01}, {2, 0.015}, {8, 0.045}}};
  return {.plain = line, .checks = line, .first_pass = {}, .next_pass = {}};
}

int choice(const DraftCosts& costs, Offers offers, int other_rows, int max_drafts) {
  return DraftController(costs).choose(offers,
                                       {.other_rows = other_rows, .max_drafts = max_drafts});
}

TEST(DraftController, TakesTheNumberThatBringsMostTokensASecond) {
  const auto best = [&](double chance, int sequences) {
    return choice(cheap_rows(), Offers(static_cast<std::size_t>(sequences), {chance, 20}), 0, 20);
  };
  EXPECT_EQ(best(0, 1), 0);
  EXPECT_EQ(best(0.01, 1), 0) << "a gain of noise";
  EXPECT_EQ(best(1, 1), 20);
  EXPECT_GE(best(0.5, 1), 3);
  EXPECT_LT(best(0.5, 1), best(0.8, 1));
  EXPECT_LT(best(0.8, 64), best(0.8, 1)) << "rows of many sequences cost more";
  EXPECT_EQ(best(0.3, 256), 0);
  // What is not offered cannot be taken.
  EXPECT_EQ(choice(cheap_rows(), {{0.9, 2}, {0.9, 0}}, 0, 20), 2);
  EXPECT_EQ(choice(cheap_rows(), {{0.9, 7}}, 0, 3), 3);
  EXPECT_EQ(choice(cheap_rows(), {}, 0, 3), 0);
  EXPECT_EQ(choice(cheap_rows(), {}, 700, 3), 0);
  EXPECT_GT(choice(cheap_rows(), {{0.9, 7}}, 700, 7), 0) << "beside a chunk of a prompt";
}

// Within the rounding of whole drafts no other number brings more, by the formula of the header.
TEST(DraftController, NoOtherNumberBringsMore) {
  std::mt19937 random(1);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<>(low, high)(random);
  };
  for (int n = 0; n < 300; ++n) {
    DraftCosts costs;
    double seconds = uniform(0.001, 0.01);
    for (const int rows : {1, 2, 4, 16, 64})
      costs.checks.points.push_back({rows, seconds *= uniform(1, 1.6)});
    costs.plain = costs.checks;
    costs.first_pass.points = {{1, uniform(0, 0.002)}};
    costs.next_pass.points = {{1, uniform(0, 0.001)}};
    const double chance = uniform(0, 1);
    const int sequences = 1 + n % 9;
    const auto rate = [&](int k) {
      double tokens = 0, right = 1;
      for (int i = 0; i <= k; ++i, right *= chance) tokens += right;
      const double step_s =
          k == 0 ? costs.plain.at(sequences) : costs.checks.at(sequences * (k + 1));
      return sequences * tokens / (step_s + costs.draft_s(sequences, k));
    };
    const int chosen =
        choice(costs, Offers(static_cast<std::size_t>(sequences), {chance, 7}), 0, 7);
    for (int k = 0; k <= 7; ++k) EXPECT_GE(rate(chosen) * 1.02 + 1e-9, rate(k)) << k;
  }
}

// The tokens before a row cost a plain step once, and a step with drafts for each of its rows.
TEST(DraftController, RowsBehindManyTokensCostMore) {
  DraftCosts costs = cheap_rows();
  costs.plain_token_s = costs.check_token_s = 1e-6;
  costs.first_pass.points = costs.next_pass.points = {{1, 0.0001}};
  costs.pass_token_s = 2e-7;
  DraftController controller(costs);
  const auto best = [&](double tokens, double chance) {
    controller.set_tokens(tokens);
    DraftController::Offer offer{chance, 7};
    return controller.choose({&offer, 1}, {.max_drafts = 7});
  };
  const int of_first = best(0, 0.7);
  EXPECT_GE(of_first, 3);
  int last = of_first;
  for (const double tokens : {2'000.0, 8'000.0, 30'000.0, 100'000.0}) {
    const int now = best(tokens, 0.7);
    EXPECT_LE(now, last) << tokens;
    last = now;
  }
  EXPECT_EQ(last, 0);
  EXPECT_EQ(best(100'000, 1), 0) << "a row of a draft costs as much as a plain step";
  EXPECT_EQ(best(0, 0.7), of_first);
  // Further rows of a sequence may cost less than its first one, which a plain step has, too.
  costs.check_token_s = 2e-7;
  const DraftCosts later = costs.behind(1'000);
  EXPECT_NEAR(later.plain.at(1), costs.plain.at(1) + 0.001, 1e-9);
  EXPECT_NEAR(later.check_s(4, 1), costs.checks.at(4) + 0.001 + 3 * 0.0002, 1e-9);
  EXPECT_NEAR(later.check_s(8, 2), costs.checks.at(8) + 2 * (0.001 + 3 * 0.0002), 1e-9);
  EXPECT_NEAR(costs.behind(1'000).draft_s(1, 3), costs.draft_s(1, 3) + 3 * 0.0002, 1e-9);
}

TEST(DraftController, CountsWhatDraftsCost) {
  DraftCosts costs = cheap_rows();
  costs.first_pass.points = costs.next_pass.points = {{1, 0.001}};
  EXPECT_EQ(choice(costs, {{0.15, 7}}, 0, 7), 0);
  EXPECT_EQ(choice(costs, {{0.5, 7}}, 0, 7), 1);
  EXPECT_GE(choice(costs, {{0.9, 7}}, 0, 7), 5);
}

TEST(DraftController, WithoutCostsAllDraftsAreTaken) {
  EXPECT_EQ(choice({}, {{0, 4}}, 0, 4), 4);
  EXPECT_EQ(choice({}, {{0, 9}}, 0, 4), 4);
}

// Beside a sequence whose drafts are right, another one's cost more than they bring.
TEST(DraftController, EachSequenceHasTheDraftsThatPay) {
  Offers offers = {{0.95, 7}, {0.05, 7}, {0.5, 0}};
  EXPECT_GE(DraftController(dear_rows()).choose(offers, {.max_drafts = 7}), 3);
  EXPECT_GE(offers[0].drafts, 3);
  EXPECT_EQ(offers[1].drafts, 0);
  EXPECT_EQ(offers[2].drafts, 0);
}

TEST(DraftController, LearnsFromASequenceAndFromAll) {
  DraftController controller(cheap_rows());
  DraftAcceptance good, bad;
  for (int i = 0; i < 50; ++i) {
    good.add(4, 4, DraftController::kMemoryOfOne);
    bad.add(4, 0, DraftController::kMemoryOfOne);
    controller.add(4, i % 2 == 0 ? 4 : 0);
  }
  EXPECT_GT(controller.chance(good), 0.9);
  EXPECT_LT(controller.chance(bad), 0.25);
  EXPECT_NEAR(controller.chance({}), 0.8, 0.05) << "four of five were right";
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
      if (i >= 1000) sum += seen.chance(0.5, 1) / 3000;
    }
    EXPECT_NEAR(sum, chance, 0.03);
  }
}

// Steps of one sequence whose drafts are right with a chance: what the controller costs and finds.
struct Trial {
  double seconds = 0, tokens = 0;
  int drafted_steps = 0;

  Trial(const DraftCosts& costs, double chance, int steps) {
    DraftController controller(costs);
    DraftAcceptance seen;
    std::mt19937 random(5);
    for (int i = 0; i < steps; ++i) {
      Offers offers = {{controller.chance(seen), 7}};
      int drafts = controller.choose(offers, {.max_drafts = 7});
      if (drafts == 0) controller.pass();
      if (drafts == 0 && controller.probes()) drafts = DraftController::kProbe;
      int accepted = 0;
      while (accepted < drafts && std::uniform_real_distribution<>(0, 1)(random) < chance)
        ++accepted;
      seconds += drafts == 0 ? costs.plain.at(1) : costs.checks.at(1 + drafts);
      tokens += 1 + accepted;
      drafted_steps += drafts > 0;
      if (drafts == 0) continue;
      seen.add(drafts, accepted, DraftController::kMemoryOfOne);
      controller.add(drafts, accepted);
    }
  }
  double rate() const { return tokens / seconds; }
};

double fixed_rate(const DraftCosts& costs, double chance, int drafts) {
  double tokens = 0, right = 1;
  for (int i = 0; i <= drafts; ++i, right *= chance) tokens += right;
  return tokens / (drafts == 0 ? costs.plain.at(1) : costs.checks.at(1 + drafts));
}

TEST(DraftController, CostsLessThanAHundredthWhereNoDraftIsRight) {
  for (const DraftCosts& costs : {cheap_rows(), dear_rows()}) {
    const Trial run(costs, 0, 4000);
    EXPECT_GT(run.rate(), 0.99 * fixed_rate(costs, 0, 0));
    EXPECT_LT(run.drafted_steps, 40);
    EXPECT_GE(run.drafted_steps, 4000 / 512);
  }
}

TEST(DraftController, ComesNearTheBestFixedNumber) {
  for (const DraftCosts& costs : {cheap_rows(), dear_rows()})
    for (const double chance : {0.0, 0.5, 0.8, 0.95, 1.0}) {
      double best = 0;
      for (int k = 0; k <= 7; ++k) best = std::max(best, fixed_rate(costs, chance, k));
      // Three hundredths, and what 4,000 drawn steps differ from their mean by: below two more.
      EXPECT_GT(Trial(costs, chance, 4000).rate(), 0.95 * best) << chance;
    }
}

// The chance of each rank of a tree's nodes is found out, and the best number of nodes taken.
TEST(DraftController, TakesTheNodesThatPay) {
  std::mt19937 random(9);
  const std::vector<double> chances = {0.8, 0.6, 0.5, 0.3, 0.1, 0.1, 0.02, 0.01, 0, 0};
  for (const DraftCosts& costs : {cheap_rows(), dear_rows()}) {
    DraftController controller(costs);
    RankAcceptance seen;
    std::vector<double> gains(10);
    double seconds = 0, tokens = 0;
    const auto rate = [&](int nodes) {
      double sum = 1;
      for (int rank = 0; rank < nodes; ++rank) sum += chances[static_cast<std::size_t>(rank)];
      return sum / (nodes == 0 ? costs.plain.at(1) : costs.checks.at(1 + nodes));
    };
    for (int i = 0; i < 4000; ++i) {
      controller.fill_gains(seen, gains);
      EXPECT_TRUE(std::ranges::is_sorted(gains, std::greater{}));
      Offers offers = {{.drafts = 10, .gains = gains}};
      int nodes = controller.choose(offers, {.max_drafts = 10, .are_trees = true});
      if (nodes == 0) controller.pass();
      if (nodes == 0 && controller.probes()) nodes = DraftController::kProbe;
      std::vector<std::int32_t> right = {0};
      for (int rank = 0; rank < nodes; ++rank)
        if (std::uniform_real_distribution<>(0, 1)(random) <
            chances[static_cast<std::size_t>(rank)])
          right.push_back(rank + 1);
      seconds += nodes == 0 ? costs.plain.at(1) : costs.checks.at(1 + nodes);
      tokens += static_cast<double>(right.size());
      seen.add(nodes, right, DraftController::kMemoryOfRank);
      controller.add_tree(nodes, right);
      controller.add(std::min(nodes, 1), right.size() > 1);
    }
    double best = 0;
    for (int nodes = 0; nodes <= 10; ++nodes) best = std::max(best, rate(nodes));
    EXPECT_GT(tokens / seconds, 0.95 * best) << "as in ComesNearTheBestFixedNumber";
  }
}

TEST(DraftController, SpendsAShareOfTheTime) {
  DraftController controller(dear_rows());
  EXPECT_FALSE(controller.affords(0.001));
  for (int i = 0; i < 100; ++i) controller.earn(1);
  EXPECT_FALSE(controller.affords(0.006)) << "100 steps of 10 ms, and half a hundredth of them";
  EXPECT_TRUE(controller.affords(0.004));
  EXPECT_FALSE(controller.affords(0.002));
  for (int i = 0; i < 300'000; ++i) controller.earn(1);
  EXPECT_FALSE(controller.affords(5.01)) << "what was earned long ago";
  EXPECT_TRUE(controller.affords(4.99));
}

TEST(DraftController, ProbesMoreSeldomWhileNothingIsRight) {
  DraftController controller(cheap_rows());
  const auto steps_to_probe = [&] {
    int steps = 0;
    do {
      controller.pass();
      ++steps;
    } while (!controller.probes());
    return steps;
  };
  EXPECT_EQ(steps_to_probe(), 8);
  EXPECT_EQ(steps_to_probe(), 16);
  for (int i = 0; i < 10; ++i) steps_to_probe();
  EXPECT_EQ(steps_to_probe(), 512);
  controller.add(2, 1);
  EXPECT_EQ(steps_to_probe(), 8);
  // All of a probe's drafts were right: the next step probes, too.
  controller.add(2, 2);
  EXPECT_EQ(steps_to_probe(), 1);
  EXPECT_EQ(steps_to_probe(), 2);
}

// A pass over many slots costs next to nothing on one machine, and as much as single ones on
// another.
TEST(DraftController, MakesUpForSlotsWhereThatIsCheap) {
  DraftCosts costs = cheap_rows();
  costs.first_pass.points = {{1, 0.0002}, {256, 0.0004}};
  DraftController cheap(costs);
  costs.first_pass.points = {{1, 0.0004}, {8, 0.0032}};
  DraftController dear(costs);
  for (DraftController* controller : {&cheap, &dear})
    for (int i = 0; i < 8; ++i) controller->pass();
  EXPECT_FALSE(cheap.can_make_up(1)) << "0.2 of 8 * 5 ms";
  for (DraftController* controller : {&cheap, &dear})
    for (int i = 0; i < 30; ++i) controller->pass();
  EXPECT_TRUE(cheap.can_make_up(1));
  EXPECT_FALSE(dear.can_make_up(1));
  EXPECT_TRUE(dear.probes());
  dear.add(1, 1);
  dear.pass();
  EXPECT_TRUE(dear.can_make_up(1)) << "the last probe was right";
}

// Steps up to 128 rows take 8 ms, larger ones 12: between the two what is not measured is a guess.
TEST(DraftCosts, TheWidestStepIsLookedAtMoreClosely) {
  const auto seconds = [](int rows) { return rows <= 128 ? 0.008 : 0.012; };
  CostLine line{{{1, 0.004}, {2, 0.004}, {64, 0.0079}, {128, 0.008}, {256, 0.012}}};
  std::vector<int> looks;
  while (const int rows = line.widest_step(0.05, 16)) {
    looks.push_back(rows);
    const auto behind = std::ranges::lower_bound(line.points, rows, {}, &CostLine::Point::rows);
    line.points.insert(behind, {rows, rows < 64 ? 0.004 : seconds(rows)});
    ASSERT_LT(looks.size(), 20U);
  }
  EXPECT_EQ(looks, (std::vector{192, 160, 144, 136, 33, 48, 56}));
  EXPECT_NEAR(line.at(128), 0.008, 1e-9);
  EXPECT_NEAR(line.at(192), 0.012, 1e-9);
  EXPECT_EQ(CostLine{}.widest_step(0.05, 16), 0);
  EXPECT_EQ((CostLine{{{8, 1.0}, {64, 1.04}}}.widest_step(0.05, 16)), 0) << "as good as flat";
  EXPECT_EQ((CostLine{{{8, 1.0}, {16, 2.0}}}.widest_step(0.05, 16)), 0) << "one graph";
}

// Two drafts of 64 sequences cost nearly as much as three, and two of 43 as much as three: graphs
// have 96, 128 or 192 rows.
TEST(DraftController, StepsOfTilesAreNotALine) {
  const CostLine line{
      .points =
          {{1, 3.9e-3}, {64, 5.7e-3}, {96, 6.1e-3}, {128, 7.6e-3}, {192, 11.2e-3}, {256, 11.9e-3}},
      .padded_to = {2, 4, 8, 16, 32, 64, 96, 128, 192, 256}};
  EXPECT_DOUBLE_EQ(line.at(129), 11.2e-3);
  EXPECT_DOUBLE_EQ(line.at(192), 11.2e-3);
  for (const int sequences : {26, 43, 44, 64, 65, 66, 68})
    for (const double chance : {0.6, 0.767, 0.9, 1.0}) {
      Offers offers(static_cast<std::size_t>(sequences), {chance, 3});
      DraftController controller(
          {.plain = line, .checks = line, .first_pass = {}, .next_pass = {}});
      const int most = controller.choose(offers, {.max_drafts = 3});
      double best = 0, chosen = 0, tokens = 0, right = 1;
      for (int k = 0; k <= 3; ++k, right *= chance) {
        tokens += right;
        const double rate = sequences * tokens / line.at(sequences * (k + 1));
        best = std::max(best, rate);
        if (k == most) chosen = rate;
      }
      EXPECT_GE(1.02 * chosen, best) << sequences << " sequences, " << chance;
      for (const auto& offer : offers) EXPECT_EQ(offer.drafts, most);
    }
}

TEST(DraftCosts, LieOnLinesBetweenWhatWasMeasured) {
  const CostLine line{{{1, 1}, {5, 3}, {9, 3}}};
  EXPECT_DOUBLE_EQ(line.at(3), 2);
  EXPECT_DOUBLE_EQ(line.at(7), 3);
  EXPECT_DOUBLE_EQ(line.at(100), 3);
  EXPECT_DOUBLE_EQ(CostLine{}.at(3), 0);
  const DraftCosts costs{
      .plain = line, .checks = line, .first_pass = {{{1, 2}}}, .next_pass = {{{1, 1}, {3, 5}}}};
  EXPECT_TRUE(costs.are_known());
  EXPECT_DOUBLE_EQ(costs.draft_s(1, 0), 0);
  EXPECT_DOUBLE_EQ(costs.draft_s(1, 3), 4);
  EXPECT_DOUBLE_EQ(costs.draft_s(2, 3), 8);
}

}  // namespace
}  // namespace sluice
