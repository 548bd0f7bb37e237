// Softmax attention over the pages of the KV pool, in float32 arithmetic.
//
// Keys are processed in chunks of 256, counted from position 0. Each chunk gives a maximum, a sum
// and a partial output; the partial results are merged in ascending order. So a row's bits depend
// only on its query and its keys. They do not depend on other rows, page numbers, threads, or the
// step that wrote the keys.
#pragma once

#include "kernels/types/kv_plane.h"
#include "tensor/context.h"

namespace sluice::ops {

// Causal attention; query head j reads kv head j / (h / kv). Neighbouring rows of one sequence
// share the reads of their keys. Sources: transformers `sliding_window_causal_mask_function`,
// `chunked_causal_mask_function` (masking_utils.py); sinks: GptOssAttention,
// eager_attention_forward; soft caps: Gemma2Attention; ALiBi: arXiv 2108.12409, BloomAttention.
void paged_attention(
    Context& ctx, const Tensor& q,  // [T, h, d] f32, strided; stride 1 over d
    const KvPlane& k_plane,         // [S, kv * d] f32, bf16 or e4m3, or int8 with scales (ops/kv.h)
    const KvPlane& v_plane,         // [S, kv * dv], k_plane's dtype; both panels or both rows
    std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
    const Tensor& out);  // [T, h, dv] f32, strided; stride 1 over dv

// Bytes of PrefillRuns::memory with which a GPU attends fastest to pages of e4m3: it reads them as
// bfloat16. 0: it has no use for any. A dry run gets the most that a step of these tables takes,
// whatever its runs are.
std::int64_t prefill_bytes(const Context& ctx, const Tensor& q, const KvPlane& k_plane,
                           const KvPlane& v_plane, std::int64_t kv_heads, const PagedRows& rows,
                           const AttentionParams& params);

// kv_write of k and v, then paged_attention over the planes, with the same bits. Rows of one
// sequence are neighbours. If every sequence has one row, a CPU does both in one pass over the
// heads.
void write_and_attend(Context& ctx, const Tensor& q,  // [T, h, d] f32, strided; stride 1 over d
                      const Tensor& k,                // [T, kv * d] f32, strided rows
                      const Tensor& v,                // [T, kv * dv] f32, strided rows
                      const Tensor& slots,            // [T] int64, each in [0, S)
                      const KvPlane& k_plane, const KvPlane& v_plane, std::int64_t kv_heads,
                      const PagedRows& rows, const AttentionParams& params, const Tensor& out);

// Argument checks of write_and_attend, for ops that contain it.
void expect_write_and_attend(const Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                             const Tensor& slots, const KvPlane& k_plane, const KvPlane& v_plane,
                             std::int64_t kv_heads, const PagedRows& rows,
                             const AttentionParams& params, const Tensor& out);

}  // namespace sluice::ops
