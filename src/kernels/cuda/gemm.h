// Products inside kernels/cuda: batches of out = x w^T + bias with strided rows.
#pragma once

#include <cstdint>

#include "tensor/context.h"

namespace sluice::cuda {

struct GemmArgs {
  const void* x = nullptr;      // [batch][m, k]
  const void* w = nullptr;      // [batch][n, k]
  const void* bias = nullptr;   // [n], or null
  float* out = nullptr;         // [batch][m, n]
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  std::int64_t x_stride = 0, w_stride = 0, out_stride = 0;      // elements from row to row
  std::int64_t x_batch = 0, w_batch = 0, out_batch = 0;         // elements from batch to batch
  DType x_type = DType::kF32, w_type = DType::kF32, bias_type = DType::kF32;
};

void gemm_by_rows(Context& ctx, const GemmArgs& args);
// Up to 16 rows, bfloat16 by bfloat16, rows on 16 bytes, k a multiple of 8; adds the bias.
void gemm_skinny(Context& ctx, const GemmArgs& args);
void gemm_tiled(Context& ctx, const GemmArgs& args);
// out += bias, for kernels that have no place for it.
void add_bias(Context& ctx, const GemmArgs& args);

}  // namespace sluice::cuda
