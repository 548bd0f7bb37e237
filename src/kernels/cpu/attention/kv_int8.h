// Rows of int8 KV planes; ops::kv_row_elements in op_params.h documents the layout. Callers check
// the slots.
#pragma once

#include "tensor/context.h"

namespace sluice::cpu {

// ops::kv_write and ops::kv_gather for plane [S, heads * (n / heads + 4)] int8. src and out are
// [rows, n] f32.
void kv_write_int8(Context& ctx, const Tensor& src, const Tensor& slots, const Tensor& plane);
void kv_gather_int8(Context& ctx, const Tensor& plane, const Tensor& slots, const Tensor& out);

}  // namespace sluice::cpu
