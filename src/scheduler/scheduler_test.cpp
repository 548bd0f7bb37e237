#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "scheduler/testing/sim_world.h"

namespace sluice {
namespace {

using sim::options_of, sim::plain_tokens, sim::prompt_of, sim::request_of, sim::World;

TEST(Scheduler, OneRequestGivesTheModelsTokens) {
  for (int depth : {1, 2, 3}) {
    SchedulerOptions options = options_of(16);
    options.max_steps_in_flight = depth;
    options.chunked_prefill_tokens = 50;
    World world(options);
    ASSERT_TRUE(world.scheduler.add(request_of(1, prompt_of(130), 70)).ok());
    world.run();
    EXPECT_EQ(world.of(1).tokens, plain_tokens(options, prompt_of(130), {}, 70));
    EXPECT_EQ(world.of(1).finish, FinishReason::kLength);
    EXPECT_EQ(world.of(1).output_tokens, 70);
    EXPECT_EQ(world.scheduler.stats().groups[0].used_pages, 0);
    EXPECT_EQ(world.scheduler.stats().groups[0].cached_pages, 4);  // 199 tokens
  }
}

TEST(Scheduler, PrefillAndDecodeShareAStep) {
  SchedulerOptions options = options_of(32);
  options.chunked_prefill_tokens = 64;
  World world(options);
  ASSERT_TRUE(world.scheduler.add(request_of(1, prompt_of(10), 40)).ok());
  world.launch();
  world.commit();
  ASSERT_TRUE(world.scheduler.add(request_of(2, prompt_of(100, 1), 4)).ok());
  ASSERT_TRUE(world.launch());
  const Batch& batch = world.steps.front().dp[0];
  EXPECT_EQ(batch.mode, ForwardMode::kMixed);
  ASSERT_EQ(batch.items.size(), 2u);
  EXPECT_FALSE(batch.items[0].decode);
  EXPECT_EQ(batch.items[0].count, 63);  // the decode row has taken one of 64
  EXPECT_TRUE(batch.items[1].decode);
  EXPECT_EQ(batch.slot_inits.size(), 1u);
  ASSERT_EQ(batch.logit_rows.size(), 1u);
  EXPECT_EQ(batch.logit_rows[0].row, 63);
  EXPECT_EQ(batch.logit_rows[0].position, 11);
  world.run();
  EXPECT_EQ(world.of(2).tokens, plain_tokens(options, prompt_of(100, 1), {}, 4));
}

TEST(Scheduler, TheSamePromptIsReusedButItsLastToken) {
  SchedulerOptions options = options_of(32);
  World world(options);
  for (std::uint64_t id : {1, 2}) {
    ASSERT_TRUE(world.scheduler.add(request_of(id, prompt_of(150), 5)).ok());
    world.run();
  }
  EXPECT_EQ(world.of(1).cached_tokens, 0);
  EXPECT_EQ(world.of(2).cached_tokens, 149);
  EXPECT_EQ(world.of(1).tokens, world.of(2).tokens);
  EXPECT_EQ(world.scheduler.stats().tail_copies, 1);

  QueuedRequest other = request_of(3, prompt_of(150), 5);
  other.cache_namespace = 7;
  ASSERT_TRUE(world.scheduler.add(std::move(other)).ok());
  world.run();
  EXPECT_EQ(world.of(3).cached_tokens, 0);
  EXPECT_EQ(world.of(3).tokens, world.of(1).tokens);
}

TEST(Scheduler, DisabledCacheKeepsNothing) {
  SchedulerOptions options = options_of(32);
  options.disable_radix_cache = true;
  World world(options);
  for (std::uint64_t id : {1, 2}) {
    QueuedRequest request = request_of(id, prompt_of(150), 5);
    request.num_choices = 3;
    ASSERT_TRUE(world.scheduler.add(std::move(request)).ok());
    world.run();
    EXPECT_EQ(world.of(id).cached_tokens, 0);
    EXPECT_EQ(world.scheduler.stats().groups[0].free_pages, 32);
  }
  EXPECT_EQ(world.of(2, 2).tokens, plain_tokens(options, prompt_of(150), {}, 5, 2));
}

TEST(Scheduler, ChoicesForkAfterOnePrefill) {
  for (int size : {1, 64, 65, 100, 129}) {
    for (int depth : {1, 3}) {
      SchedulerOptions options = options_of(32);
      options.groups.push_back({"window", Retention::kWindow, 70, 32});
      options.groups.push_back({"state", Retention::kState, 0, 12});
      options.max_steps_in_flight = depth;
      World world(options);
      QueuedRequest request = request_of(9, prompt_of(size), 12);
      request.num_choices = 4;
      ASSERT_TRUE(world.scheduler.add(std::move(request)).ok());
      world.run();
      for (int choice = 0; choice < 4; ++choice)
        EXPECT_EQ(world.of(9, choice).tokens,
                  plain_tokens(options, prompt_of(size), {}, 12, choice))
            << size;
      const SchedulerStats stats = world.scheduler.stats();
      EXPECT_EQ(stats.prefill_tokens, size + 3);
      EXPECT_EQ(stats.forks, 3);
      EXPECT_EQ(stats.finished, 4);
    }
  }
}

TEST(Scheduler, MoreChoicesThanSlots) {
  SchedulerOptions options = options_of(12, 3);
  World world(options);
  QueuedRequest request = request_of(9, prompt_of(70), 30);
  request.num_choices = 16;
  ASSERT_TRUE(world.scheduler.add(std::move(request)).ok());
  world.run();
  for (int choice = 0; choice < 16; ++choice)
    EXPECT_EQ(world.of(9, choice).tokens, plain_tokens(options, prompt_of(70), {}, 30, choice));
}

TEST(Scheduler, PromptLogprobsAreEqualColdAndWarm) {
  SchedulerOptions options = options_of(32);
  options.chunked_prefill_tokens = 40;
  World world(options);
  const auto prompt = prompt_of(150);
  sim::PlainModel model(options.groups);
  for (std::int32_t token : prompt) model.push(token);
  std::uint64_t id = 0;
  for (int start : {0, 0, 64, 100, 148, 149, 0}) {
    QueuedRequest request = request_of(++id, prompt, 2);
    request.logprob_start = start;
    ASSERT_TRUE(world.scheduler.add(std::move(request)).ok());
    world.run();
    const auto& got = world.of(id).prompt_logprobs;
    ASSERT_EQ(static_cast<int>(got.size()), 149 - start);
    for (int p = start; p < 149; ++p)
      EXPECT_EQ(got[p - start].logprob, sim::logprob_of(model.read(p), prompt[p + 1]));
    EXPECT_LE(world.of(id).cached_tokens, start);
  }
  EXPECT_EQ(world.of(4).cached_tokens, 100);
}

TEST(Scheduler, StopRules) {
  SchedulerOptions options = options_of(32);
  const auto prompt = prompt_of(20);
  const auto free_run = plain_tokens(options, prompt, {}, 40);
  struct Case {
    const char* name;
    bool eos, ignore, stop_id, matcher;
    int min_new;
  };
  for (const Case& c :
       {Case{"eos", true, false, false, false, 0}, Case{"ignored", true, true, false, false, 0},
        Case{"stop id", false, false, true, false, 0}, Case{"string", false, false, false, true, 0},
        Case{"min", true, false, false, false, 30}, Case{"all", true, true, true, true, 0}}) {
    QueuedRequest request = request_of(1, prompt, 40);
    const std::int32_t end = free_run[9];
    if (c.eos) request.eos_ids = {end};
    request.ignore_eos = c.ignore;
    if (c.stop_id) request.params.stop_token_ids = {end};
    if (c.matcher) request.stop_matchers.push_back(std::make_unique<sim::PairMatcher>(9));
    request.params.min_new_tokens = c.min_new;
    SamplingParams params = request.params;
    if (c.eos && !c.ignore) params.stop_token_ids.push_back(end);
    auto expected = plain_tokens(options, prompt, params, 40);
    std::size_t cut = expected.size();
    FinishReason reason = FinishReason::kLength;
    sim::PairMatcher matcher(9);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const bool string = c.matcher && matcher.push(expected[i]);
      if (!string && !(sim::is_stop(params, expected[i]) && static_cast<int>(i) >= c.min_new))
        continue;
      cut = i + 1;
      reason = FinishReason::kStop;
      break;
    }
    expected.resize(cut);
    World world(options);
    ASSERT_TRUE(world.scheduler.add(std::move(request)).ok());
    world.run();
    EXPECT_EQ(world.of(1).tokens, expected) << c.name;
    EXPECT_EQ(world.of(1).finish, reason) << c.name;
    if (c.eos && !c.ignore && c.min_new == 0) {
      EXPECT_EQ(world.of(1).matched_token, end);
      EXPECT_LE(expected.size(), 10u);
    }
    EXPECT_GE(static_cast<int>(expected.size()), c.min_new);
  }
}

TEST(Scheduler, NothingNewIsOnlyComputed) {
  World world(options_of(8));
  QueuedRequest request = request_of(1, prompt_of(100), 0);
  request.logprob_start = 0;
  ASSERT_TRUE(world.scheduler.add(std::move(request)).ok());
  world.run();
  EXPECT_EQ(world.of(1).finish, FinishReason::kLength);
  EXPECT_EQ(world.of(1).tokens.size(), 0u);
  EXPECT_EQ(world.of(1).prompt_logprobs.size(), 99u);
}

TEST(Scheduler, TheContextEndsARequest) {
  SchedulerOptions options = options_of(8);
  options.max_context = 128;
  World world(options);
  ASSERT_TRUE(world.scheduler.add(request_of(1, prompt_of(120), 100)).ok());
  world.run();
  EXPECT_EQ(world.of(1).finish, FinishReason::kLength);
  EXPECT_EQ(world.of(1).tokens.size(), 8u);
}

TEST(Scheduler, RefusesWhatNeverFits) {
  SchedulerOptions options = options_of(4);
  options.max_context = 1000;
  options.max_queued_requests = 2;
  options.max_queued_tokens = 100;
  Scheduler scheduler(options);
  auto fault = [&](QueuedRequest request) { return scheduler.add(std::move(request)).fault(); };
  const Fault pages = fault(request_of(1, prompt_of(200), 58));
  EXPECT_EQ(pages.status, 400);
  EXPECT_EQ(pages.code, "context_length_exceeded");
  EXPECT_NE(pages.message.find("5 pages"), std::string::npos) << pages.message;
  EXPECT_NE(pages.message.find("there are 4"), std::string::npos) << pages.message;
  const Fault context = fault(request_of(1, prompt_of(1000), 1));
  EXPECT_EQ(context.code, "context_length_exceeded");
  EXPECT_NE(context.message.find("1000 tokens leaves room for 999"), std::string::npos)
      << context.message;
  EXPECT_EQ(fault(request_of(1, {}, 1)).code, "invalid_value");

  EXPECT_TRUE(scheduler.add(request_of(1, prompt_of(200), 57))
                  .ok());  // 256 tokens are stored: exactly 4 pages
  const Fault tokens = fault(request_of(2, prompt_of(20), 1));
  EXPECT_EQ(tokens.status, 429);
  EXPECT_EQ(tokens.code, "queue_full");
  std::vector<Event> events;
  EXPECT_TRUE(scheduler.abort(1, events));
  EXPECT_TRUE(scheduler.add(request_of(2, prompt_of(20), 1)).ok());
  EXPECT_TRUE(scheduler.add(request_of(3, prompt_of(20), 1)).ok());
  EXPECT_EQ(fault(request_of(4, prompt_of(20), 1)).code, "queue_full");
}

TEST(Scheduler, OptionsThatCannotWork) {
  auto with = [](auto change) {
    SchedulerOptions options = options_of(4);
    change(options);
    return options;
  };
  EXPECT_THROW(Scheduler(with([](auto& o) { o.max_running_requests = 0; })), Error);
  EXPECT_THROW(Scheduler(with([](auto& o) { o.chunked_prefill_tokens = 0; })), Error);
  EXPECT_THROW(Scheduler(with([](auto& o) { o.groups[0].num_pages = 0; })), Error);
  EXPECT_THROW(Scheduler(with([](auto& o) { o.groups = {{"w", Retention::kWindow, 0, 4}}; })),
               Error);
  EXPECT_THROW(Scheduler(with([](auto& o) { o.schedule_conservativeness = 0; })), Error);
}

TEST(Scheduler, APoolOfOneAndAHalfRequestsFinishes64) {
  for (int depth : {1, 2, 3}) {
    for (bool cache : {true, false}) {
      SchedulerOptions options = options_of(9, 16);  // a request needs 6 pages
      options.max_steps_in_flight = depth;
      options.disable_radix_cache = !cache;
      World world(options);
      for (std::uint64_t id = 1; id <= 64; ++id)
        ASSERT_TRUE(
            world.scheduler.add(request_of(id, prompt_of(40, static_cast<int>(id)), 340)).ok());
      world.run();
      for (std::uint64_t id = 1; id <= 64; ++id)
        EXPECT_EQ(world.of(id).tokens,
                  plain_tokens(options, prompt_of(40, static_cast<int>(id)), {}, 340))
            << id;
      const SchedulerStats stats = world.scheduler.stats();
      EXPECT_GT(stats.retractions, 0);
      EXPECT_EQ(stats.retractions_of_ended.sum, static_cast<std::uint64_t>(stats.retractions));
      EXPECT_EQ(std::accumulate(stats.retractions_of_ended.counts.begin(),
                                stats.retractions_of_ended.counts.end(), std::uint64_t{0}),
                64u);
      EXPECT_EQ(world.scheduler.stats().failed, 0);
      EXPECT_EQ(world.scheduler.stats().groups[0].used_pages, 0);
    }
  }
}

TEST(Scheduler, TheOldestIsNeverRetracted) {
  SchedulerOptions options = options_of(9, 16);
  World world(options);
  for (std::uint64_t id = 1; id <= 8; ++id)
    ASSERT_TRUE(world.scheduler.add(request_of(id, prompt_of(40, static_cast<int>(id)), 340)).ok());
  int inits = 0;
  while (world.of(1).finish == FinishReason::kNone) {
    ASSERT_TRUE(world.launch());
    const Batch& batch = world.steps.front().dp[0];
    ASSERT_TRUE(std::ranges::any_of(
        batch.items, [](const BatchItem& i) { return i.sequence == sequence_id(1, 0); }));
    for (const BatchItem& item : batch.items)
      for (const SlotInit& init : batch.slot_inits)
        inits += item.sequence == sequence_id(1, 0) && init.slot == item.slot;
    world.commit();
  }
  EXPECT_EQ(inits, 1);
  EXPECT_GT(world.scheduler.stats().retractions, 0);
}

TEST(Scheduler, NumericsErrorEndsOneRequestAndIsNotCached) {
  World world(options_of(32));
  world.device.broken.push_back({sequence_id(1, 0), 103});
  ASSERT_TRUE(world.scheduler.add(request_of(1, prompt_of(100), 20)).ok());
  ASSERT_TRUE(world.scheduler.add(request_of(2, prompt_of(100, 5), 20)).ok());
  world.run();
  EXPECT_EQ(world.of(1).finish, FinishReason::kError);
  EXPECT_EQ(world.of(1).error.code, "numerics_error");
  EXPECT_EQ(world.of(1).tokens.size(), 3u);
  EXPECT_EQ(world.of(2).tokens.size(), 20u);
  ASSERT_TRUE(world.scheduler.add(request_of(3, prompt_of(100), 1)).ok());
  world.run();
  EXPECT_EQ(world.of(3).cached_tokens,
            64);  // published before the fault; the page written since then is not
}

TEST(Scheduler, AbortWhereverItIs) {
  for (int steps_before : {0, 1, 2, 4, 6}) {
    for (bool in_flight : {false, true}) {
      SchedulerOptions options = options_of(32);
      options.chunked_prefill_tokens = 40;
      options.max_steps_in_flight = 2;
      World world(options);
      QueuedRequest request = request_of(1, prompt_of(100), 20);
      request.num_choices = 2;
      ASSERT_TRUE(world.scheduler.add(std::move(request)).ok());
      for (int i = 0; i < steps_before; ++i) {
        ASSERT_TRUE(world.launch());
        world.commit();
      }
      if (in_flight) {
        ASSERT_TRUE(world.launch() && world.launch());
      }
      EXPECT_TRUE(world.scheduler.abort(1, world.events));
      EXPECT_FALSE(world.scheduler.abort(1, world.events));
      EXPECT_EQ(std::ranges::count(world.events, FinishReason::kAbort, &Event::finish), 2);
      world.scheduler.check_invariants();
      world.run();
      EXPECT_FALSE(world.scheduler.has_work());
      EXPECT_EQ(world.scheduler.stats().groups[0].used_pages, 0);
      EXPECT_EQ(world.scheduler.stats().running, 0);
      world.scheduler.flush_cache();
      EXPECT_EQ(world.scheduler.stats().groups[0].free_pages, 32);
    }
  }
  Scheduler scheduler(options_of(4));
  std::vector<Event> events;
  EXPECT_FALSE(scheduler.abort(77, events));
}

TEST(Scheduler, Deadlines) {
  World world(options_of(32));
  QueuedRequest request = request_of(1, prompt_of(100), 20);
  request.deadline_s = 5;
  ASSERT_TRUE(world.scheduler.add(std::move(request)).ok());
  world.scheduler.expire(5, world.events);
  EXPECT_TRUE(world.events.empty());
  world.scheduler.expire(5.1, world.events);
  ASSERT_EQ(world.events.size(), 1u);
  EXPECT_EQ(world.events[0].error.code, "timeout");
  EXPECT_FALSE(world.scheduler.has_work());
}

}  // namespace
}  // namespace sluice
