// Trees of drafts, and drafts of prompts: how many the scheduler takes, and which.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "scheduler/testing/sim_world.h"

namespace sluice {
namespace {

using namespace sim;
using Tokens = std::vector<std::int32_t>;

// A tree in the order of a result: the best nodes first.
struct Tree {
  Tokens tokens, parents;
};

// Steps of one scheduler; what drafts say comes from the test.
class Steps {
 public:
  explicit Steps(const SchedulerOptions& options) : scheduler_(options), device_(options) {}

  Scheduler& scheduler() { return scheduler_; }
  const Tokens& tokens() const { return tokens_; }
  const Batch& batch() const { return step_.dp[0]; }

  bool next() {
    if (!scheduler_.next(step_, events_)) return false;
    device_.run(step_, result_);
    known_ = tokens_.size() + result_.dp[0].tokens.size();
    return true;
  }
  // Tokens that are known when the step is committed.
  std::size_t known() const { return known_; }
  void commit(const Tree& tree) {
    BatchResult& of_group = result_.dp[0];
    of_group.drafts = tree.tokens;
    of_group.draft_parents = tree.parents;
    of_group.draft_offsets = {0, static_cast<std::int32_t>(tree.tokens.size())};
    events_.clear();
    scheduler_.commit(step_, result_, events_);
    scheduler_.check_invariants();
    for (const Event& e : events_) tokens_.insert(tokens_.end(), e.tokens.begin(), e.tokens.end());
  }

 private:
  Scheduler scheduler_;
  Device device_;
  std::vector<Event> events_;
  Step step_;
  StepResult result_;
  Tokens tokens_;
  std::size_t known_ = 0;
};

SchedulerOptions with_trees(std::int64_t pages, int branches) {
  SchedulerOptions options = options_of(pages);
  options.max_drafts = 7;
  options.draft_slots = 2;
  options.draft_branches = branches;
  return options;
}

// Paths 1 2 6, 3 4 and 5; the numbers are those of likelihood.
TEST(DraftTrees, WithoutPagesTheLeastLikelyPathsGo) {
  const Tree tree{{31, 32, 33, 34, 35, 36}, {0, 1, 0, 3, 0, 2}};
  for (const auto& [pages, tokens, parents] :
       {std::tuple{5, Tokens{31, 32, 33, 34, 35, 36}, Tokens{-1, 0, 1, 0, 3, 0, 2}},
        std::tuple{2, Tokens{31, 32, 33, 34, 36}, Tokens{-1, 0, 1, 0, 3, 2}},
        std::tuple{1, Tokens{31, 32, 36}, Tokens{-1, 0, 1, 2}}}) {
    SCOPED_TRACE(pages);
    Steps steps(with_trees(pages, 4));
    ASSERT_TRUE(steps.scheduler().add(request_of(1, prompt_of(10), 30)).ok());
    ASSERT_TRUE(steps.next());
    steps.commit(tree);
    ASSERT_TRUE(steps.next());
    const Batch& batch = steps.batch();
    EXPECT_EQ(Tokens(batch.token_ids.begin() + 1, batch.token_ids.end()), tokens);
    ASSERT_EQ(batch.branches.size(), 1u);
    EXPECT_EQ(batch.branches[0].parents, parents);
  }
}

// Each row costs a tenth of a step, and a run of the draft as much.
DraftCosts costs_of(double row) {
  const CostLine line{{{1, 1}, {2, 1 + row}, {9, 1 + 8 * row}}};
  return {.plain = line,
          .checks = line,
          .first_pass = {{{1, row}}},
          .next_pass = {{{1, row}}},
          .next_tree_pass = {{{1, 2 * row}}},
          .tree_levels = 3};
}

// A tree of the text: the best two nodes of each level are a wrong one and the right one. With
// `most` 0 or less there is none; a draft without branches makes chains.
Tree tree_of(const Tokens& text, std::size_t known, const Batch& batch, double right,
             std::mt19937& random) {
  const bool is_chain = batch.branches.empty();
  Tree out;
  std::int32_t last = 0;
  for (std::size_t level = 0; level < 3 && known + level < text.size(); ++level) {
    const std::int32_t token = text[known + level];
    const bool is_right = std::uniform_real_distribution<>(0, 1)(random) < right;
    const bool is_second = !is_chain && std::uniform_real_distribution<>(0, 1)(random) < 0.5;
    const std::int32_t first = is_right && !is_second ? token : (token + 1) % kVocab;
    out.tokens.push_back(first);
    out.parents.push_back(last);
    const auto place = static_cast<std::int32_t>(out.tokens.size());
    if (!is_chain) {
      out.tokens.push_back(is_right && is_second ? token : (token + 2) % kVocab);
      out.parents.push_back(last);
    }
    last = place + (is_right && is_second);
  }
  const auto most = static_cast<std::size_t>(std::max(0, batch.max_drafts));
  out.tokens.resize(std::min(out.tokens.size(), most));
  out.parents.resize(out.tokens.size());
  return out;
}

TEST(DraftTrees, AreAsLargeAsPays) {
  for (const double right : {0.0, 1.0}) {
    SCOPED_TRACE(right);
    std::mt19937 random(1);
    SchedulerOptions options = with_trees(40, 3);
    const Tokens text = plain_tokens(options, prompt_of(10), {}, 900);
    options.draft_costs = costs_of(0.1);
    Steps steps(options);
    ASSERT_TRUE(steps.scheduler().add(request_of(1, prompt_of(10), 900)).ok());
    int count = 0, of_trees = 0, without = 0;
    for (; steps.next(); ++count) {
      const Batch& batch = steps.batch();
      const bool is_tree = !batch.branches.empty() && !batch.branches[0].parents.empty();
      of_trees += is_tree;
      without += batch.num_tokens() == 1;
      steps.commit(tree_of(text, steps.known(), batch, right, random));
    }
    EXPECT_EQ(steps.tokens(), text);
    if (right > 0) {
      // Of two nodes a level one is right, and of one node every second.
      EXPECT_GT(of_trees, 200);
      EXPECT_LT(count, 330);
    } else {
      EXPECT_GT(without, 870);
      EXPECT_LT(of_trees, 5);
    }
  }
}

// A chain is a smaller tree: where the best node is the right one, no other node is worth its row.
TEST(DraftTrees, AreChainsWhereTheBestNodeIsRight) {
  SchedulerOptions options = with_trees(40, 3);
  const Tokens text = plain_tokens(options, prompt_of(10), {}, 900);
  options.draft_costs = costs_of(0.1);
  Steps steps(options);
  ASSERT_TRUE(steps.scheduler().add(request_of(1, prompt_of(10), 900)).ok());
  int count = 0, chains = 0;
  for (; steps.next(); ++count) {
    const Batch& batch = steps.batch();
    chains += batch.num_tokens() == 4 && batch.branches.empty();
    Tree tree;
    for (std::int32_t i = 0;
         i < 3 && steps.known() + static_cast<std::size_t>(i) < text.size() && i < batch.max_drafts;
         ++i) {
      tree.tokens.push_back(text[steps.known() + static_cast<std::size_t>(i)]);
      tree.parents.push_back(i);
    }
    for (std::int32_t i = 0; !batch.branches.empty() && i < 3; ++i) {
      tree.tokens.push_back(kVocab - 1 - i);
      tree.parents.push_back(0);
    }
    tree.tokens.resize(std::min<std::size_t>(tree.tokens.size(), batch.max_drafts));
    tree.parents.resize(tree.tokens.size());
    steps.commit(tree);
  }
  EXPECT_EQ(steps.tokens(), text);
  EXPECT_GT(chains, count * 8 / 10);
  EXPECT_LT(count, 250);
}

SchedulerOptions with_prompt_drafts() {
  SchedulerOptions options = options_of(40);
  options.max_drafts = 3;
  options.disable_radix_cache = true;
  options.draft_costs = costs_of(0.3);
  options.draft_costs.first_pass.points.push_back({2, 0.6});  // by its slots
  options.draft_costs.tree_levels = 0;
  return options;
}

struct Prompts {
  int drafted = 0, decodes = 0;  // prompts behind which the draft ran, decode steps
  double plain_s = 0, draft_s = 0;
};
// One request after the other. All drafts are right, or none is.
Prompts run_prompts(Steps& steps, const SchedulerOptions& options, std::uint64_t first_id,
                    int count, int answer, bool right) {
  Prompts out;
  const Tokens prompt = prompt_of(30), text = plain_tokens(options, prompt, {}, answer);
  for (std::uint64_t id = first_id; id < first_id + static_cast<std::uint64_t>(count); ++id) {
    EXPECT_TRUE(steps.scheduler().add(request_of(id, prompt, answer)).ok());
    const std::size_t before = steps.tokens().size();
    while (steps.next()) {
      const Batch& batch = steps.batch();
      const bool is_prompt = !batch.items[0].decode;
      const bool runs = batch.max_drafts != 0;
      out.drafted += is_prompt && runs;
      out.decodes += !is_prompt;
      out.plain_s += options.draft_costs.plain.at(is_prompt ? batch.num_tokens() : 1);
      if (runs)
        out.draft_s += options.draft_costs.first_pass.at(is_prompt ? batch.num_tokens() : 1) +
                       0.3 * (batch.num_tokens() - 1) * !is_prompt;
      Tree drafts;
      for (std::size_t at = steps.known() - before;
           at < text.size() && std::cmp_less(drafts.tokens.size(), batch.max_drafts); ++at) {
        drafts.tokens.push_back((text[at] + !right) % kVocab);
        drafts.parents.push_back(static_cast<std::int32_t>(drafts.parents.size()));
      }
      steps.commit(drafts);
    }
  }
  return out;
}

// Where no draft is right, hardly any prompt is drafted behind; where all are, each is.
TEST(DraftTrees, DraftsOfPromptsArePutOffWhereNonePays) {
  const SchedulerOptions options = with_prompt_drafts();
  for (const bool right : {false, true}) {
    Steps steps(options);
    const Prompts found = run_prompts(steps, options, 1, 200, 40, right);
    if (right) {
      EXPECT_EQ(found.drafted, 200);
      EXPECT_LT(found.decodes, 200 * 20);
    } else {
      EXPECT_GE(found.drafted, 2);
      EXPECT_LT(found.drafted, 12);
      EXPECT_LT(found.draft_s, 0.01 * found.plain_s);
    }
  }
}

// Of three tokens two can be drafts: less than the run behind a prompt of 30 costs.
TEST(DraftTrees, DraftsOfPromptsArePutOffWhereAnswersAreShort) {
  const SchedulerOptions options = with_prompt_drafts();
  Steps steps(options);
  EXPECT_EQ(run_prompts(steps, options, 1, 20, 40, true).drafted, 20);
  const Prompts few = run_prompts(steps, options, 100, 300, 3, true);
  EXPECT_GE(few.drafted, 3);
  EXPECT_LT(few.drafted, 25);
  EXPECT_LT(few.draft_s, 0.02 * few.plain_s);
  // Longer answers pay again, once a few prompts have shown it.
  (void)run_prompts(steps, options, 1000, 300, 40, true);
  EXPECT_EQ(run_prompts(steps, options, 2000, 50, 40, true).drafted, 50);
}

}  // namespace
}  // namespace sluice
