// Copies between devices.
#pragma once

#include "tensor/buffer.h"
#include "tensor/context.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace sluice {

// to := from, bit for bit; both dense, of one shape and dtype. Between two places of host memory it
// is done on return. Otherwise it takes its turn in `stream`; from pageable host memory the source
// may be reused on return, pinned memory must stay as it is until the stream has passed the copy.
void copy(const Stream& stream, const Tensor& from, const Tensor& to);

// `host` where ctx's device reads it: itself on the CPU, else a copy in memory of ctx.arena. The
// host's memory may be reused on return, unless it is pinned.
Tensor to_device(Context& ctx, const Tensor& host);

// A host tensor of the shape of `place` that is written and then put there: `place` itself when it
// lies on the host.
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
