// Speculation through the whole engine: what it brings equals what comes without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/testing/source_dir.h"
#include "engine/testing/speculation_outcome.h"

namespace sluice {
namespace {

class OnModels : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Speculation, OnModels,
                         ::testing::Values("llama-llama3-tied", "qwen3-moe", "mistral-swa",
                                           "qwen2-yarn-swa", "mixtral", "deepseek-v2-lite",
                                           "deepseek-v3", "deepseek-v32", "glm-moe-dsa-pattern"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(OnModels, GreedyTokensAndLogProbabilitiesHaveTheBitsOfPlainDecoding) {
  for (const int count : {1, 3, 17}) {
    SCOPED_TRACE(count);
    const std::vector<Request> requests = greedy_requests(count);
    const Outcome plain = outcome_of(options_for(GetParam()), requests);
    const Outcome drafted = outcome_of(with_ngram(options_for(GetParam())), requests);
    expect_equal(drafted, plain);
    EXPECT_GT(drafted.stats.drafted_tokens, 0u);
  }
}

// As a GPU computes them: each row for itself, chosen where its logits are.
TEST_P(OnModels, DraftsAsRowsHaveTheBitsOfPlainDecoding) {
  Options options = options_for(GetParam());
  const std::vector<Request> requests = greedy_requests(17);
  const Outcome plain = outcome_of(options, requests);
  options.drafts_as_rows = true;
  const Outcome drafted = outcome_of(with_ngram(options), requests);
  expect_equal(drafted, plain);
  EXPECT_GT(drafted.stats.drafted_tokens, 0u);
  options.max_running_requests = 5;  // too few rows for all drafts of all
  expect_equal(outcome_of(with_ngram(options, 60), requests), plain);
}

TEST_P(OnModels, RetractionChangesNothing) {
  const Options options = with_little_memory(options_for(GetParam()));
  std::vector<Request> requests = greedy_requests(9);
  for (Request& request : requests) request.max_new_tokens += 60;
  const Outcome plain = outcome_of(options, requests),
                drafted = outcome_of(with_ngram(options), requests);
  expect_equal(drafted, plain);
  EXPECT_GT(drafted.stats.retracted, 0u);
}

TEST_P(OnModels, CachedPrefixesChangeNothing) {
  Options options = options_for(GetParam());
  options.max_running_requests = 2;
  std::vector<Request> requests;
  for (int turn = 0; turn < 3; ++turn)
    for (int i = 0; i < 2; ++i) requests.push_back(greedy(prompt_of(i, 70 + 30 * turn), 70));
  const Outcome plain = outcome_of(options, requests),
                drafted = outcome_of(with_ngram(options), requests);
  expect_equal(drafted, plain);
  EXPECT_GT(drafted.stats.prefix_hit_tokens, 100u);
}

// Random weights guess nothing right, so every draft is taken back.
TEST(Speculation, DraftLayersChangeNothing) {
  for (const char* model : {"deepseek-v3", "deepseek-v32", "glm-moe-dsa"}) {
    SCOPED_TRACE(model);
    Options options = options_for(model);
    const std::vector<Request> requests = greedy_requests(7);
    const Outcome drafted = outcome_of(with_nextn(options), requests);
    expect_equal(drafted, outcome_of(options, requests));
    EXPECT_GT(drafted.stats.drafted_tokens, 500u);
    options.drafts_as_rows = true;
    expect_equal(outcome_of(with_nextn(options), requests), outcome_of(options, requests));
    options.drafts_as_rows = false;
    options = with_little_memory(options);
    std::vector<Request> longer = greedy_requests(9);
    for (Request& request : longer) request.max_new_tokens += 60;
    const Outcome pressed = outcome_of(with_nextn(options), longer);
    expect_equal(pressed, outcome_of(options, longer));
    EXPECT_GT(pressed.stats.retracted, 0u);
  }
}

// The bundled model, whose layer was trained.
TEST(Speculation, TheBundledModelsDraftLayerIsOftenRight) {
  Options options = options_for("qwen3");
  options.model = source_dir() + "/models/sluice-tiny";
  options.chunked_prefill_size = 100;
  std::vector<Request> requests = greedy_requests(5);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].ignore_eos = i % 2 == 0;
    if (i % 3 == 1) requests[i].params.temperature = 0.7f;
    if (i % 4 == 2) requests[i].num_choices = 2;
  }
  const Outcome plain = outcome_of(options, requests);
  for (const int num_draft_tokens : {2, 5}) {
    SCOPED_TRACE(num_draft_tokens);
    const Outcome drafted = outcome_of(with_nextn(options, num_draft_tokens), requests);
    expect_equal(drafted, plain);
    EXPECT_GT(drafted.stats.accepted_by_place[0], 0.4 * double(drafted.stats.drafted_rows));
  }
}

TEST(Speculation, ACheckpointWithoutTheDraftLayerIsRefused) {
  for (const auto& [model, message] :
       {std::pair{"deepseek-v3-noqlora", "the checkpoint lacks its draft layer"},
        std::pair{"glm-moe-dsa-pattern", "has no draft layer"},
        std::pair{"deepseek-v2-lite", "has no draft layer"},
        std::pair{"qwen3", "the draft layers of Qwen3ForCausalLM are not computed"}})
    try {
      (void)Engine::create(with_nextn(options_for(model)));
      ADD_FAILURE() << model;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_NE(error.message().find(message), std::string::npos) << error.message();
    }
}

TEST(Speculation, ComposesWithHowTokensAreChosen) {
  std::vector<Request> requests;
  for (int i = 0; i < 24; ++i) {
    Request request = greedy(prompt_of(i, 20 + i), 50);
    SamplingParams& params = request.params;
    params.num_top_logprobs = i % 2;
    params.seed = static_cast<std::uint64_t>(i);
    if (i % 8 == 1) params.temperature = 0.3f;
    if (i % 8 == 2) params.temperature = 0.8f, params.top_k = 5, params.top_p = 0.9f;
    if (i % 8 == 3) params.repetition_penalty = 1.2f;
    if (i % 8 == 4) params.frequency_penalty = 0.3f, params.presence_penalty = 0.2f;
    if (i % 8 == 5) params.logit_bias = {{3, 2.0f}, {8, -50.0f}}, params.min_p = 0.1f;
    if (i % 8 == 6) {
      request.ignore_eos = false;
      params.min_new_tokens = 10;
      params.stop_token_ids = {3, 8, 13, 18, 23};
    }
    if (i % 8 == 7) request.num_choices = 3, params.temperature = 0.4f;
    if (i % 3 == 0) request.stop = {"x"};  // see Doubled
    requests.push_back(std::move(request));
  }
  const Outcome plain = outcome_of(options_for("qwen3"), requests);
  for (const int num_draft_tokens : {2, 4, 13}) {
    SCOPED_TRACE(num_draft_tokens);
    const Outcome drafted =
        outcome_of(with_ngram(options_for("qwen3"), num_draft_tokens), requests);
    expect_equal(drafted, plain);
    EXPECT_GT(drafted.stats.accepted_tokens, 0u);
    EXPECT_LT(drafted.stats.accepted_tokens, drafted.stats.drafted_tokens);
    Options as_rows = options_for("qwen3");
    as_rows.drafts_as_rows = true;
    expect_equal(outcome_of(with_ngram(as_rows, num_draft_tokens), requests), plain);
  }
}

TEST(Speculation, ComposesWithOtherTypesOfWeightsAndCache) {
  for (const auto& [cache, weights] :
       {std::pair{"int8", "auto"}, std::pair{"bfloat16", "int8"}, std::pair{"auto", "int4"}}) {
    SCOPED_TRACE(std::string(cache) + ", " + weights);
    Options options = options_for("qwen3");
    options.dtype = "bfloat16";
    options.kv_cache_dtype = cache;
    options.quantization = weights;
    expect_equal(outcome_of(with_ngram(options), greedy_requests(5)),
                 outcome_of(options, greedy_requests(5)));
  }
}

TEST(Speculation, CountsAddUpAndAreSaidWithTheEvents) {
  auto engine = Engine::create(with_ngram(options_for("qwen3"), 6));
  Event last;
  std::mutex mutex;
  std::size_t tokens = 0;
  Collector collector;
  const EventSink collect = collector.sink();
  ASSERT_TRUE(engine
                  ->submit(greedy(prompt_of(1, 60), 200),
                           [&](Event&& event) {
                             {
                               std::lock_guard lock(mutex);
                               tokens += event.tokens.size();
                               last = event;
                             }
                             collect(std::move(event));
                           })
                  .ok());
  collector.wait();
  std::lock_guard lock(mutex);
  const EngineStats stats = engine->stats();
  EXPECT_TRUE(last.drafts.is_on);
  EXPECT_EQ(tokens, 200u);
  // The prefill brought one token, each verification one and the accepted drafts.
  EXPECT_EQ(1 + last.drafts.verifications + last.drafts.accepted, 200);
  EXPECT_EQ(stats.verifications, static_cast<std::uint64_t>(last.drafts.verifications));
  EXPECT_EQ(stats.drafted_tokens, static_cast<std::uint64_t>(last.drafts.drafted));
  EXPECT_EQ(stats.accepted_tokens, static_cast<std::uint64_t>(last.drafts.accepted));
  EXPECT_GT(last.drafts.accepted, 20) << "the tokens of tiny models go round";
  ASSERT_EQ(stats.accepted_by_place.size(), 5u);
  EXPECT_TRUE(std::ranges::is_sorted(stats.accepted_by_place, std::greater()));
  EXPECT_EQ(std::reduce(stats.accepted_by_place.begin(), stats.accepted_by_place.end()),
            last.drafts.accepted);
}

TEST(Speculation, RequestsThatLeaveAtAnyMomentLeaveNothingBehind) {
  auto engine = Engine::create(with_ngram(options_for("qwen3"), 8));
  for (int round = 0; round < 30; ++round) {
    Collector leaves, stays;
    const auto id = engine->submit(greedy(prompt_of(round, 30), 300), leaves.sink());
    ASSERT_TRUE(id.ok());
    ASSERT_TRUE(engine->submit(greedy(prompt_of(3, 40), 30), stays.sink()).ok());
    leaves.wait_tokens(static_cast<std::size_t>(1 + 3 * round));
    engine->abort(*id);
    leaves.wait();
    stays.wait();
    EXPECT_EQ(stays.finish[0], FinishReason::kLength);
  }
  // The step that held the last one may still be in flight.
  for (int i = 0; i < 1000 && !engine->flush_cache(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(engine->stats().used_tokens, 0);
}

// Every third token is one of two; the last taken back ones must be those that came last.
class Cycle : public TokenConstraint {
 public:
  explicit Cycle(int& rollbacks) : rollbacks_(rollbacks) {}
  bool fill(std::span<std::uint32_t> bits) override {
    std::ranges::fill(bits, 0u);
    for (const int token : {first(), first() + 1})
      bits[static_cast<std::size_t>(token) / 32] |= 1u << (token % 32);
    return true;
  }
  bool accept(std::int32_t token) override {
    if (token != first() && token != first() + 1) return false;
    ++step_;
    return true;
  }
  void rollback(std::size_t count) override {
    step_ -= static_cast<int>(count);
    ++rollbacks_;
  }

 private:
  int first() const { return 10 + 2 * (step_ % 3); }

  int& rollbacks_;
  int step_ = 0;
};

TEST(Speculation, DraftsFollowTheGrammar) {
  for (const auto& [temperature, as_rows] :
       {std::pair{0.0f, false}, std::pair{1.0f, false}, std::pair{1.0f, true}}) {
    int rollbacks = 0;
    std::vector<Request> requests;
    for (int i = 0; i < 4; ++i) {
      Request request = greedy(prompt_of(i, 30), 60);
      request.params.temperature = temperature;
      request.params.seed = static_cast<std::uint64_t>(i);
      request.params.num_top_logprobs = 1;
      if (i < 3)
        request.make_constraint = [&rollbacks] { return std::make_unique<Cycle>(rollbacks); };
      requests.push_back(std::move(request));
    }
    const Outcome plain = outcome_of(options_for("qwen3"), requests);
    EXPECT_EQ(rollbacks, 0);
    Options options = options_for("qwen3");
    options.drafts_as_rows = as_rows;
    const Outcome drafted = outcome_of(with_ngram(options), requests);
    expect_equal(drafted, plain);
    EXPECT_GT(rollbacks, 10);
    EXPECT_GT(drafted.stats.accepted_tokens, 0u);
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t k = 0; k < 60; ++k)
        EXPECT_EQ((drafted.answers[i].tokens[0][k] - 10) / 2, static_cast<int>(k % 3));
  }
}

// What pays depends on the machine; what comes out does not.
TEST(Speculation, ChoosingTheNumberOfDraftsChangesNothing) {
  for (const char* model : {"qwen3-moe", "deepseek-v3"})
    for (const bool pressed : {false, true}) {
      Options options = options_for(model);
      if (pressed) options = with_little_memory(options);
      const std::vector<Request> requests = greedy_requests(17);
      const Outcome plain = outcome_of(options, requests);
      const auto drafted = [&](Options wanted) {
        wanted.speculative_adaptive = true;
        const Outcome found = outcome_of(wanted, requests);
        expect_equal(found, plain);
        EXPECT_GT(found.stats.verifications, 100u);
        return found.stats;
      };
      drafted(with_ngram(options));
      if (std::string(model) != "deepseek-v3") continue;
      // Random weights guess nothing right: next to no step has drafts.
      const EngineStats stats = drafted(with_nextn(options));
      EXPECT_LT(stats.drafted_rows, stats.verifications / 3);
    }
}

TEST(Speculation, VllmsConfigurationMeansTheSame) {
  Options options = with_all_drafts(options_for("qwen3"));
  options.speculative_config = R"({"method": "ngram", "num_speculative_tokens": 4,)"
                               R"("prompt_lookup_max": 4, "prompt_lookup_min": 1})";
  const Outcome one = outcome_of(options, greedy_requests(3));
  const Outcome two = outcome_of(with_ngram(options_for("qwen3"), 5), greedy_requests(3));
  EXPECT_TRUE(one.answers == two.answers);
  EXPECT_EQ(one.stats.drafted_tokens, two.stats.drafted_tokens);
  EXPECT_EQ(one.stats.accepted_tokens, two.stats.accepted_tokens);
}

}  // namespace
}  // namespace sluice
