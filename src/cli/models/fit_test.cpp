#include "cli/models/fit.h"

#include "base/testing/source_dir.h"
#include "checkpoint/load_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

TEST(Fit, CountsWholePages) {
  // 1 GiB left at 1 KiB a token: 2^20 tokens.
  const Fit f = fit({.weight_bytes = 2 * kGiB,
                     .working_bytes = kGiB,
                     .kv_bytes_per_token = 1024,
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
                     .kv_bytes_per_token = 1024,
                     .memory_bytes = 4 * kGiB,
                     .context_length = 8192});
  EXPECT_FALSE(f.fits);
  EXPECT_EQ(f.left_bytes, -kGiB);
  EXPECT_EQ(f.max_tokens, 0);
  EXPECT_EQ(f.concurrency[0].at_most, 0);
  EXPECT_EQ(f.concurrency.size(), 2u);  // no request is longer than the context
}

TEST(Fit, ShortContextsAndLittleMemory) {
  // Room for 9 pages, 576 tokens.
  const FitQuestion q{.weight_bytes = 0,
                      .working_bytes = 0,
                      .kv_bytes_per_token = 1000,
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

TEST(Fit, StatesOfRecurrentLayers) {
  FitQuestion q{.weight_bytes = 0,
                .working_bytes = 0,
                .kv_bytes_per_token = 1024,
                .state_bytes = 1 << 20,
                .memory_bytes = 1 << 30,
                .context_length = 8192,
                .limits = {.max_running_requests = 10}};
  Fit f = fit(q);
  EXPECT_EQ(f.default_states, 40);             // four for each request
  EXPECT_EQ(f.max_tokens, (1024 - 1) * 1024);  // beside one state
  EXPECT_EQ(f.concurrency.back().length, 8192);
  EXPECT_EQ(f.concurrency.back().by_default, 10);
  EXPECT_EQ(f.concurrency.back().at_most, 1024 / 9);  // 8 MiB of keys and 1 MiB of state each
  q.kv_bytes_per_token = 0;                           // states alone: any length
  f = fit(q);
  EXPECT_TRUE(f.fits);
  EXPECT_EQ(f.longest, 8192);
  EXPECT_EQ(f.concurrency.back().at_most, 1024);
  q.state_bytes = std::int64_t{2} << 30;
  EXPECT_FALSE(fit(q).fits);
}

}  // namespace
}  // namespace sluice
