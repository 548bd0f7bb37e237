// Reads tensors of a checkpoint into the memory of a device, in pieces through pinned memory.
#pragma once

#include <array>

#include "checkpoint/weight_source.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"

namespace sluice {

// For one thread. One half of the staging memory is copied to the device while the other is filled
// from the file.
class WeightStaging {
 public:
  // On the CPU there is no staging memory; tensors are read directly into their destination.
  explicit WeightStaging(Device device, std::int64_t half_bytes = kHalfBytes);
  ~WeightStaging();
  WeightStaging(const WeightStaging&) = delete;
  WeightStaging& operator=(const WeightStaging&) = delete;

  // Fills `place`, dense, with the request's box as place.dtype. The copy may still be running on
  // return.
  void read(const WeightSource& source, const WeightRequest& request, const Tensor& place);
  // Waits until all copies are done.
  void finish();

  static constexpr std::int64_t kHalfBytes = 4 << 20;

 private:
  void read_box(const WeightSource& source, const WeightRequest& request, DType dtype,
                std::byte* to, std::size_t axis);
  void send(const WeightSource& source, const WeightRequest& request, DType dtype, std::byte* to,
            std::int64_t bytes);

  Device device_;
  std::int64_t half_bytes_;
  Buffer memory_;
  Stream stream_;
  std::array<StreamEvent, 2> sent_;
  int next_ = 0;
};

// The pieces of a box: WeightRequest::ranges with every axis resolved.
std::vector<AxisRange> resolved_ranges(const WeightRequest& request);

}  // namespace sluice
