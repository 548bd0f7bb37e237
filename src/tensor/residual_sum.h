// What some communicators do beside the collectives: a sum over the ranks that goes straight to the
// residual stream.
#pragma once

#include "tensor/tensor.h"

namespace sluice {

class ResidualSum {
 public:
  virtual ~ResidualSum() = default;
  // to += the sum over the ranks of x, both float32 of one shape, in rank order; x is then of no
  // use. False: nothing was done, on any rank.
  virtual bool add_sum(const Tensor& x, const Tensor& to) = 0;
};

}  // namespace sluice
