// The experts that a batch of few tokens chose, for kernels that stream the weights of each of them
// once.
#pragma once

#include "kernels/cuda/common/common.cuh"

namespace sluice::cuda {

inline constexpr int kMaxChosenTokens = ops::kMaxFusedRows;
inline constexpr int kMaxChosenPairs = 64;
static_assert(kMaxChosenTokens == 8 && ops::kMaxExperts == kWarp * kWarp);

// Pairs are numbered token * top_k + j.
struct ChosenIds {
  const std::int32_t* of = nullptr;  // [tokens][top_k]
  std::int64_t stride = 0;
  int tokens = 0, top_k = 1, experts = 1;
};

// The experts in ascending order, and the pairs of each. What lies behind `count` is not set.
struct Chosen {
  std::uint32_t bits[ops::kMaxExperts / kWarp];
  std::int32_t expert[kMaxChosenPairs];
  alignas(8) std::int8_t pair[kMaxChosenPairs][kMaxChosenTokens];  // or -1
  int count;
};

// The tiles of the chosen experts that a CTA takes in turn: those of an expert are neighbours, so a
// CTA meets few experts. No division for each tile, because few tokens have few tiles.
struct ExpertTiles {
  int each, more_slots, more_tiles;  // tiles of an expert, and the way to the CTA's next tile
  int slot, tile;                    // a chosen expert, and one of its tiles

  __device__ explicit ExpertTiles(int tiles_of_expert)
      : each(tiles_of_expert),
        more_slots(static_cast<int>(gridDim.x) / each),
        more_tiles(static_cast<int>(gridDim.x) % each),
        slot(static_cast<int>(blockIdx.x) / each),
        tile(static_cast<int>(blockIdx.x) % each) {}

  __device__ void move_on() {
    slot += more_slots, tile += more_tiles;
    if (tile >= each) tile -= each, ++slot;
  }
};

// All threads of the CTA call, with at least kMaxChosenPairs of them.
__device__ inline void find_chosen(const ChosenIds& ids, Chosen& chosen) {
  const int pairs = ids.tokens * ids.top_k, p = threadIdx.x;
  std::int32_t id = -1;
  // One token: the router gives ascending ids, so a ballot of one warp finds all places.
  if (ids.tokens == 1 && pairs <= kWarp) {
    if (p < kWarp) {
      if (p < pairs) id = __ldcg(ids.of + p);
      if (id < -1 || id >= ids.experts) __trap();
      const unsigned votes = __ballot_sync(kAllLanes, id >= 0);
      const int place = __popc(votes & ((1u << p) - 1));
      if (id >= 0) {
        chosen.expert[place] = id;
        // The token's pair, and -1 for the tokens that do not exist.
        *reinterpret_cast<uint2*>(chosen.pair[place]) = {0xFFFFFF00u | static_cast<unsigned>(p),
                                                         0xFFFFFFFFu};
      }
      if (p == 0) chosen.count = __popc(votes);
    }
    __syncthreads();
    return;
  }
  // A thread for each pair.
  if (p < pairs) {
    id = __ldcg(ids.of + p / ids.top_k * ids.stride + p % ids.top_k);
    if (id < -1 || id >= ids.experts) __trap();
  }
  for (int i = p; i < ops::kMaxExperts / kWarp; i += blockDim.x) chosen.bits[i] = 0;
  for (int i = p; i < kMaxChosenPairs * kMaxChosenTokens; i += blockDim.x)
    chosen.pair[i / kMaxChosenTokens][i % kMaxChosenTokens] = -1;
  __syncthreads();
  // A bit for each expert. The place of an expert is the number of bits below its
  // own.
  if (id >= 0) atomicOr(&chosen.bits[id / kWarp], 1u << id % kWarp);
  __syncthreads();
  if (id >= 0) {
    // Hazard: all bits must be set before any place is computed (barrier above).
    int place = __popc(chosen.bits[id / kWarp] & ((1u << id % kWarp) - 1));
    for (int i = 0; i < id / kWarp; ++i) place += __popc(chosen.bits[i]);
    chosen.expert[place] = id;
    chosen.pair[place][p / ids.top_k] = static_cast<std::int8_t>(p);
  }
  if (p < kWarp) {
    const int count = warp_sum(__popc(chosen.bits[p]));
    if (p == 0) chosen.count = count;
  }
  __syncthreads();
}

}  // namespace sluice::cuda
