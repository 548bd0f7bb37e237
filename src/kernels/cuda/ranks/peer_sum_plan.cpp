#include <algorithm>

#include "kernels/cuda/ranks/peer_sum.h"

namespace sluice::cuda {

// A thread has one vector of 4 floats until all CTAs have work: latency counts more than the CTAs
// that a small sum takes.
int peer_sum_blocks(std::int64_t count) {
  constexpr std::int64_t kFloatsOfBlock = 512 * 4;
  return static_cast<int>(
      std::clamp<std::int64_t>((count + kFloatsOfBlock - 1) / kFloatsOfBlock, 1, kPeerSumBlocks));
}

}  // namespace sluice::cuda
