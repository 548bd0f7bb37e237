// Rows of e4m3 of the KV pool on a GPU: of heads (kernels/types/kv_plane.h) and of latents
// (kernels/types/latent_rows.h).
#pragma once

#include "kernels/types/kv_plane.h"
#include "tensor/context.h"

namespace sluice::cuda {

// As ops::kv_write.
void write_e4m3_rows(Context& ctx, const Tensor& src, const Tensor& slots,
                     const ops::KvPlane& plane);

// As ops::write_latents and ops::gather_latents, for a plane of e4m3: the bytes of the CPU's
// bodies.
void write_latent_codes(Context& ctx, const Tensor& latent, const Tensor& rope, const Tensor& slots,
                        const Tensor& plane);
void gather_latent_codes(Context& ctx, const Tensor& plane, const Tensor& slots,
                         std::int64_t latent, const Tensor& out);

}  // namespace sluice::cuda
