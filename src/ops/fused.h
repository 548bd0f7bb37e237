// Fused operations of a layer. The row of the weight (ops/weight_table.h) says what its device
// fuses; everything else runs as the separate operations, with their bits. What lies in between is
// taken from ctx.arena and given back.
#pragma once

#include "kernels/types/kv_plane.h"
#include "ops/weight_table.h"

namespace sluice::ops {

// The residual stream of some rows. A branch is added by the GEMM that makes it where that is one
// operation, else by the next norm: one pass over the stream instead of two.
struct Residual {
  Tensor hidden;         // [M, K] f32
  Tensor branch;         // [M, K] f32: the last branch, or memory for what lies in between
  bool pending = false;  // the branch is still to be added to `hidden`
  // The caller changes a branch before it is added, so no GEMM adds it.
  bool keeps_branch = false;
  // Not empty, with keeps_branch: a sum over the ranks may leave out the rows beyond parts[rank].
  std::span<const RowPart> parts = {};
};
// Adds a branch that is pending.
void add_branch(Context& ctx, Residual& stream);

// Rows of x; or the RMSNorm of a residual stream, which an operation may do itself. A pending
// branch is added to the stream first.
struct NormedRows {
  Tensor rows;  // [M, K] f32 or bf16; undefined: of the stream
  Residual* stream = nullptr;
  RowNorm norm = {};  // weight [K]

  NormedRows(const Tensor& given) : rows(given) {}  // NOLINT: rows are rows
  NormedRows(Residual& residual, const RowNorm& by) : stream(&residual), norm(by) {}
  std::int64_t count() const { return stream == nullptr ? rows.dim(0) : stream->hidden.dim(0); }
};
// The rows in `dtype`: those that were given, or memory of ctx.arena that lives as long as the
// caller's scope.
Tensor rows_of(Context& ctx, const NormedRows& x, DType dtype);

// out = linear(x, w) + bias, x in w.input.
void norm_linear(Context& ctx, const NormedRows& x, const Weight& w, const Tensor& bias,
                 const Tensor& out);  // [M, N] f32

// sum += linear(x, w) + bias, summed over the ranks where `reduce` is set. No branch may be
// pending.
void linear_add(Context& ctx, const Tensor& x,  // [M, elements], see prepared_shape
                const Weight& w,                // [N, K]
                const Tensor& bias,             // [N], or undefined
                bool reduce, Residual& sum);

// The first half of an MLP: out = act(gate) * up, where gate and up are the halves of
// linear(x, w) + bias. On a GPU gate and up of many rows may be rounded to bfloat16 where out is.
void norm_gate_up(Context& ctx, const NormedRows& x,  // in w.input, or in prepared_shape
                  const Weight& w,                    // [2 I, K]: gate rows, up rows
                  const Tensor& bias,                 // [2 I], or undefined
                  Activation activation,
                  const Weight& next,  // [N, I], which reads `out`
                  const Tensor& out);  // [M, elements]: prepared_shape of next

// weights and ids are route() of linear(x, router) + router_bias, x in f32.
void norm_route(Context& ctx, const NormedRows& x,
                const Weight& router,                                       // [E, K]
                const Tensor& router_bias,                                  // [E], or undefined
                const Tensor& correction_bias, const RouterParams& params,  // as of route()
                const Weight& next,     // [.., K], which reads `rows`
                const Tensor& rows,     // x in prepared_shape of next: [M, elements]
                const Tensor& weights,  // [M, top_k] f32
                const Tensor& ids);     // [M, top_k] int32

// sum += fused_experts(x), summed over the ranks where `reduce` is set. No branch may be pending.
void experts_add(Context& ctx, const Tensor& x,             // as of fused_experts()
                 const Weight& w13,                         // [E, 2 I, K]
                 const Weight& w2,                          // [E, K, I]
                 const Tensor& weights, const Tensor& ids,  // [M, top_k]
                 const ExpertParams& params, bool reduce, Residual& sum);

// The same with a row of the caller's instead of the weight's own.
void norm_linear(const WeightOps& row, Context& ctx, const NormedRows& x, const Weight& w,
                 const Tensor& bias, const Tensor& out);
void linear_add(const WeightOps& row, Context& ctx, const Tensor& x, const Weight& w,
                const Tensor& bias, bool reduce, Residual& sum);
void norm_gate_up(const WeightOps& row, Context& ctx, const NormedRows& x, const Weight& w,
                  const Tensor& bias, Activation activation, const Weight& next, const Tensor& out);

// Four steps: norm_and_rotate_heads() if `rotation` is defined, kv_write, attention into `mixed`
// (write_and_attend()), and rounding of `mixed` to `out` unless both are the same tensor.
// Overwrites q and k. A GPU takes one launch if every row has a row of the page table of its own.
// Then no row may read what another one writes, but for the rows of its run (rows.runs).
void rotate_write_and_attend(Context& ctx, const Tensor& q,  // [T, h, d] f32
                             const Tensor& k,                // [T, kv * d] f32, strided rows
                             const Tensor& v,                // [T, kv * dv] f32, strided rows
                             const HeadRotation& rotation,
                             const Tensor& slots,  // [T] int64
                             const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                             const PagedRows& rows, const AttentionParams& params,
                             const Tensor& mixed,  // [T, h, dv] f32: overwritten
                             const Tensor& out);   // [T, h, dv] f32 or bf16

// The same where a row may read keys that any other row writes although each has a row of the page
// table of its own (rows of draft trees): all keys and values are written before a row attends.
// Where `from_slots` [moves] int64 is defined, kv_move() to `to_slots` comes between them.
void rotate_write_then_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                              const HeadRotation& rotation, const Tensor& slots,
                              const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                              const PagedRows& rows, const AttentionParams& params,
                              const Tensor& mixed, const Tensor& out, const Tensor& from_slots = {},
                              const Tensor& to_slots = {});

}  // namespace sluice::ops
