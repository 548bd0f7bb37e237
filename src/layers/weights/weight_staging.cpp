#include "layers/weights/weight_staging.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/copy.h"
#include "tensor/format.h"

namespace sluice {

std::vector<AxisRange> resolved_ranges(const WeightRequest& request) {
  std::vector<AxisRange> ranges = request.ranges;
  ranges.resize(request.shape.size());
  for (std::size_t axis = 0; axis < ranges.size(); ++axis)
    if (ranges[axis].count < 0) ranges[axis].count = request.shape[axis] - ranges[axis].begin;
  return ranges;
}

WeightStaging::WeightStaging(Device device, std::int64_t half_bytes)
    : device_(device), half_bytes_(half_bytes), stream_(device) {
  if (device.kind == DeviceKind::kCpu) return;
  memory_ = Buffer::staging(2 * half_bytes, device);
  for (StreamEvent& event : sent_) {
    event = StreamEvent(device);
    event.record(stream_);
  }
}

WeightStaging::~WeightStaging() {
  try {
    finish();
  } catch (const Error&) {
    // The memory below must outlive the copies; the reader has already failed with its own error.
  }
}

void WeightStaging::finish() {
  stream_.synchronize();
}

void WeightStaging::read(const WeightSource& source, const WeightRequest& request,
                         const Tensor& place) {
  auto* to = static_cast<std::byte*>(place.data);
  if (place.device.kind == DeviceKind::kCpu) {
    source.load(request, place.dtype, {to, static_cast<std::size_t>(place.bytes())});
    return;
  }
  check(place.device == device_, "{} lies on another device", place);
  WeightRequest whole = request;
  whole.ranges = resolved_ranges(request);
  read_box(source, whole, place.dtype, to, 0);
}

// Cuts along the first axis from `axis` on that has more than one index. The axes before have one
// index each, so a piece is dense in the box. At most one level for each axis.
void WeightStaging::read_box(const WeightSource& source, const WeightRequest& request, DType dtype,
                             std::byte* to, std::size_t axis) {
  const std::int64_t bytes = request.numel() * dtype_size(dtype);
  if (bytes == 0) return;
  if (bytes <= half_bytes_) return send(source, request, dtype, to, bytes);
  while (request.ranges[axis].count == 1) ++axis;
  const AxisRange range = request.ranges[axis];
  const std::int64_t index_bytes = bytes / range.count,
                     step = std::max<std::int64_t>(1, half_bytes_ / index_bytes);
  WeightRequest piece = request;
  for (std::int64_t begin = 0; begin < range.count; begin += step) {
    piece.ranges[axis] = {range.begin + begin, std::min(step, range.count - begin)};
    read_box(source, piece, dtype, to + begin * index_bytes, axis);
  }
}

void WeightStaging::send(const WeightSource& source, const WeightRequest& request, DType dtype,
                         std::byte* to, std::int64_t bytes) {
  auto* half = static_cast<std::byte*>(memory_.data()) + next_ * half_bytes_;
  sent_[static_cast<std::size_t>(next_)].wait();
  source.load(request, dtype, {half, static_cast<std::size_t>(bytes)});
  copy(stream_, Tensor::dense(half, DType::kU8, {bytes}),
       Tensor::dense(to, DType::kU8, {bytes}, device_));
  sent_[static_cast<std::size_t>(next_)].record(stream_);
  next_ = 1 - next_;
}

}  // namespace sluice
