#include "kernels/cuda/gemm/swiglu_plan.h"

namespace sluice::cuda {
namespace {

// Minimum K (because shorter sums were not measured).
constexpr std::int64_t kMinK = 256;
// Minimum useful share of the tiles until the last CTA ends. Tuned on an H200: cuBLASLt, which has
// tiles of many shapes, is 4 to 20 % faster with most shapes at 0.83 to 0.87, and 0 to 25 % slower
// from 0.94 on.
constexpr double kMinShare = 0.92;

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

double share_of_use(const SwigluInputs& inputs) {
  const std::int64_t clusters = inputs.num_sms / kSwigluCluster;
  if (clusters == 0) return 0;
  const std::int64_t tiles = divide_up(inputs.m, kSwigluRows) * divide_up(inputs.n, kSwigluColumns);
  const std::int64_t turns = divide_up(tiles, clusters);
  return static_cast<double>(inputs.m * inputs.n) /
         static_cast<double>(turns * clusters * kSwigluRows * kSwigluColumns);
}

}  // namespace

bool fuses_swiglu(const SwigluInputs& inputs) {
  const bool halves =
      inputs.x == DType::kBF16 && inputs.w == DType::kBF16 && inputs.out == DType::kBF16;
  return inputs.sm == 90 && halves && inputs.aligned && !inputs.biased && inputs.known &&
         !inputs.deterministic && inputs.k >= kMinK && share_of_use(inputs) >= kMinShare;
}

}  // namespace sluice::cuda
