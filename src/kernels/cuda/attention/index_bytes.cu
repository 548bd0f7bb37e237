#include "kernels/cuda/attention/index_bytes.h"

#include <cuda_fp8.h>

#include "kernels/cuda/common/launch.cuh"

namespace sluice::cuda {
namespace {

constexpr std::int64_t kPage = kPageSize;
constexpr int kRowsOfBlock = 4;  // a warp each
constexpr float kMaxE4M3 = 448;  // the largest e4m3 number

struct Plane {
  unsigned char* data;
  std::int64_t slots;
  int dim;

  __device__ unsigned char* key(std::int64_t slot) const {
    return data + slot / kPage * kPage * (dim + 4) + slot % kPage * dim;
  }
  __device__ float* scale(std::int64_t slot) const {
    return reinterpret_cast<float*>(data + slot / kPage * kPage * (dim + 4) + kPage * dim) +
           slot % kPage;
  }
};

Plane plane_of(const Tensor& t) {
  return {t.ptr<std::uint8_t>(), t.dim(0), static_cast<int>(t.dim(1)) - 4};
}

__global__ void write_keys(RowsOf<const float> src, std::int64_t rows, const std::int64_t* slots,
                           Plane plane) {
  begin_dependent();
  const int lane = threadIdx.x % kWarp;
  const std::int64_t t = std::int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp;
  if (t >= rows) return;
  const std::int64_t slot = slots[t];
  expect_below(slot, plane.slots);
  const float* from = src.row(t);
  float most = 0;
  bool finite = true;
  for (int i = lane; i < plane.dim; i += kWarp) {
    finite = finite && isfinite(from[i]);
    most = fmaxf(most, fabsf(from[i]));
  }
  finite = __all_sync(kAllLanes, finite);
  most = warp_max(most);
  float scale = 1;  // the smallest power of two that brings all into range
  if (finite && most > 0) {
    int exponent;
    const float part = frexpf(most, &exponent);
    scale = ldexpf(1.0f, max(part <= kMaxE4M3 / 512 ? exponent - 9 : exponent - 8, -126));
  }
  unsigned char* to = plane.key(slot);
  for (int i = lane; i < plane.dim; i += kWarp)
    to[i] = finite ? __nv_cvt_float_to_fp8(from[i] / scale, __NV_SATFINITE, __NV_E4M3) : 0;
  if (lane == 0) *plane.scale(slot) = finite ? scale : __int_as_float(0x7FC00000);
}

__global__ void move_keys(Plane plane, const std::int64_t* from, const std::int64_t* to,
                          std::int64_t count) {
  const int lane = threadIdx.x % kWarp;
  const std::int64_t n = std::int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp;
  if (n >= count || from[n] == to[n]) return;
  expect_below(from[n], plane.slots);
  expect_below(to[n], plane.slots);
  for (int i = lane; i < plane.dim; i += kWarp) plane.key(to[n])[i] = plane.key(from[n])[i];
  if (lane == 0) *plane.scale(to[n]) = *plane.scale(from[n]);
}

}  // namespace

void write_scaled_keys(Context& ctx, const Tensor& src, const Tensor& slots, const Tensor& plane) {
  if (src.dim(0) == 0) return;
  launch_dependent(ctx, "kv_write of scaled keys", write_keys, blocks_for(src.dim(0), kRowsOfBlock),
                   kRowsOfBlock * kWarp, 0, rows_of<const float>(src), src.dim(0),
                   slots.ptr<std::int64_t>(), plane_of(plane));
}

void move_scaled_keys(Context& ctx, const Tensor& plane, const Tensor& from_slots,
                      const Tensor& to_slots) {
  move_keys<<<blocks_for(from_slots.dim(0), kRowsOfBlock), kRowsOfBlock * kWarp, 0,
              stream_of(ctx)>>>(plane_of(plane), from_slots.ptr<std::int64_t>(),
                                to_slots.ptr<std::int64_t>(), from_slots.dim(0));
  check_launch("kv_move of scaled keys");
}

}  // namespace sluice::cuda
