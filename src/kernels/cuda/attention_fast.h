// Attention over bfloat16 pages on tensor cores: what paged_attention() takes where launch_plan.h says so.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"
#include "tensor/context.h"

namespace sluice::cuda {

struct PagedArgs {
  const float* q = nullptr;                            // [tokens, heads, dim]
  std::int64_t q_token = 0, q_head = 0;                // strides, in elements
  const void *k = nullptr, *v = nullptr;               // bf16 [slots, kv_heads * dim]
  std::int64_t k_slot = 0, v_slot = 0;
  float* out = nullptr;                                // [tokens, heads, dim]
  std::int64_t out_token = 0, out_head = 0;
  const std::int32_t* page_table = nullptr;            // [num_seqs, max_pages]
  std::int64_t table_stride = 0, num_seqs = 0, max_pages = 0, num_slots = 0;
  const std::int32_t *row_seq = nullptr, *positions = nullptr;   // [tokens]
  std::int64_t tokens = 0, group = 1, dim = 0, window = 0;
  float scale_log2 = 1;                                // scale times log2(e): exponentials are powers of two
};

// Every row by itself, or only those whose neighbours belong to other sequences. Dimensions 64, 96, 128 and 256.
void attend_single_rows(Context& ctx, const PagedArgs& args, std::int64_t kv_heads, bool single_rows_only);

// Runs of rows of one sequence; runs of one row are left out when `skip_single_rows`. Hopper; dimensions 64 and 128,
// groups of up to kMaxTiledGroup heads.
void attend_tiles(Context& ctx, const PagedArgs& args, std::int64_t kv_heads, bool skip_single_rows);

// False when the plain kernel must do it; nothing was launched then. Arguments as in paged_attention().
bool attend_fast(Context& ctx, const Tensor& q, const Tensor& k_plane, const Tensor& v_plane, std::int64_t kv_heads,
                 const ops::PagedRows& rows, float scale, std::int64_t window, const Tensor& out);

}  // namespace sluice::cuda
