// Drafts of a grammar through the whole engine: what they bring equals what comes without them.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/testing/source_dir.h"
#include "engine/testing/masked_draws.h"
#include "engine/testing/speculation_outcome.h"

namespace sluice {
namespace {

constexpr std::int32_t kStop = 2;

// Place k of the text has one token, 10 + k % 40; each third has one more, 60 + k % 20. After
// `length` tokens kStop alone may come. It drafts the first token of each place, or, if it
// `guesses_wrong`, one that is not allowed at the last of them.
class Keys : public TokenConstraint {
 public:
  Keys(int length, bool guesses_wrong) : length_(length), guesses_wrong_(guesses_wrong) {}
  bool fill(std::span<std::uint32_t> bits) override {
    std::ranges::fill(bits, 0u);
    const auto allow = [&](std::int32_t token) {
      bits[static_cast<std::size_t>(token) / 32] |= 1u << (token % 32);
    };
    if (place_ >= length_) {
      allow(kStop);
    } else {
      allow(first(place_));
      if (has_choice(place_)) allow(second(place_));
    }
    return true;
  }
  bool accept(std::int32_t token) override {
    const bool is_allowed = place_ >= length_ ? token == kStop
                                              : token == first(place_) ||
                                                    (has_choice(place_) && token == second(place_));
    if (is_allowed) ++place_;
    return is_allowed;
  }
  void rollback(std::size_t count) override { place_ -= static_cast<int>(count); }
  void draft(int max_drafts, std::vector<std::int32_t>& drafts) override {
    for (int k = place_; k < std::min(length_, place_ + max_drafts); ++k)
      drafts.push_back(first(k));
    if (guesses_wrong_ && !drafts.empty()) drafts.back() = 90;
  }

  static std::int32_t first(int place) { return 10 + place % 40; }
  static std::int32_t second(int place) { return 60 + place % 20; }
  static bool has_choice(int place) { return place % 3 == 0; }

 private:
  const int length_;
  const bool guesses_wrong_;
  int place_ = 0;
};

Request keyed(std::vector<std::int32_t> prompt, int length, bool guesses_wrong = false) {
  Request request = greedy(std::move(prompt), length + 8);
  request.params.stop_token_ids = {kStop};
  request.make_constraint = [=] { return std::make_unique<Keys>(length, guesses_wrong); };
  return request;
}

Options forced(Options options, int num_draft_tokens = 0) {
  options.draft_forced_tokens = true;
  options.speculative_num_draft_tokens = num_draft_tokens;
  return with_all_drafts(options);
}

std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  for (int i = 0; i < 20; ++i) {
    Request request = keyed(prompt_of(i, 8 + 5 * i), 20 + i, i % 4 == 3);
    SamplingParams& params = request.params;
    params.num_top_logprobs = i % 3 - 1;
    params.seed = static_cast<std::uint64_t>(i);
    request.want_logits_hash = i % 2 == 0;
    if (i % 5 != 0) params.temperature = 1.3f;
    if (i % 10 == 2) params.top_k = 5, params.top_p = 0.9f;
    if (i % 10 == 3) params.repetition_penalty = 1.4f;
    if (i % 10 == 4) params.frequency_penalty = 0.5f, params.presence_penalty = 0.4f;
    if (i % 10 == 6) params.logit_bias = {{60, 4.0f}, {13, -20.0f}};
    if (i % 10 == 7) params.min_new_tokens = 15;
    if (i % 10 == 8) request.num_choices = 3;
    if (i % 10 == 9) request.max_new_tokens = 11;
    if (i % 3 == 0) request.stop = {"x"};  // see Doubled
    if (i % 4 == 1) request.logprob_start = 0;
    if (i % 7 == 6) request.make_constraint = {}, request.max_new_tokens = 30;
    requests.push_back(std::move(request));
  }
  return requests;
}

class ForcedTokens : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Speculation, ForcedTokens,
                         ::testing::Values("qwen3", "mistral-swa", "mixtral", "deepseek-v3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(ForcedTokens, HaveTheBitsOfMaskedDecodingHoweverTokensAreChosen) {
  const std::vector<Request> requests = mixed_requests();
  const Outcome plain = outcome_of(options_for(GetParam()), requests);
  for (const int num_draft_tokens : {0, 2, 5}) {
    SCOPED_TRACE(num_draft_tokens);
    for (const bool as_rows : {false, true}) {
      Options options = forced(options_for(GetParam()), num_draft_tokens);
      options.drafts_as_rows = as_rows;
      const Outcome drafted = outcome_of(options, requests);
      expect_equal(drafted, plain);
      EXPECT_GT(drafted.stats.accepted_tokens, 100u);
      EXPECT_LT(drafted.stats.accepted_tokens, drafted.stats.drafted_tokens);
    }
  }
}

TEST_P(ForcedTokens, SurviveRetraction) {
  const Options options = with_little_memory(options_for(GetParam()));
  std::vector<Request> requests;
  for (int i = 0; i < 9; ++i) {
    requests.push_back(keyed(prompt_of(i, 5 + 4 * i), 70 + i, i % 3 == 0));
    requests.back().params.temperature = 1;
    requests.back().params.num_top_logprobs = 1;
  }
  const Outcome plain = outcome_of(options, requests),
                drafted = outcome_of(forced(options), requests);
  expect_equal(drafted, plain);
  EXPECT_GT(drafted.stats.retracted, 0u);
  EXPECT_GT(drafted.stats.accepted_tokens, 0u);
}

TEST_P(ForcedTokens, BeginWithCachedPrefixes) {
  Options options = options_for(GetParam());
  options.max_running_requests = 2;
  std::vector<Request> requests;
  for (int turn = 0; turn < 3; ++turn)
    for (int i = 0; i < 2; ++i) requests.push_back(keyed(prompt_of(i, 70 + 30 * turn), 40));
  const Outcome plain = outcome_of(options, requests),
                drafted = outcome_of(forced(options), requests);
  expect_equal(drafted, plain);
  EXPECT_GT(drafted.stats.prefix_hit_tokens, 100u);
}

TEST(ForcedTokens, ComeBeforeTheDraftsOfAMethod) {
  const std::vector<Request> requests = mixed_requests();
  const Options options = options_for("deepseek-v3");
  const Outcome plain = outcome_of(options, requests);
  for (const Options& method : {with_ngram(options, 4), with_nextn(options, 3)}) {
    const Outcome alone = outcome_of(method, requests);
    Options both = method;
    both.draft_forced_tokens = true;
    const Outcome drafted = outcome_of(both, requests);
    expect_equal(drafted, plain);
    EXPECT_GT(drafted.stats.accepted_tokens, 2 * alone.stats.accepted_tokens);
  }
}

// The bundled model's draft layer was trained, and goes on behind tokens that it did not draft.
TEST(ForcedTokens, StandInForTheBundledModelsDrafts) {
  Options options = options_for("qwen3");
  options.model = source_dir() + "/models/sluice-tiny";
  const std::vector<Request> requests = mixed_requests();
  const Outcome plain = outcome_of(options, requests);
  options = with_nextn(options, 4);
  options.draft_forced_tokens = true;
  const Outcome drafted = outcome_of(options, requests);
  expect_equal(drafted, plain);
  EXPECT_GT(drafted.stats.accepted_tokens, 100u);
}

TEST(ForcedTokens, TakeFewerSteps) {
  std::vector<Request> requests = {keyed(prompt_of(0, 20), 60)};
  const Outcome drafted = outcome_of(forced(options_for("qwen3")), requests);
  // 61 tokens, of which one comes with the prompt.
  const EngineStats& stats = drafted.stats;
  EXPECT_EQ(stats.verifications + stats.accepted_tokens, 60u);
  EXPECT_LT(stats.verifications, 30u);
  EXPECT_EQ(std::reduce(stats.accepted_by_place.begin(), stats.accepted_by_place.end()),
            stats.accepted_tokens);
}

TEST(ForcedTokens, RequestsThatLeaveAtAnyMomentLeaveNothingBehind) {
  auto engine = Engine::create(forced(options_for("qwen3")));
  for (int round = 0; round < 20; ++round) {
    Collector leaves, stays;
    const auto id = engine->submit(keyed(prompt_of(round, 30), 300), leaves.sink());
    ASSERT_TRUE(id.ok());
    ASSERT_TRUE(engine->submit(keyed(prompt_of(3, 40), 30), stays.sink()).ok());
    leaves.wait_tokens(static_cast<std::size_t>(1 + 5 * round));
    engine->abort(*id);
    leaves.wait();
    stays.wait();
    EXPECT_EQ(stays.finish[0], FinishReason::kStop);
    EXPECT_EQ(stays.tokens[0].size(), 31u);
  }
  for (int i = 0; i < 1000 && !engine->flush_cache(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(engine->stats().used_tokens, 0);
}

// Behind two tokens that must come, one of eight may; drafts are made for all three places, and the
// third is a guess.
class Eighth : public TokenConstraint {
 public:
  bool fill(std::span<std::uint32_t> bits) override {
    std::ranges::fill(bits, 0u);
    bits[1] = place_ < 3 ? 1u << place_ : 0xFFu << 8;
    return true;
  }
  bool accept(std::int32_t token) override {
    const bool is_allowed = place_ < 3 ? token == 32 + place_ : token >= 40 && token < 48;
    place_ += is_allowed;
    return is_allowed;
  }
  void rollback(std::size_t count) override { place_ -= static_cast<int>(count); }
  void draft(int max_drafts, std::vector<std::int32_t>& drafts) override {
    for (int place = place_; place < std::min(4, place_ + max_drafts); ++place)
      drafts.push_back(place < 3 ? 32 + place : 44);
  }

 private:
  int place_ = 0;
};

TEST(ForcedTokens, SamplesBehindThemHaveTheRenormalisedDistribution) {
  auto engine = Engine::create(forced(options_for("qwen3")));
  constexpr int kSamples = 4000;
  expect_renormalised_draws(*engine, kSamples, 16, 3, 40, [](std::uint64_t seed) {
    Request request = greedy({5, 9, 2, 31}, 5);
    request.params.temperature = 1;
    request.params.seed = seed;
    request.params.num_top_logprobs = 0;
    request.make_constraint = [] { return std::make_unique<Eighth>(); };
    return request;
  });
  const EngineStats stats = engine->stats();
  EXPECT_GT(stats.accepted_tokens, 2u * kSamples - kSamples / 8) << "two forced tokens each";
}

}  // namespace
}  // namespace sluice
