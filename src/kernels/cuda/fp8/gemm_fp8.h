// GEMMs with weights and rows of 8 bits inside kernels/cuda: FP8 (kernels/types/fp8.h), or int8
// (kernels/types/int8_rows.h), which has the same forms of rows and scales.
#pragma once

#include "kernels/cuda/fp8/fp8_plan.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/types/weight.h"

namespace sluice::cuda {

// Weights of a GEMM: GemmArgs::w is their numbers.
struct Fp8Scales {
  const float* of = nullptr;
  std::int64_t stride = 0;  // between groups
  bool in_groups = false;   // else a scale for each row
  bool int8 = false;        // codes of weights and of rows; else e4m3
};
// Rows of x as codes and their scales: [m, fp8_row_bytes].
struct Fp8Rows {
  unsigned char* codes = nullptr;
  std::int64_t stride = 0;  // bytes from row to row
  std::int64_t columns = 0;

  __host__ __device__ float* scales(std::int64_t m) const {
    return reinterpret_cast<float*>(codes + m * stride + columns);
  }
};

inline constexpr int kMaxFp8Groups = 1024;  // of a row: 131,072 columns

// Rounds rows of x, float32 or bfloat16; with a norm weight it normalises float32 first.
struct Fp8Norm {
  const float* weight = nullptr;
  float eps = 0;
};
// `w` is the weight that reads them.
void fp8_rows(Context& ctx, const Tensor& x, const Fp8Norm& norm, const ops::Weight& w,
              const Fp8Rows& out);
// The same of act(gate) * up, where a row of gate_up, float32 or bfloat16, is gate and then up.
void fp8_rows_gated(Context& ctx, const Tensor& gate_up, bool gelu, const ops::Weight& w,
                    const Fp8Rows& out);

// Few rows of FP8, x in float32 or bfloat16 (fp8_plan.h); fused operations as gemm_skinny() has
// them.
void gemm_fp8_skinny(Context& ctx, const GemmArgs& args, const Fp8Scales& scales,
                     const RowsAround& around, const Fp8SkinnyPlan& plan);
// Any number of prepared rows on Hopper; args.x is fp8_rows. `add` and a bfloat16 `out` as options
// of GemmArgs; the bias is not added.
void gemm_fp8_tiles(Context& ctx, const GemmArgs& args, const Fp8Scales& scales);
// The same of few rows, by the plan of plan_fp8_tiles().
void gemm_fp8_thin(Context& ctx, const GemmArgs& args, const Fp8Scales& scales,
                   const Fp8TilePlan& plan);

}  // namespace sluice::cuda
