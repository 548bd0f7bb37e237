// Rows of the KV pool's planes. A plane is [slots, n], f32 or bf16; slot = page * 64 + offset. On a
// CPU a plane of keys or values may be int8: [slots, kv_row_elements(kI8, heads, dim)], each head's
// bytes followed by their scale (op_params.h); or, bfloat16 and whole, lie in panels
// (kernels/types/kv_plane.h), which show in none of the results. Index keys may lie in scaled pages
// of e4m3 numbers (the same file), uint8 [slots, n + 4].
#pragma once

#include <span>

#include "kernels/types/kv_plane.h"
#include "tensor/context.h"

namespace sluice::ops {

// plane[slots[t]] = src[t], rounded to nearest even where the plane is bf16; int8: q = x * (127 /
// a) rounded to nearest even and s = a / 127, a = max |x| over the head; NaN or infinity makes s
// NaN. Slots are distinct. Scaled pages: x / s rounded to nearest even, s the smallest power of two
// with a / s <= 448; NaN or infinity makes s NaN. To write a part of a row (latent, then rope key)
// pass plane.slice(1, begin, n).
void kv_write(Context& ctx, const Tensor& src,  // [T, n] f32, strided rows
              const Tensor& slots,              // [T] int64, each in [0, S)
              const KvPlane& plane);  // [S, n] f32 or bf16, or [S, n + 4 heads] int8; strided rows;
                                      // or scaled pages

// out[i] = plane[slots[i]], widened exactly; from int8 q * s, rounded once.
void kv_gather(Context& ctx,
               const Tensor& plane,  // [S, n] f32 or bf16, or [S, n + 4 heads] int8; strided rows
               const Tensor& slots,  // [R] int32, each in [0, S)
               const Tensor& out);   // [R, n] f32, strided rows

// plane[to[i]] = plane[from[i]] in every plane, bit for bit: page copies, forks, tree compaction.
// No slot of `to` occurs in `from` at another index, and `to` has no duplicates, so the order of
// the moves does not show.
void kv_move(Context& ctx, std::span<const KvPlane> planes,  // [S, n_i] each, any dtype
             const Tensor& from_slots,                       // [R] int64
             const Tensor& to_slots);                        // [R] int64

}  // namespace sluice::ops
