// The rotation of one head.
#pragma once

#include <cstdint>

#include "tensor/context.h"

namespace sluice::cpu {

// x [2 half] in place; cos_sin: `half` cosines, then as many sines (ops/rope.h).
void rotate_head(float* x, const float* cos_sin, std::int64_t half, bool interleaved);

// The same for the first 2 half of x [d], which before that is normalised where there is a weight
// [d].
void norm_and_rotate_head(const Context& ctx, float* x, std::int64_t d, const Tensor& weight,
                          float eps, const float* cos_sin, std::int64_t half, bool interleaved);

}  // namespace sluice::cpu
