// The bundled model against its recorded conversations (tests/golden/sluice-tiny.json).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

#include "models/golden_support.h"
#include "models/test_driver.h"

namespace sluice::testing {
namespace {

std::string model_directory() {
  return std::string(SLUICE_SOURCE_DIR) + "/models/sluice-tiny";
}

// Largest error of the best `top` log-probabilities of every output token, teacher-forced in one pass.
double worst_of(TestDriver& driver, int sequence, const Json& record, std::size_t top) {
  std::vector<int> ids = record["prompt_ids"].get<std::vector<int>>();
  const std::size_t num_prompt = ids.size();
  const std::vector<int> output = record["output_ids"].get<std::vector<int>>();
  ids.insert(ids.end(), output.begin(), output.end() - 1);
  const Rows rows = driver.step({{sequence, ids}});
  double worst = 0;
  for (std::size_t i = 0; i < output.size(); ++i) {
    const std::vector<float>& row = rows[num_prompt - 1 + i];
    const double normaliser = log_sum_exp(row);
    for (std::size_t j = 0; j < top; ++j) {
      const auto id = record["top5_ids"][i][j].get<std::size_t>();
      worst = std::max(worst, std::abs(row[id] - normaliser - record["top5_logprobs"][i][j].get<double>()));
    }
    if (record["min_margin"].get<double>() > 0.05) {
      EXPECT_EQ(argmax(row), output[i]) << record["kind"] << " token " << i;
    }
  }
  return worst;
}

// tests/golden/sluice-tiny.README.md: the two best within 2e-3 while every key is seen; 0.02 once the indexer
// chooses among more than 256, where near-ties may fall either way.
TEST(SluiceTiny, RecordedConversations) {
  DriverOptions options;
  options.threads = 2;
  options.max_tokens = 8192;
  TestDriver driver(model_directory(), options);
  const Json records = read_json(std::string(SLUICE_SOURCE_DIR) + "/tests/golden", "sluice-tiny.json");
  int sequence = 0, num_short = 0, num_long = 0;
  double worst_short = 0, worst_long = 0;
  for (const Json& record : records) {
    const std::size_t length = record["prompt_ids"].size() + record["output_ids"].size();
    if (length > 1300) continue;
    if (length <= 256) {
      worst_short = std::max(worst_short, worst_of(driver, sequence++, record, 2));
      ++num_short;
    } else {
      worst_long = std::max(worst_long, worst_of(driver, sequence++, record, 2));
      ++num_long;
    }
  }
  std::cout << "[ measured ] sluice-tiny: worst |d logprob| " << worst_short << " over " << num_short
            << " short records, " << worst_long << " over " << num_long << " long ones\n";
  EXPECT_GE(num_short, 40);
  EXPECT_GE(num_long, 2);
  EXPECT_LE(worst_short, 2e-3);
  EXPECT_LE(worst_long, 0.02);
}

// The rotation is orthonormal: it changes no score but by rounding, and nothing at all while every key is
// chosen.
TEST(SluiceTiny, RotatedIndexKeysChooseTheSame) {
  DriverOptions options;
  options.max_tokens = 2048;
  TestDriver plain(model_directory(), options);
  options.index_hadamard = true;
  TestDriver rotated(model_directory(), options);
  const Json records = read_json(std::string(SLUICE_SOURCE_DIR) + "/tests/golden", "sluice-tiny.json");
  const auto long_record = std::find_if(records.begin(), records.end(),
                                        [](const Json& record) { return record["kind"] == "lookup30"; });
  ASSERT_NE(long_record, records.end());
  EXPECT_LE(worst_of(rotated, 0, *long_record, 2), 0.02);
  const std::vector<int> ids = records.front()["prompt_ids"].get<std::vector<int>>();
  EXPECT_EQ(rotated.step({{1, ids}}), plain.step({{1, ids}}));
}

}  // namespace
}  // namespace sluice::testing
