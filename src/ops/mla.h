// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1; transformers
// modeling_deepseek_v3 DeepseekV3Attention), in absorbed form.
//
// A token has one row in the KV pool, shared by all heads: its normed latent c [L], then its
// rotated rope key [r].
#pragma once

#include "kernels/types/op_params.h"
#include "tensor/context.h"

namespace sluice::ops {

// Row slots[t] of the plane := [latent[t] | rope[t]]. Conversion as in ops/kv.h; a plane of 8 bits
// (kernels/types/latent_rows.h) has x / s rounded to nearest even, with s the smallest power of two
// that brings a group to at most 448 (e4m3) or 127 (int8).
void write_latents(Context& ctx, const Tensor& latent,  // [T, L] f32, strided rows
                   const Tensor& rope,                  // [T, r] f32, strided rows
                   const Tensor& slots,                 // [T] int64, distinct, each in [0, S)
                   const Tensor& latent_plane);         // [S, L + r] f32 or bf16, strided rows; or
                                                 // [S, LatentRow::bytes()] e4m3, on a CPU int8

// out[i] = row slots[i], widened exactly.
void gather_latents(Context& ctx, const Tensor& latent_plane,  // as of write_latents
                    const Tensor& slots,                       // [R] int32, each in [0, S)
                    std::int64_t latent,                       // L
                    const Tensor& out);                        // [R, L + r] f32, strided rows

// Absorbed attention over all keys up to the row's own: s = scale * (q_latent . c + q_rope .
// k_rope), out = sum p c. Chunks and their merge are those of ops/attention.h.
void mla_attention(Context& ctx, const Tensor& q_latent,  // [T, h, L] f32, strided; stride 1 over L
                   const Tensor& q_rope,                  // [T, h, r] f32, strided; stride 1 over r
                   const Tensor& latent_plane,            // as of write_latents, dense in 8 bits
                   const PagedRows& rows, float scale,
                   const Tensor& out);  // [T, h, L] f32, strided; stride 1 over L

// The same over selected keys. A list of all positions 0..p gives the bits of mla_attention. A row
// without any index gives zeros. Reads only rows.page_table and rows.row_seq.
void mla_sparse_attention(
    Context& ctx, const Tensor& q_latent,  // [T, h, L] f32
    const Tensor& q_rope,                  // [T, h, r] f32
    const Tensor& latent_plane,            // as of write_latents, dense in 8 bits
    const PagedRows& rows,
    const Tensor& indices,  // [T, topk] int32: positions, ascending, then -1 to the end
    float scale,
    const Tensor& out);  // [T, h, L] f32

// Ordinary attention over expanded keys, with one key head per query head. Row t sees keys [ks[t],
// ke[t]); chunks are counted from ks[t]. An empty range gives zeros and lse = -inf.
void mha_attention(Context& ctx, const Tensor& q,  // [T, h, dk] f32, strided; stride 1 over dk
                   const Tensor& k,                // [S, h, dk] f32, strided
                   const Tensor& v,                // [S, h, dv] f32, strided
                   const Tensor& ks,               // [T] int32
                   const Tensor& ke,               // [T] int32
                   float scale,
                   const Tensor& out,   // [T, h, dv] f32, strided
                   const Tensor& lse);  // [T, h] f32: natural log of the sum of exp(scores)

// Merges two partial attention results over disjoint keys (log-sum-exp merge). A side with lse =
// -inf is ignored; if both are -inf, out is zero and lse -inf. The outputs may be one of the
// inputs.
void merge_state(Context& ctx, const Tensor& out_a,  // [T, h, dv] f32
                 const Tensor& lse_a,                // [T, h] f32
                 const Tensor& out_b,                // [T, h, dv] f32
                 const Tensor& lse_b,                // [T, h] f32
                 const Tensor& out,                  // [T, h, dv] f32
                 const Tensor& lse);                 // [T, h] f32

}  // namespace sluice::ops
