// The way of a step's rows from a stage of a pipeline to the next one.
//
//   to_next.send(hidden);             // a rank of stage s
//   from_previous.receive(hidden);    // the rank with the same share of stage s + 1
//
// Both sides give tensors of equal shape and dtype in the same order. A sender may run ahead: it
// waits only where the link is full. One thread.
#pragma once

#include "tensor/tensor.h"

namespace sluice {

class StageLink {
 public:
  virtual ~StageLink() = default;
  // x is dense. It may change when the call returns; on a GPU, behind it in the rank's stream.
  virtual void send(const Tensor& x) = 0;
  // x := what the other side sent.
  virtual void receive(const Tensor& x) = 0;
};

}  // namespace sluice
