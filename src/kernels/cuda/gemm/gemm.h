// Products inside kernels/cuda: batches of out = x w^T + bias with strided rows.
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
  // What cuBLASLt alone can do: out += instead of out =, and an `out` of bfloat16 instead.
  bool add = false;
  DType out_type = DType::kF32;
};

// What a product of few rows takes in of what stands around it.
struct RowsAround {
  // [k]: x is float32 [m, k] and is normalised with this weight first (ops::rms_norm)
  const float* norm = nullptr;
  float eps = 0;
  bool add = false;  // out += the product instead of out =
  // Not null: w has gates in its first n rows and ups in the next, and act(gate) * up goes here
  // instead of to out.
  __nv_bfloat16* gated = nullptr;  // [m, n]
  std::int64_t gated_stride = 0;
  bool gelu = false;
};
// Rows that norms and gates are joined for.
inline constexpr std::int64_t kMaxStreamedRows = 8;
// Whether gemm_skinny() can do this: a norm and gates take shared memory, of which some GPUs have
// less.
bool can_fuse_in_skinny(const Context& ctx, const GemmArgs& args, const RowsAround& around);
SkinnyPlan skinny_plan(const Context& ctx, const GemmArgs& args,
                       const RowsAround& around);  // of what it can do

// The product by cuBLASLt, where that is what choose_gemm() takes and it can; else false, and
// nothing was done. `args` may add, and have an out of bfloat16 when there is no bias.
bool multiply_by_library(Context& ctx, const GemmArgs& args);

void gemm_by_rows(Context& ctx, const GemmArgs& args);
// Up to 16 rows, bfloat16 by bfloat16, rows on 16 bytes, k a multiple of 8; adds the bias. With a
// norm or gates up to kMaxStreamedRows, a batch of one.
void gemm_skinny(Context& ctx, const GemmArgs& args, const RowsAround& around = {});
void gemm_tiled(Context& ctx, const GemmArgs& args);
// The gates of `around` for many rows, where fuses_swiglu() (swiglu_plan.h) says so. False when the
// part of the GPU that is there has no room for clusters of such blocks; nothing was launched then.
bool gemm_swiglu(Context& ctx, const GemmArgs& args, const RowsAround& around);
// bfloat16 by bfloat16 on Hopper, rows on 16 bytes, a batch of one; leaves the bias out. An
// output's bits depend on its row of x, its row of w and k alone.
void gemm_batch_invariant(Context& ctx, const GemmArgs& args);
// out += bias, for kernels that have no place for it.
void add_bias(Context& ctx, const GemmArgs& args);

}  // namespace sluice::cuda
