// Reads tensors of a checkpoint into the memory of a device, through pinned memory in pieces.
#pragma once

#include <array>

#include "checkpoint/weight_source.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"

namespace sluice {

// For one thread. While one half of the staging memory travels to the device the other is filled
// from the file.
class WeightStaging {
 public:
  // On the CPU it takes no memory and reads straight into place.
  explicit WeightStaging(Device device, std::int64_t half_bytes = kHalfBytes);
  ~WeightStaging();
  WeightStaging(const WeightStaging&) = delete;
  WeightStaging& operator=(const WeightStaging&) = delete;

  // Fills `place`, dense, with the request's box as place.dtype. The copy may be under way when it
  // returns.
  void read(const WeightSource& source, const WeightRequest& request, const Tensor& place);
  // Waits until all is in place.
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
