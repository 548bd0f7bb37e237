#include "tensor/copy.h"

#include <cstring>

#include "base/build.h"
#include "base/error.h"
#include "tensor/cuda_runtime.h"
#include "tensor/format.h"

namespace sluice {

void copy([[maybe_unused]] const Stream& stream, const Tensor& from, const Tensor& to) {
  check(from.dtype == to.dtype && from.rank == to.rank && from.shape == to.shape && from.dense() &&
            to.dense(),
        "a copy of {} to {}", from, to);
  if (from.numel() == 0) return;
  if (from.device.kind == DeviceKind::kCpu && to.device.kind == DeviceKind::kCpu) {
    std::memcpy(to.data, from.data, static_cast<std::size_t>(from.bytes()));
    return;
  }
  if constexpr (kHasCuda) cuda::copy_async(to.data, from.data, from.bytes(), stream.handle());
}

Tensor to_device(Context& ctx, const Tensor& host) {
  if (ctx.device == host.device) return host;
  Tensor place = ctx.arena->take(host.dtype, {host.numel()});
  place.rank = host.rank;
  place.shape = host.shape;
  place.stride = host.stride;
  if (!ctx.dry_run) copy(*ctx.stream, host, place);
  return place;
}

HostImage::HostImage(const Tensor& place) : place_(place), host_(place) {
  if (place.device.kind == DeviceKind::kCpu) return;
  check(place.dense(), "{} has gaps", place);
  buffer_ = Buffer(place.bytes());
  host_.data = buffer_.data();
  host_.device = {};
}

void HostImage::put() {
  if (place_.device.kind == DeviceKind::kCpu) return;
  const Stream stream(place_.device);
  copy(stream, host_, place_);
  stream.synchronize();
}

}  // namespace sluice
