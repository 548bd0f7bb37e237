// RoPE of one head, with an optional RMSNorm before it.
#pragma once

#include <cstdint>

#include "tensor/context.h"

namespace sluice::cpu {

// Rotates x [2 half] in place. cos_sin: `half` cosines, then `half` sines (ops/rope.h).
void rotate_head(float* x, const float* cos_sin, std::int64_t half, bool interleaved);

// Normalises x [d] if `weight` [d] is defined, then rotates the first 2 half elements of x.
void norm_and_rotate_head(const Context& ctx, float* x, std::int64_t d, const Tensor& weight,
                          float eps, const float* cos_sin, std::int64_t half, bool interleaved);

}  // namespace sluice::cpu
