// Tokens by slot, and the largest entry of a row of logits.
#include <cmath>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 1024;

struct Best {
  float value;
  std::int32_t at;   // INT_MAX: none yet
};

// The larger one; the lower index among equals.
__device__ Best better(Best a, Best b) {
  if (b.value > a.value) return b;
  if (b.value == a.value && b.at < a.at) return b;
  return a;
}

__device__ Best warp_best(Best best) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const Best other{__shfl_xor_sync(kAllLanes, best.value, step), __shfl_xor_sync(kAllLanes, best.at, step)};
    best = better(best, other);
  }
  return best;
}

// A block for each row. The choice is a maximum with a total order, so the order of the search does not matter.
__global__ void __launch_bounds__(kThreads) argmax_rows(const float* logits, std::int64_t stride, std::int32_t n,
                                                        std::int32_t* tokens) {
  const float* row = logits + blockIdx.x * stride;
  Best best{-INFINITY, 0x7fffffff};
  int nan = 0;
  const auto look = [&](float x, std::int32_t i) {
    nan |= x != x;
    if (x > best.value) best = {x, i};   // a thread's indices ascend
  };
  const bool vectors = stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(logits) % 16 == 0;
  const std::int32_t whole = vectors ? n / 4 : 0;
#pragma unroll 4
  for (std::int32_t i = threadIdx.x; i < whole; i += kThreads) {
    const float4 four = reinterpret_cast<const float4*>(row)[i];
    look(four.x, 4 * i);
    look(four.y, 4 * i + 1);
    look(four.z, 4 * i + 2);
    look(four.w, 4 * i + 3);
  }
  for (std::int32_t i = 4 * whole + threadIdx.x; i < n; i += kThreads) look(row[i], i);
  nan = __syncthreads_or(nan);
  __shared__ Best of_warp[kThreads / kWarp];
  best = warp_best(best);
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = best;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  best = warp_best(of_warp[threadIdx.x]);
  if (threadIdx.x == 0) tokens[blockIdx.x] = nan || !isfinite(best.value) ? -1 : best.at;
}

__global__ void take_tokens(const std::int32_t* slot_tokens, std::int64_t slots, std::int32_t* ids, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n || ids[i] >= 0) return;
  const std::int64_t slot = -1 - std::int64_t{ids[i]};
  expect_below(slot, slots);
  ids[i] = slot_tokens[slot];
}

__global__ void put_tokens(const std::int32_t* tokens, const std::int32_t* slots, std::int64_t n,
                           std::int32_t* slot_tokens, std::int64_t limit) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n || slots[i] < 0) return;
  expect_below(slots[i], limit);
  slot_tokens[slots[i]] = max(tokens[i], 0);
}

}  // namespace

void argmax(Context& ctx, const Tensor& logits, const Tensor& tokens) {
  if (logits.numel() == 0) return;
  argmax_rows<<<static_cast<unsigned>(logits.dim(0)), kThreads, 0, stream_of(ctx)>>>(
      logits.ptr<float>(), logits.stride[0], static_cast<std::int32_t>(logits.dim(1)), tokens.ptr<std::int32_t>());
  check_launch("argmax");
}

void take_slot_tokens(Context& ctx, const Tensor& slot_tokens, const Tensor& ids) {
  if (ids.dim(0) == 0) return;
  take_tokens<<<blocks_for(ids.dim(0), 256), 256, 0, stream_of(ctx)>>>(
      slot_tokens.ptr<std::int32_t>(), slot_tokens.dim(0), ids.ptr<std::int32_t>(), ids.dim(0));
  check_launch("take_slot_tokens");
}

void put_slot_tokens(Context& ctx, const Tensor& tokens, const Tensor& slots, const Tensor& slot_tokens) {
  if (tokens.dim(0) == 0) return;
  put_tokens<<<blocks_for(tokens.dim(0), 256), 256, 0, stream_of(ctx)>>>(
      tokens.ptr<std::int32_t>(), slots.ptr<std::int32_t>(), tokens.dim(0), slot_tokens.ptr<std::int32_t>(),
      slot_tokens.dim(0));
  check_launch("put_slot_tokens");
}

}  // namespace sluice::cuda
