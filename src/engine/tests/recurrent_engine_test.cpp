// Models with recurrent layers through the engine: states are found again for common beginnings,
// copied for choices, and made anew for sequences that were sent back; the tokens are always those
// of a request alone.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/testing/collector.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Small models with random weights, large enough ones for logits that differ.
constexpr std::string_view kGatedDelta =
    R"({"architectures": ["Qwen3NextForCausalLM"], "vocab_size": 97, "hidden_size": 48,
  "num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 40,
  "max_position_embeddings": 2048, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
  "linear_key_head_dim": 12,
  "linear_value_head_dim": 20, "num_experts": 4, "num_experts_per_tok": 2,
  "moe_intermediate_size": 16,
  "shared_expert_intermediate_size": 24, "initializer_range": 0.3})";
constexpr std::string_view kKeyDelta =
    R"({"architectures": ["KimiLinearForCausalLM"], "vocab_size": 97, "hidden_size": 48,
  "num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
  "num_attention_heads": 4, "intermediate_size": 40, "model_max_length": 2048,
  "linear_num_heads": 3,
  "linear_head_dim": 20, "q_lora_rank": null, "kv_lora_rank": 24, "qk_nope_head_dim": 16,
  "qk_rope_head_dim": 8,
  "v_head_dim": 16, "num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 16,
  "num_shared_experts": 1,
  "first_k_dense_replace": 1, "initializer_range": 0.3})";
constexpr std::string_view kMamba2 =
    R"({"architectures": ["Mamba2ForCausalLM"], "vocab_size": 97, "hidden_size": 48,
  "num_hidden_layers": 2, "num_heads": 6, "head_dim": 16, "state_size": 12, "n_groups": 2,
  "expand": 2,
  "initializer_range": 0.3})";
constexpr std::string_view kShortConv =
    R"({"architectures": ["Lfm2ForCausalLM"], "vocab_size": 97, "hidden_size": 48,
  "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"],
  "num_attention_heads": 4,
  "num_key_value_heads": 2, "intermediate_size": 40, "block_auto_adjust_ff_dim": false,
  "conv_L_cache": 3,
  "max_position_embeddings": 2048, "initializer_range": 0.3})";

using Tokens = std::vector<std::int32_t>;

class RecurrentEngine : public ::testing::TestWithParam<std::string_view> {
 protected:
  RecurrentEngine() {
    folder_ = fs::temp_directory_path() /
              fmt::format("sluice-hybrid-{}-{}", ::getpid(), static_cast<const void*>(this));
    fs::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << GetParam();
  }
  ~RecurrentEngine() override { fs::remove_all(folder_); }

  Options options() const {
    Options out;
    out.model = folder_.string();
    out.load_format = "dummy";
    out.random_seed = 5;
    out.dtype = "float32";
    out.max_total_tokens = 4096;
    out.max_running_requests = 8;
    out.context_length = 1024;
    out.chunked_prefill_size = 100;
    out.threads = 2;
    return out;
  }

  // What one request brings, alone.
  static std::pair<Tokens, int> run(Engine& engine, const Tokens& prompt, int count) {
    Collector collector;
    EXPECT_TRUE(engine.submit(greedy(prompt, count), collector.sink()).ok());
    collector.wait();
    return {collector.tokens[0], collector.cached};
  }

  static const PageGroupStats& states(const EngineStats& stats) { return stats.kv_groups.back(); }

  // The counters once nothing runs: they are a snapshot, which may be taken a moment after the last
  // event.
  static EngineStats at_rest(Engine& engine) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (states(engine.stats()).used_pages != 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
    return engine.stats();
  }

 private:
  fs::path folder_;
};

std::string name_of(const ::testing::TestParamInfo<std::string_view>& info) {
  static constexpr const char* kNames[] = {"GatedDelta", "KeyDelta", "Mamba2", "ShortConv"};
  return kNames[info.index];
}
INSTANTIATE_TEST_SUITE_P(Kinds, RecurrentEngine,
                         ::testing::Values(kGatedDelta, kKeyDelta, kMamba2, kShortConv), name_of);

Tokens prompt_of(int size, int salt) {
  Tokens prompt;
  for (int i = 0; i < size; ++i) prompt.push_back(1 + (salt * 31 + i * 7 + i * i % 13) % 90);
  return prompt;
}

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_P(RecurrentEngine, PrefixesAreFoundAgainAndChangeNoToken) {
  auto engine = Engine::create(options());
  Options no_cache = options();
  no_cache.disable_radix_cache = true;
  auto cold = Engine::create(no_cache);
  const Tokens first = prompt_of(200, 1);
  const auto [tokens, none] = run(*engine, first, 20);
  EXPECT_EQ(none, 0);
  // The same prompt, a longer one, the next turn of the conversation, prompts that begin alike.
  const Tokens common = prompt_of(150, 2);
  const std::pair<Tokens, int> rows[] = {{first, 192},
                                         {joined(first, prompt_of(40, 3)), 192},
                                         {joined(joined(first, tokens), prompt_of(30, 4)), 219},
                                         {joined(common, prompt_of(90, 5)), 0},
                                         {joined(common, prompt_of(80, 6)), 0},
                                         {joined(common, prompt_of(100, 7)), 128}};
  for (const auto& [prompt, wanted] : rows) {
    const auto [got, cached] = run(*engine, prompt, 20);
    EXPECT_EQ(cached, wanted);
    const auto [reference, nothing] = run(*cold, prompt, 20);
    EXPECT_EQ(got, reference) << prompt.size();
    EXPECT_EQ(nothing, 0);
  }
  const EngineStats stats = at_rest(*engine);
  EXPECT_EQ(states(stats).retention, Retention::kState);
  EXPECT_EQ(states(stats).used_pages, 0);
  EXPECT_GT(states(stats).cached_pages, 0);
}

TEST_P(RecurrentEngine, ChoicesHaveStatesOfTheirOwn) {
  Options one_by_one = options();
  one_by_one.max_running_requests = 1;  // choices wait for each other instead of being forked
  one_by_one.disable_radix_cache = true;
  std::vector<std::vector<Tokens>> seen;
  for (const Options& o : {options(), one_by_one}) {
    auto engine = Engine::create(o);
    Request request = greedy(prompt_of(130, 8), 25);
    request.num_choices = 4;
    request.params.temperature = 1;
    request.params.seed = 77;
    Collector collector(4);
    ASSERT_TRUE(engine->submit(std::move(request), collector.sink()).ok());
    collector.wait();
    seen.push_back(collector.tokens);
    EXPECT_EQ(states(at_rest(*engine)).used_pages, 0);
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_NE(seen[0][0], seen[0][1]);
}

TEST_P(RecurrentEngine, FewPagesAndFewStatesGiveTheSameTokens) {
  Options tight = options();
  tight.context_length = 384;
  tight.max_total_tokens = 384;
  tight.max_mamba_cache_size = 3;
  tight.steps_in_flight = 2;
  std::vector<std::vector<Tokens>> seen;
  for (const Options& o : {options(), tight}) {
    auto engine = Engine::create(o);
    std::vector<std::unique_ptr<Collector>> collectors;
    for (int i = 0; i < 10; ++i) {
      collectors.push_back(std::make_unique<Collector>());
      ASSERT_TRUE(engine
                      ->submit(greedy(joined(prompt_of(70, 1), prompt_of(20 + i, i)), 60),
                               collectors.back()->sink())
                      .ok());
    }
    std::vector<Tokens>& out = seen.emplace_back();
    for (auto& collector : collectors) {
      collector->wait();
      out.push_back(collector->tokens[0]);
    }
    const EngineStats stats = at_rest(*engine);
    EXPECT_EQ(states(stats).used_pages, 0);
    if (o.max_mamba_cache_size == 0) continue;
    EXPECT_EQ(states(stats).total_pages, 3);
    EXPECT_GT(stats.retracted + stats.evicted_pages, 0u);
  }
  EXPECT_EQ(seen[0], seen[1]);
}

TEST_P(RecurrentEngine, AnAbortGivesItsStateBack) {
  // So long an answer that it is still under way when this thread has seen its beginning, also on a
  // busy machine.
  Options long_answers = options();
  long_answers.context_length = 32'768;
  long_answers.allow_longer = true;
  long_answers.max_total_tokens = 40'000;
  auto engine = Engine::create(long_answers);
  Collector collector;
  const auto id = engine->submit(greedy(prompt_of(200, 1), 32'000), collector.sink());
  ASSERT_TRUE(id.ok());
  collector.wait_tokens(3);
  engine->abort(id.value());
  collector.wait();
  EXPECT_EQ(collector.finish[0], FinishReason::kAbort);
  EXPECT_EQ(states(at_rest(*engine)).used_pages, 0);
}

}  // namespace
}  // namespace sluice
