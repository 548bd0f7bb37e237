// Rows of the planes of the KV pool. A plane is [slots, n], f32 or bf16; slot = page * 64 + offset.
// - int8 (CPU, keys or values): [slots, kv_row_elements(kI8, heads, dim)]. Each head's bytes are
//   followed by their scale (op_params.h).
// - e4m3 (keys or values of heads): [slots, n], with a scale a head (kernels/types/kv_plane.h).
// - Panels (CPU, bfloat16, whole planes): kernels/types/kv_plane.h. The results are the same.
// - Scaled pages (index keys): e4m3 numbers, uint8 [slots, n + 4], kernels/types/kv_plane.h.
#pragma once

#include <span>

#include "kernels/types/kv_plane.h"
#include "tensor/context.h"

namespace sluice::ops {

// plane[slots[t]] = src[t]. Slots are distinct. To write a part of a row (latent, then rope key)
// pass plane.slice(1, begin, n). Conversion, with a = max |x| over the head (or key):
// - bf16: rounded to nearest even.
// - int8: s = a / 127, q = x * (127 / a) rounded to nearest even. NaN or infinity makes s NaN.
// - e4m3: x * (1 / s) rounded to nearest even, s the head's scale. Beyond 448 it is 448. NaN stays.
// - Scaled pages: x / s rounded to nearest even, s the smallest power of two with a / s <= 448. NaN
//   or infinity makes s NaN.
void kv_write(Context& ctx, const Tensor& src,  // [T, n] f32, strided rows
              const Tensor& slots,              // [T] int64, each in [0, S)
              const KvPlane& plane);  // [S, n] f32, bf16 or e4m3, or [S, n + 4 heads] int8;
                                      // strided rows; or scaled pages

// out[i] = plane[slots[i]], widened exactly; int8: q * s, rounded once.
void kv_gather(Context& ctx,
               const Tensor& plane,  // [S, n] f32 or bf16, or [S, n + 4 heads] int8; strided rows
               const Tensor& slots,  // [R] int32, each in [0, S)
               const Tensor& out);   // [R, n] f32, strided rows

// plane[to[i]] = plane[from[i]] in every plane, bit for bit: page copies, forks, tree compaction.
// A slot may move to itself, as often as it is listed: nothing happens. Of the other moves `to` has
// no duplicates, and none of its slots occurs in `from`. So the order of the moves does not matter.
void kv_move(Context& ctx, std::span<const KvPlane> planes,  // [S, n_i] each, any dtype
             const Tensor& from_slots,                       // [R] int64
             const Tensor& to_slots);                        // [R] int64

}  // namespace sluice::ops
