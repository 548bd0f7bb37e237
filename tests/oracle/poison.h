// What kernels find in shared memory that they did not write.
#pragma once

#include "tensor/context.h"

namespace sluice::oracle {

// Fills the shared memory of every SM with 0xFF, which is NaN as e4m3, bfloat16 and float32. A
// kernel that reads numbers which it did not write then gives NaN, not what the kernel before it
// left there.
void poison_shared_memory(const Context& ctx);

}  // namespace sluice::oracle
