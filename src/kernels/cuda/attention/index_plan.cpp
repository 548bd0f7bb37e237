#include "kernels/cuda/attention/index_plan.h"

#include <algorithm>

namespace sluice::cuda {
namespace {

constexpr std::int64_t kPage = 64;
// CTAs of the score kernel an SM, for runs of rows and for single rows.
constexpr int kCtasOfRuns = 2, kCtasOfRows = 3;
// Minimum rows a sequence for runs that share its keys.
constexpr std::int64_t kMinRunRows = 4;
// CTAs for each that runs at once (because rows differ in length).
constexpr int kWaves = 4;
constexpr std::int64_t kMaxParts = 1024;

constexpr int kMaxCluster = 8;
// Minimum scores of a CTA (because the barriers of a cluster cost as much as reading them).
constexpr std::int64_t kMinSlice = 2048;

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

bool index_is_fast(const IndexInputs& inputs) {
  return inputs.sm == 90 && !inputs.deterministic && inputs.aligned &&
         (inputs.plane == DType::kBF16 || inputs.plane == DType::kU8) && inputs.dim == 128 &&
         (inputs.heads == 32 || inputs.heads == 64);
}

IndexScoresPlan plan_index_scores(const IndexScoresInputs& inputs) {
  IndexScoresPlan plan;
  plan.many_rows = inputs.rows >= kMinRunRows * std::max<std::int64_t>(inputs.seqs, 1);
  plan.rows_of_block = plan.many_rows ? static_cast<int>(kIndexTiles * 64 / inputs.heads) : 1;
  const std::int64_t groups = std::max<std::int64_t>(divide_up(inputs.rows, plan.rows_of_block), 1);
  const std::int64_t at_once = (plan.many_rows ? kCtasOfRuns : kCtasOfRows) * inputs.num_sms;
  const std::int64_t wanted =
      at_once * std::min<std::int64_t>(groups, kWaves) / groups;  // no partial wave
  plan.parts = static_cast<int>(
      std::clamp<std::int64_t>(std::min(wanted, divide_up(inputs.max_keys, kPage)), 1, kMaxParts));
  return plan;
}

SelectPlan plan_select(std::int64_t rows, std::int64_t max_keys, int num_sms) {
  SelectPlan plan;
  while (plan.cluster < kMaxCluster && rows * plan.cluster <= num_sms &&
         divide_up(max_keys, plan.cluster) >= 2 * kMinSlice)
    plan.cluster *= 2;
  return plan;
}

}  // namespace sluice::cuda
