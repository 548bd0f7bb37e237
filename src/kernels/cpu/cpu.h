// The CPU column of the op table: one function per operation of ops/. The signature is that of
// ops/, where it is documented. Callers have checked shapes, dtypes and device. The functions here
// check the values in index tensors.
#pragma once

#include <span>

#include "kernels/types/kv_plane.h"
#include "kernels/types/op_params.h"
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

void rms_norm(Context& ctx, const Tensor& x, const Tensor& weight, float eps, const Tensor& out);
void add_rms_norm(Context& ctx, const Tensor& x, const Tensor& residual, const Tensor& weight,
                  float eps, const Tensor& out);
void layer_norm(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                const Tensor& out);

void rope_cos_sin(Context& ctx, const Tensor& positions, const Tensor& inv_freq,
                  float attention_factor, const Tensor& cos_sin);
void rope(Context& ctx, const Tensor& cos_sin, const Tensor& x, bool interleaved);

void act_and_mul(Context& ctx, Activation activation, const Tensor& gate_up, const Tensor& out);
void activate(Context& ctx, Activation activation, const Tensor& x, const Tensor& out);
void xielu(Context& ctx, const Tensor& x, const Tensor& params, const Tensor& out);
void sigmoid_mul(Context& ctx, const Tensor& x, const Tensor& gate, const Tensor& out);

void add(Context& ctx, const Tensor& a, const Tensor& b, const Tensor& out);
void scale(Context& ctx, const Tensor& x, float factor, const Tensor& out);
void clamp(Context& ctx, const Tensor& x, float limit, const Tensor& out);
void softcap(Context& ctx, const Tensor& x, float cap, const Tensor& out);
void scale_queries(Context& ctx, const Tensor& positions, float beta, std::int64_t length,
                   std::int64_t offset, const Tensor& q);
void convert(Context& ctx, const Tensor& x, const Tensor& out);
void gather_rows(Context& ctx, const Tensor& x, const Tensor& rows, const Tensor& out);
void embedding(Context& ctx, const Tensor& ids, const Tensor& table, const Tensor& out);
void embedding_tiles(Context& ctx, const Tensor& ids, const Weight& table, const Tensor& out);

void linear(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& out);
// The same with repacked weights; x as the layout reads it.
void linear_tiles(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                  const Tensor& out);
void prepare_rows(Context& ctx, const Tensor& x, const Weight& w, const Tensor& out);
void gated_linear(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                  Activation activation, const Tensor& workspace, const Weight& next,
                  const Tensor& out);
void linear_heads(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& out);

void kv_write(Context& ctx, const Tensor& src, const Tensor& slots, const KvPlane& plane);
void kv_gather(Context& ctx, const Tensor& plane, const Tensor& slots, const Tensor& out);
void kv_move(Context& ctx, std::span<const KvPlane> planes, const Tensor& from_slots,
             const Tensor& to_slots);

void paged_attention(Context& ctx, const Tensor& q, const KvPlane& k_plane, const KvPlane& v_plane,
                     std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                     const Tensor& out);
void write_and_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                      const Tensor& slots, const KvPlane& k_plane, const KvPlane& v_plane,
                      std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                      const Tensor& out);
void mla_attention(Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                   const Tensor& latent_plane, const PagedRows& rows, float scale,
                   const Tensor& out);
void mla_sparse_attention(Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                          const Tensor& latent_plane, const PagedRows& rows, const Tensor& indices,
                          float scale, const Tensor& out);
void mha_attention(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                   const Tensor& ks, const Tensor& ke, float scale, const Tensor& out,
                   const Tensor& lse);
void merge_state(Context& ctx, const Tensor& out_a, const Tensor& lse_a, const Tensor& out_b,
                 const Tensor& lse_b, const Tensor& out, const Tensor& lse);

void rotate_write_and_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                             const HeadRotation& rotation, const Tensor& slots,
                             const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                             const PagedRows& rows, const AttentionParams& params,
                             const Tensor& mixed, const Tensor& out);

void hadamard(Context& ctx, const Tensor& x);
void index_topk(Context& ctx, const Tensor& q, const Tensor& weights, const KvPlane& index_k_plane,
                const PagedRows& rows, const Tensor& workspace, const Tensor& out_indices);

void route(Context& ctx, const Tensor& logits, const Tensor& correction_bias,
           const RouterParams& params, const Tensor& weights, const Tensor& ids);
void fused_experts(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2,
                   const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                   const MoeWorkspace& workspace, const Tensor& out);
// The same with repacked weights; x and workspace.hidden as the layouts read them.
void fused_experts_tiles(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                         const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                         const MoeWorkspace& workspace, const Tensor& out);

void sample_tokens(Context& ctx, const Tensor& logits, const Tensor& sample_rows,
                   const Tensor& tokens);
void take_slot_tokens(Context& ctx, const Tensor& slot_tokens, const Tensor& ids);
void put_slot_tokens(Context& ctx, const Tensor& tokens, const Tensor& slots,
                     const Tensor& slot_tokens);

void norm_and_rotate_heads(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& q_weight,
                           const Tensor& k_weight, float eps, const Tensor& cos_sin,
                           bool interleaved);

}  // namespace sluice::cpu
