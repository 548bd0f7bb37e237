// Drafts from finished answers through the whole engine: what they bring equals plain decoding.
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/testing/speculation_outcome.h"

namespace sluice {
namespace {

TEST(SuffixDrafts, ChangeNothing) {
  for (const char* model : {"llama-llama3-tied", "qwen3-moe", "mistral-swa", "deepseek-v32"}) {
    SCOPED_TRACE(model);
    Options options = options_for(model);
    for (const int count : {1, 3, 17}) {
      const std::vector<Request> requests = greedy_requests(count);
      const Outcome plain = outcome_of(options, requests);
      const Outcome drafted = outcome_of(with_suffix(options), requests);
      expect_equal(drafted, plain);
      EXPECT_GT(drafted.stats.drafted_tokens, 0u);
    }
    const std::vector<Request> requests = greedy_requests(9);
    const Outcome plain = outcome_of(options, requests);
    options.drafts_as_rows = true;
    expect_equal(outcome_of(with_suffix(options), requests), plain);
    options.drafts_as_rows = false;
    Options adaptive = with_suffix(options);
    adaptive.speculative_adaptive = true;
    expect_equal(outcome_of(adaptive, requests), plain);
    const Options little = with_little_memory(options);
    std::vector<Request> longer = requests;
    for (Request& request : longer) request.max_new_tokens += 60;
    const Outcome pressed = outcome_of(with_suffix(little), longer);
    expect_equal(pressed, outcome_of(little, longer));
    EXPECT_GT(pressed.stats.retracted, 0u);
  }
}

TEST(SuffixDrafts, ChangeNothingBesideSamplingPenaltiesChoicesAndStops) {
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    Request request = greedy(prompt_of(i % 3, 20 + 9 * i), 50);
    SamplingParams& params = request.params;
    params.temperature = i % 2 == 0 ? 0.0F : 0.7F;
    params.seed = 11;
    if (i % 3 == 1) params.frequency_penalty = 0.3F;
    request.num_choices = 1 + i % 3;
    if (i % 4 == 3) request.stop = {"x"};  // see Doubled
    requests.push_back(std::move(request));
  }
  const Options options = options_for("qwen3");
  expect_equal(outcome_of(with_suffix(options), requests), outcome_of(options, requests));
}

// How many tokens the verifications of a request bring.
double tokens_per_verification(Engine& engine, const Request& request,
                               std::vector<std::int32_t>& tokens) {
  const EngineStats before = engine.stats();
  Collector collector;
  EXPECT_TRUE(engine.submit(request, collector.sink()).ok());
  collector.wait();
  tokens = collector.tokens[0];
  const EngineStats after = engine.stats();
  return 1 + static_cast<double>(after.accepted_tokens - before.accepted_tokens) /
                 static_cast<double>(after.verifications - before.verifications);
}

TEST(SuffixDrafts, AnAnswerThatCameBeforeComesInFewerSteps) {
  Request request = greedy({9, 4, 77, 31, 200, 5, 60}, 80);
  // Sampled tokens do not go round, so the request's own text helps little.
  request.params.temperature = 1.5F;
  request.params.seed = 3;
  std::vector<std::int32_t> first, second, other, after;
  auto engine = Engine::create(with_suffix(options_for("qwen3")));
  const double alone = tokens_per_verification(*engine, request, first);
  const double again = tokens_per_verification(*engine, request, second);
  EXPECT_EQ(first, second);
  EXPECT_LT(alone, 1.5);
  EXPECT_GT(again, 3);
  // Another key or salt learns nothing of it, until it has asked itself.
  request.cache_namespace = 77;
  EXPECT_EQ(tokens_per_verification(*engine, request, other), alone);
  EXPECT_GT(tokens_per_verification(*engine, request, after), 3);
  EXPECT_EQ(other, first);
  EXPECT_EQ(after, first);
  // By option answers are not kept.
  engine = Engine::create(
      with_suffix(options_for("qwen3"), R"(, "suffix_decoding_max_cached_requests": 0)"));
  EXPECT_EQ(tokens_per_verification(*engine, request, first), alone);
  EXPECT_EQ(tokens_per_verification(*engine, request, second), alone);
}

}  // namespace
}  // namespace sluice
