// Policies, budgets, data-parallel groups, steps in flight; and the cost of planning.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "base/build.h"
#include "base/testing/processor_time.h"
#include "scheduler/testing/sim_world.h"

namespace sluice {
namespace {

using sim::options_of, sim::plain_tokens, sim::prompt_of, sim::request_of, sim::World;

std::vector<std::uint64_t> order_of(World& world) {
  std::vector<std::uint64_t> order;
  while (world.scheduler.has_work()) {
    if (!world.launch()) break;
    for (const BatchItem& item : world.steps.front().dp[0].items)
      if (!item.decode) order.push_back(item.sequence >> 8);
    world.commit();
  }
  return order;
}

TEST(Scheduling, Policies) {
  for (auto [policy, expected] :
       {std::pair{SchedulePolicy::kFcfs, std::vector<std::uint64_t>{1, 2, 3, 4}},
        std::pair{SchedulePolicy::kLpm, std::vector<std::uint64_t>{1, 4, 3, 2}},
        std::pair{SchedulePolicy::kPriority, std::vector<std::uint64_t>{3, 4, 1, 2}}}) {
    SchedulerOptions options = options_of(32, 1);
    options.policy = policy;
    World world(options);
    const auto base = prompt_of(200);
    auto part = [&](int shared, int salt) {
      auto prompt = prompt_of(200, salt);
      std::copy_n(base.begin(), shared, prompt.begin());
      return prompt;
    };
    const std::vector<std::pair<std::vector<std::int32_t>, int>> rows = {
        {base, 2}, {part(0, 1), 2}, {part(70, 2), 0}, {part(150, 3), 1}};
    std::uint64_t id = 0;
    for (const auto& [prompt, priority] : rows) {
      QueuedRequest request = request_of(++id, prompt, 2);
      request.priority = priority;
      ASSERT_TRUE(world.scheduler.add(std::move(request)).ok());
    }
    EXPECT_EQ(order_of(world), expected);
  }
}

TEST(Scheduling, RequestsSpreadOverDataParallelGroups) {
  SchedulerOptions options = options_of(32);
  options.dp_size = 4;
  World world(options);
  for (std::uint64_t id = 1; id <= 3; ++id)
    ASSERT_TRUE(world.scheduler.add(request_of(id, prompt_of(30 * static_cast<int>(id)), 5)).ok());
  ASSERT_TRUE(world.launch());
  const Step& step = world.steps.front();
  ASSERT_EQ(step.dp.size(), 4u);
  EXPECT_EQ(step.global_tokens, (std::vector<std::int32_t>{30, 60, 90, 0}));
  EXPECT_EQ(step.dp[3].mode, ForwardMode::kIdle);
  EXPECT_EQ(step.hash, hash_step(step));
  world.run();
  EXPECT_EQ(world.of(3).tokens, plain_tokens(options, prompt_of(90), {}, 5));
}

TEST(Scheduling, WholePromptsWithoutChunks) {
  SchedulerOptions options = options_of(64);
  options.chunked_prefill_tokens = -1;
  options.max_prefill_tokens = 250;
  World world(options);
  ASSERT_TRUE(world.scheduler.add(request_of(1, prompt_of(900, 1), 2)).ok());
  ASSERT_TRUE(world.scheduler.add(request_of(2, prompt_of(200, 2), 2)).ok());
  ASSERT_TRUE(world.scheduler.add(request_of(3, prompt_of(100, 3), 2)).ok());
  EXPECT_EQ(order_of(world), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(world.num_steps, 4);  // 900 | 200 + decode | 100 + decode | decode
}

TEST(Scheduling, CommitsInOrderOnly) {
  SchedulerOptions options = options_of(8);
  options.max_steps_in_flight = 2;
  World world(options);
  ASSERT_TRUE(world.scheduler.add(request_of(1, prompt_of(10), 5)).ok());
  ASSERT_TRUE(world.launch() && world.launch());
  EXPECT_FALSE(world.launch());
  EXPECT_EQ(world.steps[1].dp[0].token_ids, std::vector<std::int32_t>{kTokenFromSlot});
  EXPECT_THROW(world.scheduler.commit(world.steps[1], world.results[1], world.events), Error);
}

TEST(Scheduling, StepsOfAPipelineShareTheSequencesThatDecode) {
  SchedulerOptions options = options_of(64);
  options.pipelined = true;
  options.max_steps_in_flight = 2;
  World world(options);
  for (int id = 1; id <= 5; ++id)
    ASSERT_TRUE(world.scheduler.add(request_of(id, prompt_of(10, id), 6)).ok());
  ASSERT_TRUE(world.launch());
  EXPECT_FALSE(world.launch()) << "all tokens are on their way";
  world.commit();
  ASSERT_TRUE(world.launch() && world.launch());
  const std::vector<BatchItem>&first = world.steps[0].dp[0].items,
        &second = world.steps[1].dp[0].items;
  EXPECT_EQ(first.size(), 3u);
  EXPECT_EQ(second.size(), 2u);
  for (const BatchItem& a : first)
    for (const BatchItem& b : second) EXPECT_NE(a.sequence, b.sequence);
  world.run();
  for (int id = 1; id <= 5; ++id)
    EXPECT_EQ(world.of(id).tokens, plain_tokens(options, prompt_of(10, id), {}, 6));
}

TEST(Scheduling, ChunksOfOnePromptFollowEachOtherThroughAPipeline) {
  SchedulerOptions options = options_of(64);
  options.pipelined = true;
  options.max_steps_in_flight = 3;
  options.chunked_prefill_tokens = 32;
  options.max_micro_batch = 1;
  World world(options);
  ASSERT_TRUE(world.scheduler.add(request_of(1, prompt_of(96, 1), 3)).ok());
  ASSERT_TRUE(world.launch() && world.launch() && world.launch());
  EXPECT_EQ(world.steps[2].dp[0].items[0].first, 64);
  world.run();
  EXPECT_EQ(world.of(1).tokens, plain_tokens(options, prompt_of(96, 1), {}, 3));
}

// A result of the same step in which item `index` brought no token.
BatchResult without_tokens_of(const BatchResult& result, std::size_t index) {
  BatchResult out = result;
  const std::int32_t begin = result.token_offsets[index], end = result.token_offsets[index + 1];
  out.tokens.erase(out.tokens.begin() + begin, out.tokens.begin() + end);
  out.token_logprobs.erase(out.token_logprobs.begin() + begin, out.token_logprobs.begin() + end);
  for (std::size_t i = index + 1; i < out.token_offsets.size(); ++i)
    out.token_offsets[i] -= end - begin;
  return out;
}

TEST(Scheduling, ARowThatBringsNoTokenIsComputedAgain) {
  const SchedulerOptions options = options_of(32);
  World world(options);
  for (std::uint64_t id = 1; id <= 3; ++id)
    ASSERT_TRUE(world.scheduler.add(request_of(id, prompt_of(90, static_cast<int>(id)), 8)).ok());
  std::size_t dropped = 0;
  for (int step = 0; world.scheduler.has_work(); ++step) {
    ASSERT_LT(step, 100);
    ASSERT_TRUE(world.launch());
    BatchResult& result = world.results.front().dp[0];
    const std::size_t items = world.steps.front().dp[0].items.size();
    for (std::size_t i = 0; i < items; ++i) {
      if ((step + i) % 3 != 0 || result.tokens_of(i).empty()) continue;
      result = without_tokens_of(result, i);
      ++dropped;
    }
    world.commit();
  }
  EXPECT_GT(dropped, 5u);
  for (std::uint64_t id = 1; id <= 3; ++id)
    EXPECT_EQ(world.of(id).tokens,
              plain_tokens(options, prompt_of(90, static_cast<int>(id)), {}, 8));
}

TEST(Scheduling, MoreTokensThanAnItemHasRowsForAreABug) {
  World world(options_of(32));
  ASSERT_TRUE(world.scheduler.add(request_of(1, prompt_of(30), 8)).ok());
  ASSERT_TRUE(world.launch());
  BatchResult& result = world.results.front().dp[0];
  result.tokens.push_back(1);
  result.token_logprobs.emplace_back();
  ++result.token_offsets.back();
  EXPECT_THROW(world.commit(), Error);
}

// Microseconds of next() and commit() of steps with 256 decoding sequences, ascending.
struct StepTimes {
  std::vector<double> next, commit;
};

StepTimes time_steps_of_256() {
  SchedulerOptions options = options_of(256 * 40, 256);
  options.max_context = 2500;
  Scheduler scheduler(options);
  sim::Device device(options);
  for (std::uint64_t id = 1; id <= 256; ++id) {
    QueuedRequest request = request_of(id, prompt_of(1000, static_cast<int>(id)), 1200);
    EXPECT_TRUE(scheduler.add(std::move(request)).ok());
  }
  Step step;
  StepResult result;
  std::vector<Event> events;
  StepTimes times;
  auto us = [](auto a, auto b) { return std::chrono::duration<double, std::micro>(b - a).count(); };
  for (int i = 0; i < 600; ++i) {
    events.clear();
    const auto t0 = std::chrono::steady_clock::now();
    EXPECT_TRUE(scheduler.next(step, events));
    const auto t1 = std::chrono::steady_clock::now();
    device.run(step, result);
    const auto t2 = std::chrono::steady_clock::now();
    scheduler.commit(step, result, events);
    const auto t3 = std::chrono::steady_clock::now();
    if (step.dp[0].mode != ForwardMode::kDecode || step.dp[0].items.size() != 256) continue;
    times.next.push_back(us(t0, t1));
    times.commit.push_back(us(t2, t3));
  }
  std::ranges::sort(times.next);
  std::ranges::sort(times.commit);
  return times;
}

TEST(Scheduling, StepOf256SequencesTakesUnder100Microseconds) {
  // Repeated in a few rounds: another guest of the machine may occupy the processor for a whole
  // round.
  constexpr int kRounds = 5;
  double best = 0;
  for (int round = 0; round < (kTimedBuild ? kRounds : 1); ++round) {
    const double before = processor_slowness();
    const StepTimes times = time_steps_of_256();
    const std::size_t count = times.next.size();
    ASSERT_GT(count, 200u);
    fmt::print("256 sequences: next {:.1f} us, commit {:.1f} us (medians of {})\n",
               times.next[count / 2], times.commit[count / 2], count);
    const double tenth = (times.next[count / 10] + times.commit[count / 10]) /
                         std::max(before, processor_slowness());
    best = round == 0 ? tenth : std::min(best, tenth);
    if (best < 100) break;
  }
  if (kTimedBuild) {
    EXPECT_LT(best, 100.0);
  }
}

}  // namespace
}  // namespace sluice
