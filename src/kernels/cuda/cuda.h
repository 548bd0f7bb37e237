// The CUDA column: one function for each operation of ops/, with the signature of the CPU function
// (kernels/cpu/cpu.h), which has the documentation. Defined in builds with CUDA only.
//
// Functions launch on ctx.stream and return at once. Callers have checked shapes, dtypes and
// device. An index out of range traps in the kernel: a sticky error, reported by the next
// synchronisation. Any GPU of compute capability 8.0 or newer. A launch that fails is
// Error{kFatal}.
#pragma once

#include <array>
#include <span>

#include "kernels/types/kv_plane.h"
#include "kernels/types/op_params.h"
#include "kernels/types/recurrent_params.h"
#include "kernels/types/sampling_rows.h"
#include "kernels/types/weight.h"
#include "tensor/context.h"

namespace sluice::cuda {

using ops::AttentionParams;
using ops::ExpertParams;
using ops::HeadRotation;
using ops::KvPlane;
using ops::MoeWorkspace;
using ops::PagedRows;
using ops::RouterParams;
using ops::RowNorm;
using ops::Weight;

#include "kernels/types/op_bodies.h"

// On a GPU planes lie in rows, or index keys in scaled pages; ops/ refuses other forms.
void kv_write(Context& ctx, const Tensor& src, const Tensor& slots, const KvPlane& plane);
void kv_move(Context& ctx, std::span<const KvPlane> planes, const Tensor& from_slots,
             const Tensor& to_slots);

void paged_attention(Context& ctx, const Tensor& q, const KvPlane& k_plane, const KvPlane& v_plane,
                     std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                     const Tensor& out);
void rotate_write_and_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                             const HeadRotation& rotation, const Tensor& slots,
                             const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                             const PagedRows& rows, const AttentionParams& params,
                             const Tensor& mixed, const Tensor& out);
void norm_linear(Context& ctx, const Tensor& x, const RowNorm& norm, const Tensor& w,
                 const Tensor& bias, const Tensor& normed, const Tensor& out);
void norm_gate_up(Context& ctx, const Tensor& x, const RowNorm& norm, const Tensor& w,
                  const Tensor& bias, Activation activation, const Tensor& normed,
                  const Tensor& both, const Tensor& out);
void norm_route(Context& ctx, const Tensor& x, const RowNorm& norm, const Tensor& router,
                const Tensor& router_bias, const Tensor& correction_bias,
                const RouterParams& params, const Tensor& normed, const Tensor& logits,
                const Tensor& rounded, const Tensor& weights, const Tensor& ids);
void experts_add(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2,
                 const Tensor& weights, const Tensor& ids, Activation activation,
                 const MoeWorkspace& workspace, const Tensor& experts_out, const Tensor& sum);
void linear_add(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias,
                const Tensor& experts_out, const Tensor& sum);

// Of FP8 weights (kernels/types/fp8.h). x: plain rows where reads_plain_rows() says so, else
// prepared ones.
bool reads_plain_rows(const Context& ctx, const Weight& w, std::int64_t rows);
void prepare_fp8(Context& ctx, const Tensor& x, const Weight& w, const Tensor& out);
void linear_fp8(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                const Tensor& out);
void linear_add_fp8(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                    const Tensor& branch, const Tensor& sum);
void norm_linear_fp8(Context& ctx, const Tensor& x, const RowNorm& norm, const Weight& w,
                     const Tensor& bias, const Tensor& normed, const Tensor& out);
void gate_up_fp8(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                 Activation activation, const Tensor& both, const Weight& next, const Tensor& out);
void norm_gate_up_fp8(Context& ctx, const Tensor& x, const RowNorm& norm, const Weight& w,
                      const Tensor& bias, Activation activation, const Tensor& normed,
                      const Tensor& both, const Weight& next, const Tensor& out);

// Of integer weights in fragments (kernels/types/int_fragments.h); x in bfloat16.
void linear_fragments(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                      const Tensor& out);
// Rows of the table as bfloat16 has them.
void embedding_fragments(Context& ctx, const Tensor& ids, const Weight& table, const Tensor& out);
void fused_experts_fragments(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                             const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                             const MoeWorkspace& workspace, const Tensor& out);
void experts_add_fragments(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                           const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                           const MoeWorkspace& workspace, const Tensor& branch, const Tensor& sum);
void linear_add_fragments(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                          const Tensor& branch, const Tensor& sum);
void norm_linear_fragments(Context& ctx, const Tensor& x, const RowNorm& norm, const Weight& w,
                           const Tensor& bias, const Tensor& normed, const Tensor& out);
void gate_up_fragments(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                       Activation activation, const Tensor& both, const Weight& next,
                       const Tensor& out);
void norm_gate_up_fragments(Context& ctx, const Tensor& x, const RowNorm& norm, const Weight& w,
                            const Tensor& bias, Activation activation, const Tensor& normed,
                            const Tensor& both, const Weight& next, const Tensor& out);

void index_topk(Context& ctx, const Tensor& q, const Tensor& weights, const Tensor& index_k_plane,
                const PagedRows& rows, const Tensor& workspace, const Tensor& out_indices);

}  // namespace sluice::cuda
