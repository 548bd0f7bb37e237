// Collectives of the ranks of one host over memory that they share.
//
//   SharedMemoryCommunicator communicator(region, rank);
//   communicator.all_reduce(x);
//
// A tensor goes through the region piece by piece, so its size does not matter. Each rank posts its
// piece and then reads those of all ranks; sums are taken in the order of the ranks. So all ranks
// hold the same bits, which depend on the number of ranks and on nothing else. There are two slots
// a rank: a rank that posts operation n has read all of n - 2, since it has seen every rank post
// n - 1.
//
// Host memory. One thread a rank. A wait ends with the failure of the region, as when a rank has
// died.
#pragma once

#include <functional>

#include "distributed/shared_region.h"
#include "tensor/communicator.h"

namespace sluice {

// Ranks [first, first + size) of a region.
struct RankGroup {
  int first = 0;
  int size = 1;
};

class SharedMemoryCommunicator final : public Communicator {
 public:
  // How long a rank looks for the others before it sleeps: a sleeper takes tens of microseconds to
  // wake. 0 where ranks outnumber processors.
  static constexpr int kSpinUs = 100;

  // All ranks of the region, which outlives the communicator.
  SharedMemoryCommunicator(SharedRegion& region, int rank, int spin_us = kSpinUs);
  // Those of a stage, which has `rank` of the region.
  SharedMemoryCommunicator(SharedRegion& region, const RankGroup& stage, int rank, int spin_us);

  // Counted in the group.
  int rank() const override { return rank_; }
  int size() const override { return group_.size; }
  // Dense, float32 or bfloat16; bfloat16 is summed in float32 and rounded once.
  void all_reduce(const Tensor& x) override;
  void reduce_scatter(const Tensor& x, std::span<const RowPart> parts) override;
  // Of any type. x is dense; `out` is, or it is [size, M, N] with gaps where x is [M, N].
  void all_gather(const Tensor& x, const Tensor& out) override;
  void broadcast(const Tensor& x, int root) override;
  void barrier() override;
  // The ranks of the region that are lost, bit by bit: from now on they have no part in
  // collectives. Sums go over the others, and all_gather() leaves the places of these as they are.
  // All living ranks call it between the same operations; all_ranks communicators only.
  void drop(std::uint64_t lost);
  // Throws the failure of the ranks, if there is one.
  void check_ranks() const { region_.check(); }
  bool has_failed() const { return region_.failure().has_value(); }

 private:
  // Posts `count` bytes, waits for all ranks, and calls read(rank, bytes) for each in order.
  void exchange(const std::byte* bytes, std::int64_t count,
                const std::function<void(int rank, const std::byte* bytes)>& read);

  SharedRegion& region_;
  const SharedRegion::Lane lane_;
  const RankGroup group_;
  const int rank_, spin_us_;
  std::uint32_t num_operations_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace sluice
