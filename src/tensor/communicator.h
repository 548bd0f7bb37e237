// Collectives between the ranks of one model. distributed/ implements them.
#pragma once

#include <span>

#include "tensor/tensor.h"

namespace sluice {

// Rows [first, first + count) of a tensor.
struct RowPart {
  std::int64_t first = 0, count = 0;
};

// Every rank calls the same methods in the same order with tensors of equal shape and dtype.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // x := sum over the ranks of x, in rank order, so that all ranks hold the same bits.
  virtual void all_reduce(const Tensor& x) = 0;
  // The rows parts[rank()] of x := those of the sum over the ranks, float32; the others are of no
  // use then. `parts` is the same on all ranks: parts that are equal, or have no row in common.
  virtual void reduce_scatter(const Tensor& x, [[maybe_unused]] std::span<const RowPart> parts) {
    all_reduce(x);
  }
  // out [size * n, ...] := the x [n, ...] of every rank, in rank order.
  virtual void all_gather(const Tensor& x, const Tensor& out) = 0;
  // x := the x of rank `root`.
  virtual void broadcast(const Tensor& x, int root) = 0;
  virtual void barrier() = 0;
};

}  // namespace sluice
