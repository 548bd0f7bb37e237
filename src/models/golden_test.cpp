// Every supported architecture against the reference outputs of tests/golden (float32). Also
// against itself: the logits have the same bits, however a prompt is cut, batched and threaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>

#include "models/testing/driver.h"
#include "models/testing/golden_support.h"

namespace sluice::testing {
namespace {

// tests/golden/README.md: float32 on a CPU.
constexpr double kMaxLogprobError = 2e-4;

struct Fixture {
  std::string name;
  bool has_hub_config = false;
  // Logits of prompts beyond this length depend on the cuts (dynamic rope scaling): compare one
  // whole pass only.
  int longest_invariant = 1 << 20;
};

void PrintTo(const Fixture& fixture, std::ostream* out) {
  *out << fixture.name;
}

const std::vector<Fixture> kFixtures = {{"llama-plain"},
                                        {"llama-llama3-tied", true},
                                        {"llama-linear-bias-headdim"},
                                        {"llama-yarn"},
                                        {"llama-dynamic", false, 64},
                                        {"mistral-swa", true},
                                        {"qwen2-tied"},
                                        {"qwen2-yarn-swa"},
                                        {"qwen3", true},
                                        {"qwen2-moe"},
                                        {"qwen3-moe", true},
                                        {"mixtral"},
                                        {"deepseek-v2", true},
                                        {"deepseek-v2-lite"},
                                        {"deepseek-v3", true},
                                        {"deepseek-v3-noqlora"},
                                        {"deepseek-v32"},
                                        {"glm-moe-dsa", true},
                                        {"glm-moe-dsa-shared-index"},
                                        {"glm-moe-dsa-pattern"}};

class Golden : public ::testing::TestWithParam<Fixture> {
 protected:
  std::string directory() const { return golden_models() + GetParam().name; }
  Json prompts() const { return read_json(directory(), "golden.json")["prompts"]; }
  bool invariant(const std::vector<int>& ids) const {
    return static_cast<int>(ids.size()) <= GetParam().longest_invariant;
  }
};

TEST_P(Golden, WholePromptsMatchTheReference) {
  double worst = 0;
  for (const CpuIsa isa : {CpuIsa::kAvx2, detect_cpu_isa()}) {
    DriverOptions options;
    options.isa = isa;
    options.rope_by_length = true;  // the reference's rule
    for (const Json& prompt : prompts()) {
      TestDriver driver(directory(), options);
      worst = std::max(worst, worst_error(prompt, driver.step({{0, ids_of(prompt)}})));
    }
  }
  std::cout << "[ measured ] " << GetParam().name << ": worst |d logprob| " << worst << "\n";
  EXPECT_LE(worst, kMaxLogprobError);
}

TEST_P(Golden, GreedyDecodingWithTheCacheMatchesTheReference) {
  for (const Json& prompt : prompts()) {
    const std::vector<int> expected = prompt["greedy"].get<std::vector<int>>();
    DriverOptions options;
    options.rope_by_length = true;  // the reference's rule
    TestDriver driver(directory(), options);
    Rows rows = driver.step({{0, ids_of(prompt)}});
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const int token = argmax(rows.back());
      ASSERT_EQ(token, expected[i]) << "prompt of " << ids_of(prompt).size() << ", new token " << i;
      EXPECT_NEAR(rows.back()[static_cast<std::size_t>(token)] - log_sum_exp(rows.back()),
                  prompt["greedy_logprobs"][i].get<double>(), kMaxLogprobError);
      rows = driver.step({{0, {token}, true}});
    }
  }
}

class GoldenHubConfig : public Golden {};

TEST_P(GoldenHubConfig, GivesTheSameLogits) {
  const std::vector<int> ids = ids_of(prompts().back());
  DriverOptions hub;
  hub.config_file = "config.hub.json";
  EXPECT_EQ(TestDriver(directory(), hub).step({{0, ids}}),
            TestDriver(directory(), {}).step({{0, ids}}));
}

TEST_P(Golden, ChunksAndThreadsAndLayerCutsGiveTheSameBits) {
  for (const Json& prompt : prompts()) {
    const std::vector<int> ids = ids_of(prompt);
    DriverOptions roomy;
    roomy.max_tokens = 4096;
    TestDriver driver(directory(), roomy);
    const Rows whole = driver.step({{0, ids}});
    int sequence = 1;
    for (int cut = 1; cut < driver.config().num_layers; ++cut)
      EXPECT_EQ(driver.step({{sequence++, ids}}, {cut}), whole) << "layers cut at " << cut;
    DriverOptions two;
    two.threads = 2;
    EXPECT_EQ(TestDriver(directory(), two).step({{0, ids}}), whole) << "2 threads";
    if (!invariant(ids)) continue;
    for (const std::size_t chunk : {1, 7, 64})
      EXPECT_EQ(chunked(driver, sequence++, ids, chunk), whole) << "chunks of " << chunk;
  }
}

TEST_P(Golden, MixedBatchesGiveTheSameBits) {
  const Json all = prompts();
  const std::vector<int> decoding = ids_of(all[1]);
  const std::vector<int> generated = all[1]["greedy"].get<std::vector<int>>();
  const std::vector<int> prefilling = ids_of(invariant(ids_of(all[3])) ? all[3] : all[2]);
  TestDriver alone(directory(), {});
  const Rows prefill_alone = alone.step({{0, prefilling}});
  Rows decode_alone = alone.step({{1, decoding}});
  for (const int token : generated)
    decode_alone.push_back(alone.step({{1, {token}, true}}).front());

  TestDriver driver(directory(), {});
  Rows prefill, decode = driver.step({{1, decoding}});
  std::size_t done = 0;
  for (const int token : generated) {
    const std::vector<int> chunk = slice(prefilling, done, 11);
    done += chunk.size();
    std::vector<DriverItem> items;
    if (!chunk.empty()) items.push_back({0, chunk});
    items.push_back({1, {token}, true});
    Rows rows = driver.step(items);
    decode.push_back(std::move(rows.back()));
    rows.pop_back();
    for (std::vector<float>& row : rows) prefill.push_back(std::move(row));
  }
  ASSERT_EQ(done, prefilling.size());
  EXPECT_EQ(prefill, prefill_alone);
  EXPECT_EQ(decode, decode_alone);
}

class GoldenMla : public Golden {};

TEST_P(GoldenMla, EveryMethodMatchesTheReference) {
  const auto config = TestDriver(directory(), {}).config();
  DriverOptions options;
  options.attention.mla_prefill = MlaPrefill::kAuto;
  options.attention.chunk_capacity = 48;
  options.attention.chunked_prefix_threshold = 40;
  const auto at = [](AttnForwardMethod method) { return static_cast<std::size_t>(method); };
  MethodCounts counts{};
  double worst = 0;
  const Json all = prompts();
  for (const std::size_t chunk : {20, 45, 130}) {
    for (const Json& prompt : all) {
      TestDriver driver(directory(), options);
      worst = std::max(worst, worst_error(prompt, chunked(driver, 0, ids_of(prompt), chunk)));
      for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += driver.method_counts()[i];
    }
    // Two sequences in one step: the chunk capacity for expanded prefixes is divided between them.
    TestDriver driver(directory(), options);
    Rows first, second;
    for (std::size_t begin = 0; begin < 130; begin += chunk) {
      std::vector<DriverItem> items = {{0, slice(ids_of(all[3]), begin, chunk)}};
      if (begin < 33) items.push_back({1, slice(ids_of(all[2]), begin, chunk)});
      const std::size_t num_first = items[0].tokens.size();
      Rows rows = driver.step(items);
      first.insert(first.end(), rows.begin(),
                   rows.begin() + static_cast<std::ptrdiff_t>(num_first));
      second.insert(second.end(), rows.begin() + static_cast<std::ptrdiff_t>(num_first),
                    rows.end());
    }
    worst = std::max({worst, worst_error(all[3], first), worst_error(all[2], second)});
  }
  std::cout << "[ measured ] " << GetParam().name << ": worst |d logprob| over MLA methods "
            << worst << "\n";
  EXPECT_LE(worst, kMaxLogprobError);
  if (config.indexer) {
    EXPECT_GT(counts[at(AttnForwardMethod::kMlaSparse)], 0);
  } else {
    EXPECT_GT(counts[at(AttnForwardMethod::kMla)], 0);
    EXPECT_GT(counts[at(AttnForwardMethod::kMhaChunkedKv)], 0);
  }
  EXPECT_GT(counts[at(AttnForwardMethod::kMhaOneShot)], 0);
}

std::vector<Fixture> fixtures_with(bool (*wanted)(const Fixture&)) {
  std::vector<Fixture> chosen;
  std::copy_if(kFixtures.begin(), kFixtures.end(), std::back_inserter(chosen), wanted);
  return chosen;
}

std::string test_name(const ::testing::TestParamInfo<Fixture>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, ::testing::ValuesIn(kFixtures), test_name);
INSTANTIATE_TEST_SUITE_P(Models, GoldenHubConfig,
                         ::testing::ValuesIn(fixtures_with([](const Fixture& f) {
                           return f.has_hub_config;
                         })),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Models, GoldenMla, ::testing::ValuesIn(fixtures_with([](const Fixture& f) {
                           return f.name.starts_with("deepseek") || f.name.starts_with("glm");
                         })),
                         test_name);

}  // namespace
}  // namespace sluice::testing
