// The rotation of one head.
#pragma once

#include <cstdint>

namespace sluice::cpu {

// x [2 half] in place; cos_sin: `half` cosines, then as many sines (ops/rope.h).
void rotate_head(float* x, const float* cos_sin, std::int64_t half, bool interleaved);

}  // namespace sluice::cpu
