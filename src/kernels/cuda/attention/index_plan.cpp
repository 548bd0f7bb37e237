#include "kernels/cuda/attention/index_plan.h"

#include <algorithm>

namespace sluice::cuda {
namespace {

constexpr std::int64_t kPage = 64;
constexpr int kBlocksOfRuns = 2, kBlocksOfRows = 3;  // of scores on a multiprocessor at once
constexpr std::int64_t kRowsOfARun =
    4;                     // a sequence should have so many rows for them to share its keys
constexpr int kWaves = 4;  // rows differ in length: so many blocks for each that runs at once
constexpr std::int64_t kMaxParts = 1024;

constexpr int kMaxCluster = 8;
// a block should have so many scores to be worth its barriers
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
  plan.many_rows = inputs.rows >= kRowsOfARun * std::max<std::int64_t>(inputs.seqs, 1);
  plan.rows_of_block = plan.many_rows ? static_cast<int>(kIndexTiles * 64 / inputs.heads) : 1;
  const std::int64_t groups = std::max<std::int64_t>(divide_up(inputs.rows, plan.rows_of_block), 1);
  const std::int64_t at_once = (plan.many_rows ? kBlocksOfRuns : kBlocksOfRows) * inputs.num_sms;
  const std::int64_t wanted =
      at_once * std::min<std::int64_t>(groups, kWaves) / groups;  // no wave of a few blocks
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
