#include "cli/models/fit.h"

#include "base/log.h"
#include "base/testing/source_dir.h"
#include "checkpoint/load_config.h"
#include "engine/engine.h"
#include "engine/serving_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// Bytes of a token in one layer, or of a state.
PageGroupSpec group_of(Retention retention, std::int64_t bytes, std::int64_t span = 0) {
  return {{.name = "group", .retention = retention, .span = span},
          {{.name = "k", .dtype = DType::kU8, .row_elements = bytes, .layers = {0}}}};
}

std::vector<PageGroupSpec> every_token(std::int64_t bytes) {
  return {group_of(Retention::kFull, bytes)};
}

TEST(Fit, CountsWholePages) {
  // 1 GiB left at 1 KiB a token: 2^20 tokens.
  const Fit f = fit({.weight_bytes = 2 * kGiB,
                     .working_bytes = kGiB,
                     .kept = every_token(1024),
                     .memory_bytes = 4 * kGiB,
                     .context_length = 40000});
  EXPECT_TRUE(f.fits);
  EXPECT_EQ(f.left_bytes, kGiB);
  EXPECT_EQ(f.max_tokens, 1 << 20);
  EXPECT_EQ(f.longest, 40000);
  ASSERT_EQ(f.concurrency.size(), 3u);
  EXPECT_EQ(f.concurrency[0].at_most, 512);
  EXPECT_EQ(f.concurrency[1].at_most, 128);
  EXPECT_EQ(f.concurrency[2].at_most, 32);
  // By itself the engine takes half of what is left.
  EXPECT_EQ(f.default_tokens, 1 << 19);
  EXPECT_EQ(f.concurrency[0].by_default, 256);
}

TEST(Fit, SaysWhatIsMissing) {
  const Fit f = fit({.weight_bytes = 5 * kGiB,
                     .working_bytes = 0,
                     .kept = every_token(1024),
                     .memory_bytes = 4 * kGiB,
                     .context_length = 8192});
  EXPECT_FALSE(f.fits);
  EXPECT_EQ(f.left_bytes, -kGiB);
  EXPECT_EQ(f.missing_bytes, kGiB + (1 << 20));  // and 1,024 tokens
  EXPECT_EQ(f.max_tokens, 0);
  EXPECT_EQ(f.concurrency[0].at_most, 0);
  EXPECT_EQ(f.concurrency.size(), 2u);  // no request is longer than the context
}

TEST(Fit, ShortContextsAndLittleMemory) {
  // Room for 9 pages, 576 tokens.
  const FitQuestion q{.weight_bytes = 0,
                      .working_bytes = 0,
                      .kept = every_token(1000),
                      .memory_bytes = 600'000,
                      .context_length = 512};
  EXPECT_EQ(fit(q).max_tokens, 576);
  EXPECT_TRUE(fit(q).fits);  // one sequence of the whole context
  EXPECT_EQ(fit(q).concurrency.front().length, 512);
  EXPECT_EQ(fit(q).concurrency.front().at_most, 1);
  FitQuestion longer = q;
  longer.context_length = 4096;
  EXPECT_FALSE(fit(longer).fits);  // not even 1,024 tokens
  FitQuestion asked = q;
  asked.kv.max_total_tokens = 576;
  EXPECT_TRUE(fit(asked).fits);
  asked.kv.max_total_tokens = std::int64_t{1} << 40;
  EXPECT_FALSE(fit(asked).fits);
}

TEST(Fit, WorkingMemoryGrowsWithTheStep) {
  const ModelConfig c = load_model_config(source_dir() + "/models/sluice-tiny");
  EXPECT_GT(working_bytes(c, 512, 8, 8192), working_bytes(c, 256, 8, 8192));
  EXPECT_GT(working_bytes(c, 512, 128, 8192), working_bytes(c, 512, 8, 8192));
  EXPECT_EQ(working_bytes(c, 512, 8, 128), working_bytes(c, 128, 8, 8192));
}

// A window of 100 tokens holds three pages, and four while its next one begins.
TEST(Fit, WindowsKeepTheirTokensAlone) {
  FitQuestion q{.weight_bytes = kGiB,
                .working_bytes = kGiB,
                .kept = {group_of(Retention::kFull, 1024), group_of(Retention::kWindow, 1024, 100)},
                .memory_bytes = 4 * kGiB,
                .context_length = 40000,
                .limits = {.max_running_requests = 10, .max_step_tokens = 640}};
  constexpr std::int64_t kPageBytes = 64 * 1024, kWindowPages = 2 * (10 * 4 + 10);
  Fit f = fit(q);
  EXPECT_EQ(f.max_tokens, (2 * kGiB / kPageBytes - kWindowPages) * 64);
  EXPECT_EQ(f.default_tokens, 10 * (625 + 1) * 64);  // all that ten requests can fill
  EXPECT_EQ(f.default_kv_bytes, (10 * (625 + 1) + kWindowPages) * kPageBytes);
  EXPECT_EQ(f.concurrency[1].length, 8192);
  EXPECT_EQ(f.concurrency[1].at_most, 2 * kGiB / ((128 + 4) * kPageBytes));
  EXPECT_EQ(f.concurrency[1].by_default, kWindowPages / 4);  // fewer than whole sequences

  q.limits.max_running_requests = 1000;
  q.kv.window_ratio = 0.125;
  f = fit(q);
  EXPECT_EQ(f.max_tokens, 2 * kGiB / 9 * 8 / kPageBytes * 64);
  q.kv.max_total_tokens = 64'000;
  f = fit(q);
  EXPECT_EQ(f.default_kv_bytes, (1000 + 125) * kPageBytes);
  EXPECT_EQ(f.concurrency[1].by_default, 1000 / 128);

  // Windows alone: two requests of any length.
  q.kept.erase(q.kept.begin());
  q.limits = {.max_running_requests = 2, .max_step_tokens = 64};
  q.kv = {};
  f = fit(q);
  EXPECT_TRUE(f.fits);
  EXPECT_EQ(f.longest, 40000);
  EXPECT_EQ(f.default_kv_bytes, 2 * (2 * 4 + 1) * kPageBytes);
  EXPECT_EQ(f.concurrency.back().by_default, (2 * (2 * 4 + 1)) / 4);
  q.memory_bytes = 2 * kGiB + 3 * kPageBytes;
  EXPECT_FALSE(fit(q).fits);
}

TEST(Fit, TheCacheIsThatOfAStart) {
  set_log_level(LogLevel::kError);
  const auto expect_same = [](Options options) {
    SCOPED_TRACE(options.model);
    options.threads = 1;
    options.max_total_tokens = 100'000;
    const auto engine = Engine::create(options);
    const ModelConfig& config = engine->model_config();
    const ServingPlan plan = resolve_or_throw(options, config, Machine{});
    const Fit f = fit({.kept = kv_page_groups(config, plan.numerics().kv()),
                       .memory_bytes = 16 * kGiB,
                       .context_length = plan.context_length(),
                       .limits = plan.runner.limits,
                       .kv = plan.runner.kv});
    EXPECT_EQ(f.default_tokens, engine->memory_plan().max_total_tokens);
    EXPECT_EQ(f.default_kv_bytes, engine->memory_plan().kv_bytes);
  };
  Options windows;
  for (const char* name : {"mistral-swa", "qwen2-yarn-swa"}) {
    windows.model = source_dir() + "/tests/golden/models/" + name;
    expect_same(windows);
    Options few = windows;
    few.max_running_requests = 2;
    few.swa_full_tokens_ratio = 0.1;
    expect_same(few);
  }
  windows.model = source_dir() + "/bench/configs/gpt-oss-20b";
  windows.load_format = "dummy";
  windows.json_model_override_args =
      R"({"num_hidden_layers": 2, "num_local_experts": 4, "vocab_size": 1024,
          "hidden_size": 256, "intermediate_size": 256,
          "layer_types": ["sliding_attention", "full_attention"]})";
  expect_same(windows);
}

TEST(Fit, StatesOfRecurrentLayers) {
  FitQuestion q{.weight_bytes = 0,
                .working_bytes = 0,
                .kept = {group_of(Retention::kFull, 1024), group_of(Retention::kState, 1 << 20)},
                .memory_bytes = 1 << 30,
                .context_length = 8192,
                .limits = {.max_running_requests = 10}};
  Fit f = fit(q);
  EXPECT_EQ(f.default_states, 40);             // four for each request
  EXPECT_EQ(f.max_tokens, (1024 - 1) * 1024);  // beside one state
  EXPECT_EQ(f.concurrency.back().length, 8192);
  EXPECT_EQ(f.concurrency.back().by_default, 10);
  EXPECT_EQ(f.concurrency.back().at_most, 1024 / 9);  // 8 MiB of keys and 1 MiB of state each
  q.kept.erase(q.kept.begin());                       // states alone: any length
  f = fit(q);
  EXPECT_TRUE(f.fits);
  EXPECT_EQ(f.longest, 8192);
  EXPECT_EQ(f.concurrency.back().at_most, 1024);
  q.kept = {group_of(Retention::kState, std::int64_t{2} << 30)};
  EXPECT_FALSE(fit(q).fits);
}

}  // namespace
}  // namespace sluice
