// Where rows begin: kernels that move 16 bytes at a time want them there.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace sluice::cuda {

// Whether rows that begin at `base` and lie `stride` elements apart begin on 16 bytes.
inline bool rows_aligned(const void* base, std::int64_t stride, std::int64_t element_bytes) {
  return reinterpret_cast<std::uintptr_t>(base) % 16 == 0 && stride * element_bytes % 16 == 0;
}

inline bool rows_aligned(const Tensor& t) {
  return rows_aligned(t.data, t.stride[0], dtype_size(t.dtype));
}

}  // namespace sluice::cuda
