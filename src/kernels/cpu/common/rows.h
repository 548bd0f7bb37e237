// Helpers of the CPU kernels: rows of strided tensors, and loops over the thread pool.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa/kernel_table.h"
#include "tensor/context.h"

namespace sluice::cpu {

// Minimum elements of work per task (less is not worth waking another thread).
inline constexpr std::int64_t kElementsPerTask = 16 * 1024;

// Calls body(begin, end) over [0, count) on the pool. One item is `item_elements` elements of work.
// `most`: the largest piece a thread takes at once, see ThreadPool.
template <class Body>
void parallel(Context& ctx, std::int64_t count, std::int64_t item_elements, Body&& body,
              std::int64_t most = 0) {
  if (count <= 0) return;
  if (ctx.pool == nullptr) return body(std::int64_t{0}, count);
  const std::int64_t grain =
      std::max<std::int64_t>(1, kElementsPerTask / std::max<std::int64_t>(1, item_elements));
  ctx.pool->parallel_for(count, body, grain, most);
}

// Number of rows of a tensor of rank 1 to 4: all dimensions but the last, multiplied.
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

// Address of element [i, j, 0, ...].
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

// Column of a dtype in KernelTable: 0 float32, 1 bfloat16, 2 float16 (weights) or int8 (KV planes),
// 3 e4m3 (KV planes).
inline int dtype_column(DType dtype) {
  if (dtype == DType::kF8E4M3) return 3;
  return dtype == DType::kF32 ? 0 : dtype == DType::kBF16 ? 1 : 2;
}

}  // namespace sluice::cpu
