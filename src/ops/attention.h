// Softmax attention over the pages of the KV pool, float32 arithmetic.
//
// Keys are read back from the pool in chunks of 256 counted from position 0; each chunk gives its
// maximum, its sum and its partial output, and the partial results are merged in ascending order. A
// row's bits therefore depend on nothing but its query and its keys: not on the other rows, page
// numbers, threads, or on which step wrote the keys.
#pragma once

#include "kernels/types/kv_plane.h"
#include "tensor/context.h"

namespace sluice::ops {

// Causal attention; query head j reads kv head j / (h / kv). Rows of one sequence that stand
// together share the work of reading keys. Sources: transformers
// `sliding_window_causal_mask_function`, `chunked_causal_mask_function` (masking_utils.py); sinks:
// GptOssAttention, eager_attention_forward; soft caps: Gemma2Attention; ALiBi: arXiv 2108.12409,
// BloomAttention.
void paged_attention(
    Context& ctx, const Tensor& q,  // [T, h, d] f32, strided; stride 1 over d
    const KvPlane& k_plane,         // [S, kv * d] f32 or bf16, or int8 with scales (ops/kv.h)
    const KvPlane& v_plane,  // [S, kv * dv] likewise, k_plane's dtype; both panels or both rows
    std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
    const Tensor& out);  // [T, h, dv] f32, strided; stride 1 over dv

// kv_write of k and v, then paged_attention over what the planes hold then: the same bits. Rows of
// one sequence stand together. On a CPU in one pass over the heads where every sequence has one
// row.
void write_and_attend(Context& ctx, const Tensor& q,  // [T, h, d] f32, strided; stride 1 over d
                      const Tensor& k,                // [T, kv * d] f32, strided rows
                      const Tensor& v,                // [T, kv * dv] f32, strided rows
                      const Tensor& slots,            // [T] int64, each in [0, S)
                      const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                      const PagedRows& rows, const AttentionParams& params, const Tensor& out);

// The check of write_and_attend's arguments, for operations that contain it.
void expect_write_and_attend(const Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                             const Tensor& slots, const KvPlane& k_plane, const KvPlane& v_plane,
                             std::int64_t kv_heads, const PagedRows& rows,
                             const AttentionParams& params, const Tensor& out);

}  // namespace sluice::ops
