// Rows of latents in 8 bits (kernels/types/latent_rows.h). Callers check the slots.
#pragma once

#include "kernels/cpu/isa/kernel_table.h"
#include "tensor/context.h"

namespace sluice::cpu {

// `plane`: [S, bytes of a row], of e4m3 or int8.
LatentCodes codes_of(const Tensor& plane, const ops::LatentRow& row);

// ops::write_latents and ops::gather_latents.
void write_latent_codes(Context& ctx, const Tensor& latent, const Tensor& rope, const Tensor& slots,
                        const Tensor& plane);
void gather_latent_codes(Context& ctx, const Tensor& plane, const Tensor& slots,
                         std::int64_t latent, const Tensor& out);

}  // namespace sluice::cpu
