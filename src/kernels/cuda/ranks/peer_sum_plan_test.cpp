#include <gtest/gtest.h>

#include "kernels/cuda/ranks/peer_sum.h"

namespace sluice::cuda {
namespace {

TEST(PeerSumPlan, BlocksGrowWithTheVectorUpToTheFlags) {
  EXPECT_EQ(peer_sum_blocks(4), 1);
  EXPECT_EQ(peer_sum_blocks(2048), 1);
  EXPECT_EQ(peer_sum_blocks(2052), 2);
  EXPECT_EQ(peer_sum_blocks(64 * 4096), kPeerSumBlocks);
  EXPECT_EQ(peer_sum_blocks(std::int64_t{1} << 40), kPeerSumBlocks);
}

TEST(PeerSumPlan, TheLayoutHoldsTwoSetsAndTheFlags) {
  const PeerLayout layout{.num_peers = 3, .slot_floats = 8};
  EXPECT_EQ(layout.slots_bytes(), 2 * 3 * 8 * 4);
  EXPECT_EQ(layout.bytes() - layout.slots_bytes(), (kPeerSumBlocks * kMaxPeers + 2) * 4);
}

}  // namespace
}  // namespace sluice::cuda
