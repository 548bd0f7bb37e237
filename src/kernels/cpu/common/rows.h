// Small helpers of the CPU bodies: rows of strided tensors, and loops over the pool.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa/kernel_table.h"
#include "tensor/context.h"

namespace sluice::cpu {

// Work below this many elements is not worth waking another thread for.
inline constexpr std::int64_t kElementsPerTask = 16 * 1024;

// Calls body(begin, end) over [0, count) on the pool; one item is `item_elements` elements of work.
// `most`: see ThreadPool.
template <class Body>
void parallel(Context& ctx, std::int64_t count, std::int64_t item_elements, Body&& body,
              std::int64_t most = 0) {
  if (count <= 0) return;
  if (ctx.pool == nullptr) return body(std::int64_t{0}, count);
  const std::int64_t grain =
      std::max<std::int64_t>(1, kElementsPerTask / std::max<std::int64_t>(1, item_elements));
  ctx.pool->parallel_for(count, body, grain, most);
}

// Rows of a tensor of rank 1 to 4: every dimension but the last is counted.
inline std::int64_t num_rows(const Tensor& t) {
  return t.numel() == 0 ? 0 : t.numel() / t.dim(-1);
}

// Row `index` of t in row-major order.
template <class T>
T* row(const Tensor& t, std::int64_t index) {
  std::int64_t offset = 0;
  for (int axis = t.rank - 2; axis >= 0; --axis) {
    offset += index % t.shape[axis] * t.stride[axis];
    index /= t.shape[axis];
  }
  return static_cast<T*>(t.data) + offset;
}

// Element [i, j, ...] of dimension 0 and 1.
template <class T>
T* at(const Tensor& t, std::int64_t i, std::int64_t j = 0) {
  return static_cast<T*>(t.data) + i * t.stride[0] + j * t.stride[1];
}

inline std::byte* row_bytes(const Tensor& t, std::int64_t index) {
  return static_cast<std::byte*>(t.data) + index * t.stride[0] * dtype_size(t.dtype);
}

inline WeightVector weight_vector(const Tensor& t) {
  return {.data = t.data, .dtype = t.dtype};
}

// Index of a dtype in the columns of KernelTable: float32, bfloat16, and third float16 for weights,
// int8 for planes.
inline int dtype_column(DType dtype) {
  return dtype == DType::kF32 ? 0 : dtype == DType::kBF16 ? 1 : 2;
}

}  // namespace sluice::cpu
