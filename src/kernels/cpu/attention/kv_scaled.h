// Index keys in scaled pages (kv_plane.h). Callers check the slots.
#pragma once

#include "kernels/types/kv_plane.h"
#include "tensor/context.h"

namespace sluice::cpu {

// ops::kv_write and ops::kv_move for one plane.
void kv_write_scaled(Context& ctx, const Tensor& src, const std::int64_t* slots,
                     const ops::KvPlane& plane);
void kv_move_scaled(const ops::KvPlane& plane, const std::int64_t* from, const std::int64_t* to,
                    std::int64_t count);

// widen_keys: the first `count` keys of a page without their scales, as rows of `dim` bfloat16,
// which is exact. key_scales: their scales.
void widen_keys(const ops::KvPlane& plane, std::int64_t page, std::int64_t count, BF16* keys);
const float* key_scales(const ops::KvPlane& plane, std::int64_t page);

}  // namespace sluice::cpu
