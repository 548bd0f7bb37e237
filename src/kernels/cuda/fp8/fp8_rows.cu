// Rows of x as e4m3 or int8 with their scales (kernels/types/fp8.h, kernels/types/int8_rows.h), for
// GEMMs of many rows: plain, of a norm, or of a gate and its up.
#include <algorithm>

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/fp8/gemm_fp8.h"
#include "kernels/cuda/fp8/row_codes.cuh"
#include "kernels/cuda/gemm/weight_pipeline.cuh"

namespace sluice::cuda {
namespace {

constexpr int kMinWarps = 4;
// Without groups a row of several turns is read twice, so more threads are better. With groups it
// is read once, and 512 threads leave registers for the weights of a norm.
template <bool kInGroups>
inline constexpr int kMaxThreads = kInGroups ? 512 : 1024;
// Groups of a warp that load together. A turn has 16,384 columns, with groups 8,192.
constexpr int kTogether = 4;
constexpr int kGroup = static_cast<int>(ops::kFp8Group);
constexpr int kFewRows = 64, kMaxSplitWarps = 8;

template <class T>
struct PlainRows {
  static constexpr bool kTakesNorm = true;
  const T* x;
  std::int64_t stride;

  __device__ float4 load(std::int64_t m, int column) const {
    return load_four(x + m * stride + column);
  }
};

template <class T>
struct GatedRows {
  static constexpr bool kTakesNorm = false;
  const T* gate_up;
  std::int64_t stride;
  int width;  // columns of the gate
  bool gelu;

  __device__ float4 load(std::int64_t m, int column) const {
    const T* from = gate_up + m * stride + column;
    const float4 gate = load_four(from), up = load_four(from + width);
    return {gate_function(gate.x, gelu) * up.x, gate_function(gate.y, gelu) * up.y,
            gate_function(gate.z, gelu) * up.z, gate_function(gate.w, gelu) * up.w};
  }
};

// Grid: rows; CTAs of a row, one unless it has groups and no norm. Thread t takes four columns from
// 4 t on, then those a CTA's width further, so that a warp has a whole group. The loads of a turn
// are in flight together, and a row of one turn is read once. The factor of a norm is applied to
// the scales, because it is known only after the whole row was read.
template <class Codes, bool kInGroups, class Rows>
__global__ void __launch_bounds__(kMaxThreads<kInGroups>)
    round_rows_kernel(Rows rows, Fp8Norm norm, Fp8Rows out) {
  __shared__ float scales[kInGroups ? kMaxFp8Groups : 1],
      squares_of[kMaxThreads<kInGroups> / kWarp];
  __shared__ unsigned largest_of_warp[kMaxThreads<kInGroups> / kWarp];
  const std::int64_t m = blockIdx.x;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp,
            k = static_cast<int>(out.columns), groups = (k + kGroup - 1) / kGroup;
  const bool has_norm = Rows::kTakesNorm && norm.weight != nullptr,
             is_one_turn = groups <= warps * kTogether;
  // Four columns of each of kTogether groups of this warp, from group `first` on.
  float4 four[kTogether], by[kTogether];
  float squares = 0;
  const auto load_weights = [&](int first) {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int column = (first + i * warps) * kGroup + lane * 4;
      by[i] = column < k ? load_four(norm.weight + column) : float4{};
    }
  };
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int column = (first + i * warps) * kGroup + lane * 4;
      four[i] = column < k ? rows.load(m, column) : float4{};
    }
    if (!has_norm) return;
    if (!is_one_turn) load_weights(first);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      float4& v = four[i];
      squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
      v = {v.x * by[i].x, v.y * by[i].y, v.z * by[i].z, v.w * by[i].w};
    }
  };
  // No kernel writes the weights of a norm, so they load before the wait.
  if (has_norm && is_one_turn) load_weights(warp);
  begin_dependent();
  const auto put = [&](int group, const float4& v, float factor) {
    const int column = group * kGroup + lane * 4;
    if (column < k)
      *reinterpret_cast<std::uint32_t*>(out.codes + m * out.stride + column) =
          Codes::four(v, factor);
  };

  unsigned largest = 0;
  const int part = static_cast<int>(blockIdx.y), parts = static_cast<int>(gridDim.y);
  for (int first = warp + part * warps * kTogether; first < groups;
       first += parts * warps * kTogether) {
    load(first);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int group = first + i * warps;
      if constexpr (kInGroups) {
        const ops::Fp8Scale by = Codes::scale(warp_max(largest_of(four[i])));
        put(group, four[i], by.factor);
        if (lane != 0 || group >= groups) continue;
        if (!has_norm)
          out.scales(m)[group] = by.scale;
        else
          scales[group] = by.scale;
      } else {
        largest = max(largest, largest_of(four[i]));
      }
    }
  }
  if (kInGroups && !has_norm) return;
  squares = warp_sum(squares);
  largest = warp_max(largest);
  if (lane == 0) squares_of[warp] = squares, largest_of_warp[warp] = largest;
  __syncthreads();
  float factor = 1;
  if (has_norm) {
    float total = 0;
    for (int i = 0; i < warps; ++i) total += squares_of[i];
    factor = 1.0f / sqrtf(total / static_cast<float>(k) + norm.eps);
  }
  if constexpr (kInGroups) {
    for (int group = threadIdx.x; group < groups; group += blockDim.x)
      out.scales(m)[group] = scales[group] * factor;
  } else {
    for (int i = 0; i < warps; ++i) largest = max(largest, largest_of_warp[i]);
    const ops::Fp8Scale by = Codes::scale(largest);
    for (int first = warp; first < groups; first += warps * kTogether) {
      if (!is_one_turn) load(first);
#pragma unroll
      for (int i = 0; i < kTogether; ++i) put(first + i * warps, four[i], by.factor);
    }
    if (threadIdx.x == 0) *out.scales(m) = by.scale * factor;
  }
}

template <class Rows>
void launch(Context& ctx, std::int64_t m, const Rows& rows, const Fp8Norm& norm,
            const ops::Weight& w, const Fp8Rows& out) {
  if (m == 0) return;
  const std::int64_t group = w.group;
  const std::int64_t groups = ops::fp8_groups(out.columns, ops::kFp8Group),
                     turns = (groups + kTogether - 1) / kTogether,
                     most = (group == 0 ? kMaxThreads<false> : kMaxThreads<true>) / kWarp;
  // Few rows leave SMs to several CTAs of a row.
  const bool splits = group != 0 && norm.weight == nullptr && m <= kFewRows;
  const int warps =
      static_cast<int>(std::clamp<std::int64_t>(turns, kMinWarps, splits ? kMaxSplitWarps : most));
  const dim3 grid(static_cast<unsigned>(m),
                  splits ? static_cast<unsigned>((turns + warps - 1) / warps) : 1);
  const auto run = [&](auto kernel) {
    launch_dependent(ctx, "rows to 8 bits", kernel, grid, warps * kWarp, 0, rows, norm, out);
  };
  if (w.format == ops::Format::kInt8)
    run(round_rows_kernel<Int8Codes, false, Rows>);
  else if (group == 0)
    run(round_rows_kernel<E4m3Codes, false, Rows>);
  else
    run(round_rows_kernel<E4m3Codes, true, Rows>);
}

}  // namespace

void fp8_rows(Context& ctx, const Tensor& x, const Fp8Norm& norm, const ops::Weight& w,
              const Fp8Rows& out) {
  with_plane_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    launch(ctx, x.dim(0), PlainRows<T>{static_cast<const T*>(x.data), x.stride[0]}, norm, w, out);
  });
}

void fp8_rows_gated(Context& ctx, const Tensor& gate_up, bool gelu, const ops::Weight& w,
                    const Fp8Rows& out) {
  with_plane_type(gate_up.dtype, [&](auto type) {
    using T = decltype(type);
    launch(ctx, gate_up.dim(0),
           GatedRows<T>{static_cast<const T*>(gate_up.data), gate_up.stride[0],
                        static_cast<int>(out.columns), gelu},
           {}, w, out);
  });
}

}  // namespace sluice::cuda
