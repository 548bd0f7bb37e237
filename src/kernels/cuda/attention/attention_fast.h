// Attention over pages of bfloat16 and e4m3 on tensor cores, for the shapes that attention_plan.h
// allows.
#pragma once

#include <cstdint>

#include "kernels/types/kv_plane.h"
#include "kernels/types/op_params.h"
#include "tensor/context.h"

namespace sluice::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

struct PagedArgs {
  const float* q = nullptr;               // [tokens, heads, dim]
  std::int64_t q_token = 0, q_head = 0;   // strides, in elements
  const void *k = nullptr, *v = nullptr;  // bf16 or e4m3 [slots, kv_heads * dim]
  bool is_fp8 = false;
  const float *k_scales = nullptr, *v_scales = nullptr;  // of e4m3: [kv_heads], or null: 1
  std::int64_t k_slot = 0, v_slot = 0;
  void* out = nullptr;  // [tokens, heads, dim] f32, or bf16
  bool out_is_half = false;
  std::int64_t out_token = 0, out_head = 0;
  const std::int32_t* page_table = nullptr;  // [num_seqs, max_pages]
  std::int64_t table_stride = 0, num_seqs = 0, max_pages = 0, num_slots = 0;
  const std::int32_t *row_seq = nullptr, *positions = nullptr;  // [tokens]
  std::int64_t tokens = 0, group = 1, dim = 0, window = 0;
  float scale_log2 = 1;          // scale times log2(e): exponentials are powers of two
  const float* sinks = nullptr;  // [heads], or null: ops::AttentionParams::sinks
};

// Maximum rows of a run whose keys each row prepares by itself (ops::RowRuns).
inline constexpr int kMaxNewRows = 8;

// New heads of rows that are the newest of their sequences (ops::rotate_write_and_attend): norm and
// RoPE of queries and keys, and the KV write, before attention. Null pointers: none of it.
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
  // [tokens]: rows of its run before a row, fewer than kMaxNewRows; null: every row is alone
  const std::int32_t* places = nullptr;
};

// Decode: every row by itself, or only rows whose neighbours belong to other sequences. Head sizes
// 64, 96, 128 and 256. With new heads every row has a row of the page table of its own.
void attend_single_rows(Context& ctx, const PagedArgs& args, std::int64_t kv_heads,
                        bool single_rows_only, const NewHeads& heads = {});

// Prefill over bfloat16, which may be widened e4m3 with scales: runs of rows of one sequence.
// `skip_single_rows` leaves out runs of one row. Hopper; head sizes 64 and 128, GQA groups of up to
// kMaxTiledGroup heads. With new heads, queries get norm and RoPE on the way to shared memory;
// another launch must have written keys and values.
void attend_tiles(Context& ctx, const PagedArgs& args, std::int64_t kv_heads, bool skip_single_rows,
                  const NewHeads& heads = {});
// Whether attend_tiles() takes new heads: rotated whole, float32 weights, GQA groups of a multiple
// of four.
bool tiles_rotate(const PagedArgs& args, const ops::HeadRotation& rotation);

// False if the portable kernel must run; then nothing was launched. Arguments as in
// paged_attention(), but out may be bf16.
bool attend_fast(Context& ctx, const Tensor& q, const ops::KvPlane& k_plane,
                 const ops::KvPlane& v_plane, std::int64_t kv_heads, const ops::PagedRows& rows,
                 const ops::AttentionParams& params, const Tensor& out);

// The same for those rows alone whose neighbours belong to other sequences: the decode rows of a
// step that also prefills. False: the decode kernel does not take them.
bool attend_lone_rows(Context& ctx, const Tensor& q, const ops::KvPlane& k_plane,
                      const ops::KvPlane& v_plane, std::int64_t kv_heads,
                      const ops::PagedRows& rows, const ops::AttentionParams& params,
                      const Tensor& out);

// The same for decode rows, fused with norm, RoPE and the KV write of new heads; as
// ops::rotate_write_and_attend(). It takes runs of up to kMaxNewRows.
bool attend_new_rows(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                     const ops::HeadRotation& rotation, const Tensor& slots,
                     const ops::KvPlane& k_plane, const ops::KvPlane& v_plane,
                     std::int64_t kv_heads, const ops::PagedRows& rows,
                     const ops::AttentionParams& params, const Tensor& out);

// The same for the rows of one sequence, in two launches: keys and values first, then attention,
// which prepares the queries as it loads them.
bool attend_and_rotate(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                       const ops::HeadRotation& rotation, const Tensor& slots,
                       const ops::KvPlane& k_plane, const ops::KvPlane& v_plane,
                       std::int64_t kv_heads, const ops::PagedRows& rows,
                       const ops::AttentionParams& params, const Tensor& out);

// norm_and_rotate_heads() fused with the KV write. The rows of k and v keep their values, and
// without `queries` those of q do too. False for planes and heads that the kernel does not know;
// then nothing was launched.
bool rotate_and_store_heads(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                            const ops::HeadRotation& rotation, const Tensor& slots,
                            const ops::KvPlane& k_plane, const ops::KvPlane& v_plane,
                            std::int64_t kv_heads, bool queries = true);

}  // namespace sluice::cuda
