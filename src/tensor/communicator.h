// Collectives between the ranks of one model. distributed/ implements them.
#pragma once

#include "tensor/tensor.h"

namespace sluice {

// Every rank calls the same methods in the same order with tensors of equal shape and dtype.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // x := sum over the ranks of x, in rank order, so that all ranks hold the same bits.
  virtual void all_reduce(const Tensor& x) = 0;
  // out [size * n, ...] := the x [n, ...] of every rank, in rank order.
  virtual void all_gather(const Tensor& x, const Tensor& out) = 0;
  // x := the x of rank `root`.
  virtual void broadcast(const Tensor& x, int root) = 0;
  virtual void barrier() = 0;
};

}  // namespace sluice
