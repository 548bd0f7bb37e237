// Norm and RoPE of new heads, KV writes and attention where rows read the keys of other rows.
#pragma once

#include "kernels/types/kv_plane.h"
#include "kernels/types/op_params.h"
#include "tensor/context.h"

namespace sluice::cuda {

// rotate_write_and_attend() (kernels/cuda/cuda.h) with all keys and values written before a row
// attends. Where `from_slots` is defined, kv_move() to `to_slots` comes between them.
void rotate_write_then_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                              const ops::HeadRotation& rotation, const Tensor& slots,
                              const ops::KvPlane& k_plane, const ops::KvPlane& v_plane,
                              std::int64_t kv_heads, const ops::PagedRows& rows,
                              const ops::AttentionParams& params, const Tensor& mixed,
                              const Tensor& out, const Tensor& from_slots, const Tensor& to_slots);

}  // namespace sluice::cuda
