// The indexer on Hopper, for the shapes that index_plan.h allows.
#pragma once

#include "kernels/types/op_params.h"
#include "tensor/context.h"

namespace sluice::cuda {

// A plane of index keys: rows of bfloat16, or pages of 64 e4m3 keys of 128 and then their 64
// float32 scales. The scores of index_topk() for tokens [first, first + count) into `scores`
// [count, at least max position + 1] f32. Rows that select all keys (position < topk) are left out.
// False if the portable kernel must run; then nothing was launched.
bool index_scores_fast(Context& ctx, const Tensor& q, const Tensor& weights,
                       const Tensor& index_k_plane, const ops::PagedRows& rows, std::int64_t first,
                       std::int64_t count, std::int64_t topk, const Tensor& scores);

// The positions of the topk largest of scores[t, 0 .. positions[t]], ascending, then -1. A row with
// at most topk keys selects all of them, whatever the scores. A tie goes to the lower position, NaN
// counts as -inf. False as above.
bool index_select_fast(Context& ctx, const Tensor& scores, const Tensor& positions,
                       const Tensor& out_indices);

}  // namespace sluice::cuda
