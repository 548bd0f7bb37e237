// Heads in registers: kLanes neighbouring lanes hold a head of 4 kLanes elements, four each.
#pragma once

#include "kernels/cuda/common/common.cuh"

namespace sluice::cuda {

__device__ inline float4 four_at(const float* data) {
  return *reinterpret_cast<const float4*>(data);
}

// RMSNorm. All lanes of the warp call.
template <int kLanes>
__device__ inline float4 norm_four(const float4& x, const float4& weight, float eps) {
  float squares = fmaf(x.w, x.w, fmaf(x.z, x.z, fmaf(x.y, x.y, x.x * x.x)));
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2)
    squares += __shfl_xor_sync(kAllLanes, squares, step);
  const float factor = 1.0f / sqrtf(squares / (4 * kLanes) + eps);
  return {x.x * factor * weight.x, x.y * factor * weight.y, x.z * factor * weight.z,
          x.w * factor * weight.w};
}

// RoPE of the pairs (i, i + 2 kLanes). The partner of a lane is half a head away and has the same
// `cosine` and `sine`. All lanes of the warp call.
template <int kLanes>
__device__ inline float4 rotate_four(const float4& x, const float4& cosine, const float4& sine) {
  const float sign = threadIdx.x % kLanes < kLanes / 2 ? -1.0f : 1.0f;
  const auto other = [](float mine) { return __shfl_xor_sync(kAllLanes, mine, kLanes / 2); };
  return {
      x.x * cosine.x + sign * (other(x.x) * sine.x), x.y * cosine.y + sign * (other(x.y) * sine.y),
      x.z * cosine.z + sign * (other(x.z) * sine.z), x.w * cosine.w + sign * (other(x.w) * sine.w)};
}

}  // namespace sluice::cuda
