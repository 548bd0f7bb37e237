#include "kernels/cuda/gated_plan.h"

namespace sluice::cuda {
namespace {

// Shorter sums are too few steps to tell what they cost.
constexpr std::int64_t kLeastK = 256;
// The share of what a GPU multiplies until its last block ends that must be of use. Below it the library, which has tiles of
// many shapes, is faster: on an H200 by 4 to 20 % with most shapes at 0.83 to 0.87, and slower by 0 to 25 % from 0.94 on.
constexpr double kLeastShare = 0.92;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

double share_of_use(const GatedFacts& facts) {
  const std::int64_t clusters = facts.multiprocessors / kGatedCluster;
  if (clusters == 0) return 0;
  const std::int64_t tiles = divide_up(facts.m, kGatedRows) * divide_up(facts.n, kGatedColumns);
  const std::int64_t turns = divide_up(tiles, clusters);
  return static_cast<double>(facts.m * facts.n) / static_cast<double>(turns * clusters * kGatedRows * kGatedColumns);
}

}  // namespace

bool gates_in_product(const GatedFacts& facts) {
  const bool halves = facts.x == DType::kBF16 && facts.w == DType::kBF16 && facts.out == DType::kBF16;
  return facts.sm == 90 && halves && facts.aligned && !facts.biased && facts.known && !facts.deterministic &&
         facts.k >= kLeastK && share_of_use(facts) >= kLeastShare;
}

}  // namespace sluice::cuda
