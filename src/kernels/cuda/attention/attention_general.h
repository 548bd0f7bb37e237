// Attention with score mods (soft cap, ALiBi), chunks, other head sizes or other GPUs: what the
// kernels of attention_fast.h do not take.
#pragma once

#include "kernels/types/kv_plane.h"
#include "kernels/types/op_params.h"
#include "tensor/context.h"

namespace sluice::cuda {

using ops::AttentionParams;
using ops::PagedRows;

// Pages of bfloat16 or e4m3 on tensor cores, for the shapes that attention_plan.h allows. False:
// nothing was launched. Arguments as in paged_attention().
bool attend_general(Context& ctx, const Tensor& q, const ops::KvPlane& k_plane,
                    const ops::KvPlane& v_plane, std::int64_t kv_heads, const PagedRows& rows,
                    const AttentionParams& params, const Tensor& out);

// Partial results of rows whose keys were split over several CTAs.
struct MergeArgs {
  const float* part = nullptr;  // [tokens, heads, splits, dim], each normalised
  // [tokens, heads, splits]: log of the sum of exponentials; -inf: no key
  const float* lse = nullptr;
  const float* sinks = nullptr;  // [heads], or null
  float* out = nullptr;
  std::int64_t out_token = 0, out_head = 0, tokens = 0, heads = 0, dim = 0;
  int splits = 1;  // at most kMaxKeySplits (attention_plan.h)
};
void merge_splits(Context& ctx, const MergeArgs& args);

}  // namespace sluice::cuda
