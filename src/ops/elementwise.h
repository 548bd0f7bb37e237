// Sums, conversions and copies of rows.
#pragma once

#include "kernels/types/weight.h"
#include "tensor/context.h"

namespace sluice::ops {

// out = a + b; out may be a or b.
void add(Context& ctx, const Tensor& a,  // [T, H] f32, strided rows
         const Tensor& b,                // [T, H] f32
         const Tensor& out);             // [T, H] f32

// out = x * factor; out may be x.
void scale(Context& ctx, const Tensor& x,  // [T, H] f32, strided rows
           float factor,
           const Tensor& out);  // [T, H] f32

// out = x limited to [-limit, limit]; out may be x.
void clamp(Context& ctx, const Tensor& x,  // [T, H] f32, strided rows
           float limit,
           const Tensor& out);  // [T, H] f32

// out = cap * tanh(x / cap), within 4 eps cap; out may be x.
void softcap(Context& ctx, const Tensor& x,  // [T, H] f32, strided rows
             float cap,                      // > 0
             const Tensor& out);             // [T, H] f32

// q *= 1 + beta * ln(1 + floor((position + offset) / length)): the attention temperature of Llama 4
// and Ministral 3.
void scale_queries(Context& ctx, const Tensor& positions,  // [T] int32
                   float beta, std::int64_t length, std::int64_t offset,
                   const Tensor& q);  // [T, heads, d] f32, strided; stride 1 over d

// out = x in out's dtype; f32, bf16 and f16 in any combination. Narrowing rounds to nearest even.
// Equal dtypes copy.
void convert(Context& ctx, const Tensor& x,  // any shape of rank 1 to 3, last dimension of stride 1
             const Tensor& out);             // the same shape

// out[r] = x[rows[r]], bit for bit.
void gather_rows(Context& ctx, const Tensor& x,  // [T, H], any dtype, strided rows
                 const Tensor& rows,             // [R] int32, each in [0, T)
                 const Tensor& out);             // [R, H], x's dtype

// Token embedding: out[t] = table[ids[t]], widened exactly; numbers of a table in fragments are
// rounded to bfloat16. An id outside [0, V) is a bug: Error{kBug}, before anything is written.
void embedding(Context& ctx, const Tensor& ids,  // [T] int32
               const Weight& table,              // [V, H] in any layout
               const Tensor& out);               // [T, H] f32

}  // namespace sluice::ops
