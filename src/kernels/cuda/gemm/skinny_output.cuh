// The epilogue of GEMMs with few rows: sums of the warps, bias, activation or residual.
#pragma once

#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/weight_pipeline.cuh"

namespace sluice::cuda {

__device__ inline float bias_at(const GemmArgs& a, std::int64_t n) {
  if (a.bias == nullptr) return 0;
  if (a.bias_type == DType::kBF16) return widen(static_cast<const Bf16*>(a.bias)[n]);
  if (a.bias_type == DType::kF16) return widen(static_cast<const F16*>(a.bias)[n]);
  return static_cast<const float*>(a.bias)[n];
}

// The output element of a tile that a thread finishes: row m of x, column `column` of the
// tile. The inputs of the epilogue besides the sums load a tile ahead, because each load is a long
// way from memory.
template <int kParts>
struct OutputElement {
  const GemmArgs& a;
  const RowsAround& around;
  int rows, m, column;
  float* out;          // row m of the output; null with gate and up
  float residual = 0;  // what the output had before, if the result adds to it
  float bias = 0, up_bias = 0;
  float scale = 1, up_scale = 1;  // of the sums

  __device__ __forceinline__ void scale_all(float by) { scale = up_scale = by; }

  __device__ __forceinline__ bool has_output(int tile) const {
    return m < rows && tile * kPipelineRows + column < a.n;
  }

  __device__ __forceinline__ void load(int tile) {
    const int n = tile * kPipelineRows + column;
    if (m >= rows || n >= a.n) return;
    if (kParts == 1 && around.add) residual = out[n];
    bias = bias_at(a, n);
    if (kParts == 2) up_bias = bias_at(a, a.n + n);
  }

  // Exact sums are rounded as on a CPU: one multiplication, then one addition.
  template <class Sum>
  __device__ __forceinline__ float finished(float sum, float by, float own_bias) const {
    if constexpr (std::is_same_v<Sum, float>) return fmaf(sum, by, own_bias);
    const float scaled = __fmul_rn(sum, by);
    return a.bias == nullptr ? scaled : __fadd_rn(scaled, own_bias);
  }

  template <class Sum = float>
  __device__ __forceinline__ void store(const PipelineReduction<kParts>& reduction, int turn,
                                        int tile) const {
    const int n = tile * kPipelineRows + column;
    const float value = finished<Sum>(reduction.template sum<Sum>(turn, 0, m, column), scale, bias);
    if constexpr (kParts == 2) {
      const float up =
          finished<Sum>(reduction.template sum<Sum>(turn, 1, m, column), up_scale, up_bias);
      around.gated[m * around.gated_stride + n] =
          narrow<Bf16>(gate_function(value, around.gelu) * up);
    } else {
      out[n] = around.add ? residual + value : value;
    }
  }
};

}  // namespace sluice::cuda
