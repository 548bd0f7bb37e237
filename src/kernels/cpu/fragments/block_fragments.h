// Products with blocks of GGUF files in fragments (kernels/types/block_units.h).
#pragma once

#include "kernels/types/weight.h"
#include "tensor/context.h"

namespace sluice::cpu {

// out [M, w.rows] f32 := x [M, w.columns] f32 or bf16 times w, plus bias. Each weight is rounded to
// bfloat16 once.
void linear_block_fragments(Context& ctx, const Tensor& x, const ops::Weight& w, const Tensor& bias,
                            const Tensor& out);

}  // namespace sluice::cpu
