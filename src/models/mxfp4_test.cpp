// gpt-oss with experts in MXFP4, computed as stored.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "models/testing/driver.h"
#include "models/testing/golden_support.h"

namespace sluice::testing {
namespace {

std::string directory() {
  return std::string(SLUICE_MORE_MODELS) + "/quant-mxfp4-gpt-oss/";
}

DriverOptions options(bool as_stored) {
  DriverOptions options;
  options.numerics.compute = DType::kBF16;
  options.numerics.int_fragments = as_stored;
  return options;
}

// Weights have exactly the numbers of the widened ones, which bfloat16 holds. So the bound is that
// of bfloat16: 1.5 times what it costs the reference.
TEST(MxFp4Experts, LogProbabilitiesAreThoseOfTheReference) {
  const Json golden = read_json(directory(), "golden.json");
  double sum = 0, apart = 0;
  std::int64_t count = 0;
  for (const Json& prompt : golden["prompts"]) {
    TestDriver stored(directory(), options(true)), widened(directory(), options(false));
    EXPECT_LT(stored.model().weight_bytes(), widened.model().weight_bytes());
    const Rows rows = stored.step({{0, ids_of(prompt)}}),
               others = widened.step({{0, ids_of(prompt)}});
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t j = 0; j < prompt["top5_ids"][i].size(); ++j, ++count) {
        const auto id = prompt["top5_ids"][i][j].get<std::size_t>();
        const double own = rows[i][id] - log_sum_exp(rows[i]);
        sum += std::abs(own - prompt["top5_logprobs"][i][j].get<double>());
        apart += std::abs(own - (others[i][id] - log_sum_exp(others[i])));
      }
  }
  const double recorded = golden["checks"]["bfloat16"]["mean_abs_dlogprob_top5"].get<double>();
  const auto number = static_cast<double>(count);
  std::cout << "[ measured ] mean change of log-probabilities " << sum / number << ", allowed "
            << 1.5 * recorded << "; from the widened weights " << apart / number << "\n";
  EXPECT_LE(sum / number, 1.5 * recorded);
  EXPECT_LE(apart / number, 1.5 * recorded);
}

TEST(MxFp4Experts, APromptHasTheSameBitsHoweverItIsCut) {
  const std::vector<int> ids = ids_of(read_json(directory(), "golden.json")["prompts"][3]);
  for (const CpuIsa isa : kCpuIsas) {
    if (isa > detect_cpu_isa()) continue;
    DriverOptions one = options(true);
    one.isa = isa;
    one.max_tokens = 1024;
    TestDriver driver(directory(), one);
    const Rows whole = driver.step({{0, ids}});
    Rows cut;
    for (std::size_t at = 0; at < ids.size(); at += 7) {
      const auto end = std::min(ids.size(), at + 7);
      const std::vector<int> piece(ids.begin() + static_cast<std::ptrdiff_t>(at),
                                   ids.begin() + static_cast<std::ptrdiff_t>(end));
      for (std::vector<float>& row : driver.step({{1, piece}})) cut.push_back(std::move(row));
    }
    EXPECT_EQ(cut, whole);
  }
}

}  // namespace
}  // namespace sluice::testing
