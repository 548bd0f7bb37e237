// Latents in e4m3 codes (kernels/types/latent_rows.h) on both devices.
#pragma once

#include "oracle.h"

namespace sluice::oracle {

// Stores `plane` [slots, latent + rope] of bfloat16 in `codes` [slots, LatentRow::bytes()] by the
// CPU's body. `plane` becomes what the codes say, which is exact in bfloat16.
void store_codes(Bench& bench, std::int64_t latent, Twin& plane, Twin& codes);

// Attention over codes has the bits of attention over the same numbers in bfloat16, on a GPU, also
// where the order of summation is fixed. `attend` writes `out`.
void expect_bits_of_numbers(Bench& bench, const std::string& op, const std::string& label,
                            const Twin& plane, const Twin& codes, Twin& out,
                            const std::function<void(Context&, const Tensor& plane)>& attend);

// Stored bytes, gathered and moved rows.
void check_latent_codes(Bench& bench);

}  // namespace sluice::oracle
