// The CPU's bodies of the operations: those of every device (kernels/types/op_bodies.h), those that
// know planes of other forms than rows, and those of weights in tiles (ops/weight_table.h).
#pragma once

#include <array>
#include <span>

#include "kernels/types/kv_plane.h"
#include "kernels/types/op_params.h"
#include "kernels/types/recurrent_params.h"
#include "kernels/types/sampling_rows.h"
#include "kernels/types/weight.h"
#include "tensor/context.h"

namespace sluice::cpu {

using ops::AttentionParams;
using ops::ExpertParams;
using ops::HeadRotation;
using ops::KvPlane;
using ops::MoeWorkspace;
using ops::PagedRows;
using ops::RouterParams;
using ops::Weight;

#include "kernels/types/op_bodies.h"

// Of weights in tiles; x and workspace.hidden as the layouts read them.
void embedding_tiles(Context& ctx, const Tensor& ids, const Weight& table, const Tensor& out);
void linear_tiles(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                  const Tensor& out);
void prepare_rows(Context& ctx, const Tensor& x, const Weight& w, const Tensor& out);
void gated_linear(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                  Activation activation, const Tensor& workspace, const Weight& next,
                  const Tensor& out);
void fused_experts_tiles(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                         const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                         const MoeWorkspace& workspace, const Tensor& out);

// Of FP8 weights in rows; x [M, K] f32 or bf16.
void linear_fp8(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                const Tensor& out);

// Of int8 weights in rows, with rows of x as int8 (kernels/types/int8_rows.h); x [M, K] bf16.
void linear_int8(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                 const Tensor& out);

// Of weights in fragments; x [M, K] f32 or bf16.
void linear_fragments(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                      const Tensor& out);
// Rows of the table as bfloat16 has them; integers and super-blocks.
void embedding_fragments(Context& ctx, const Tensor& ids, const Weight& table, const Tensor& out);
void fused_experts_fragments(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                             const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                             const MoeWorkspace& workspace, const Tensor& out);

void kv_write(Context& ctx, const Tensor& src, const Tensor& slots, const KvPlane& plane);
void kv_move(Context& ctx, std::span<const KvPlane> planes, const Tensor& from_slots,
             const Tensor& to_slots);

void paged_attention(Context& ctx, const Tensor& q, const KvPlane& k_plane, const KvPlane& v_plane,
                     std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                     const Tensor& out);
void write_and_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                      const Tensor& slots, const KvPlane& k_plane, const KvPlane& v_plane,
                      std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                      const Tensor& out);

void rotate_write_and_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                             const HeadRotation& rotation, const Tensor& slots,
                             const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                             const PagedRows& rows, const AttentionParams& params,
                             const Tensor& mixed, const Tensor& out);

void index_topk(Context& ctx, const Tensor& q, const Tensor& weights, const KvPlane& index_k_plane,
                const PagedRows& rows, const Tensor& workspace, const Tensor& out_indices);

}  // namespace sluice::cpu
