// How a weight is laid out for a device, and packing it while it is loaded.
//
//   Weight w = weight_form(ctx, Format::kInt8, DType::kF32, 32);
//   w.rows = ..., w.columns = ...;
//   w.data = <zeroed memory of [count, packed_bytes(ctx, w)] u8>;
//   pack_rows(ctx, part, w, 0, first_row);  // per part that is read; any order, any thread
//
// The packed copy is the only one: embedding() and linear() of a tied head read the same bytes.
#pragma once

#include "ops/weight_table.h"

namespace sluice::ops {

// A weight of this format without memory, in the layout that ctx's device takes for a GEMM with
// rows of `input`. Error{kBadInput} with the reason when there is none.
Weight weight_form(const Context& ctx, Format format, DType input, std::int64_t group);

// Whether the device multiplies experts in fragments. Of GPUs Hopper does.
bool multiplies_experts_in_fragments(const Context& ctx);

// Bytes of one matrix of w.rows x w.columns (and w.group) in w.layout, which is not kRows.
std::int64_t packed_bytes(const Context& ctx, const Weight& w);

// The bytes of rows [first, first + n) of matrix `index`, u8 [bytes], which lie together where the
// rows are whole panels; undefined where they are not.
Tensor packed_panels(const Context& ctx, const Weight& w, std::int64_t index, std::int64_t first,
                     std::int64_t n);

// Packs rows [first, first + n) of matrix `index` into w. Runs on the calling thread, without
// ctx.pool. Several threads may pack disjoint rows at once. Rows must not be packed twice.
void pack_rows(
    const Context& ctx,
    const Tensor& from,  // [n, w.columns] bf16, or f32 to be quantised, dense; or u8
                         // [n, bytes of a row]: GGUF blocks of a layout with groups of 32
    const Weight& w, std::int64_t index, std::int64_t first);

// Rows of x in the form in which a GEMM of M rows with w reads them: {dtype, elements of a row}.
// Tiles of bfloat16 round, a quantised layout makes bytes of its own, rows are of w.input.
PreparedRows prepared_shape(const Context& ctx, const Weight& w, std::int64_t rows);
void prepare_rows(Context& ctx, const Tensor& x,  // [M, w.columns] f32, strided rows; FP8: or bf16
                  const Weight& w,                // with a form of its own
                  const Tensor& out);  // [M, elements], dtype: see prepared_shape; strided rows

// x [M, w.columns] f32 or bf16 in that form: x itself, or memory of ctx.arena that lives as long as
// the caller's scope. x may have the form already.
Tensor prepared(Context& ctx, const Tensor& x, const Weight& w);
// x [M, K] in `dtype`, likewise.
Tensor rounded_to(Context& ctx, const Tensor& x, DType dtype);

}  // namespace sluice::ops
