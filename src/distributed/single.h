// The communicator of a model that runs on one rank.
#pragma once

#include "tensor/communicator.h"

namespace sluice {

// A world of one: sums and broadcasts leave x unchanged, a gather copies it. Host memory only.
class SingleCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(const Tensor& x) override;
  // Both tensors are dense, of equal dtype and element count.
  void all_gather(const Tensor& x, const Tensor& out) override;
  // `root` is 0.
  void broadcast(const Tensor& x, int root) override;
  void barrier() override {}
};

}  // namespace sluice
