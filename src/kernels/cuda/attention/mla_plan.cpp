#include "kernels/cuda/attention/mla_plan.h"

#include <algorithm>

namespace sluice::cuda {
namespace {

// Minimum steps of keys a split (because of the start of a CTA and its partial result).
constexpr std::int64_t kMinStepsOfSplit = 2;
constexpr std::int64_t kMaxMlaSplits = 64;

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

bool mla_is_fast(const MlaInputs& inputs) {
  const bool has_rows = inputs.plane == DType::kBF16 || inputs.plane == DType::kF8E4M3;
  return inputs.sm == 90 && !inputs.deterministic && inputs.aligned && has_rows &&
         inputs.latent == kMlaLatent && inputs.rope == kMlaRope;
}

std::int64_t mla_partial_bytes(std::int64_t units, std::int64_t splits) {
  return 4 * units * splits * (kMlaLatent + 1);
}

int mla_splits(const MlaSplitInputs& inputs) {
  const std::int64_t blocks = inputs.rows * divide_up(inputs.heads, kMlaHeadTile);
  const std::int64_t wanted = inputs.num_sms / std::max<std::int64_t>(blocks, 1);
  const std::int64_t useful = divide_up(inputs.max_keys, kMinStepsOfSplit * kMlaChunk);
  const std::int64_t fitting =
      inputs.scratch_bytes /
      std::max<std::int64_t>(mla_partial_bytes(inputs.rows * inputs.heads, 1), 1);
  const std::int64_t splits = std::min({wanted, useful, fitting, kMaxMlaSplits});
  return static_cast<int>(std::max<std::int64_t>(splits, 1));
}

}  // namespace sluice::cuda
