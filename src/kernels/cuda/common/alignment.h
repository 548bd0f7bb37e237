// Alignment of rows, for kernels with 16-byte loads and stores.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace sluice::cuda {

inline bool begins_on_16(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

// Whether all rows begin on 16 bytes. `base`: the first row; `stride`: elements from row to row.
inline bool rows_aligned(const void* base, std::int64_t stride, std::int64_t element_bytes) {
  return begins_on_16(base) && stride * element_bytes % 16 == 0;
}

inline bool rows_aligned(const Tensor& t) {
  return rows_aligned(t.data, t.stride[0], dtype_size(t.dtype));
}

}  // namespace sluice::cuda
