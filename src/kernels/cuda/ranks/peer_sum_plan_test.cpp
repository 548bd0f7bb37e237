#include <gtest/gtest.h>

#include <set>

#include "kernels/cuda/ranks/peer_sum.h"

namespace sluice::cuda {
namespace {

TEST(PeerSumPlan, BlocksGrowWithTheVectorUpToTheMost) {
  EXPECT_EQ(peer_sum_blocks(1, kSumBlocks), 1);
  EXPECT_EQ(peer_sum_blocks(512, kSumBlocks), 1);
  EXPECT_EQ(peer_sum_blocks(513, kSumBlocks), 2);
  EXPECT_EQ(peer_sum_blocks(kGatherBlocks * 512, kGatherBlocks), kGatherBlocks);
  EXPECT_EQ(peer_sum_blocks(std::int64_t{1} << 40, kSumBlocks), kSumBlocks);
}

TEST(PeerSumPlan, TheLayoutHoldsTheSetsAndTheWords) {
  const PeerLayout layout{.num_peers = 3, .sum_vectors = 8, .gather_vectors = 4};
  EXPECT_EQ(layout.slots_bytes(), 16 * (3 * 2 * 8 + 2 * 2 * 4));
  EXPECT_EQ(layout.bytes() - layout.slots_bytes(), (kGatherBlocks * kMaxPeers + 5) * 4);
}

TEST(PeerSumPlan, EachOtherRankHasASlotOfItsOwn) {
  const PeerLayout layout{.num_peers = 4, .sum_vectors = 1, .gather_vectors = 1};
  for (int to = 0; to < 4; ++to) {
    std::set<int> slots;
    for (int from = 0; from < 4; ++from)
      if (from != to) slots.insert(layout.slot_of(from, to));
    EXPECT_EQ(slots, (std::set{0, 1, 2}));
  }
}

}  // namespace
}  // namespace sluice::cuda
