// Repacking weights while they are loaded.
//
//   WeightMatrix w = {layout, rows and columns};
//   w.data = <zeroed memory of [count, packed_bytes(ctx, w)] u8>;
//   pack_rows(ctx, part, w, 0, first_row);     // for each part of the matrix as it is read; any
//   order, any thread
//
// The packed copy is the only one: embedding() and linear() of a tied head read the same bytes.
#pragma once

#include "kernels/types/op_params.h"
#include "kernels/types/weight_matrix.h"
#include "tensor/context.h"

namespace sluice::ops {

// The layout in which ctx's device multiplies weights of `dtype` with inputs of `input`: kRows
// where nothing is gained.
WeightLayout preferred_layout(const Context& ctx, DType dtype, DType input);

// Bytes of one matrix of w.rows x w.columns (and w.group) in w.layout, which is not kRows.
std::int64_t packed_bytes(const Context& ctx, const WeightMatrix& w);

// The bytes of rows [first, first + n) of matrix `index`, u8 [bytes], which lie together where the
// rows are whole panels; undefined where they are not.
Tensor packed_panels(const Context& ctx, const WeightMatrix& w, std::int64_t index,
                     std::int64_t first, std::int64_t n);

// Puts rows [first, first + n) of matrix `index` into w. Runs on the calling thread, without
// ctx.pool; disjoint rows may be packed by several threads at once. The rows must not be packed
// twice.
void pack_rows(
    const Context& ctx,
    const Tensor& from,  // [n, w.columns] bf16, or f32 to be quantised, dense; or u8
                         // [n, bytes of a row]: GGUF blocks of a layout with groups of 32
    const WeightMatrix& w, std::int64_t index, std::int64_t first);

// Rows of x in the form in which products with w read them: kBf16Tiles rounds to bf16, a quantised
// layout makes bytes of its own. prepared_shape() says which: {dtype, elements of a row}.
struct PreparedRows {
  DType dtype = DType::kF32;
  std::int64_t elements = 0;
};
PreparedRows prepared_shape(const Context& ctx, const WeightMatrix& w);
void prepare_rows(Context& ctx, const Tensor& x,  // [M, w.columns] f32, strided rows
                  const WeightMatrix& w,          // not plain
                  const Tensor& out);  // [M, elements], dtype: see prepared_shape; strided rows

// The first half of an MLP with repacked weights: linear(), act_and_mul() and prepare_rows() in one
// loop, with their bits. out[t] = act(g) * u for g, u = the halves of x w^T + bias, as products
// with `next` read it. x and out do not overlap.
void gated_linear(
    Context& ctx, const Tensor& x,  // [M, elements] as products with w read it
    const WeightMatrix& w,          // [2 I, K], not plain; rows gate | up
    const Tensor& bias,             // [2 I] f32, bf16 or f16, or undefined
    Activation activation,
    const Tensor& workspace,   // [M, 2 I] f32
    const WeightMatrix& next,  // [N, I], not plain
    const Tensor& out);        // [M, elements], dtype: see prepared_shape of next; strided rows

}  // namespace sluice::ops
