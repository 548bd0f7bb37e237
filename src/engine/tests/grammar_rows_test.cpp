// Requests with a constraint, through the whole engine: a scripted one, without text.
#include "engine/grammar_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/testing/source_dir.h"
#include "engine/engine.h"
#include "engine/model_choice.h"
#include "engine/testing/collector.h"
#include "engine/testing/masked_draws.h"

namespace sluice {
namespace {

constexpr std::int32_t kStop = 2;

// At step k two tokens may come, 10 + 2 k and 11 + 2 k, and after `length` of them kStop alone. At
// step `dead_end` nothing may come, and nothing behind kStop.
class Script : public TokenConstraint {
 public:
  Script(int length, int dead_end) : length_(length), dead_end_(dead_end) {}
  bool fill(std::span<std::uint32_t> bits) override {
    std::ranges::fill(bits, 0u);
    if (step_ == dead_end_ || step_ > length_) return true;
    const auto allow = [&](int token) {
      bits[static_cast<std::size_t>(token) / 32] |= 1u << (token % 32);
    };
    if (step_ == length_) {
      allow(kStop);
    } else {
      allow(10 + 2 * step_);
      allow(11 + 2 * step_);
    }
    return true;
  }
  bool accept(std::int32_t token) override {
    const bool is_allowed = step_ == length_ ? token == kStop : (token - 10) / 2 == step_;
    ++step_;
    return is_allowed;
  }
  void rollback(std::size_t count) override { step_ -= static_cast<int>(count); }

 private:
  const int length_, dead_end_;
  int step_ = 0;
};

Options options_for_qwen3(int steps_in_flight) {
  Options options;
  options.model = source_dir() + "/tests/golden/models/qwen3";
  options.dtype = "float32";
  options.max_total_tokens = 4096;
  options.max_running_requests = 8;
  options.threads = 2;
  options.steps_in_flight = steps_in_flight;
  return options;
}

Request scripted(int length, int dead_end = -1) {
  Request request = greedy({5, 9, 2, 31}, 100);
  request.params.stop_token_ids = {kStop};
  request.make_constraint = [=] { return std::make_unique<Script>(length, dead_end); };
  return request;
}

void expect_script(const std::vector<std::int32_t>& tokens, int length) {
  ASSERT_EQ(tokens.size(), static_cast<std::size_t>(length) + 1);
  for (int k = 0; k < length; ++k)
    EXPECT_EQ((tokens[static_cast<std::size_t>(k)] - 10) / 2, k) << "token " << k;
  EXPECT_EQ(tokens.back(), kStop);
}

class Grammars : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Engine, Grammars, ::testing::Values(1, 2));

TEST_P(Grammars, EveryTokenIsOfTheMask) {
  auto engine = Engine::create(options_for_qwen3(GetParam()));
  for (const float temperature : {0.0f, 1.0f, 4.0f}) {
    Request request = scripted(20);
    request.params.temperature = temperature;
    request.params.frequency_penalty = temperature;
    request.params.logit_bias = {{50, 100.0f}};
    request.params.num_top_logprobs = 3;
    Collector collector;
    ASSERT_TRUE(engine->submit(request, collector.sink()).ok());
    collector.wait();
    expect_script(collector.tokens[0], 20);
    EXPECT_EQ(collector.finish[0], FinishReason::kStop);
  }
}

TEST_P(Grammars, ChoicesHaveConstraintsOfTheirOwn) {
  auto engine = Engine::create(options_for_qwen3(GetParam()));
  Request request = scripted(12);
  request.params.temperature = 2;
  request.num_choices = 4;
  Collector collector(4);
  ASSERT_TRUE(engine->submit(request, collector.sink()).ok());
  collector.wait();
  for (int choice = 0; choice < 4; ++choice) expect_script(collector.tokens[choice], 12);
}

TEST_P(Grammars, ChoicesThatAreDoneDoNotEndTheOthers) {
  auto engine = Engine::create(options_for_qwen3(GetParam()));
  Request request = scripted(0);
  request.num_choices = 4;
  request.make_constraint = [made = std::make_shared<int>(0)] {
    return std::make_unique<Script>(4 + 5 * (*made)++, -1);
  };
  Collector collector(4);
  ASSERT_TRUE(engine->submit(request, collector.sink()).ok());
  collector.wait();
  for (int choice = 0; choice < 4; ++choice) {
    EXPECT_EQ(collector.finish[choice], FinishReason::kStop) << collector.fault.message;
    expect_script(collector.tokens[choice], 4 + 5 * choice);
  }
}

TEST_P(Grammars, OtherRequestsDoNotNoticeADeadEnd) {
  auto engine = Engine::create(options_for_qwen3(GetParam()));
  Collector alone;
  ASSERT_TRUE(engine->submit(greedy({7, 8, 9}, 30), alone.sink()).ok());
  alone.wait();
  Collector beside, dead, whole;
  ASSERT_TRUE(engine->submit(greedy({7, 8, 9}, 30), beside.sink()).ok());
  ASSERT_TRUE(engine->submit(scripted(20, 6), dead.sink()).ok());
  ASSERT_TRUE(engine->submit(scripted(20), whole.sink()).ok());
  beside.wait();
  dead.wait();
  whole.wait();
  EXPECT_EQ(beside.tokens[0], alone.tokens[0]);
  EXPECT_EQ(dead.finish[0], FinishReason::kError);
  EXPECT_EQ(dead.fault.code, "grammar_dead_end");
  expect_script(whole.tokens[0], 20);
  EXPECT_EQ(engine->stats().used_tokens, 0);
}

TEST_P(Grammars, MinimumBeyondTheEndIsAnError) {
  auto engine = Engine::create(options_for_qwen3(GetParam()));
  Request request = scripted(5);
  request.params.min_new_tokens = 8;
  Collector collector;
  ASSERT_TRUE(engine->submit(request, collector.sink()).ok());
  collector.wait();
  EXPECT_EQ(collector.finish[0], FinishReason::kError);
  EXPECT_EQ(collector.fault.code, "grammar_is_over");
}

// One token out of eight.
class Eight : public TokenConstraint {
 public:
  bool fill(std::span<std::uint32_t> bits) override {
    std::ranges::fill(bits, 0u);
    bits[1] = 0xFF;
    return true;
  }
  bool accept(std::int32_t token) override { return token >= 32 && token < 40; }
  void rollback(std::size_t) override {}
};

TEST_P(Grammars, SamplesHaveTheRenormalisedDistribution) {
  auto engine = Engine::create(options_for_qwen3(GetParam()));
  expect_renormalised_draws(*engine, 2000, 8, 0, 32, [](std::uint64_t seed) {
    Request request = greedy({5, 9, 2, 31}, 1);
    request.params.temperature = 1;
    request.params.seed = seed;
    request.params.num_top_logprobs = 0;
    request.make_constraint = [] { return std::make_unique<Eight>(); };
    return request;
  });
}

TEST_P(Grammars, RetractedSequencesGoOnWhereTheyWere) {
  Options options = options_for_qwen3(GetParam());
  options.max_total_tokens = 256;
  auto engine = Engine::create(options);
  std::vector<std::unique_ptr<Collector>> collectors;
  for (int i = 0; i < 8; ++i) {
    collectors.push_back(std::make_unique<Collector>());
    Request request = scripted(60);
    request.prompt_ids = {5 + i, 9, 2, 31};
    ASSERT_TRUE(engine->submit(request, collectors.back()->sink()).ok());
  }
  for (const auto& collector : collectors) {
    collector->wait();
    expect_script(collector->tokens[0], 60);
  }
}

}  // namespace
}  // namespace sluice
