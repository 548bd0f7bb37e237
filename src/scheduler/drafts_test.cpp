// Speculation: what the scheduler does with drafts.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "scheduler/testing/sim_world.h"

namespace sluice {
namespace {

using namespace sim;

// Drafts from a given text; every `wrong_every`th of them is wrong.
class Script : public TokenDrafter {
 public:
  Script(std::vector<std::int32_t> text, std::size_t wrong_every)
      : text_(std::move(text)), wrong_every_(wrong_every) {}
  void draft(std::span<const std::int32_t> tokens, int max_drafts,
             std::vector<std::int32_t>& drafts) override {
    ASSERT_LE(tokens.size(), text_.size());
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), text_.begin()));
    for (std::size_t at = tokens.size();
         at < text_.size() && std::cmp_less(at - tokens.size(), max_drafts); ++at)
      drafts.push_back(wrong_every_ > 0 && at % wrong_every_ == 0 ? (text_[at] + 1) % kVocab
                                                                  : text_[at]);
  }

 private:
  const std::vector<std::int32_t> text_;
  const std::size_t wrong_every_;
};

struct Case {
  std::vector<std::int32_t> prompt, output;
  SchedulerOptions options;

  Case(int prompt_size, int num_output, int max_drafts, std::size_t wrong_every,
       std::int64_t pages = 40, std::int64_t states = 0)
      : prompt(prompt_of(prompt_size)), options(options_of(pages)) {
    if (states > 0) options.groups.push_back({"state", Retention::kState, 0, states});
    output = plain_tokens(options, prompt, {}, num_output);
    options.max_drafts = max_drafts;
    std::vector<std::int32_t> text = prompt;
    text.insert(text.end(), output.begin(), output.end());
    options.make_drafter = [=](const DraftedChoice&) {
      return std::make_unique<Script>(text, wrong_every);
    };
  }
  QueuedRequest request(std::uint64_t id = 1) const {
    return request_of(id, prompt, static_cast<int>(output.size()));
  }
};

TEST(Drafts, TokensAreThoseOfPlainDecodingInFewerSteps) {
  for (const auto& [max_drafts, wrong_every, steps] :
       {std::tuple{4, std::size_t{0}, 21}, std::tuple{1, std::size_t{0}, 51},
        std::tuple{4, std::size_t{1}, 100}}) {
    const Case c(70, 100, max_drafts, wrong_every);
    World world(c.options);
    ASSERT_TRUE(world.scheduler.add(c.request()).ok());
    world.run();
    EXPECT_EQ(world.of(1).tokens, c.output);
    EXPECT_EQ(world.of(1).finish, FinishReason::kLength);
    // one prefill step; then each step brings max_drafts + 1 tokens, or one
    EXPECT_EQ(world.num_steps, steps);
    const SchedulerStats stats = world.scheduler.stats();
    EXPECT_EQ(stats.verifications, steps - 1);
    EXPECT_EQ(stats.accepted_tokens, 99 - stats.verifications);
    EXPECT_EQ(world.of(1).drafts.accepted, stats.accepted_tokens);
    EXPECT_EQ(world.of(1).drafts.drafted, stats.drafted_tokens);
    EXPECT_EQ(stats.accepted_by_place.size(), static_cast<std::size_t>(max_drafts));
  }
}

// Three sequences with three drafts each, with two, and with none.
TEST(Drafts, AllSequencesOfAStepShareTheRows) {
  Case c(10, 40, 6, 0);
  c.options.max_running_requests = 3;
  for (const int limit : {12, 9, 5, 3}) {
    c.options.max_draft_rows = limit;
    Scheduler scheduler(c.options);
    Device device(c.options);
    std::vector<Event> events;
    for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(scheduler.add(c.request(id)).ok());
    Step step;
    StepResult result;
    std::size_t most = 0;
    while (scheduler.next(step, events)) {
      const Batch& batch = step.dp[0];
      if (batch.mode == ForwardMode::kTargetVerify) most = std::max(most, batch.token_ids.size());
      device.run(step, result);
      scheduler.commit(step, result, events);
    }
    EXPECT_EQ(most, static_cast<std::size_t>(limit < 6 ? 0 : limit)) << "limit " << limit;
  }
  c.options.max_draft_rows = 2;
  EXPECT_THROW(Scheduler{c.options}, Error);
}

TEST(Drafts, AStepOfDecodeRowsAndDraftsIsAVerification) {
  const Case c(10, 30, 3, 0);
  Scheduler scheduler(c.options);
  Device device(c.options);
  std::vector<Event> events;
  ASSERT_TRUE(scheduler.add(c.request()).ok());
  Step step;
  StepResult result;
  ASSERT_TRUE(scheduler.next(step, events));
  EXPECT_EQ(step.dp[0].mode, ForwardMode::kExtend);
  device.run(step, result);
  scheduler.commit(step, result, events);
  ASSERT_TRUE(scheduler.next(step, events));
  const Batch& batch = step.dp[0];
  EXPECT_EQ(batch.mode, ForwardMode::kTargetVerify);
  ASSERT_EQ(batch.items.size(), 1u);
  EXPECT_TRUE(batch.items[0].decode);
  EXPECT_EQ(batch.items[0].first, 10);
  EXPECT_EQ(batch.items[0].count, 4);
  EXPECT_EQ(batch.token_ids, std::vector<std::int32_t>(c.output.begin(), c.output.begin() + 4));
  ASSERT_EQ(batch.logit_rows.size(), 4u);
  for (std::int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(batch.logit_rows[static_cast<std::size_t>(i)].row, i);
    EXPECT_EQ(batch.logit_rows[static_cast<std::size_t>(i)].position, 11 + i);
    EXPECT_TRUE(batch.logit_rows[static_cast<std::size_t>(i)].sample);
  }
  device.run(step, result);
  scheduler.commit(step, result, events);
  EXPECT_EQ(events.back().tokens.size(), 4u);
}

// A token that ends the sequence is never a draft, and none stands behind the last token.
TEST(Drafts, EndBeforeTheSequenceDoes) {
  Case c(10, 12, 8, 0);
  const std::int32_t stop = c.output[6];
  const auto end = std::ranges::find(c.output, stop) - c.output.begin();
  QueuedRequest request = c.request();
  request.eos_ids = {stop};
  World world(c.options);
  ASSERT_TRUE(world.scheduler.add(std::move(request)).ok());
  ASSERT_TRUE(world.scheduler.add(c.request(2)).ok());
  while (world.scheduler.has_work()) {
    if (world.launch()) {
      const Batch& batch = world.steps.back().dp[0];
      for (const BatchItem& item : batch.items) EXPECT_LE(item.first + item.count, 10 + 12 - 1);
      continue;
    }
    world.commit();
  }
  EXPECT_EQ(world.of(1).tokens,
            std::vector<std::int32_t>(c.output.begin(), c.output.begin() + end + 1));
  EXPECT_EQ(world.of(1).finish, FinishReason::kStop);
  EXPECT_EQ(world.of(2).tokens, c.output);
}

// Keeps what it is told at the end of choices.
class Listener : public TokenDrafter {
 public:
  struct Ended {
    DraftedChoice choice;
    std::vector<std::int32_t> tokens;
  };
  Listener(const DraftedChoice& choice, std::vector<Ended>& ended)
      : choice_(choice), ended_(ended) {}
  void draft(std::span<const std::int32_t>, int, std::vector<std::int32_t>&) override {}
  void finish(std::span<const std::int32_t> tokens) override {
    ended_.push_back({choice_, {tokens.begin(), tokens.end()}});
  }

 private:
  const DraftedChoice choice_;
  std::vector<Ended>& ended_;
};

TEST(Drafts, TheirMakerSeesWholeAnswersAtTheirEnd) {
  Case c(10, 12, 4, 0);
  std::vector<Listener::Ended> ended;
  c.options.make_drafter = [&](const DraftedChoice& choice) {
    return std::make_unique<Listener>(choice, ended);
  };
  const std::int32_t stop = c.output[6];
  const auto length = std::ranges::find(c.output, stop) - c.output.begin() + 1;
  World world(c.options);
  QueuedRequest stops = c.request();
  stops.eos_ids = {stop};
  stops.cache_namespace = 5;
  ASSERT_TRUE(world.scheduler.add(std::move(stops)).ok());
  ASSERT_TRUE(world.scheduler.add(c.request(2)).ok());
  world.run();
  ASSERT_TRUE(world.scheduler.add(c.request(3)).ok());
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(world.launch());
    world.commit();
  }
  std::vector<Event> events;
  EXPECT_TRUE(world.scheduler.abort(3, events));
  world.run();
  ASSERT_EQ(ended.size(), 2u) << "the third was aborted";
  for (const auto& [choice, tokens] : ended) {
    EXPECT_EQ(choice.num_prompt, c.prompt.size());
    std::vector<std::int32_t> wanted = c.prompt;
    wanted.insert(wanted.end(), c.output.begin(),
                  choice.cache_namespace == 5 ? c.output.begin() + length : c.output.end());
    EXPECT_EQ(tokens, wanted);
  }
}

// The device reads what the cache holds: a row of a wrong draft would give other tokens.
TEST(Drafts, ThePrefixCacheHoldsNoWrongDraft) {
  const Case c(30, 100, 5, 2);
  World world(c.options);
  ASSERT_TRUE(world.scheduler.add(c.request()).ok());
  world.run();
  ASSERT_EQ(world.of(1).tokens, c.output);
  std::vector<std::int32_t> next = c.prompt;
  next.insert(next.end(), c.output.begin(), c.output.end());
  next.push_back(5);
  const std::vector<std::int32_t> wanted = plain_tokens(c.options, next, {}, 1);
  ASSERT_TRUE(world.scheduler.add(request_of(2, next, 1)).ok());
  world.run();
  EXPECT_EQ(world.of(2).tokens, wanted);
  EXPECT_EQ(world.of(2).cached_tokens, 129) << "the last token of the first answer has no row";
}

// Without a drafter drafts are those of the last result, and a chunk names the token behind it.
TEST(Drafts, ComeWithResultsWhereThereIsNoDrafter) {
  Case c(100, 9, 4, 0);
  c.options.make_drafter = {};
  c.options.draft_slots = 30;
  c.options.chunked_prefill_tokens = 60;
  Scheduler scheduler(c.options);
  Device device(c.options);
  std::vector<Event> events;
  ASSERT_TRUE(scheduler.add(c.request()).ok());
  Step step;
  StepResult result;
  ASSERT_TRUE(scheduler.next(step, events));
  EXPECT_EQ(step.dp[0].items[0].next_token, c.prompt[60]);
  device.run(step, result);
  scheduler.commit(step, result, events);
  ASSERT_TRUE(scheduler.next(step, events));
  EXPECT_EQ(step.dp[0].items[0].next_token, -1);
  device.run(step, result);
  result.dp[0].draft_offsets = {0, 2};
  result.dp[0].drafts = {c.output[1], c.output[2]};
  scheduler.commit(step, result, events);
  ASSERT_TRUE(scheduler.next(step, events));
  EXPECT_EQ(step.dp[0].items[0].count, 3);
  // The layer that drafts fills slots behind the step.
  EXPECT_GE(step.dp[0].groups[0].pages.size() * kPageSize, 100u + 3 + 30);
  device.run(step, result);
  scheduler.commit(step, result, events);
  EXPECT_EQ(events.back().tokens,
            std::vector<std::int32_t>(c.output.begin() + 1, c.output.begin() + 4));
}

// Rows that cost a tenth of a step, or next to nothing.
DraftCosts costs_of(double row) {
  const CostLine line{{{1, 1}, {2, 1 + row}, {9, 1 + 8 * row}}};
  return {.plain = line, .checks = line, .first_pass = {}, .next_pass = {}};
}

TEST(Drafts, AreAsManyAsPay) {
  // All are right: as many as there are. None is: some at first, and a probe now and then.
  for (const auto& [wrong_every, min_steps, max_steps, max_drafted] :
       {std::tuple{std::size_t{0}, 141, 150, 149}, std::tuple{std::size_t{1}, 700, 700, 20}}) {
    Case c(10, 700, 4, wrong_every);
    c.options.draft_costs = costs_of(0.1);
    World world(c.options);
    ASSERT_TRUE(world.scheduler.add(c.request()).ok());
    world.run();
    EXPECT_EQ(world.of(1).tokens, c.output);
    EXPECT_GE(world.num_steps, min_steps);
    EXPECT_LE(world.num_steps, max_steps);
    const SchedulerStats stats = world.scheduler.stats();
    EXPECT_LE(stats.drafted_rows, max_drafted);
    EXPECT_GT(stats.drafted_rows, 3);
    ASSERT_EQ(stats.steps_by_drafts.size(), 5u);
    EXPECT_EQ(std::reduce(stats.steps_by_drafts.begin(), stats.steps_by_drafts.end()),
              world.num_steps - 1);
    EXPECT_EQ(stats.steps_by_drafts[0], world.num_steps - 1 - stats.drafted_rows);
    EXPECT_GT(stats.steps_by_drafts[wrong_every == 0 ? 4 : 0], 130);
  }
}

// Where each row reads the tokens before it, drafts end as a sequence grows.
TEST(Drafts, AreFewerBehindManyTokens) {
  for (const bool is_long : {false, true}) {
    Case c(is_long ? 400 : 10, 100, 4, 0);
    c.options.draft_costs = costs_of(0.1);
    c.options.draft_costs.plain_token_s = c.options.draft_costs.check_token_s = 0.3;
    World world(c.options);
    ASSERT_TRUE(world.scheduler.add(c.request()).ok());
    world.run();
    EXPECT_EQ(world.of(1).tokens, c.output);
    const SchedulerStats stats = world.scheduler.stats();
    EXPECT_GE(world.num_steps, is_long ? 70 : 20);
    EXPECT_LE(world.num_steps, is_long ? 100 : 30);
    // Behind many tokens a right draft brings no more than its row costs: so probes end as well.
    EXPECT_LE(stats.drafted_rows, 30);
    EXPECT_GE(stats.drafted_rows, 10);
  }
}

// A draft that runs behind steps is told how many drafts the next one uses: none where none pays,
// but now and then some.
TEST(Drafts, AreNotMadeWhereNonePays) {
  Case c(100, 600, 4, 0);
  c.options.make_drafter = {};
  c.options.draft_costs = costs_of(0.1);
  c.options.draft_costs.first_pass.points = c.options.draft_costs.next_pass.points = {{1, 0.05}};
  for (const bool right : {false, true}) {
    Scheduler scheduler(c.options);
    Device device(c.options);
    std::vector<Event> events;
    ASSERT_TRUE(scheduler.add(c.request()).ok());
    Step step;
    StepResult result;
    std::vector<std::int32_t> tokens;
    int runs = 0, steps = 0;
    for (; scheduler.next(step, events); ++steps) {
      device.run(step, result);
      BatchResult& of_group = result.dp[0];
      const int wanted = step.dp[0].max_drafts;
      ASSERT_GE(wanted, steps == 0 ? 1 : 0);
      runs += wanted > 0;
      const auto known = tokens.size() + of_group.tokens.size();
      of_group.drafts.clear();
      for (std::size_t at = known; at < c.output.size() && std::cmp_less(at - known, wanted); ++at)
        of_group.drafts.push_back((c.output[at] + !right) % kVocab);
      of_group.draft_offsets = {0, static_cast<std::int32_t>(of_group.drafts.size())};
      events.clear();
      scheduler.commit(step, result, events);
      for (const Event& e : events) tokens.insert(tokens.end(), e.tokens.begin(), e.tokens.end());
    }
    EXPECT_EQ(tokens, c.output);
    EXPECT_LE(runs, right ? steps : 25);
    EXPECT_GE(runs, 3);
    EXPECT_LE(steps, right ? 140 : 600);
  }
}

// The constraint is not asked by the scheduler.
struct NoConstraint : TokenConstraint {
  bool fill(std::span<std::uint32_t>) override { return true; }
  bool accept(std::int32_t) override { return true; }
  void rollback(std::size_t) override {}
};

// Two sequences of which the first has a grammar. It drafts up to two tokens at each third place.
TEST(Drafts, OfAGrammarComeBeforeThoseOfTheMethod) {
  for (const bool has_method : {false, true}) {
    Case c(10, 60, 4, has_method ? 1 : 0);  // the method's are wrong
    if (!has_method) {
      struct None : TokenDrafter {
        void draft(std::span<const std::int32_t>, int, std::vector<std::int32_t>&) override {}
      };
      c.options.make_drafter = [](const DraftedChoice&) { return std::make_unique<None>(); };
    }
    World* now = nullptr;
    int calls = 0;
    c.options.draft_forced = [&](std::uint64_t sequence, int max_drafts,
                                 std::vector<std::int32_t>& drafts) {
      EXPECT_EQ(sequence, sequence_id(1, 0)) << "the other one has no grammar";
      EXPECT_LE(max_drafts, 4);
      ++calls;
      const std::size_t known = now->of(1).tokens.size();
      if (known % 3 != 0) return;
      for (int i = 0; i < std::min(max_drafts, 2); ++i)
        drafts.push_back(c.output[known + static_cast<std::size_t>(i)]);
    };
    World world(c.options);
    now = &world;
    QueuedRequest constrained = c.request();
    constrained.make_constraint = [] { return std::make_unique<NoConstraint>(); };
    ASSERT_TRUE(world.scheduler.add(std::move(constrained)).ok());
    ASSERT_TRUE(world.scheduler.add(c.request(2)).ok());
    world.run();
    EXPECT_EQ(world.of(1).tokens, c.output);
    EXPECT_EQ(world.of(2).tokens, c.output);
    EXPECT_GT(calls, 20);
    // Places 3, 6, .. bring three tokens each, and so the next one is such a place again.
    EXPECT_EQ(world.of(1).drafts.accepted, 38);
    EXPECT_EQ(world.of(2).drafts.accepted, 0);
    EXPECT_EQ(world.of(2).drafts.drafted > 0, has_method);
  }
}

// Every third draft is wrong: the state behind the last right row is the sequence's from then on.
TEST(Drafts, EachHasAStateBehindIt) {
  const Case c(10, 30, 4, 3, 40, 6);
  Scheduler scheduler(c.options);
  Device device(c.options);
  std::vector<Event> events;
  ASSERT_TRUE(scheduler.add(c.request()).ok());
  Step step;
  StepResult result;
  std::vector<std::int32_t> states, tokens;
  std::size_t last_right = 0, most = 0;
  while (scheduler.next(step, events)) {
    const Batch& batch = step.dp[0];
    const auto count = static_cast<std::size_t>(batch.items[0].count);
    ASSERT_EQ(batch.state_slots.size(), batch.items[0].decode ? count : 1u);
    if (!states.empty()) {
      EXPECT_EQ(batch.state_slots[0], states[last_right]);
    }
    states = batch.state_slots;
    std::ranges::sort(states);
    EXPECT_EQ(std::ranges::adjacent_find(states), states.end()) << "two rows with one state";
    states = batch.state_slots;
    most = std::max(most, count);
    device.run(step, result);
    events.clear();
    scheduler.commit(step, result, events);
    ASSERT_EQ(events.size(), 1u);
    tokens.insert(tokens.end(), events[0].tokens.begin(), events[0].tokens.end());
    last_right = events[0].tokens.size() - 1;
    scheduler.check_invariants();
  }
  EXPECT_EQ(tokens, c.output);
  EXPECT_EQ(most, 10u) << "the prompt";
  EXPECT_EQ(scheduler.stats().groups.back().used_pages, 0);
}

// Two states: one draft at a time, whatever is asked for.
TEST(Drafts, EndWhereThereIsNoState) {
  const Case c(10, 30, 4, 0, 40, 2);
  World world(c.options);
  ASSERT_TRUE(world.scheduler.add(c.request()).ok());
  world.run();
  EXPECT_EQ(world.of(1).tokens, c.output);
  EXPECT_EQ(world.of(1).drafts.accepted, 14);
}

TEST(Drafts, OfAPipelineNeedOneStepInFlight) {
  SchedulerOptions options = options_of(10);
  options.max_drafts = 2;
  options.max_steps_in_flight = 2;
  EXPECT_NO_THROW(Scheduler{options});
  options.pipelined = true;
  EXPECT_THROW(Scheduler{options}, Error);
  options.max_steps_in_flight = 1;
  EXPECT_NO_THROW(Scheduler{options});
}

TEST(Drafts, OfTreesHaveNoStates) {
  SchedulerOptions options = options_of(10);
  options.max_drafts = 2;
  options.draft_branches = 2;
  EXPECT_NO_THROW(Scheduler{options});
  options.groups.push_back({"state", Retention::kState, 0, 4});
  EXPECT_THROW(Scheduler{options}, Error);
  options.draft_branches = 1;
  EXPECT_NO_THROW(Scheduler{options});
}

}  // namespace
}  // namespace sluice
