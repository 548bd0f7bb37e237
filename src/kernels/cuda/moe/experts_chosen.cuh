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

// The experts in ascending order, and the pairs of each.
struct Chosen {
  std::uint32_t bits[ops::kMaxExperts / kWarp];
  int count;
  std::int32_t expert[kMaxChosenPairs];
  std::int8_t pair[kMaxChosenPairs][kMaxChosenTokens];  // or -1
};

// All threads of the CTA call, with at least kMaxChosenPairs of them.
__device__ inline void find_chosen(const ChosenIds& ids, Chosen& chosen) {
  const int pairs = ids.tokens * ids.top_k, p = threadIdx.x;
  // A thread for each pair.
  std::int32_t id = -1;
  if (p < pairs) {
    id = __ldcg(ids.of + p / ids.top_k * ids.stride + p % ids.top_k);
    if (id < -1 || id >= ids.experts) __trap();
  }
  for (int i = p; i < ops::kMaxExperts / kWarp; i += blockDim.x) chosen.bits[i] = 0;
  for (int i = p; i < kMaxChosenPairs * kMaxChosenTokens; i += blockDim.x)
    chosen.pair[i / kMaxChosenTokens][i % kMaxChosenTokens] = -1;
  __syncthreads();
  // One token: the router gives ascending ids, so a ballot of one warp finds all places.
  if (ids.tokens == 1 && pairs <= kWarp) {
    if (p < kWarp) {
      const unsigned votes = __ballot_sync(kAllLanes, id >= 0);
      const int place = __popc(votes & ((1u << p) - 1));
      if (id >= 0) chosen.expert[place] = id, chosen.pair[place][0] = static_cast<std::int8_t>(p);
      if (p == 0) chosen.count = __popc(votes);
    }
    __syncthreads();
    return;
  }
  // Several tokens: a bit for each expert. The place of an expert is the number of bits below its
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
