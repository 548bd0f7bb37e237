// Rows of e4m3 KV planes (kernels/types/kv_plane.h). Callers check the slots.
#pragma once

#include "kernels/types/kv_plane.h"
#include "tensor/context.h"

namespace sluice::cpu {

// ops::kv_write for a plane [S, n] of e4m3. src is [rows, n] f32.
void kv_write_e4m3(Context& ctx, const Tensor& src, const std::int64_t* slots,
                   const ops::KvPlane& plane);

}  // namespace sluice::cpu
