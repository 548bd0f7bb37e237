// Rotary position embedding (transformers modeling_rope_utils and apply_rotary_pos_emb).
#pragma once

#include "tensor/context.h"

namespace sluice::ops {

// The cos/sin table of a step. angle = float(position) * inv_freq[i] in float32. Then cos_sin[t][i]
// = cos(angle) * attention_factor, and cos_sin[t][r/2 + i] = sin(angle) * attention_factor.
void rope_cos_sin(Context& ctx, const Tensor& positions,  // [T] int32
                  const Tensor& inv_freq,                 // [r / 2] f32
                  float attention_factor,
                  const Tensor& cos_sin);  // [T, r] f32, dense rows

// Rotates x in place by the table. interleaved: pairs (2i, 2i + 1); otherwise half-split pairs (i,
// i + r / 2). For partial rotary pass the slice of the first r dimensions. For one shared head (MLA
// k_pe) pass a [T, 1, r] view.
void rope(Context& ctx, const Tensor& cos_sin,  // [T, r] f32
          const Tensor& x,  // [T, heads, r] f32, strided; the last dimension has stride 1
          bool interleaved);

}  // namespace sluice::ops
