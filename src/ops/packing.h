// Repacking of weights while they are loaded.
//
//   WeightMatrix w = {layout, rows and columns};
//   w.data = <zeroed memory of [count, packed_bytes(ctx, w)] u8>;
//   pack_rows(ctx, part, w, 0, first_row);  // per part that is read; any order, any thread
//
// The packed copy is the only one: embedding() and linear() of a tied head read the same bytes.
#pragma once

#include "kernels/types/op_params.h"
#include "kernels/types/weight_matrix.h"
#include "tensor/context.h"

namespace sluice::ops {

// The layout in which ctx's device multiplies weights of `dtype` with inputs of dtype `input`.
// kRows if repacking gains nothing.
WeightLayout preferred_layout(const Context& ctx, DType dtype, DType input);

// Bytes of one matrix of w.rows x w.columns (and w.group) in w.layout, which is not kRows.
std::int64_t packed_bytes(const Context& ctx, const WeightMatrix& w);

// The bytes of rows [first, first + n) of matrix `index`, u8 [bytes]. They are contiguous if the
// rows are whole panels; otherwise the result is undefined().
Tensor packed_panels(const Context& ctx, const WeightMatrix& w, std::int64_t index,
                     std::int64_t first, std::int64_t n);

// Packs rows [first, first + n) of matrix `index` into w. Runs on the calling thread, without
// ctx.pool. Several threads may pack disjoint rows at once. Rows must not be packed twice.
void pack_rows(
    const Context& ctx,
    const Tensor& from,  // [n, w.columns] bf16, or f32 to be quantised, dense; or u8
                         // [n, bytes of a row]: GGUF blocks of a layout with groups of 32
    const WeightMatrix& w, std::int64_t index, std::int64_t first);

// Input form of rows of x for GEMM with w: kBf16Tiles takes bf16, a quantised layout takes bytes of
// its own. prepared_shape() returns {dtype, elements of a row}; prepare_rows() converts.
struct PreparedRows {
  DType dtype = DType::kF32;
  std::int64_t elements = 0;
};
PreparedRows prepared_shape(const Context& ctx, const WeightMatrix& w);
void prepare_rows(Context& ctx, const Tensor& x,  // [M, w.columns] f32, strided rows
                  const WeightMatrix& w,          // not kRows
                  const Tensor& out);  // [M, elements], dtype: see prepared_shape; strided rows

// First half of an MLP with repacked weights: linear(), act_and_mul() and prepare_rows() in one
// loop, with the same bits. out[t] = act(g) * u with g, u = the halves of x w^T + bias, in the
// input form of `next`. x and out do not overlap.
void gated_linear(
    Context& ctx, const Tensor& x,  // [M, elements]: input form of w
    const WeightMatrix& w,          // [2 I, K], not kRows; gate rows, then up rows
    const Tensor& bias,             // [2 I] f32, bf16 or f16, or undefined
    Activation activation,
    const Tensor& workspace,   // [M, 2 I] f32
    const WeightMatrix& next,  // [N, I], not kRows
    const Tensor& out);        // [M, elements], dtype: see prepared_shape of next; strided rows

}  // namespace sluice::ops
