#include "kernels/cuda/moe/experts_plan.h"

#include <algorithm>

#include "kernels/cuda/common/shared_memory.h"

namespace sluice::cuda {
namespace {

// kStream is used up to this many pairs an expert, on average.
constexpr std::int64_t kStreamedPairsOfExpert = 6;
// Slots of kStream have 8 rows up to this many pairs an expert, 16 with more.
constexpr std::int64_t kPairsOfNarrowSlots = 4;
// Minimum shared memory of kStream; kernels/cuda/moe/experts_stream.cu.
constexpr std::int64_t kStreamBytes = 156 << 10;
// Tiles of kTiles have 64 rows up to this many pairs an expert, 128 with more.
constexpr std::int64_t kRowsOfSmallTiles = 64;

}  // namespace

ExpertsKernel choose_experts(const ExpertsInputs& inputs) {
  const bool halves = inputs.x == DType::kBF16 && inputs.w == DType::kBF16;
  if (!halves || !inputs.aligned || inputs.hidden % 8 != 0 || inputs.width % 8 != 0)
    return ExpertsKernel::kRows;
  const bool tiles = inputs.sm == 90;
  if (inputs.deterministic)
    return tiles ? ExpertsKernel::kTiles
                 : ExpertsKernel::kRows;  // the sums of a pair are the same in every tile
  // With more pairs, experts have more rows than one MMA. Reading their weights again then costs
  // more than partial tiles.
  const std::int64_t few =
      tiles ? std::min(kStreamedPairsOfExpert * inputs.experts, kMaxStreamedPairs)
            : kMaxStreamedPairs;
  if (inputs.pairs <= few && max_shared_bytes(inputs.sm) >= kStreamBytes)
    return ExpertsKernel::kStream;
  return tiles ? ExpertsKernel::kTiles : ExpertsKernel::kRows;
}

int streamed_rows(std::int64_t pairs, std::int64_t experts) {
  return pairs <= kPairsOfNarrowSlots * experts ? 8 : 16;
}

int expert_row_groups(std::int64_t pairs, std::int64_t experts) {
  return pairs > kRowsOfSmallTiles * experts ? 2 : 1;
}

}  // namespace sluice::cuda
