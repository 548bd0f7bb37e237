// The lightning indexer of sparse attention (DSA): DeepSeek-V3.2 technical report, section 2.1.
#pragma once

#include "kernels/types/kv_plane.h"
#include "tensor/context.h"

namespace sluice::ops {

// x := x H * n^-0.5 over the last dimension, in place. H is the Sylvester matrix H_2n = [[H, H],
// [H, -H]].
void hadamard(Context& ctx,
              const Tensor& x);  // [T, n] or [T, heads, n] f32; n a power of two, at most 4096

// Workspace of index_topk for positions below max_len: f32 [rows, max_len]. That many rows are
// scored at a time. CPU: as many as share keys in its caches. GPU: as many as fit 256 MiB of
// scores.
struct IndexWorkspaceShape {
  std::int64_t rows = 0;
  std::int64_t max_len = 0;
};
IndexWorkspaceShape index_topk_workspace(const Context& ctx, std::int64_t tokens,
                                         std::int64_t max_len);

// Positions that row t attends to. score(t, s) = sum_i weights[t, i] * relu(q[t, i] . k_s) for s <=
// positions[t]. The min(topk, position + 1) largest are selected exactly. A tie goes to the lower
// position. Positions are listed in ascending order, then -1. If position + 1 <= topk, all are
// selected and nothing is scored. Weights may be negative. A NaN score counts as -inf.
void index_topk(
    Context& ctx, const Tensor& q,  // [T, n_idx, d] f32, strided; stride 1 over d
    const Tensor& weights,          // [T, n_idx] f32, strided rows; constant factors included
    const KvPlane& index_k_plane,   // [S, d] f32 or bf16, or panels of one head, or scaled pages
    const PagedRows& rows,
    const Tensor& workspace,  // [rows >= 1, max_len > every position] f32, see index_topk_workspace
    const Tensor& out_indices);  // [T, topk] int32

}  // namespace sluice::ops
