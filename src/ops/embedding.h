// Token embedding.
#pragma once

#include "kernels/types/weight_matrix.h"
#include "tensor/context.h"

namespace sluice::ops {

// out[t] = table[ids[t]], widened exactly. An id outside [0, V) is a bug: Error{kBug} before
// anything is written.
void embedding(Context& ctx, const Tensor& ids,  // [T] int32
               const WeightMatrix& table,        // [V, H] in any layout; kRows: f32, bf16 or f16
               const Tensor& out);               // [T, H] f32

}  // namespace sluice::ops
