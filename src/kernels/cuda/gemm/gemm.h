// GEMMs inside kernels/cuda: batches of out = x w^T + bias with strided rows.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/gemm/gemm_plan.h"
#include "tensor/context.h"

namespace sluice::cuda {

struct GemmArgs {
  const void* x = nullptr;     // [batch][m, k]
  const void* w = nullptr;     // [batch][n, k]
  const void* bias = nullptr;  // [n], or null
  float* out = nullptr;        // [batch][m, n]
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  std::int64_t x_stride = 0, w_stride = 0, out_stride = 0;  // elements from row to row
  std::int64_t x_batch = 0, w_batch = 0, out_batch = 0;     // elements from batch to batch
  DType x_type = DType::kF32, w_type = DType::kF32, bias_type = DType::kF32;
  // Options of cuBLASLt only: out += instead of out =, and a bfloat16 `out` instead of float32.
  bool add = false;
  DType out_type = DType::kF32;
};

// Operations fused into a GEMM of few rows.
struct RowsAround {
  // [k]: x is float32 [m, k] and is normalised with this weight first (ops::rms_norm)
  const float* norm = nullptr;
  float eps = 0;
  bool add = false;  // out += instead of out =, for the residual
  // Not null: w has n gate rows, then n up rows, and act(gate) * up goes here instead of to out.
  __nv_bfloat16* gated = nullptr;  // [m, n]
  std::int64_t gated_stride = 0;
  bool gelu = false;
};
// Maximum rows of x with a fused norm or SwiGLU.
inline constexpr std::int64_t kMaxStreamedRows = 8;
// Whether gemm_skinny() can fuse the operations: a norm and SwiGLU take shared memory, and some
// GPUs have less of it.
bool can_fuse_in_skinny(const Context& ctx, const GemmArgs& args, const RowsAround& around);
SkinnyPlan skinny_plan(const Context& ctx, const GemmArgs& args,
                       const RowsAround& around);  // if can_fuse_in_skinny()

// The GEMM by cuBLASLt. False if choose_gemm() has another kernel or cuBLASLt refuses the shape;
// then nothing was launched. `args` may add, and may have a bfloat16 `out` without a bias.
bool multiply_by_library(Context& ctx, const GemmArgs& args);

void gemm_by_rows(Context& ctx, const GemmArgs& args);
// Hopper, rows of x and w on 16 bytes; the bias is not added.
void gemm_split(Context& ctx, const GemmArgs& args);
// Up to 16 rows, bfloat16 by bfloat16, rows on 16 bytes, k a multiple of 8; adds the bias. With a
// fused norm or SwiGLU: up to kMaxStreamedRows rows, a batch of one.
void gemm_skinny(Context& ctx, const GemmArgs& args, const RowsAround& around = {});
void gemm_tiled(Context& ctx, const GemmArgs& args);
// SwiGLU of `around` for many rows, if fuses_swiglu() (swiglu_plan.h). False if this part of a GPU
// (MIG) cannot run clusters of such CTAs; then nothing was launched.
bool gemm_swiglu(Context& ctx, const GemmArgs& args, const RowsAround& around);
// bfloat16 by bfloat16 on Hopper, rows on 16 bytes, a batch of one, without the bias. The bits of
// an output depend on its row of x, its row of w and k alone.
void gemm_batch_invariant(Context& ctx, const GemmArgs& args);
// out += bias, for kernels that do not fuse the bias.
void add_bias(Context& ctx, const GemmArgs& args);

}  // namespace sluice::cuda
