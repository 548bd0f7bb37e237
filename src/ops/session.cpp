#include "ops/session.h"

#include "base/build.h"
#include "kernels/cuda/common/session.h"

namespace sluice::ops {

std::shared_ptr<cuda::Session> open_session([[maybe_unused]] Device device) {
  if constexpr (kHasCuda)
    if (device.kind == DeviceKind::kCuda) return cuda::open_session(device);
  return nullptr;
}

}  // namespace sluice::ops
