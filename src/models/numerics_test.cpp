// Models in bfloat16 and float16, and over several ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <thread>

#include "distributed/testing/in_process.h"
#include "models/testing/driver.h"
#include "models/testing/golden_support.h"

namespace sluice::testing {
namespace {

struct Difference {
  double max = 0;
  double mean = 0;
};

// Difference of the five best log-probabilities at every position of every prompt, teacher-forced.
Difference difference(const std::string& directory, const DriverOptions& options) {
  Difference d;
  std::int64_t count = 0;
  const Json golden = read_json(directory, "golden.json");
  for (const Json& prompt : golden["prompts"]) {
    TestDriver driver(directory, options);
    const Rows rows = driver.step({{0, ids_of(prompt)}});
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double normaliser = log_sum_exp(rows[i]);
      for (std::size_t j = 0; j < prompt["top5_ids"][i].size(); ++j) {
        const double error = std::abs(rows[i][prompt["top5_ids"][i][j].get<std::size_t>()] -
                                      normaliser - prompt["top5_logprobs"][i][j].get<double>());
        d.max = std::max(d.max, error);
        d.mean += error;
        ++count;
      }
    }
  }
  d.mean /= static_cast<double>(count);
  return d;
}

struct Narrow {
  std::string name;
  // routers or indexers: one flipped choice moves a position by nats, so only the mean counts
  bool has_sampled_rows = false;
};

class NarrowTypes : public ::testing::TestWithParam<Narrow> {};

// tests/golden/README.md, Tolerances: 1.5 x the recorded mean and 2 x the recorded maximum; float16
// an eighth of that.
TEST_P(NarrowTypes, StayWithinWhatTheTypeItselfCosts) {
  const std::string directory = golden_models() + GetParam().name;
  const Json golden = read_json(directory, "golden.json");
  const Json& recorded = golden["checks"]["bfloat16"];
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const double share = dtype == DType::kBF16 ? 1.0 : 1.0 / 8;
    DriverOptions options;
    options.numerics.compute = dtype;
    const Difference d = difference(directory, options);
    std::cout << "[ measured ] " << GetParam().name << " in " << dtype_name(dtype) << ": mean "
              << d.mean << ", max " << d.max << "\n";
    EXPECT_LE(d.mean, share * 1.5 * recorded["mean_abs_dlogprob_top5"].get<double>());
    if (!GetParam().has_sampled_rows) {
      EXPECT_LE(d.max, share * 2 * recorded["max_abs_dlogprob_top5"].get<double>());
    }
  }
}

TEST_P(NarrowTypes, Bfloat16GivesTheSameBitsHoweverAPromptIsCut) {
  const std::string directory = golden_models() + GetParam().name;
  const Json golden = read_json(directory, "golden.json");
  const std::vector<int> ids = ids_of(golden["prompts"][3]);
  DriverOptions options;
  options.numerics.compute = DType::kBF16;
  options.max_tokens = 1024;
  TestDriver driver(directory, options);
  const Rows whole = driver.step({{0, ids}});
  EXPECT_EQ(chunked(driver, 1, ids, 7), whole);
  EXPECT_EQ(chunked(driver, 2, ids, 64), whole);
}

INSTANTIATE_TEST_SUITE_P(Models, NarrowTypes,
                         ::testing::Values(Narrow{"llama-plain"},
                                           Narrow{"llama-linear-bias-headdim"},
                                           Narrow{"mistral-swa"}, Narrow{"qwen3"},
                                           Narrow{"mixtral", true}, Narrow{"deepseek-v2", true},
                                           Narrow{"deepseek-v3", true},
                                           Narrow{"glm-moe-dsa-shared-index", true}));

class TwoRanks : public ::testing::TestWithParam<std::string> {};

TEST_P(TwoRanks, MatchTheReference) {
  const std::string directory = golden_models() + GetParam();
  const Json golden = read_json(directory, "golden.json");
  const Json& prompt = golden["prompts"][3];
  InProcessGroup group(2);
  std::array<Rows, 2> rows;
  std::array<std::int64_t, 2> bytes{};
  const auto run = [&](int rank) {
    InProcessCommunicator communicator(group, rank);
    DriverOptions options;
    options.communicator = &communicator;
    TestDriver driver(directory, options);
    rows[static_cast<std::size_t>(rank)] = driver.step({{0, ids_of(prompt)}});
    bytes[static_cast<std::size_t>(rank)] = driver.model().weight_bytes();
    EXPECT_GE(communicator.num_sums, 2 * driver.config().num_layers);
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  EXPECT_EQ(rows[0], rows[1]);
  EXPECT_LE(worst_error(prompt, rows[0]), 2e-4);
  EXPECT_LT(bytes[0], TestDriver(directory, {}).model().weight_bytes());
}

INSTANTIATE_TEST_SUITE_P(Models, TwoRanks,
                         ::testing::Values("llama-linear-bias-headdim", "qwen3", "qwen2-moe",
                                           "mixtral", "deepseek-v2-lite", "glm-moe-dsa"));

}  // namespace
}  // namespace sluice::testing
