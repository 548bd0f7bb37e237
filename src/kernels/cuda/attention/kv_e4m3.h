// Rows of e4m3 of the KV pool on a GPU (kernels/types/kv_plane.h).
#pragma once

#include "kernels/types/kv_plane.h"
#include "tensor/context.h"

namespace sluice::cuda {

// As ops::kv_write.
void write_e4m3_rows(Context& ctx, const Tensor& src, const Tensor& slots,
                     const ops::KvPlane& plane);

}  // namespace sluice::cuda
