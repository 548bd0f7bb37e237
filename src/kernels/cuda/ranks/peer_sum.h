// The sum over ranks whose GPUs write into each other's memory: one kernel, no copy engine.
//
// Every rank writes its vector into a slot of its own at each other rank, raises a flag there,
// waits for the flags of the others, and adds what it received, in rank order. A vector crosses
// each link once ("one-shot"; the two-shot form sends less where there are more than two ranks).
// Two sets of slots take turns. A rank that fills a set for the second time has seen the flags of
// the sum between, which the others raise only when they have read the first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace sluice::cuda {

inline constexpr int kMaxPeers = 8;
inline constexpr int kPeerSumBlocks = 64;  // CTAs of one sum at most; each has flags of its own

// The memory of one rank that takes part, zeroed before the first sum:
//   float [2 sets][peers][slot_floats], then the flags and counters.
struct PeerLayout {
  int num_peers = 0;
  std::int64_t slot_floats = 0;  // the longest vector; a multiple of 4

  constexpr std::int64_t slots_bytes() const {
    return 2 * num_peers * slot_floats * static_cast<std::int64_t>(sizeof(float));
  }
  // A word for each CTA and rank that raises it; then the number of sums, and a count of CTAs.
  constexpr std::int64_t bytes() const {
    return slots_bytes() +
           (kPeerSumBlocks * kMaxPeers + 2) * static_cast<std::int64_t>(sizeof(std::uint32_t));
  }
};

struct PeerSum {
  PeerLayout layout;
  int rank = 0;
  int sm = 0;                         // compute capability x 10 of this GPU
  std::byte* memory[kMaxPeers] = {};  // of every rank, as this GPU reaches it
  // Host memory that the GPU reads: not 0 ends all waits, and the results are worthless.
  const int* stop = nullptr;
};

// CTAs for a vector of `count` floats.
int peer_sum_blocks(std::int64_t count);

// x := the sum over the ranks. x: dense float32 on the GPU, 16-byte aligned, a multiple of 4
// elements, at most slot_floats. Every rank gives the same shape. Error{kFatal}: the launch failed.
void sum_over_peers(const PeerSum& sum, const Tensor& x, const Stream& stream);

}  // namespace sluice::cuda
