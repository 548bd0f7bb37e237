#include <algorithm>

#include "kernels/cuda/ranks/peer_sum.h"

namespace sluice::cuda {

// A thread has one vector until all CTAs have work: latency counts more than the CTAs that a small
// sum takes.
int peer_sum_blocks(std::int64_t vectors, int most) {
  constexpr std::int64_t kVectorsOfBlock = 512;
  return static_cast<int>(
      std::clamp<std::int64_t>((vectors + kVectorsOfBlock - 1) / kVectorsOfBlock, 1, most));
}

}  // namespace sluice::cuda
