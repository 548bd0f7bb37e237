// Models whose KV cache has another type than their computation (--kv-cache-dtype).
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "base/error.h"
#include "kernels/types/latent_rows.h"
#include "models/testing/driver.h"
#include "models/testing/golden_support.h"

namespace sluice::testing {
namespace {

struct Case {
  std::string model;
  DType compute, kv;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " in " << dtype_name(c.compute) << " with a cache of " << dtype_name(c.kv);
}

class KvDtype : public ::testing::TestWithParam<Case> {
 protected:
  static DriverOptions options() {
    DriverOptions options;
    options.numerics.compute = GetParam().compute;
    options.numerics.kv_stored = GetParam().kv;
    return options;
  }
  static std::string directory() { return golden_models() + GetParam().model; }
};

TEST_P(KvDtype, APromptHasTheSameBitsHoweverItIsCutAndDecoded) {
  const std::vector<int> ids = ids_of(read_json(directory(), "golden.json")["prompts"][3]);
  for (const CpuIsa isa : kCpuIsas) {
    if (isa > detect_cpu_isa()) continue;
    DriverOptions one = options();
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
    // The last token is decoded, beside another prompt, on two threads.
    one.threads = 2;
    TestDriver two(directory(), one);
    two.step({{0, {ids.begin(), ids.end() - 1}}});
    const Rows mixed = two.step({{2, {ids.begin(), ids.begin() + 5}}, {0, {ids.back()}, true}});
    EXPECT_EQ(mixed.back(), whole.back());
    EXPECT_EQ(mixed.front(), whole.front());
  }
}

// The error is at most that of rounding everything to the cache's format. The scale is bfloat16's
// recorded mean, times the ratio of the formats' errors: for int8 as in models/quantized_test.cpp
// (the largest of a head of up to 128 normals is 2.9 sigma), for e4m3 2^4, as its mantissa has four
// bits fewer.
TEST_P(KvDtype, LogProbabilitiesChangeByAtMostWhatTheFormatCosts) {
  const Json golden = read_json(directory(), "golden.json");
  double sum = 0;
  std::int64_t count = 0;
  for (const Json& prompt : golden["prompts"]) {
    TestDriver driver(directory(), options());
    const Rows rows = driver.step({{0, ids_of(prompt)}});
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t j = 0; j < prompt["top5_ids"][i].size(); ++j, ++count)
        sum += std::abs(rows[i][prompt["top5_ids"][i][j].get<std::size_t>()] -
                        log_sum_exp(rows[i]) - prompt["top5_logprobs"][i][j].get<double>());
  }
  const double recorded = golden["checks"]["bfloat16"]["mean_abs_dlogprob_top5"].get<double>();
  const double cache = GetParam().kv == DType::kI8       ? 2.9 / 127 / std::sqrt(12.0) / 8e-4
                       : GetParam().kv == DType::kF8E4M3 ? 16.0
                                                         : 1.0;
  const double allowed =
      1.5 * recorded * (cache + (GetParam().compute == DType::kBF16 ? 1.0 : 0.0));
  const double mean = sum / static_cast<double>(count);
  std::cout << "[ measured ] mean change of log-probabilities " << mean << ", allowed " << allowed
            << "\n";
  EXPECT_LE(mean, allowed);
  EXPECT_GT(mean, 0);
}

TEST_P(KvDtype, TheCacheTakesTheMemoryOfItsType) {
  TestDriver driver(directory(), options());
  const ModelConfig& config = driver.config();
  std::int64_t bytes = 0;
  for (const PageGroupSpec& group : driver.model().kv_groups()) bytes += group.bytes_per_page();
  if (config.mla) {
    const ops::LatentRow row{config.mla->kv_lora_rank, config.mla->qk_rope_head_dim};
    const std::int64_t index =
        config.indexer ? config.indexer->head_dim * dtype_size(options().numerics.gemm()) : 0;
    EXPECT_GE(bytes, config.num_layers * row.bytes() * kPageSize);
    EXPECT_LE(bytes, config.num_layers * (row.bytes() + index) * kPageSize);
    return;
  }
  const std::int64_t head = GetParam().kv == DType::kI8
                                ? config.head_dim + 4
                                : config.head_dim * dtype_size(GetParam().kv);
  EXPECT_EQ(bytes, 2 * config.num_layers * config.num_kv_heads * head * kPageSize);
}

INSTANTIATE_TEST_SUITE_P(Models, KvDtype,
                         ::testing::Values(Case{"llama-plain", DType::kF32, DType::kI8},
                                           Case{"qwen3", DType::kBF16, DType::kI8},
                                           Case{"mistral-swa", DType::kF32, DType::kI8},
                                           Case{"qwen3-moe", DType::kBF16, DType::kI8},
                                           Case{"llama-plain", DType::kF32, DType::kF8E4M3},
                                           Case{"qwen3", DType::kBF16, DType::kF8E4M3},
                                           Case{"mistral-swa", DType::kF32, DType::kF8E4M3},
                                           Case{"qwen3-moe", DType::kBF16, DType::kF8E4M3},
                                           Case{"deepseek-v2-lite", DType::kBF16, DType::kI8},
                                           Case{"deepseek-v3", DType::kF32, DType::kI8},
                                           Case{"deepseek-v32", DType::kBF16, DType::kI8},
                                           Case{"deepseek-v2-lite", DType::kF32, DType::kF8E4M3},
                                           Case{"deepseek-v3", DType::kBF16, DType::kF8E4M3},
                                           Case{"glm-moe-dsa", DType::kBF16, DType::kF8E4M3},
                                           Case{"llama-plain", DType::kF32, DType::kBF16},
                                           Case{"qwen3", DType::kBF16, DType::kF32}));

TEST(KvDtypeOfLatents, BothFloatsServe) {
  DriverOptions options;
  options.numerics.kv_stored = DType::kBF16;
  TestDriver narrow(golden_models() + "deepseek-v3", options);
  options.numerics.kv_stored = {};
  TestDriver wide(golden_models() + "deepseek-v3", options);
  EXPECT_NE(narrow.step({{0, {1, 2, 3}}}), wide.step({{0, {1, 2, 3}}}));
}

TEST(IndexKeyDtype, TakesTheMemoryOfItsType) {
  const auto bytes_of_plane = [](std::optional<DType> stored) {
    DriverOptions options;
    options.numerics.compute = DType::kBF16;
    options.numerics.index_stored = stored;
    TestDriver driver(golden_models() + "deepseek-v32", options);
    std::int64_t index = 0, latent = 0;
    for (const PageGroupSpec& group : driver.model().kv_groups())
      for (const PlaneSpec& plane : group.planes)
        (plane.name == "index_k" ? index : latent) += plane.row_elements * dtype_size(plane.dtype);
    return std::pair(index, latent);
  };
  DriverOptions options;
  TestDriver driver(golden_models() + "deepseek-v32", options);
  const std::int64_t dim = driver.config().indexer->head_dim;
  EXPECT_EQ(bytes_of_plane({}).first, 2 * dim);
  EXPECT_EQ(bytes_of_plane(DType::kBF16).first, 2 * dim);
  EXPECT_EQ(bytes_of_plane(DType::kF8E4M3).first, dim + 4);
  EXPECT_EQ(bytes_of_plane(DType::kF8E4M3).second, bytes_of_plane({}).second);
}

}  // namespace
}  // namespace sluice::testing
