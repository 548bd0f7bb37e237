// State that a device's kernels keep per rank: libraries opened at run time, and their workspaces.
#pragma once

#include <memory>

#include "tensor/context.h"

namespace sluice::ops {

// For Context::cuda; null on the CPU. The owner must outlive every op that uses it.
std::shared_ptr<cuda::Session> open_session(Device device);

}  // namespace sluice::ops
