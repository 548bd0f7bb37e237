#include "kernels/cuda/index_plan.h"

#include <algorithm>

namespace sluice::cuda {
namespace {

constexpr std::int64_t kPage = 64;
constexpr int kBlocksOfRuns = 2, kBlocksOfRows = 3;   // of scores on a multiprocessor at once
constexpr std::int64_t kRowsOfARun = 4;       // a sequence should have so many rows for them to share its keys
constexpr int kWaves = 4;                     // rows differ in length: so many blocks for each that runs at once
constexpr std::int64_t kMostParts = 1024;

constexpr int kMostCluster = 8;
constexpr std::int64_t kLeastSlice = 2048;    // a block should have so many scores to be worth its barriers

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

bool index_is_fast(const IndexFacts& facts) {
  return facts.sm == 90 && !facts.deterministic && facts.aligned && (facts.plane == DType::kBF16 || facts.plane == DType::kU8) &&
         facts.dim == 128 && (facts.heads == 32 || facts.heads == 64);
}

IndexScoresPlan plan_index_scores(const IndexScoresFacts& facts) {
  IndexScoresPlan plan;
  plan.many_rows = facts.rows >= kRowsOfARun * std::max<std::int64_t>(facts.seqs, 1);
  plan.rows_of_block = plan.many_rows ? static_cast<int>(kIndexTiles * 64 / facts.heads) : 1;
  const std::int64_t groups = std::max<std::int64_t>(divide_up(facts.rows, plan.rows_of_block), 1);
  const std::int64_t at_once = (plan.many_rows ? kBlocksOfRuns : kBlocksOfRows) * facts.multiprocessors;
  const std::int64_t wanted = at_once * std::min<std::int64_t>(groups, kWaves) / groups;   // no wave of a few blocks
  plan.parts = static_cast<int>(std::clamp<std::int64_t>(std::min(wanted, divide_up(facts.max_keys, kPage)), 1, kMostParts));
  return plan;
}

SelectPlan plan_select(std::int64_t rows, std::int64_t max_keys, int multiprocessors) {
  SelectPlan plan;
  while (plan.cluster < kMostCluster && rows * plan.cluster <= multiprocessors && divide_up(max_keys, plan.cluster) >= 2 * kLeastSlice)
    plan.cluster *= 2;
  return plan;
}

}  // namespace sluice::cuda
