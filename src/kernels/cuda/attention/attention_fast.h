// Attention over bfloat16 pages on tensor cores: what paged_attention() takes where
// attention_plan.h says so.
#pragma once

#include <cstdint>

#include "kernels/types/op_params.h"
#include "tensor/context.h"

namespace sluice::cuda {

struct PagedArgs {
  const float* q = nullptr;               // [tokens, heads, dim]
  std::int64_t q_token = 0, q_head = 0;   // strides, in elements
  const void *k = nullptr, *v = nullptr;  // bf16 [slots, kv_heads * dim]
  std::int64_t k_slot = 0, v_slot = 0;
  void* out = nullptr;  // [tokens, heads, dim] f32, or bf16
  bool out_is_half = false;
  std::int64_t out_token = 0, out_head = 0;
  const std::int32_t* page_table = nullptr;  // [num_seqs, max_pages]
  std::int64_t table_stride = 0, num_seqs = 0, max_pages = 0, num_slots = 0;
  const std::int32_t *row_seq = nullptr, *positions = nullptr;  // [tokens]
  std::int64_t tokens = 0, group = 1, dim = 0, window = 0;
  float scale_log2 = 1;  // scale times log2(e): exponentials are powers of two
};

// What happens to the heads of rows that are their sequences' newest before they attend
// (ops::rotate_write_and_attend): queries and keys are normalised and rotated, keys and values
// stored. Null pointers: nothing does.
struct NewHeads {
  const float *k = nullptr, *v = nullptr;  // [tokens, kv_heads * dim]
  std::int64_t k_token = 0, v_token = 0;
  const float *q_weight = nullptr, *k_weight = nullptr;  // [dim], or null: not normalised
  float eps = 0;
  const float* cos_sin = nullptr;  // [tokens, 2 half]
  std::int64_t cos_sin_stride = 0;
  int half = 0;
  bool interleaved = false;
  const std::int64_t* slots = nullptr;          // [tokens]
  void *k_plane = nullptr, *v_plane = nullptr;  // those of PagedArgs
};

// Every row by itself, or only those whose neighbours belong to other sequences. Dimensions 64, 96,
// 128 and 256. With new heads every row has a sequence of its own.
void attend_single_rows(Context& ctx, const PagedArgs& args, std::int64_t kv_heads,
                        bool single_rows_only, const NewHeads& heads = {});

// Runs of rows of one sequence; runs of one row are left out when `skip_single_rows`. Hopper;
// dimensions 64 and 128, groups of up to kMaxTiledGroup heads. With new heads the queries are
// normalised and rotated as they are fetched; of keys and values nothing is done then.
void attend_tiles(Context& ctx, const PagedArgs& args, std::int64_t kv_heads, bool skip_single_rows,
                  const NewHeads& heads = {});
// Whether it takes such heads: rotated whole, weights in float32, groups of a multiple of four.
bool tiles_rotate(const PagedArgs& args, const ops::HeadRotation& rotation);

// False when the plain kernel must do it; nothing was launched then. Arguments as in
// paged_attention(), but out may be bf16.
bool attend_fast(Context& ctx, const Tensor& q, const Tensor& k_plane, const Tensor& v_plane,
                 std::int64_t kv_heads, const ops::PagedRows& rows,
                 const ops::AttentionParams& params, const Tensor& out);

// The same for rows that each are the newest of a sequence of their own, with what happens to their
// heads before and the storing of keys and values; as ops::rotate_write_and_attend().
bool attend_new_rows(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                     const ops::HeadRotation& rotation, const Tensor& slots, const Tensor& k_plane,
                     const Tensor& v_plane, std::int64_t kv_heads, const ops::PagedRows& rows,
                     const ops::AttentionParams& params, const Tensor& out);

// The same for a step of one sequence's rows: keys and values in a launch before, queries as they
// are fetched.
bool attend_and_rotate(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                       const ops::HeadRotation& rotation, const Tensor& slots,
                       const Tensor& k_plane, const Tensor& v_plane, std::int64_t kv_heads,
                       const ops::PagedRows& rows, const ops::AttentionParams& params,
                       const Tensor& out);

// norm_and_rotate_heads() with the storing of keys and values in the same launch; their rows keep
// what they were, and so do those of q without `queries`. False, and nothing was done, for planes
// and heads that it does not know.
bool rotate_and_store_heads(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                            const ops::HeadRotation& rotation, const Tensor& slots,
                            const Tensor& k_plane, const Tensor& v_plane, std::int64_t kv_heads,
                            bool queries = true);

}  // namespace sluice::cuda
