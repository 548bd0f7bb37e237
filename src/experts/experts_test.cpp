// Maps of experts, the balance of their load, and the way from one map to another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "experts/balance.h"
#include "experts/expert_map.h"
#include "experts/moves.h"

namespace sluice {
namespace {

using testing::ElementsAre;

std::vector<double> random_counts(std::mt19937& random, int experts) {
  std::vector<double> counts(static_cast<std::size_t>(experts));
  for (double& count : counts) count = static_cast<double>(random() % 1000);
  // Some layers have a few hot experts, as under a shift of topics.
  if (random() % 2 == 0) counts[random() % counts.size()] *= 20;
  return counts;
}

double busiest(const ExpertMap& map, const std::vector<double>& counts, int groups) {
  return std::ranges::max(group_loads(map, counts, groups));
}

TEST(ExpertMap, TheTrivialMapIsThatOfSglang) {
  EXPECT_THAT(trivial_map(4, 6), ElementsAre(0, 1, 2, 3, 0, 1));
  EXPECT_EQ(map_error(trivial_map(4, 6), 4), "");
  EXPECT_THAT(replica_counts(trivial_map(4, 6), 4), ElementsAre(2, 2, 1, 1));
}

TEST(ExpertMap, AMapThatLeavesOutAnExpertSaysWhich) {
  EXPECT_THAT(map_error({0, 1, 3, 3}, 4), testing::HasSubstr("no place has expert 2"));
  EXPECT_THAT(map_error({0, 1, 4, 3}, 4), testing::HasSubstr("place 2 has expert 4"));
  EXPECT_THAT(map_error({0, -1, 2, 3}, 4), testing::HasSubstr("place 1 has expert -1"));
}

TEST(ExpertMap, ReplicasShareTheLoadEqually) {
  EXPECT_THAT(group_loads({0, 1, 0, 2}, std::vector<double>{8, 1, 3}, 2), ElementsAre(5, 7));
  EXPECT_DOUBLE_EQ(balancedness(std::vector<double>{5, 7}), 6.0 / 7);
  EXPECT_DOUBLE_EQ(balancedness(std::vector<double>{0, 0}), 1);
}

// The example of the README of deepseek-ai/EPLB: two layers, two nodes of four GPUs.
TEST(BalancedMap, GivesThePublishedMap) {
  const BalanceInputs inputs{.places = 16, .groups = 8, .nodes = 2, .expert_groups = 4};
  EXPECT_THAT(
      balanced_map(std::vector<double>{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86}, inputs),
      ElementsAre(5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1));
  EXPECT_THAT(
      balanced_map(std::vector<double>{20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27},
                   inputs),
      ElementsAre(7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1));
}

TEST(BalancedMap, HoldsItsBoundsOverRandomLoads) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const int groups = 2 << random() % 3, experts = groups * (1 + static_cast<int>(random() % 8));
    const int redundant = groups * static_cast<int>(random() % 4),
              places = std::min(experts + redundant, experts * groups);
    const std::vector<double> counts = random_counts(random, experts);
    const ExpertMap map =
        balanced_map(counts, {.places = places, .groups = groups, .max_replicas = groups});
    ASSERT_EQ(map_error(map, experts), "");
    const std::vector<int> replicas = replica_counts(map, experts);
    EXPECT_LE(std::ranges::max(replicas), groups);
    // The next replica goes to the hottest: no replica has more load than twice the largest share
    // that is left, unless its expert has all replicas that it may have.
    double largest = 0, mean = 0, weighty = 0;
    for (int e = 0; e < experts; ++e) {
      const auto i = static_cast<std::size_t>(e);
      largest = std::max(largest, counts[i] / replicas[i]);
      mean += counts[i] / groups;
    }
    weighty = busiest(map, counts, groups);
    // Greedy packing with bounded room: no group is above the mean by more than its largest item
    // for each place that it has.
    EXPECT_LE(weighty, mean + largest * (places / groups));
    EXPECT_GE(weighty, std::max(mean, largest) - 1e-6);
  }
}

TEST(BalancedMap, ReplicatesTheHottestExpertAndHalvesItsLoad) {
  const std::vector<double> counts{100, 10, 10, 10, 10, 10, 10, 10};
  const ExpertMap map = balanced_map(counts, {.places = 10, .groups = 2, .max_replicas = 2});
  EXPECT_EQ(replica_counts(map, 8)[0], 2);
  EXPECT_LT(busiest(map, counts, 2), busiest(trivial_map(8, 8), counts, 2));
  EXPECT_DOUBLE_EQ(busiest(map, counts, 2), 85);
}

TEST(BalancedMap, NoGroupHasAnExpertTwiceWhereAnotherHasRoom) {
  const std::vector<double> counts{90, 1, 1, 1};
  const ExpertMap map = balanced_map(counts, {.places = 8, .groups = 4, .max_replicas = 4});
  for (int group = 0; group < 4; ++group) {
    const auto at = static_cast<std::size_t>(2 * group);
    EXPECT_NE(map[at], map[at + 1]);
  }
}

TEST(AlignedMap, KeepsWhatMayStay) {
  // The same two groups under other names, and in another order.
  EXPECT_THAT(aligned_map({0, 1, 2, 3}, {3, 2, 1, 0}, 2), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(aligned_map({0, 1, 2, 3}, {3, 0, 1, 2}, 2), ElementsAre(0, 3, 2, 1));
}

TEST(AlignedMap, HasTheGroupsThatWereWanted) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const int groups = 1 + static_cast<int>(random() % 4), places = 4 * groups;
    ExpertMap current(static_cast<std::size_t>(places)), wanted(current);
    for (std::int32_t& e : current) e = static_cast<std::int32_t>(random() % 7);
    for (std::int32_t& e : wanted) e = static_cast<std::int32_t>(random() % 7);
    const ExpertMap aligned = aligned_map(current, wanted, groups);
    std::multiset<std::multiset<std::int32_t>> then, now;
    for (int group = 0; group < groups; ++group) {
      const auto part = [&](const ExpertMap& map) {
        return std::multiset<std::int32_t>(map.begin() + 4 * group, map.begin() + 4 * group + 4);
      };
      then.insert(part(wanted));
      now.insert(part(aligned));
    }
    ASSERT_EQ(now, then);
  }
}

// Every expert has a place after each change, also while the new one is not there yet.
TEST(Changes, ReachAnyMapAndNeverLeaveAnExpertOut) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    const int groups = 1 + static_cast<int>(random() % 4),
              experts = 1 + static_cast<int>(random() % 12);
    int places = experts + 1 + static_cast<int>(random() % 4);
    places = (places + groups - 1) / groups * groups;
    const auto any_map = [&] {
      ExpertMap map = trivial_map(experts, places);
      for (int p = experts; p < places; ++p)
        map[static_cast<std::size_t>(p)] = static_cast<std::int32_t>(random()) & 0x7fffffff;
      for (std::int32_t& e : map) e %= experts;
      std::ranges::shuffle(map, random);
      return map;
    };
    const ExpertMap from = any_map(), wanted = any_map();
    ExpertMap now = from;
    const std::vector<PlaceChange> changes = changes_between(from, wanted, experts, groups);
    for (const PlaceChange& change : changes) {
      ASSERT_EQ(now[static_cast<std::size_t>(change.from)], change.expert);
      now[static_cast<std::size_t>(change.to)] = kNoExpert;
      ASSERT_GT(std::ranges::min(replica_counts(now, experts)), 0);
      now[static_cast<std::size_t>(change.to)] = change.expert;
    }
    ASSERT_EQ(now, wanted);
    // A cycle of k places, at least two, costs k + 2 changes: one is lent, and given back.
    std::size_t wrong = 0;
    for (std::size_t p = 0; p < from.size(); ++p) wrong += from[p] != wanted[p] ? 1 : 0;
    EXPECT_LE(changes.size(), wrong + wrong / 2 * 2);
  }
}

TEST(Changes, ACycleGoesThroughAPlaceThatIsLent) {
  // Experts 0 and 1 change places; the second place of expert 2 takes one of them meanwhile.
  const std::vector<PlaceChange> changes = changes_between({0, 2, 1, 2}, {1, 2, 0, 2}, 3, 2);
  EXPECT_EQ(changes.size(), 4u);
  EXPECT_TRUE(changes_between({0, 1, 2, 2}, {0, 1, 2, 2}, 3, 2).empty());
}

}  // namespace
}  // namespace sluice
