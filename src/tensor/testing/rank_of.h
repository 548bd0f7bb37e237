// A rank of several that never communicates, for tests of what one rank loads and computes. A test
// that needs sums adds the ranks' results itself.
#pragma once

#include "tensor/communicator.h"

namespace sluice {

class RankOf final : public Communicator {
 public:
  RankOf(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(const Tensor&) override {}
  void all_gather(const Tensor&, const Tensor&) override {}
  void broadcast(const Tensor&, int) override {}
  void barrier() override {}

 private:
  int rank_, size_;
};

}  // namespace sluice
