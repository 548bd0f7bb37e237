// What the kernels of a device keep for a rank: libraries that are opened at run time, and their
// workspaces.
#pragma once

#include <memory>

#include "tensor/context.h"

namespace sluice::ops {

// For Context::cuda; null on the CPU. The owner outlives every op that runs with it.
std::shared_ptr<cuda::Session> open_session(Device device);

}  // namespace sluice::ops
