// A few rows of x in shared memory as e4m3 (kernels/types/fp8.h) or int8
// (kernels/types/int8_rows.h), with a scale for each group of 128 columns or for each row. The norm
// of the rows is fused.
#pragma once

#include "kernels/cuda/fp8/row_codes.cuh"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/weight_pipeline.cuh"

namespace sluice::cuda {

// Shared memory: rows of codes, then scales [rows][groups + 1], then what their makers leave there,
// of the same shape. Eight lanes make a group of 128 columns, 16 columns each.
template <class Codes>
struct RoundedRows {
  static constexpr int kGroup = static_cast<int>(ops::kFp8Group);
  static constexpr int kLaneColumns = 16, kGroupLanes = kGroup / kLaneColumns;
  static constexpr int kGroupsAtOnce = kPipelineThreads / kGroupLanes;  // of a CTA

  unsigned char* codes;
  int rows, k, groups, stride;

  __device__ RoundedRows(unsigned char* shared, int num_rows, int columns, int row_stride)
      : codes(shared),
        rows(num_rows),
        k(columns),
        groups((columns + kGroup - 1) / kGroup),
        stride(row_stride) {}

  __device__ float* scales() const { return reinterpret_cast<float*>(codes + rows * stride); }
  __device__ float* squares() const { return scales() + rows * (groups + 1); }
  __device__ float* scale(int m, int g) const { return scales() + m * (groups + 1) + g; }
  __device__ float* square(int m, int g) const { return squares() + m * (groups + 1) + g; }

  struct Lane {
    float4 v[4];  // 16 columns

    template <class T>
    __device__ void load(const T* from) {
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = load_four(from + 4 * i);
    }
    __device__ void scale(const Lane& by) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        v[i].x *= by.v[i].x, v[i].y *= by.v[i].y, v[i].z *= by.v[i].z, v[i].w *= by.v[i].w;
    }
    __device__ float squares() const {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sum += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
      return sum;
    }
    __device__ unsigned largest() const {
      return max(max(largest_of(v[0]), largest_of(v[1])), max(largest_of(v[2]), largest_of(v[3])));
    }
    __device__ uint4 rounded(float factor) const {
      return {Codes::four(v[0], factor), Codes::four(v[1], factor), Codes::four(v[2], factor),
              Codes::four(v[3], factor)};
    }
  };

  // Calls body(m, g, the lane's columns times the norm weight, their squares without it) for all
  // groups. Two are loaded together, because no MMA runs meanwhile.
  template <class T, class Body>
  __device__ void for_groups(const T* x, std::int64_t x_stride, const float* norm,
                             Body&& body) const {
    constexpr int kTogether = 2;
    const int total = rows * groups, first = static_cast<int>(threadIdx.x) / kGroupLanes,
              within = static_cast<int>(threadIdx.x) % kGroupLanes * kLaneColumns;
    // All lanes of a warp take part, because they reduce together.
    for (int begin = first; begin - first % (kWarp / kGroupLanes) < total;
         begin += kTogether * kGroupsAtOnce) {
      Lane lane[kTogether], weight[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int at = begin + j * kGroupsAtOnce, m = at / groups,
                  column = at % groups * kGroup + within;
        lane[j] = {}, weight[j] = {};
        if (at >= total || column >= k) continue;
        lane[j].load(x + m * x_stride + column);
        if (norm != nullptr) weight[j].load(norm + column);
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int at = begin + j * kGroupsAtOnce;
        float squares = 0;
        if (norm != nullptr) {
          squares = lane[j].squares();
          lane[j].scale(weight[j]);
        }
        body(at < total ? at / groups : -1, at % groups, lane[j], squares);
      }
    }
  }
  __device__ void put(int m, int g, const Lane& lane, float factor) const {
    const int within = static_cast<int>(threadIdx.x) % kGroupLanes * kLaneColumns;
    *reinterpret_cast<uint4*>(codes + m * stride + g * kGroup + within) = lane.rounded(factor);
  }
  // Over the lanes of a group.
  __device__ static unsigned group_max(unsigned x) {
#pragma unroll
    for (int step = 1; step < kGroupLanes; step *= 2)
      x = max(x, __shfl_xor_sync(kAllLanes, x, step));
    return x;
  }
  __device__ static float group_sum(float x) {
#pragma unroll
    for (int step = 1; step < kGroupLanes; step *= 2) x += __shfl_xor_sync(kAllLanes, x, step);
    return x;
  }

  // Rounds the rows, times the norm weight where there is one. With `norm`, factor[m] := 1 / root
  // mean square of row m; the epilogue multiplies the sums with it. Without groups a row has one
  // scale, which the epilogue needs only once: row_scale[m].
  template <bool kInGroups, class T>
  __device__ void round(const T* x, std::int64_t x_stride, const RowsAround& around, float* factor,
                        float* row_scale) const {
    const float* const norm = around.norm;
    const bool leads = static_cast<int>(threadIdx.x) % kGroupLanes == 0;
    for_groups(x, x_stride, norm, [&](int m, int g, const Lane& lane, float squares) {
      const unsigned largest = group_max(lane.largest());
      const float sum = norm == nullptr ? 0.0f : group_sum(squares);
      if (m < 0) return;
      if (norm != nullptr && leads) *square(m, g) = sum;
      if constexpr (kInGroups) {
        const ops::Fp8Scale by = Codes::scale(largest);
        if (leads) *scale(m, g) = by.scale;
        put(m, g, lane, by.factor);
      } else if (leads) {
        *scale(m, g) = __uint_as_float(largest);
      }
    });
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / kWarp,
              lane = static_cast<int>(threadIdx.x) % kWarp;
    if (warp < rows && (norm != nullptr || !kInGroups)) {
      if (norm != nullptr) {
        float total = 0;
        for (int g = lane; g < groups; g += kWarp) total += *square(warp, g);
        total = warp_sum(total);
        if (lane == 0) factor[warp] = 1.0f / sqrtf(total / static_cast<float>(k) + around.eps);
      }
      if constexpr (!kInGroups) {
        unsigned largest = 0;
        for (int g = lane; g < groups; g += kWarp)
          largest = max(largest, __float_as_uint(*scale(warp, g)));
        largest = warp_max(largest);
        if (lane == 0) {
          const ops::Fp8Scale by = Codes::scale(largest);
          row_scale[warp] = by.scale;
          *square(warp, groups) = by.factor;
        }
      }
    }
    if constexpr (!kInGroups) {
      __syncthreads();
      for_groups(x, x_stride, norm, [&](int m, int g, const Lane& lane, float) {
        if (m >= 0) put(m, g, lane, *square(m, groups));
      });
    }
    // Factors are read after the barrier of the first tile.
    if constexpr (!kInGroups) __syncthreads();
  }
};

}  // namespace sluice::cuda
