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

std::int64_t peer_part_pieces(const PeerLayout& layout, std::span<const RowPart> parts,
                              DType wire) {
  if (parts.empty()) return 0;
  const std::int64_t numbers = numbers_of_vector(wire);
  std::int64_t longest = 0, shortest = parts.front().count;
  for (const RowPart& part : parts) {
    if (part.first % 8 != 0 || part.count % 8 != 0) return 0;
    longest = std::max(longest, part.count);
    shortest = std::min(shortest, part.count);
  }
  const std::int64_t slot = layout.sum_vectors, pieces = (longest / numbers + slot - 1) / slot;
  return shortest / numbers >= pieces ? pieces : 0;
}

}  // namespace sluice::cuda
