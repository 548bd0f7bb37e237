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

TEST(PeerSumPlan, PartsHaveAsManyPiecesAsTheLongestNeedsAndNoneIsEmpty) {
  const PeerLayout layout{.num_peers = 2, .sum_vectors = 8, .gather_vectors = 4};
  const auto pieces = [&](std::int64_t first, std::int64_t second, DType wire = DType::kBF16) {
    const RowPart parts[] = {{0, first}, {first, second}};
    return peer_part_pieces(layout, parts, wire);
  };
  EXPECT_EQ(pieces(64, 64), 1);  // a slot has 8 vectors of 8 numbers
  EXPECT_EQ(pieces(64, 8), 1);
  EXPECT_EQ(pieces(72, 64), 2);
  EXPECT_EQ(pieces(72, 16), 2);
  EXPECT_EQ(pieces(72, 8), 0);  // one vector in two pieces
  EXPECT_EQ(pieces(8, 72), 0);
  EXPECT_EQ(pieces(72, 8, DType::kF32), 0);  // two vectors in three pieces
  EXPECT_EQ(pieces(64, 8, DType::kF32), 2);
  EXPECT_EQ(pieces(64, 0), 0);
  EXPECT_EQ(pieces(60, 64), 0);
  EXPECT_EQ(pieces(0, 0), 0);
  EXPECT_EQ(peer_part_pieces(layout, {}, DType::kBF16), 0);
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
