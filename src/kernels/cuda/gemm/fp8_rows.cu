// Rows of x as e4m3 with their scales (kernels/types/fp8.h), for GEMMs of many rows: plain, of a
// norm, or of a gate and its up.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/gemm/fp8.cuh"
#include "kernels/cuda/gemm/gemm_fp8.h"
#include "kernels/cuda/gemm/weight_pipeline.cuh"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kGroup = static_cast<int>(ops::kFp8Group);

template <class T>
struct PlainRows {
  const T* x;
  std::int64_t stride;

  __device__ float4 load(std::int64_t m, int column) const {
    return load_four(x + m * stride + column);
  }
};

template <class T>
struct GatedRows {
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

// Grid: rows. A warp takes the groups of its row in turn. The factor of a norm is applied to the
// scales, because it is known only after the whole row was read.
template <bool kInGroups, class Rows>
__global__ void __launch_bounds__(kWarps* kWarp)
    round_rows_kernel(Rows rows, Fp8Norm norm, Fp8Rows out) {
  __shared__ float scales[kMaxFp8Groups], squares_of[kWarps];
  __shared__ unsigned largest_of_warp[kWarps];
  begin_dependent();
  const std::int64_t m = blockIdx.x;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp,
            k = static_cast<int>(out.columns), groups = (k + kGroup - 1) / kGroup;
  const auto load = [&](int group, float& squares) {
    const int column = group * kGroup + lane * 4;
    if (column >= k) return float4{};
    float4 v = rows.load(m, column);
    if (norm.weight != nullptr) {
      const float4 by = load_four(norm.weight + column);
      squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
      v = {v.x * by.x, v.y * by.y, v.z * by.z, v.w * by.w};
    }
    return v;
  };
  const auto put = [&](int group, const float4& v, float factor) {
    const int column = group * kGroup + lane * 4;
    if (column < k)
      *reinterpret_cast<std::uint32_t*>(out.codes + m * out.stride + column) = to_e4m3(v, factor);
  };

  float squares = 0;
  unsigned largest = 0;
#pragma unroll 2
  for (int group = warp; group < groups; group += kWarps) {
    const float4 v = load(group, squares);
    const unsigned of_group = warp_max(largest_of(v));
    largest = max(largest, of_group);
    if constexpr (kInGroups) {
      const ops::Fp8Scale by = fp8_scale(of_group);
      put(group, v, by.factor);
      if (lane == 0) scales[group] = by.scale;
    }
  }
  squares = warp_sum(squares);
  if (lane == 0) squares_of[warp] = squares, largest_of_warp[warp] = largest;
  __syncthreads();
  float factor = 1;
  if (norm.weight != nullptr) {
    float total = 0;
    for (int i = 0; i < kWarps; ++i) total += squares_of[i];
    factor = 1.0f / sqrtf(total / static_cast<float>(k) + norm.eps);
  }
  if constexpr (kInGroups) {
    for (int group = threadIdx.x; group < groups; group += kWarps * kWarp)
      out.scales(m)[group] = scales[group] * factor;
  } else {
    for (int i = 0; i < kWarps; ++i) largest = max(largest, largest_of_warp[i]);
    const ops::Fp8Scale by = fp8_scale(largest);
    for (int group = warp; group < groups; group += kWarps)
      put(group, load(group, squares), by.factor);
    if (threadIdx.x == 0) *out.scales(m) = by.scale * factor;
  }
}

template <class Rows>
void launch(Context& ctx, std::int64_t m, const Rows& rows, const Fp8Norm& norm, std::int64_t group,
            const Fp8Rows& out) {
  if (m == 0) return;
  const dim3 grid(static_cast<unsigned>(m));
  if (group == 0)
    launch_dependent(ctx, "rows to FP8", round_rows_kernel<false, Rows>, grid, kWarps * kWarp, 0,
                     rows, norm, out);
  else
    launch_dependent(ctx, "rows to FP8", round_rows_kernel<true, Rows>, grid, kWarps * kWarp, 0,
                     rows, norm, out);
}

}  // namespace

void fp8_rows(Context& ctx, const Tensor& x, const Fp8Norm& norm, std::int64_t group,
              const Fp8Rows& out) {
  with_plane_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    launch(ctx, x.dim(0), PlainRows<T>{static_cast<const T*>(x.data), x.stride[0]}, norm, group,
           out);
  });
}

void fp8_rows_gated(Context& ctx, const Tensor& gate_up, bool gelu, std::int64_t group,
                    const Fp8Rows& out) {
  with_plane_type(gate_up.dtype, [&](auto type) {
    using T = decltype(type);
    launch(ctx, gate_up.dim(0),
           GatedRows<T>{static_cast<const T*>(gate_up.data), gate_up.stride[0],
                        static_cast<int>(out.columns), gelu},
           {}, group, out);
  });
}

}  // namespace sluice::cuda
