// Sums, conversions and copies of rows.
#pragma once

#include "tensor/context.h"

namespace sluice::ops {

// out = a + b; out may be a or b.
void add(Context& ctx, const Tensor& a,  // [T, H] f32, strided rows
         const Tensor& b,                // [T, H] f32
         const Tensor& out);             // [T, H] f32

// out = x * factor; out may be x.
void scale(Context& ctx, const Tensor& x,  // [T, H] f32, strided rows
           float factor,
           const Tensor& out);             // [T, H] f32

// out = x in out's dtype: any of f32, bf16, f16 to any of them. Narrowing rounds to nearest even. Equal dtypes copy.
void convert(Context& ctx, const Tensor& x,  // any shape of rank 1 to 3, last dimension of stride 1
             const Tensor& out);             // the same shape

// out[r] = x[rows[r]], bit for bit.
void gather_rows(Context& ctx, const Tensor& x,  // [T, H], any dtype, strided rows
                 const Tensor& rows,             // [R] int32, each in [0, T)
                 const Tensor& out);             // [R, H], x's dtype

}  // namespace sluice::ops
