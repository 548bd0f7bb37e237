// The engine from the outside: real checkpoints, the ordinary scheduler, every kind of ending.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/testing/source_dir.h"
#include "engine/model_choice.h"
#include "engine/testing/collector.h"

namespace sluice {
namespace {

std::string golden_directory(const std::string& name) {
  return source_dir() + "/tests/golden/models/" + name;
}

Json read_json(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return parse_json_or_throw(text.str(), path);
}

Options options_for(const std::string& model) {
  Options options;
  options.model = golden_directory(model);
  options.dtype = "float32";
  options.max_total_tokens = 4096;
  options.max_running_requests = 8;
  options.threads = 2;
  return options;
}

class StepsInFlight : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Engine, StepsInFlight, ::testing::Values(1, 2));

TEST_P(StepsInFlight, GreedyTokensAreTheReferences) {
  for (const std::string name : {"qwen3", "mixtral", "mistral-swa", "glm-moe-dsa"}) {
    Options options = options_for(name);
    options.steps_in_flight = GetParam();
    auto engine = Engine::create(options);
    const Json golden = read_json(golden_directory(name) + "/golden.json");
    std::vector<std::unique_ptr<Collector>> collectors;
    for (const Json& prompt : golden["prompts"]) {  // all at once: they share steps
      collectors.push_back(std::make_unique<Collector>());
      ASSERT_TRUE(engine->submit(greedy(prompt["ids"], 24), collectors.back()->sink()).ok());
    }
    for (std::size_t i = 0; i < collectors.size(); ++i) {
      collectors[i]->wait();
      EXPECT_EQ(collectors[i]->tokens[0],
                golden["prompts"][i]["greedy"].get<std::vector<std::int32_t>>())
          << name << " prompt " << i;
      EXPECT_EQ(collectors[i]->finish[0], FinishReason::kLength);
    }
    EXPECT_TRUE(engine->idle());
    EXPECT_EQ(engine->stats().used_tokens, 0);
  }
}

// Greedy and drawn tokens, and with four kinds of requests those with penalties and
// log-probabilities, which may run ahead of the host; with six kinds beside them such that the host
// must choose. Some come and go early.
TEST(Engine, TheSameTokensWithOneAndTwoStepsInFlight) {
  const auto run = [](int steps, int kinds) {
    Options options = options_for("qwen3");
    options.steps_in_flight = steps;
    options.max_total_tokens = 640;  // not all fit: some are retracted
    auto engine = Engine::create(options);
    std::vector<std::unique_ptr<Collector>> collectors;
    for (int i = 0; i < 12; ++i) {
      Request request = greedy({5 + i, 9, 2, 31, 77 - i}, 40 + 7 * i);
      if (i % kinds == 1) {
        request.params.temperature = 0.9f;
        request.params.top_k = i % 3 == 0 ? 20 : -1;
        request.params.top_p = i % 3 == 1 ? 0.9f : 1.0f;
        request.params.seed = 1000 + static_cast<std::uint64_t>(i);
      }
      if (i % kinds == 2) request.params.repetition_penalty = 1.3f;
      if (i % kinds == 3) request.params.num_top_logprobs = 2;
      if (i % kinds == 4) request.want_logits_hash = true;
      if (i % kinds == 5) {
        request.params.logit_bias = {{3, 4.0f}, {60, -100.0f}};
        request.params.frequency_penalty = 0.5f;
        request.params.num_top_logprobs = 3;
      }
      collectors.push_back(std::make_unique<Collector>());
      EXPECT_TRUE(engine->submit(std::move(request), collectors.back()->sink()).ok());
    }
    std::vector<std::pair<std::vector<std::int32_t>, std::vector<TokenLogprob>>> tokens;
    for (auto& collector : collectors) {
      collector->wait();
      EXPECT_EQ(collector->finish[0], FinishReason::kLength);
      std::vector<TokenLogprob> named;
      for (const RowLogprobs& row : collector->logprobs) {
        named.push_back({-1, row.logprob});
        named.insert(named.end(), row.top.begin(), row.top.end());
      }
      tokens.emplace_back(collector->tokens[0], std::move(named));
    }
    EXPECT_TRUE(engine->idle());
    EXPECT_EQ(engine->stats().used_tokens, 0);
    return tokens;
  };
  for (const int kinds : {2, 4, 6}) {
    const auto one = run(1, kinds), two = run(2, kinds);
    ASSERT_EQ(one.size(), two.size());
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_EQ(one[i], two[i]) << "request " << i << " of " << kinds << " kinds";
  }
}

// A request may name more biases and stop tokens than its context is long.
TEST_P(StepsInFlight, ARequestWithManyRulesHarmsNobody) {
  Options options = options_for("qwen3");
  options.steps_in_flight = GetParam();
  options.load_format = "dummy";
  options.json_model_override_args = R"({"vocab_size": 6000})";
  options.context_length = 256;
  auto engine = Engine::create(options);
  const auto tokens_from = [](int first, int count) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  };
  Collector few, many;
  ASSERT_TRUE(engine->submit(greedy({5, 9, 2, 31}, 100), few.sink()).ok());
  Request request = greedy(tokens_from(1000, 240), 4);
  request.params.presence_penalty = 0.5f;
  request.params.min_new_tokens = 4;
  for (const std::int32_t token : tokens_from(2000, 1024))
    request.params.logit_bias.emplace_back(token, 1.0f);
  request.params.stop_token_ids = tokens_from(4000, 1100);
  ASSERT_TRUE(engine->submit(std::move(request), many.sink()).ok());
  many.wait();
  few.wait();
  EXPECT_EQ(many.finish[0], FinishReason::kLength);
  EXPECT_EQ(few.finish[0], FinishReason::kLength);
  EXPECT_EQ(few.tokens[0].size(), 100u);
}

// On a CPU only --mla-prefill auto lets results depend on how a prompt was cut.
TEST(Engine, ADeterministicRequestMakesItsStepsSo) {
  const Json golden = read_json(golden_directory("deepseek-v2") + "/golden.json");
  const auto ids = golden["prompts"].back()["ids"].get<std::vector<std::int32_t>>();
  const auto run = [&](Engine& engine, bool deterministic) {
    Collector collector;
    Request request = greedy(ids, 4);
    request.deterministic = deterministic;
    request.want_logits_hash = true;
    request.params.num_top_logprobs = 1;
    engine.run_report(true);
    EXPECT_TRUE(engine.submit(std::move(request), collector.sink()).ok());
    collector.wait();
    std::vector<std::uint64_t> hashes;
    for (const RowLogprobs& row : collector.logprobs) hashes.push_back(row.logits_hash);
    std::uint64_t expanded = 0;
    for (const auto& [name, calls] : engine.run_report(false).attention_methods)
      if (name.starts_with("mha")) expanded += calls;
    return std::tuple(hashes, expanded, collector.cached);
  };
  Options options = options_for("deepseek-v2");
  const auto absorbed = run(*Engine::create(options), false);
  options.mla_prefill = "auto";
  const auto engine = Engine::create(options);
  const auto fast = run(*engine, false);
  EXPECT_GT(std::get<1>(fast), 0u);
  const auto exact = run(*engine, true);
  EXPECT_EQ(std::get<1>(exact), 0u);
  EXPECT_EQ(std::get<2>(exact), 0);  // nothing of what the other request left
  EXPECT_EQ(std::get<0>(exact), std::get<0>(absorbed));
  const auto again = run(*engine, true);
  EXPECT_GT(std::get<2>(again), 0);
  EXPECT_EQ(std::get<0>(again), std::get<0>(exact));
}

TEST(Engine, CachedAndColdLogitsAreEqualBitForBit) {
  auto engine = Engine::create(options_for("glm-moe-dsa"));
  const Json golden = read_json(golden_directory("glm-moe-dsa") + "/golden.json");
  const auto ids = golden["prompts"].back()["ids"].get<std::vector<std::int32_t>>();
  auto run = [&](int logprob_start, std::uint64_t salt) {
    Collector collector;
    Request request = greedy(ids, 6);
    request.params.num_top_logprobs = 5;
    request.want_logits_hash = true;
    request.logprob_start = logprob_start;
    request.cache_namespace = salt;
    EXPECT_TRUE(engine->submit(std::move(request), collector.sink()).ok());
    collector.wait();
    return std::tuple{collector.cached, collector.tokens[0], collector.logprobs,
                      collector.prompt_logprobs};
  };
  const auto [cold_cached, cold_tokens, cold, cold_prompt] = run(0, 1);
  const auto [warm_cached, warm_tokens, warm, warm_prompt] = run(100, 1);
  const auto [salted_cached, salted_tokens, salted, salted_prompt] = run(-1, 2);
  EXPECT_EQ(cold_cached, 0);
  EXPECT_GE(warm_cached, 64);
  EXPECT_LE(warm_cached, 100);
  EXPECT_EQ(salted_cached, 0) << "another namespace shares nothing";
  ASSERT_EQ(cold.size(), 6u);
  ASSERT_EQ(cold_prompt.size(), ids.size() - 1);
  ASSERT_EQ(warm_prompt.size(), ids.size() - 1 - 100);
  for (std::size_t i = 0; i < cold.size(); ++i) {
    EXPECT_EQ(cold[i].logits_hash, warm[i].logits_hash);
    EXPECT_NE(cold[i].logits_hash, 0u);
    EXPECT_EQ(cold[i].logprob, warm[i].logprob);
    EXPECT_EQ(cold[i].top, warm[i].top);
  }
  for (std::size_t i = 0; i < warm_prompt.size(); ++i)
    EXPECT_EQ(warm_prompt[i].logits_hash, cold_prompt[100 + i].logits_hash);
}

TEST(Engine, AbortTimeoutAndChoices) {
  auto engine = Engine::create(options_for("qwen3"));
  Collector aborted;
  const auto id = engine->submit(greedy({5, 6, 7}, 500), aborted.sink());
  ASSERT_TRUE(id.ok());
  aborted.wait_tokens(2);
  EXPECT_TRUE(engine->abort(*id));
  aborted.wait();
  EXPECT_EQ(aborted.finish[0], FinishReason::kAbort);
  EXPECT_FALSE(engine->abort(*id));
  EXPECT_FALSE(engine->abort(999'999));

  Collector late;
  Request slow = greedy({5, 6, 7}, 200);
  slow.timeout_s = 1e-9;
  ASSERT_TRUE(engine->submit(std::move(slow), late.sink()).ok());
  late.wait();
  EXPECT_EQ(late.finish[0], FinishReason::kError);
  EXPECT_EQ(late.fault.code, "timeout");
  EXPECT_EQ(late.fault.status, 504);

  Collector three(3);
  Request request = greedy({9, 8, 7, 6}, 5);
  request.num_choices = 3;
  ASSERT_TRUE(engine->submit(std::move(request), three.sink()).ok());
  three.wait();
  EXPECT_EQ(three.tokens[0].size(), 5u);
  EXPECT_EQ(three.tokens[0], three.tokens[1]);
  EXPECT_EQ(three.tokens[0], three.tokens[2]);
  EXPECT_EQ(engine->stats().used_tokens, 0);
}

TEST(Engine, RefusesWhatItCannotServe) {
  Options options = options_for("qwen3");
  options.max_queued_requests = 4;
  auto engine = Engine::create(options);
  auto code = [&](Request request) {
    Collector* leaked = new Collector(request.num_choices);  // an accepted request would use it
    const auto result = engine->submit(std::move(request), leaked->sink());
    if (!result.ok()) delete leaked;
    return result.ok() ? std::string("ok") : result.fault().code;
  };
  EXPECT_EQ(code(greedy({}, 1)), "empty_prompt");
  EXPECT_EQ(code(greedy({-1}, 1)), "invalid_token_id");
  EXPECT_EQ(code(greedy({1 << 30}, 1)), "invalid_token_id");
  EXPECT_EQ(code(greedy(std::vector<std::int32_t>(100'000, 1), 1)), "context_length_exceeded");
  EXPECT_EQ(code(greedy({1}, 1 << 30)), "context_length_exceeded");
  Request biased = greedy({1}, 1);
  biased.params.logit_bias = {{1 << 30, 1.0f}};
  EXPECT_EQ(code(std::move(biased)), "invalid_token_id");
  engine->drain();
  EXPECT_EQ(code(greedy({1}, 1)), "draining");
}

TEST(Engine, ASmallPoolGivesTheTokensOfALargeOne) {
  auto tokens_with = [](std::int64_t pool) {
    Options options = options_for("qwen3");
    options.max_total_tokens = pool;
    auto engine = Engine::create(options);
    std::vector<std::unique_ptr<Collector>> collectors;
    for (int i = 0; i < 24; ++i) {
      collectors.push_back(std::make_unique<Collector>());
      std::vector<std::int32_t> prompt;
      for (int j = 0; j < 90 + i; ++j) prompt.push_back(3 + (i * 31 + j * 7) % 200);
      EXPECT_TRUE(engine->submit(greedy(std::move(prompt), 60), collectors.back()->sink()).ok());
    }
    std::vector<std::vector<std::int32_t>> out;
    for (auto& collector : collectors) {
      collector->wait();
      out.push_back(collector->tokens[0]);
    }
    return std::pair{out, engine->stats()};
  };
  const auto [large, large_stats] = tokens_with(8192);
  const auto [small, small_stats] = tokens_with(256);
  EXPECT_EQ(large, small);
  EXPECT_EQ(large_stats.retracted, 0u);
  EXPECT_GT(small_stats.retracted + small_stats.evicted_pages, 0u);
  EXPECT_EQ(small_stats.used_tokens, 0);
}

// Layers with a window of 16 hold three pages of it however long the sequence grows, and three
// sequences share them by taking turns; the tokens are those of a pool that could keep everything.
TEST(Engine, LayersWithAWindowNeedTheirWindowsPages) {
  auto tokens_with = [](double ratio, const std::string& model, const std::string& changes = "{}") {
    Options options = options_for(model);
    if (changes != "{}") options.load_format = "dummy";
    options.json_model_override_args = changes;
    options.context_length = 4096;
    options.allow_longer = true;
    options.max_total_tokens = 4096;
    options.swa_full_tokens_ratio = ratio;
    auto engine = Engine::create(options);
    std::vector<std::unique_ptr<Collector>> collectors;
    for (int i = 0; i < 3; ++i) {
      collectors.push_back(std::make_unique<Collector>());
      std::vector<std::int32_t> prompt;
      for (int j = 0; j < 700 + 90 * i; ++j)
        prompt.push_back(3 + (i * 31 + j * 7 + j * j % 11) % 200);
      EXPECT_TRUE(engine->submit(greedy(std::move(prompt), 200), collectors.back()->sink()).ok());
    }
    std::vector<std::vector<std::int32_t>> out;
    for (auto& collector : collectors) {
      collector->wait();
      out.push_back(collector->tokens[0]);
    }
    return std::pair{out, engine->stats()};
  };
  const auto [roomy, roomy_stats] = tokens_with(1, "qwen2-yarn-swa");
  const auto [tight, tight_stats] = tokens_with(0, "qwen2-yarn-swa");
  EXPECT_EQ(roomy, tight);
  ASSERT_EQ(tight_stats.kv_groups.size(), 2u);
  EXPECT_EQ(tight_stats.kv_groups[0].total_pages, 64);
  EXPECT_EQ(tight_stats.kv_groups[1].name, "window");
  EXPECT_EQ(tight_stats.kv_groups[1].total_pages, 3);
  for (const PageGroupStats& group : tight_stats.kv_groups)
    EXPECT_EQ(group.used_pages, 0) << group.name;
  EXPECT_EQ(roomy_stats.retracted, 0u);

  // Chunks of 100 positions, in three layers of four; random weights.
  const std::string llama4 =
      R"({"architectures": ["Llama4ForCausalLM"], "num_hidden_layers": 4, "intermediate_size": 32,
      "intermediate_size_mlp": 48, "num_local_experts": 4, "num_experts_per_tok": 1,
      "interleave_moe_layer_step": 2,
      "attention_chunk_size": 100, "floor_scale": 64, "rope_parameters": null,
      "initializer_range": 0.2,
      "attention_bias": false})";
  const auto [chunks, chunks_stats] = tokens_with(1, "llama-plain", llama4);
  const auto [few, few_stats] = tokens_with(0, "llama-plain", llama4);
  EXPECT_EQ(chunks, few);
  EXPECT_NE(chunks[0], chunks[1]);
  ASSERT_EQ(few_stats.kv_groups.size(), 2u);
  EXPECT_EQ(few_stats.kv_groups[0].name, "chunk");
  EXPECT_EQ(few_stats.kv_groups[0].total_pages, 4);
  EXPECT_EQ(few_stats.kv_groups[1].total_pages, 64);
  for (const PageGroupStats& group : few_stats.kv_groups)
    EXPECT_EQ(group.used_pages, 0) << group.name;

  // Where every layer has a window, 2,700 tokens pass through what the sequences can use.
  const auto [windows, windows_stats] = tokens_with(1, "mistral-swa");
  ASSERT_EQ(windows_stats.kv_groups.size(), 1u);
  EXPECT_EQ(windows_stats.retracted, 0u);
  EXPECT_EQ(windows_stats.used_tokens, 0);
}

TEST(Engine, WithoutALimitARequestFillsWhatThePoolHolds) {
  Options options = options_for("qwen3");
  options.max_total_tokens = 128;  // less than the context
  auto engine = Engine::create(options);
  Collector collector;
  ASSERT_TRUE(engine->submit(greedy({5, 6, 7}, -1), collector.sink()).ok());
  collector.wait();
  EXPECT_EQ(collector.finish[0], FinishReason::kLength);
  EXPECT_EQ(collector.tokens[0].size(), 128u - 3);
}

TEST(Engine, TheContextIsWhatThePoolHolds) {
  Options options = options_for("qwen3");
  options.max_total_tokens = 100;  // two pages
  auto engine = Engine::create(options);
  EXPECT_EQ(engine->context_length(), 128);
  Collector collector;
  const auto refused =
      engine->submit(greedy(std::vector<std::int32_t>(129, 5), 1), collector.sink());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.fault().code, "context_length_exceeded");
  EXPECT_NE(refused.fault().message.find("129 tokens"), std::string::npos);
  EXPECT_NE(refused.fault().message.find("length of 128"), std::string::npos);
  // One that was asked for is a promise.
  options.context_length = 256;
  try {
    Engine::create(options);
    ADD_FAILURE() << "a context of 256 tokens started on a pool of 128";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNoResources);
    EXPECT_NE(error.message().find("--context-length is 256, and the KV cache holds 128 tokens"),
              std::string::npos);
    EXPECT_NE(error.message().find("--max-total-tokens 256"), std::string::npos);
  }
  options.context_length = 128;
  EXPECT_EQ(Engine::create(options)->context_length(), 128);
  // Windows hold sequences of any length.
  Options windows = options_for("mistral-swa");
  windows.max_total_tokens = 128;
  EXPECT_GT(Engine::create(windows)->context_length(), 128);
}

TEST(Engine, DummyWeightsNeedOnlyAConfiguration) {
  Options options = options_for("qwen3-moe");
  options.load_format = "dummy";
  auto engine = Engine::create(options);
  Collector collector;
  ASSERT_TRUE(engine->submit(greedy({1, 2, 3}, 4), collector.sink()).ok());
  collector.wait();
  EXPECT_EQ(collector.tokens[0].size(), 4u);
}

TEST(Engine, DestructionEndsEveryRequest) {
  Collector collector;
  {
    auto engine = Engine::create(options_for("qwen3"));
    ASSERT_TRUE(engine->submit(greedy({5, 6, 7}, 400), collector.sink()).ok());
    collector.wait_tokens(1);
  }
  EXPECT_EQ(collector.finish[0], FinishReason::kError);
  EXPECT_EQ(collector.fault.code, "shutting_down");
}

}  // namespace
}  // namespace sluice
