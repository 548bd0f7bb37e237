// Steps that are planned while another is in flight, with drafts that pay and that do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "scheduler/testing/sim_world.h"

namespace sluice {
namespace {

using namespace sim;

// Steps of one request, and how many of them began while another was in flight.
struct Ahead {
  World world;
  int ahead = 0, drafted = 0;
  std::int32_t stop_token = -1;  // of requests; -1: none
  bool needs_prompt = false;     // a draft that did not run behind the prompt never does

  explicit Ahead(const SchedulerOptions& options) : world(options) {}
  // Drafts come with results, where a step wants some: right ones, or wrong ones.
  void run(std::uint64_t id, int answer, bool right) {
    const std::vector<std::int32_t> prompt = prompt_of(20, needs_prompt ? static_cast<int>(id) : 0),
                                    text =
                                        plain_tokens(world.scheduler.options(), prompt, {}, answer);
    auto request = request_of(id, prompt, answer);
    if (stop_token >= 0) request.params.stop_token_ids = {stop_token};
    ASSERT_TRUE(world.scheduler.add(std::move(request)).ok());
    bool is_lost = false;
    while (world.scheduler.has_work()) {
      const bool is_ahead = !world.steps.empty();
      if (world.launch()) {
        ahead += is_ahead;
        drafted += std::ranges::any_of(world.steps.back().dp[0].items, [](const auto& item) {
          return item.decode && item.count > 1;
        });
        continue;
      }
      world.take();
      if (world.steps.empty()) break;
      const Batch& batch = world.steps.front().dp[0];
      BatchResult& result = world.results.front().dp[0];
      const std::size_t known = world.of(id).tokens.size() + result.tokens.size();
      result.drafts.clear();
      is_lost = is_lost || (needs_prompt && !batch.items[0].decode && batch.max_drafts == 0);
      for (std::size_t at = known;
           !is_lost && at < text.size() && std::cmp_less(result.drafts.size(), batch.max_drafts);
           ++at)
        result.drafts.push_back((text[at] + !right) % kVocab);
      result.draft_offsets = {0, static_cast<std::int32_t>(result.drafts.size())};
      world.commit();
    }
    world.take();
    EXPECT_EQ(world.of(id).tokens, text);
  }
};

SchedulerOptions with_drafts(bool are_measured) {
  SchedulerOptions options = options_of(40);
  options.max_drafts = 3;
  options.max_steps_in_flight = 2;
  if (!are_measured) return options;
  const CostLine line{{{1, 1}, {2, 1.05}, {8, 1.3}}};
  options.draft_costs = {.plain = line,
                         .checks = line,
                         .first_pass = {{{1, 0.1}, {32, 0.2}}},
                         .next_pass = {{{1, 0.1}}}};
  return options;
}

TEST(DraftsAhead, StepsOverlapWhereNoDraftPays) {
  Ahead wrong(with_drafts(true));
  wrong.run(1, 800, false);
  EXPECT_GT(wrong.ahead, 650);
  EXPECT_GE(wrong.drafted, 3) << "probes go on";
  EXPECT_LT(wrong.drafted, 60);
  Ahead right(with_drafts(true));
  right.run(1, 800, true);
  EXPECT_EQ(right.ahead, 0);
  EXPECT_LT(right.world.num_steps, 230);
  Ahead unmeasured(with_drafts(false));
  unmeasured.run(1, 200, false);
  EXPECT_EQ(unmeasured.ahead, 0) << "as many drafts as there are";
}

TEST(DraftsAhead, DraftsThatPayAgainEndIt) {
  Ahead both(with_drafts(true));
  both.run(1, 300, false);
  const int ahead = both.ahead;
  EXPECT_GT(ahead, 200);
  for (std::uint64_t id = 2; id < 40; ++id) both.run(id, 100, true);
  const int steps = both.world.num_steps;
  both.run(100, 200, true);
  EXPECT_LT(both.world.num_steps - steps, 60);
}

// Answers were too short for the draft's run behind their prompts. One that is long in any case
// begins with drafts; one that may be short does not.
TEST(DraftsAhead, LongAnswersHaveDraftsBehindShortOnes) {
  SchedulerOptions options = with_drafts(true);
  options.draft_costs.first_pass = {{{1, 0.1}, {20, 3}}};
  for (const bool may_be_short : {false, true}) {
    Ahead both(options);
    both.needs_prompt = true;
    for (std::uint64_t id = 1; id < 6; ++id) both.run(id, 4, true);
    const int steps = both.world.num_steps;
    both.stop_token = may_be_short ? kVocab + 1 : -1;
    both.run(100, 100, true);
    if (may_be_short)
      EXPECT_GT(both.world.num_steps - steps, 90);
    else
      EXPECT_LT(both.world.num_steps - steps, 40);
  }
}

// The text says what may follow.
TEST(DraftsAhead, TextIsLookedAtNowAndThen) {
  class Words final : public TokenDrafter {
   public:
    Words(const std::vector<std::int32_t>& text, std::size_t from) : text_(text), from_(from) {}
    void draft(std::span<const std::int32_t> tokens, int most,
               std::vector<std::int32_t>& out) override {
      out.clear();
      if (tokens.size() < from_) return;
      for (std::size_t at = tokens.size(); at < text_.size() && std::cmp_less(out.size(), most);
           ++at)
        out.push_back(text_[at]);
    }

   private:
    const std::vector<std::int32_t>& text_;
    const std::size_t from_;
  };
  SchedulerOptions options = with_drafts(true);
  options.draft_costs.first_pass = options.draft_costs.next_pass = {};
  std::vector<std::int32_t> text = prompt_of(20);
  for (const std::int32_t token : plain_tokens(options, prompt_of(20), {}, 400))
    text.push_back(token);
  options.make_drafter = [&text](const auto&) { return std::make_unique<Words>(text, 220); };
  World world(options);
  ASSERT_TRUE(world.scheduler.add(request_of(1, prompt_of(20), 400)).ok());
  world.run();
  EXPECT_EQ(world.of(1).tokens, std::vector<std::int32_t>(text.begin() + 20, text.end()));
  // 200 tokens without a draft, then 200 of which four come at once.
  EXPECT_LT(world.num_steps, 200 + 60 + 20);
  EXPECT_GT(world.scheduler.stats().accepted_tokens, 140);
}

}  // namespace
}  // namespace sluice
