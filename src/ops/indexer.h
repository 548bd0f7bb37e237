// The lightning indexer of sparse attention (DSA): DeepSeek-V3.2 technical report, section 2.1.
#pragma once

#include "kernels/types/kv_plane.h"
#include "tensor/context.h"

namespace sluice::ops {

// x := x H * n^-0.5 over the last dimension, H the Sylvester matrix H_2n = [[H, H], [H, -H]]. In
// place.
void hadamard(Context& ctx,
              const Tensor& x);  // [T, n] or [T, heads, n] f32; n a power of two, at most 4096

// Workspace that index_topk wants for keys at positions below max_len: f32 of the shape [rows,
// max_len]. That many rows are scored at a time: on a CPU as many as share keys in its caches, on a
// GPU 256 MiB of scores.
struct IndexWorkspaceShape {
  std::int64_t rows = 0;
  std::int64_t max_len = 0;
};
IndexWorkspaceShape index_topk_workspace(const Context& ctx, std::int64_t tokens,
                                         std::int64_t max_len);

// The positions that row t attends to. score(t, s) = sum_i weights[t, i] * relu(q[t, i] . k_s) for
// s <= positions[t]; the min(topk, position + 1) largest are chosen exactly, a tie goes to the
// lower position, and they come out ascending, then -1. When position + 1 <= topk all are chosen
// and nothing is scored. Weights may be negative; a NaN score counts as -inf.
void index_topk(
    Context& ctx, const Tensor& q,  // [T, n_idx, d] f32, strided; stride 1 over d
    const Tensor& weights,          // [T, n_idx] f32, strided rows; constant factors included
    const KvPlane& index_k_plane,   // [S, d] f32 or bf16, or panels of one head, or scaled pages
    const PagedRows& rows,
    const Tensor& workspace,  // [rows >= 1, max_len > every position] f32, see index_topk_workspace
    const Tensor& out_indices);  // [T, topk] int32

}  // namespace sluice::ops
