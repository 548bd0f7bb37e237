// Speculation with recurrent layers through the whole engine: each draft has a state behind it, and
// what comes out equals what comes without drafts.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/testing/folder.h"
#include "base/testing/source_dir.h"
#include "engine/testing/speculation_outcome.h"
#include "runtime/testing/draft_sequence.h"

namespace sluice {
namespace {

class OnRecurrent : public ::testing::TestWithParam<std::string> {
 protected:
  static Options options() {
    Options out = options_for("");
    out.model = std::string(SLUICE_MORE_MODELS) + "/" + GetParam();
    out.chunked_prefill_size = 24;
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Speculation, OnRecurrent,
                         ::testing::Values("qwen3-next", "qwen3-5", "kimi-linear", "mamba2",
                                           "lfm2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(OnRecurrent, GreedyTokensAndLogProbabilitiesHaveTheBitsOfPlainDecoding) {
  for (const int count : {1, 3, 17}) {
    SCOPED_TRACE(count);
    const std::vector<Request> requests = greedy_requests(count);
    const Outcome plain = outcome_of(options(), requests);
    Options drafting = with_ngram(options());
    const Outcome drafted = outcome_of(drafting, requests);
    expect_equal(drafted, plain);
    expect_equal(outcome_of(with_suffix(options()), requests), plain);
    EXPECT_GT(drafted.stats.drafted_tokens, 0u);
    // The weights are random; those of qwen3-next repeat nothing.
    if (count == 17 && GetParam() != "qwen3-next") {
      EXPECT_GT(drafted.stats.accepted_tokens, 0u);
    }
    drafting.drafts_as_rows = true;  // as a GPU computes them
    expect_equal(outcome_of(drafting, requests), plain);
    drafting.speculative_adaptive = true;
    expect_equal(outcome_of(drafting, requests), plain);
    drafting.drafts_as_rows = false;
    expect_equal(outcome_of(drafting, requests), plain);
  }
}

TEST_P(OnRecurrent, RetractionChangesNothing) {
  const Options little = with_little_memory(options());
  std::vector<Request> requests = greedy_requests(9);
  for (Request& request : requests) request.max_new_tokens += 60;
  expect_equal(outcome_of(with_ngram(little), requests), outcome_of(little, requests));
}

// So few states that drafts get none, or one.
TEST_P(OnRecurrent, FewStatesChangeNothing) {
  const std::vector<Request> requests = greedy_requests(9);
  const Outcome plain = outcome_of(options(), requests);
  for (const int states : {1, 2, 4, 9}) {
    Options few = with_ngram(options());
    few.max_mamba_cache_size = states;
    expect_equal(outcome_of(few, requests), plain);
  }
}

TEST_P(OnRecurrent, CachedPrefixesChangeNothing) {
  Options two = options();
  two.max_running_requests = 2;
  std::vector<Request> requests;
  for (int turn = 0; turn < 3; ++turn)
    for (int i = 0; i < 2; ++i) requests.push_back(greedy(prompt_of(i, 70 + 30 * turn), 70));
  const Outcome plain = outcome_of(two, requests), drafted = outcome_of(with_ngram(two), requests);
  expect_equal(drafted, plain);
  EXPECT_EQ(drafted.stats.prefix_hit_tokens > 0, plain.stats.prefix_hit_tokens > 0);
}

// A later request begins where a drafted answer ended.
TEST_P(OnRecurrent, TheStateAtTheEndOfAnAnswerIsFoundAgain) {
  std::vector<std::int32_t> cached;
  for (const Options& each : {options(), with_ngram(options())}) {
    auto engine = Engine::create(each);
    std::vector<std::int32_t> prompt = prompt_of(0, 40);
    for (int turn = 0; turn < 3; ++turn) {
      Collector collector;
      ASSERT_TRUE(engine->submit(greedy(prompt, 37), collector.sink()).ok());
      collector.wait();
      cached.push_back(collector.cached);
      prompt.insert(prompt.end(), collector.tokens[0].begin(), collector.tokens[0].end());
      prompt.insert(prompt.end(), {5, 6, 7});
    }
  }
  ASSERT_EQ(cached.size(), 6u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(cached[i + 3], cached[i]);
  EXPECT_GT(cached[5], 0);
}

TEST_P(OnRecurrent, ChoicesSamplesAndStopsChangeNothing) {
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    Request request = greedy(prompt_of(i, 30 + 10 * i), 45);
    request.num_choices = 1 + i % 3;
    request.params.temperature = i % 2 == 0 ? 0.7F : 0.0F;
    request.params.seed = 11;
    if (i == 3) request.stop = {"x"};
    requests.push_back(std::move(request));
  }
  expect_equal(outcome_of(with_ngram(options()), requests), outcome_of(options(), requests));
}

TEST_P(OnRecurrent, AnAbortLeavesNothingBehind) {
  auto engine = Engine::create(with_ngram(options()));
  for (int i = 0; i < 20; ++i) {
    Collector collector;
    const auto id = engine->submit(greedy(prompt_of(i, 40), 200), collector.sink());
    ASSERT_TRUE(id.ok());
    collector.wait_tokens(1 + i);
    engine->abort(id.value());
    collector.wait();
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (engine->stats().kv_groups.back().used_pages != 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  EXPECT_EQ(engine->stats().kv_groups.back().used_pages, 0);
}

// The draft layer lies beside the repository on machines of developers.
TEST(RecurrentSpeculation, ADraftLayerChangesNothing) {
  namespace fs = std::filesystem;
  const fs::path shared = fs::path(source_dir()).parent_path() / "shared/golden",
                 folder = shared / "speculation/families/mtp-qwen3-next";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not there";
  const TestFolder made;
  const fs::path model = made.path();
  for (const char* name : {"config.json", "mtp.safetensors", "model.safetensors.index.json"})
    fs::copy(folder / name, model / name);
  fs::copy(shared / "models/qwen3-next/model.safetensors", model / "model.safetensors");

  Options options = options_for("");
  options.model = model.string();
  std::vector<Request> requests = greedy_requests(7);
  const Outcome plain = outcome_of(options, requests);
  const Outcome drafted = outcome_of(with_nextn(options), requests);
  expect_equal(drafted, plain);
  Options as_rows = with_nextn(options);
  as_rows.drafts_as_rows = true;  // as a GPU computes them
  expect_equal(outcome_of(as_rows, requests), plain);
  EXPECT_GT(drafted.stats.drafted_tokens, 500u);
  options = with_little_memory(options);
  for (Request& request : requests) request.max_new_tokens += 60;
  expect_equal(outcome_of(with_nextn(options), requests), outcome_of(options, requests));
  // The checkpoint without it.
  Options without = with_nextn(options_for(""));
  without.model = std::string(SLUICE_MORE_MODELS) + "/qwen3-next";
  try {
    (void)Engine::create(without);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("lacks its draft layer (mtp.fc.weight)"), std::string::npos)
        << error.message();
  }
}

// Their own layers draft, which keep no states.
TEST(RecurrentDrafts, LayersOfTheModelChangeNothing) {
  for (const std::string name : {"qwen3-5", "qwen3-5-moe"}) {
    SCOPED_TRACE(name);
    const draft_test::TestCheckpoint checkpoint(
        std::filesystem::path(SLUICE_MORE_MODELS) / name,
        std::filesystem::path(source_dir()) / "tests/golden/speculation" / ("mtp-" + name), true);
    Options options = options_for("");
    options.model = checkpoint.path.string();
    for (const int count : {1, 3, 17}) {
      const std::vector<Request> requests = greedy_requests(count);
      const Outcome plain = outcome_of(options, requests);
      Options drafting = with_nextn(options);
      const Outcome drafted = outcome_of(drafting, requests);
      expect_equal(drafted, plain);
      EXPECT_GT(drafted.stats.drafted_tokens, 100u);
      drafting.speculative_adaptive = true;
      expect_equal(outcome_of(drafting, requests), plain);
    }
    const Options little = with_little_memory(options);
    std::vector<Request> longer = greedy_requests(9);
    for (Request& request : longer) request.max_new_tokens += 60;
    expect_equal(outcome_of(with_nextn(little), longer), outcome_of(little, longer));
  }
}

}  // namespace
}  // namespace sluice
