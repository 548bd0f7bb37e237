// Index keys in scaled pages on a GPU (kernels/types/kv_plane.h). A plane is uint8 [slots, dim +
// 4].
#pragma once

#include "tensor/context.h"

namespace sluice::cuda {

// As ops::kv_write and ops::kv_move, for one plane.
void write_scaled_keys(Context& ctx, const Tensor& src, const Tensor& slots, const Tensor& plane);
void move_scaled_keys(Context& ctx, const Tensor& plane, const Tensor& from_slots,
                      const Tensor& to_slots);

}  // namespace sluice::cuda
