// MLA over planes of bfloat16 or e4m3 on Hopper, for the shapes that mla_plan.h allows. False if
// the portable kernels must run; then nothing was launched.
#pragma once

#include "kernels/types/op_params.h"
#include "tensor/context.h"

namespace sluice::cuda {

// mla_attention(), or mla_sparse_attention() if `indices` is defined.
bool mla_attend_fast(Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                     const Tensor& latent_plane, const ops::PagedRows& rows, const Tensor& indices,
                     float scale, const Tensor& out);

}  // namespace sluice::cuda
