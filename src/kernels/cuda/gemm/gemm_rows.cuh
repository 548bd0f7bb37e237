// The dot products of rows that one warp computes: for the kernel of few rows, and for experts.
//
// Lane l takes elements [256 i + 8 l, +8) for i = 0, 1, ..., in ascending order into one
// accumulator. Then the lanes are summed by halving. The order of summation depends on K alone: not
// on the other rows, the alignment, or the shape of the launch.
#pragma once

#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/common.cuh"

namespace sluice::cuda {

inline constexpr int kLaneElements = 8;

// Eight elements; kAligned: they begin on 16 bytes.
template <bool kAligned>
__device__ inline void load_eight(const float* p, float (&out)[kLaneElements]) {
  if constexpr (kAligned) {
    const float4 a = *reinterpret_cast<const float4*>(p),
                 b = *reinterpret_cast<const float4*>(p + 4);
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y,
    out[6] = b.z, out[7] = b.w;
  } else {
    for (int i = 0; i < kLaneElements; ++i) out[i] = p[i];
  }
}

template <bool kAligned, class Half>
__device__ inline void load_eight(const Half* p, float (&out)[kLaneElements]) {
  if constexpr (kAligned) {
    const uint4 raw = *reinterpret_cast<const uint4*>(p);
    const Half* part = reinterpret_cast<const Half*>(&raw);
    for (int i = 0; i < kLaneElements; ++i) out[i] = widen(part[i]);
  } else {
    for (int i = 0; i < kLaneElements; ++i) out[i] = widen(p[i]);
  }
}

// acc[r] := x[r] . w over k elements, in all lanes. The whole warp calls.
template <class TX, class TW, int kRows, bool kAligned>
__device__ inline void dot_rows(const TX* const (&x)[kRows], const TW* w, std::int64_t k,
                                float (&acc)[kRows]) {
  const int lane = threadIdx.x % kWarp;
  for (int r = 0; r < kRows; ++r) acc[r] = 0;
  std::int64_t i = lane * kLaneElements;
#pragma unroll 2
  for (; i + kLaneElements <= k; i += kWarp * kLaneElements) {
    float weights[kLaneElements];
    load_eight<kAligned>(w + i, weights);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float values[kLaneElements];
      load_eight<kAligned>(x[r] + i, values);
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) acc[r] = fmaf(values[j], weights[j], acc[r]);
    }
  }
  // The end of k: at most eight elements of one lane.
  for (std::int64_t j = i; j < k && j < i + kLaneElements; ++j)
    for (int r = 0; r < kRows; ++r) acc[r] = fmaf(widen(x[r][j]), widen(w[j]), acc[r]);
#pragma unroll
  for (int r = 0; r < kRows; ++r) acc[r] = warp_sum(acc[r]);
}

}  // namespace sluice::cuda
