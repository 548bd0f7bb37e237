// Kernels of the expert MLPs: pure functions of shapes and device, tested without a GPU.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace sluice::cuda {

// How the expert MLPs run.
enum class ExpertsKernel : std::uint8_t {
  kRows,    // pairs sorted by expert, a warp a column: any types
  kStream,  // bfloat16 on tensor cores, the weights of each selected expert read once; few pairs
  kTiles,   // bfloat16 on Hopper's wgmma, tiles of an expert's pairs
};
struct ExpertsInputs {
  std::int64_t pairs = 0, experts = 1, hidden = 0, width = 0;
  int groups = 1;  // ExpertParams::groups
  DType x = DType::kF32, w = DType::kF32;
  bool aligned = true;
  bool deterministic = false;
  int sm = 0;
};
ExpertsKernel choose_experts(const ExpertsInputs& inputs);
inline constexpr std::int64_t kMaxStreamedPairs = 2048;
// Pairs that a rank computes, in the mean.
std::int64_t pairs_of_rank(std::int64_t pairs, int groups);
// From here on `pairs` are those of the rank.
// Rows of an MMA of kStream, 8 or 16. An expert with more rows reads its weights again.
int streamed_rows(std::int64_t pairs, std::int64_t experts);
// Warpgroups of a kTiles tile, with 64 rows each.
int expert_row_groups(std::int64_t pairs, std::int64_t experts);
// Rows of weights of a kTiles tile with one warpgroup, 64 or 128: the number with the shorter
// waves of CTAs. `n`: rows of weights of an expert.
int expert_tile_columns(std::int64_t pairs, std::int64_t experts, std::int64_t n, int num_sms);
// CTAs of such a tile on an SM.
constexpr int expert_tiles_of_sm(int columns) {
  return columns == 64 ? 3 : 2;
}

// Experts with weights in fragments, few tokens (kernels/cuda/moe/experts_fragments.cu).
struct FragmentExpertsInputs {
  struct Units {
    int bits = 4;
    std::int64_t bytes = 0;  // of a unit
  };
  std::int64_t tokens = 0, top_k = 1, experts = 1, hidden = 0, width = 0;
  Units up, down;
  int num_sms = 1, sm = 90;
};
// Units in flight of each warp where two CTAs share a tile of `down`.
inline constexpr int kPairStages = 4;
// Upper bounds of the static shared memory of a CTA, of gates_kernel and of sums_kernel.
inline constexpr std::int64_t kGateDeclaredBytes = 1024, kSumDeclaredBytes = 4608;
struct FragmentExpertsPlan {
  std::int64_t gate_blocks = 0, down_blocks = 0;  // 0: the tokens do not fit
  std::int64_t gate_bytes = 0, down_bytes = 0;    // of shared memory
  // Clusters of two CTAs that share a tile of `down`; 0: a CTA has a tile alone.
  std::int64_t down_pairs = 0, pair_bytes = 0;
  int gate_tiles = 1;  // tiles of gate/up that a CTA multiplies between two barriers
};
FragmentExpertsPlan plan_fragment_experts(const FragmentExpertsInputs& inputs);

// The same for any number of tokens (kernels/cuda/moe/experts_fragments_sm90.cu): a CTA takes 128
// rows of weights and `rows` sorted pairs.
struct GroupedInputs {
  std::int64_t pairs = 0, experts = 1, n = 0, unit_bytes = 0;
  int num_sms = 1;
};
struct GroupedPlan {
  int rows = 16;  // 16, 64 or 128
  int stages = 1, blocks = 1;
  std::int64_t shared_bytes = 0;
};
GroupedPlan plan_grouped(const GroupedInputs& inputs);

}  // namespace sluice::cuda
