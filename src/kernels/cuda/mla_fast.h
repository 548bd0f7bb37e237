// Latent attention and the indexer over bfloat16 planes on tensor cores: what the bodies of ops/mla.h and ops/indexer.h
// take where mla_plan.h says so. Each returns false, with nothing launched, where the plain kernels must do it.
#pragma once

#include "kernels/cpu/types.h"
#include "tensor/context.h"

namespace sluice::cuda {

// mla_attention(), or mla_sparse_attention() where `indices` is defined.
bool mla_attend_fast(Context& ctx, const Tensor& q_latent, const Tensor& q_rope, const Tensor& latent_plane,
                     const ops::PagedRows& rows, const Tensor& indices, float scale, const Tensor& out);

// The scores of index_topk() for tokens [first, first + count) into `scores` [count, at least max position + 1] f32;
// rows that choose everything (position < topk) are left out.
bool index_scores_fast(Context& ctx, const Tensor& q, const Tensor& weights, const Tensor& index_k_plane,
                       const ops::PagedRows& rows, std::int64_t first, std::int64_t count, std::int64_t topk,
                       const Tensor& scores);

}  // namespace sluice::cuda
