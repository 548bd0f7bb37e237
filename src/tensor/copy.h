// Copies between devices.
#pragma once

#include "tensor/buffer.h"
#include "tensor/context.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace sluice {

// to := from, bit for bit; both dense, of one shape and dtype. A copy within host memory is done on
// return. Other copies are queued in `stream`. Pageable host memory may be reused on return. Pinned
// memory must stay unchanged until the stream has passed the copy.
void copy(const Stream& stream, const Tensor& from, const Tensor& to);

// `host` in the memory of ctx's device: `host` itself on the CPU, else a copy in ctx.arena. The
// host's memory may be reused on return, unless it is pinned.
Tensor to_device(Context& ctx, const Tensor& host);

// A host tensor of the shape of `place`, to be written and then copied there; `place` itself if it
// is in host memory.
//
//   HostImage image(place);
//   fill(image.tensor());
//   image.put();
class HostImage {
 public:
  explicit HostImage(const Tensor& place);
  const Tensor& tensor() const { return host_; }
  void put();  // done when it returns

 private:
  Tensor place_;
  Buffer buffer_;
  Tensor host_;
};

}  // namespace sluice
