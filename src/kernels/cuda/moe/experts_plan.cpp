#include "kernels/cuda/moe/experts_plan.h"

#include <algorithm>

#include "kernels/cuda/common/shared_memory.h"

namespace sluice::cuda {
namespace {

// Pairs of an expert, on average, up to which its weights are streamed, past 8 rows of them at a
// time, and up to which tiles have 64 rows.
constexpr std::int64_t kStreamedPairsOfExpert = 6;
constexpr std::int64_t kPairsOfNarrowSlots = 4;
// Shared memory that kStream takes at least; kernels/cuda/moe/experts_stream.cu.
constexpr std::int64_t kStreamBytes = 156 << 10;
constexpr std::int64_t kRowsOfSmallTiles = 64;

}  // namespace

ExpertsKernel choose_experts(const ExpertsInputs& inputs) {
  const bool halves = inputs.x == DType::kBF16 && inputs.w == DType::kBF16;
  if (!halves || !inputs.aligned || inputs.hidden % 8 != 0 || inputs.width % 8 != 0)
    return ExpertsKernel::kRows;
  const bool tiles = inputs.sm == 90;
  if (inputs.deterministic)
    return tiles ? ExpertsKernel::kTiles
                 : ExpertsKernel::kRows;  // a pair has the same sums in every tile
  // With more pairs than this experts have more rows than are streamed together, and reading their
  // weights again costs more than products of tiles that are not full.
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
