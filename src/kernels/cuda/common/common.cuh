// Shared by all kernels: element types, rows of strided tensors, reductions over warps and CTAs,
// launch shapes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/types/op_params.h"
#include "tensor/context.h"
#include "tensor/cuda_runtime.h"

namespace sluice::cuda {

using Bf16 = __nv_bfloat16;
using F16 = __half;

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// To float32.
__device__ inline float widen(float x) {
  return x;
}
__device__ inline float widen(Bf16 x) {
  return __bfloat162float(x);
}
__device__ inline float widen(F16 x) {
  return __half2float(x);
}

// From float32, rounded to nearest even.
template <class T>
__device__ inline T narrow(float x);
template <>
__device__ inline float narrow<float>(float x) {
  return x;
}
template <>
__device__ inline Bf16 narrow<Bf16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline F16 narrow<F16>(float x) {
  return __float2half_rn(x);
}

// Calls body with a value of the element type: f32, bf16 or f16.
template <class Body>
void with_float_type(DType dtype, Body&& body) {
  if (dtype == DType::kBF16)
    body(Bf16{});
  else if (dtype == DType::kF16)
    body(F16{});
  else
    body(float{});
}

// The same for the types of activations and of the KV pool: f32 or bf16.
template <class Body>
void with_plane_type(DType dtype, Body&& body) {
  if (dtype == DType::kBF16)
    body(Bf16{});
  else
    body(float{});
}

// Rows of a tensor of rank 1 to 3: all dimensions but the last, in order.
template <class T>
struct RowsOf {
  T* data;
  std::int64_t inner;  // extent of the second last dimension
  std::int64_t outer_stride, inner_stride;

  __device__ T* row(std::int64_t i) const {
    return data + i / inner * outer_stride + i % inner * inner_stride;
  }
};

template <class T>
RowsOf<T> rows_of(const Tensor& t) {
  auto* data = static_cast<T*>(t.data);
  if (t.rank == 3) return {data, std::max<std::int64_t>(t.shape[1], 1), t.stride[0], t.stride[1]};
  if (t.rank == 2) return {data, 1, t.stride[0], 0};
  return {data, 1, 0, 0};
}

// The number of rows in the sense of RowsOf.
inline std::int64_t num_rows(const Tensor& t) {
  return t.numel() == 0 ? 0 : t.numel() / t.dim(-1);
}

inline cudaStream_t stream_of(const Context& ctx) {
  return static_cast<cudaStream_t>(ctx.stream == nullptr ? nullptr : ctx.stream->handle());
}

// Threads of a CTA for rows of n elements.
inline int block_for(std::int64_t n) {
  return static_cast<int>(std::clamp<std::int64_t>((n + kWarp - 1) / kWarp * kWarp, kWarp, 256));
}

// CTAs for `count` items, `each` at a time.
inline unsigned blocks_for(std::int64_t count, int each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

// Traps on a value out of range. Hazard: an index from device memory cannot be checked on the host,
// and a wrong one would read or write memory of another sequence.
__device__ inline void expect_below(std::int64_t value, std::int64_t limit) {
  if (value < 0 || value >= limit) __trap();
}

// The sum over the lanes by halving, the same bits in all lanes: one fixed order.
template <class T>
__device__ inline T warp_sum(T x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

// The sum over a CTA of up to 1024 threads, in all threads. The sums of the warps are added in
// ascending order. The first barrier: all threads have read the result of the call before.
__device__ inline float block_sum(float x) {
  __shared__ float part[kWarp];
  const int warps = (blockDim.x + kWarp - 1) / kWarp;
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) part[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < warps; ++i) sum += part[i];
  return sum;
}

}  // namespace sluice::cuda
