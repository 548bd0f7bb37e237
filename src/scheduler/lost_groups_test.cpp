// Data-parallel groups that are lost: their requests end, those of the others get their tokens.
#include <gtest/gtest.h>

#include <set>

#include "scheduler/testing/sim_world.h"

namespace sluice {
namespace {

using sim::options_of;
using sim::plain_tokens;
using sim::prompt_of;
using sim::request_of;
using sim::World;

constexpr int kGroups = 4, kPages = 16;
const Fault kLost{503, "rank_lost", "", "a rank was lost"};

SchedulerOptions options_of_groups(int depth) {
  SchedulerOptions options = options_of(kPages, 4);
  options.dp_size = kGroups;
  options.chunked_prefill_tokens = 40;
  options.max_steps_in_flight = depth;
  return options;
}

void add(World& world, std::uint64_t id, int choices) {
  QueuedRequest request = request_of(id, prompt_of(60, static_cast<int>(id)), 20);
  request.num_choices = choices;
  ASSERT_TRUE(world.scheduler.add(std::move(request)).ok());
}

// As the executor does: a group that is lost has computed nothing of the steps in flight.
void lose(World& world, int group) {
  for (std::size_t i = 0; i < world.steps.size(); ++i) {
    const std::size_t items = world.steps[i].dp[static_cast<std::size_t>(group)].items.size();
    BatchResult& result = world.results[i].dp[static_cast<std::size_t>(group)];
    result = {};
    result.token_offsets.assign(items + 1, 0);
    result.prompt_offsets.assign(items + 1, 0);
    result.failed.assign(items, 1);
  }
  world.scheduler.lose_group(group, kLost, world.events);
  world.scheduler.check_invariants();
}

void expect_tokens(World& world, std::uint64_t id, int choices) {
  for (int choice = 0; choice < choices; ++choice) {
    EXPECT_EQ(world.of(id, choice).finish, FinishReason::kLength) << id;
    EXPECT_EQ(world.of(id, choice).tokens,
              plain_tokens(world.scheduler.options(), prompt_of(60, static_cast<int>(id)), {}, 20,
                           choice))
        << id;
  }
}

TEST(LostGroups, EndTheirRequestsAndNoOthersAtAnyStep) {
  for (const int depth : {1, 2})
    for (int steps_before = 0; steps_before < 14; ++steps_before) {
      World world(options_of_groups(depth));
      for (std::uint64_t id = 1; id <= 24; ++id) add(world, id, 1 + static_cast<int>(id % 3));
      for (int i = 0; i < steps_before; ++i)
        if (!world.launch()) world.commit();
      lose(world, 2);
      world.run();
      EXPECT_FALSE(world.scheduler.has_work());
      std::set<std::uint64_t> lost;
      for (const auto& [choice, event] : world.outcome)
        if (event.finish == FinishReason::kError) {
          EXPECT_EQ(event.error.code, "rank_lost");
          lost.insert(choice.first);
        }
      EXPECT_FALSE(lost.empty());
      EXPECT_LT(lost.size(), 12u);
      for (std::uint64_t id = 1; id <= 24; ++id)
        if (!lost.contains(id)) expect_tokens(world, id, 1 + static_cast<int>(id % 3));
      const SchedulerStats stats = world.scheduler.stats();
      EXPECT_EQ(stats.running + stats.queued, 0);
      EXPECT_EQ(stats.groups[0].used_pages, 0);
    }
}

TEST(LostGroups, HaveNoPagesAndGetNoRequests) {
  World world(options_of_groups(1));
  EXPECT_EQ(world.scheduler.stats().groups[0].total_pages, kGroups * kPages);
  for (std::uint64_t id = 1; id <= 8; ++id) add(world, id, 1);
  world.run();
  const auto num_cached = [&] {
    int count = 0;
    for (int id = 1; id <= 8; ++id)
      count +=
          world.scheduler.look_up_prefix(request_of(0, prompt_of(60, id), 1)).usable_tokens > 0;
    return count;
  };
  EXPECT_EQ(num_cached(), 8);
  for (int lost = 1; lost < kGroups; ++lost) {
    const std::int64_t cached = world.scheduler.stats().groups[0].cached_pages;
    lose(world, lost);
    const PageGroupStats pages = world.scheduler.stats().groups[0];
    EXPECT_EQ(pages.total_pages, (kGroups - lost) * kPages);
    EXPECT_EQ(pages.free_pages + pages.cached_pages, pages.total_pages);
    EXPECT_LT(pages.cached_pages, cached);
    EXPECT_LT(num_cached(), 8);
    for (std::uint64_t i = 1; i <= 8; ++i) {
      const std::uint64_t id = 100 * static_cast<std::uint64_t>(lost) + i;
      add(world, id, 1);
    }
    for (int i = 0; i < 3 && world.launch(); ++i)
      for (int group = 1; group <= lost; ++group)
        EXPECT_TRUE(world.steps.back().dp[static_cast<std::size_t>(group)].items.empty());
    world.run();
    for (std::uint64_t i = 1; i <= 8; ++i)
      expect_tokens(world, 100 * static_cast<std::uint64_t>(lost) + i, 1);
  }
}

}  // namespace
}  // namespace sluice
