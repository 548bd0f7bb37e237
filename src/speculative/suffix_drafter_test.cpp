#include "speculative/suffix_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sluice {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens drafts_of(TokenDrafter& drafter, const Tokens& tokens, int max_drafts = 8) {
  Tokens drafts;
  drafter.draft(tokens, max_drafts, drafts);
  return drafts;
}

Tokens drafts_of(const SuffixOptions& options, const Tokens& tokens, int max_drafts = 8) {
  SuffixDrafter drafter(options, 5, nullptr, {});
  return drafts_of(drafter, tokens, max_drafts);
}

TEST(SuffixDrafter, TheRequestsOwnTextIsContinued) {
  EXPECT_TRUE(drafts_of({}, {}).empty());
  EXPECT_TRUE(drafts_of({}, {1}).empty());
  EXPECT_TRUE(drafts_of({}, {1, 2, 3}).empty());
  // One draft for each token of the suffix.
  EXPECT_EQ(drafts_of({}, {1, 2, 3, 4, 5, 9, 1}), (Tokens{2}));
  EXPECT_EQ(drafts_of({}, {1, 2, 3, 4, 5, 9, 1, 2}), (Tokens{3, 4}));
  EXPECT_EQ(drafts_of({.max_spec_factor = 2}, {1, 2, 3, 4, 5, 9, 1}), (Tokens{2, 3}));
  EXPECT_EQ(drafts_of({}, {1, 2, 3, 4, 5, 9, 1, 2}, 1), (Tokens{3}));
  EXPECT_TRUE(drafts_of({}, {1, 2, 3, 4, 5, 9, 1, 2}, 0).empty());
  // What follows most often: 3 twice, 8 once.
  EXPECT_EQ(drafts_of({}, {2, 8, 2, 3, 2, 3, 7, 2}), (Tokens{3}));
  // Suffix and drafts together have so many tokens.
  EXPECT_EQ(drafts_of({.max_tree_depth = 4}, {1, 2, 3, 4, 5, 6, 7, 9, 1, 2, 3}), (Tokens{4, 5}));
}

TEST(SuffixDrafter, UnlikelyTokensEndTheDrafts) {
  // Behind 2 stood 3, 4 and 5, once each.
  const Tokens text = {2, 3, 2, 4, 2, 5, 2};
  EXPECT_EQ(drafts_of({.min_token_prob = 0.3}, text), (Tokens{3}));
  EXPECT_TRUE(drafts_of({.min_token_prob = 0.34}, text).empty());
}

TEST(SuffixDrafter, FinishedAnswersAreContinuedByOthers) {
  const auto store = std::make_shared<SuffixStore>(SuffixStoreOptions{}, 5);
  SuffixDrafter first({}, 5, store, {.cache_namespace = 1, .num_prompt = 2});
  drafts_of(first, {70, 71, 10});
  SuffixDrafter second({}, 5, store, {.cache_namespace = 1, .num_prompt = 1});
  EXPECT_TRUE(drafts_of(second, {80, 10, 11, 12}).empty()) << "the first has not ended";
  first.finish(Tokens{70, 71, 10, 11, 12, 13, 14, 15, 16});
  EXPECT_EQ(drafts_of(second, {80, 10, 11, 12}), (Tokens{13, 14, 15}));
  // Prompts are not kept.
  SuffixDrafter third({}, 5, store, {.cache_namespace = 1, .num_prompt = 1});
  EXPECT_TRUE(drafts_of(third, {70}).empty());
  // Other keys and salts have no part in it.
  SuffixDrafter other({}, 5, store, {.cache_namespace = 2, .num_prompt = 1});
  EXPECT_TRUE(drafts_of(other, {80, 10, 11, 12}).empty());
}

TEST(SuffixStore, TheOldestAnswersMakeRoom) {
  SuffixStore store({.max_answers = 8, .max_tokens = 1000, .max_length = 6}, 5);
  const auto knows = [&](std::uint64_t name_space, std::int32_t token) {
    bool found = false;
    store.for_each(name_space, [&](SuffixAutomaton& answers) {
      found = found || answers.follow({}, token).length > 0;
    });
    return found;
  };
  for (int i = 0; i < 20; ++i) {
    store.add(7, Tokens{100 + i, 200, 300});
    EXPECT_LE(store.num_answers(), 8);
    EXPECT_GE(store.num_answers(), std::min(i + 1, 7));
    EXPECT_EQ(store.num_tokens(), 3 * store.num_answers());
    EXPECT_TRUE(knows(7, 100 + i));
  }
  EXPECT_FALSE(knows(7, 100));
  EXPECT_FALSE(knows(7, 111));
  EXPECT_TRUE(knows(7, 114));
  // Many namespaces share the limits.
  for (int i = 0; i < 50; ++i) store.add(1000 + i, Tokens{5, 6});
  EXPECT_LE(store.num_answers(), 8);
  EXPECT_FALSE(knows(7, 119));
  EXPECT_FALSE(knows(1000, 5));
  EXPECT_TRUE(knows(1049, 5));
  // So do long answers: the last quarter of the limit is kept of one.
  store.add(7, Tokens(5000, 4));
  EXPECT_LE(store.num_tokens(), 1000);
  EXPECT_TRUE(knows(7, 4));
  for (int i = 0; i < 10; ++i) store.add(7, Tokens(240, 20 + i));
  EXPECT_LE(store.num_tokens(), 1000);
  EXPECT_FALSE(knows(7, 4));
  EXPECT_TRUE(knows(7, 29));
  store.add(7, Tokens{1});
  EXPECT_FALSE(knows(7, 1)) << "nothing follows one token";
}

TEST(SuffixStore, NoneIsKeptWhereNoneMayBe) {
  SuffixStore store({.max_answers = 0}, 5);
  store.add(1, Tokens{1, 2, 3});
  EXPECT_EQ(store.num_answers(), 0);
}

// The same texts in the same order bring the same drafts, whatever the seed of the table.
TEST(SuffixDrafter, DraftsDoNotDependOnTheSeed) {
  std::mt19937 random(9);
  Tokens text;
  std::vector<Tokens> answers;
  for (int i = 0; i < 30; ++i) {
    Tokens& answer = answers.emplace_back();
    for (int k = 0; k < 60; ++k) answer.push_back(static_cast<std::int32_t>(random() % 6));
  }
  for (int k = 0; k < 80; ++k) text.push_back(static_cast<std::int32_t>(random() % 6));
  std::vector<Tokens> found[2];
  for (const std::uint64_t seed : {1, 2}) {
    const auto store = std::make_shared<SuffixStore>(SuffixStoreOptions{.max_answers = 20}, seed);
    for (const Tokens& answer : answers) store->add(3, answer);
    SuffixDrafter drafter({}, seed, store, {.cache_namespace = 3, .num_prompt = 1});
    for (std::size_t end = 1; end <= text.size(); ++end)
      found[seed - 1].push_back(
          drafts_of(drafter, Tokens(text.begin(), text.begin() + static_cast<long>(end))));
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_GT(std::ranges::count_if(found[0], [](const Tokens& drafts) { return drafts.size() > 1; }),
            40);
}

}  // namespace
}  // namespace sluice
