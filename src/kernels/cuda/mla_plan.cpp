#include "kernels/cuda/mla_plan.h"

#include <algorithm>

namespace sluice::cuda {
namespace {

// A block should have this many steps of keys to be worth its start and its partial result.
constexpr std::int64_t kStepsOfASplit = 2;
constexpr std::int64_t kMostSplits = 64;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

bool mla_is_fast(const MlaFacts& facts) {
  return facts.sm == 90 && !facts.deterministic && facts.aligned && facts.plane == DType::kBF16 &&
         facts.latent == kMlaLatent && facts.rope == kMlaRope;
}

std::int64_t mla_partial_bytes(std::int64_t units, std::int64_t splits) { return 4 * units * splits * (kMlaLatent + 1); }

int mla_splits(const MlaSplitFacts& facts) {
  const std::int64_t blocks = facts.rows * divide_up(facts.heads, kMlaHeadTile);
  const std::int64_t wanted = facts.multiprocessors / std::max<std::int64_t>(blocks, 1);
  const std::int64_t useful = divide_up(facts.max_keys, kStepsOfASplit * kMlaChunk);
  const std::int64_t fitting = facts.scratch_bytes / std::max<std::int64_t>(mla_partial_bytes(facts.rows * facts.heads, 1), 1);
  const std::int64_t splits = std::min({wanted, useful, fitting, kMostSplits});
  return static_cast<int>(std::max<std::int64_t>(splits, 1));
}

}  // namespace sluice::cuda
