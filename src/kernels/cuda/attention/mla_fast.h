// Latent attention over bfloat16 planes on tensor cores: what the bodies of ops/mla.h take where
// mla_plan.h says so. It returns false, with nothing launched, where the plain kernels must do it.
#pragma once

#include "kernels/types/op_params.h"
#include "tensor/context.h"

namespace sluice::cuda {

// mla_attention(), or mla_sparse_attention() where `indices` is defined.
bool mla_attend_fast(Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                     const Tensor& latent_plane, const ops::PagedRows& rows, const Tensor& indices,
                     float scale, const Tensor& out);

}  // namespace sluice::cuda
