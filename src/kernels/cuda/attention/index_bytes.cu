// Index keys of eight bits (e4m3) in scaled pages: 64 keys, then their 64 scales
// (kernels/types/kv_plane.h). A warp for each key.
#include "kernels/cuda/attention/index_bytes.h"

#include <cuda_fp8.h>

#include "kernels/cuda/common/launch.cuh"

namespace sluice::cuda {
namespace {

constexpr std::int64_t kPage = kPageSize;
constexpr int kRowsOfBlock = 4;  // one warp each
constexpr float kMaxE4M3 = 448;  // the largest e4m3 number

// Addresses of a key and of its scale.
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

// A row of the tensor is a key and the four bytes of its scale.
Plane plane_of(const Tensor& t) {
  return {t.ptr<std::uint8_t>(), t.dim(0), static_cast<int>(t.dim(1)) - 4};
}

// The scale is the smallest power of two that fits the key into range, so scaling is exact. A key
// with NaN or infinity becomes zeros with a NaN scale: its score must be NaN, as with float32 keys.
__global__ void write_keys(RowsOf<const float> src, std::int64_t rows, const std::int64_t* slots,
                           Plane plane) {
  begin_dependent();
  const int lane = threadIdx.x % kWarp;
  const std::int64_t t = std::int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp;
  // A whole warp returns, so the warp votes below are safe.
  if (t >= rows) return;
  const std::int64_t slot = slots[t];
  expect_below(slot, plane.slots);
  const float* from = src.row(t);
  float max_abs = 0;
  bool is_finite = true;
  for (int i = lane; i < plane.dim; i += kWarp) {
    is_finite = is_finite && isfinite(from[i]);
    max_abs = fmaxf(max_abs, fabsf(from[i]));
  }
  is_finite = __all_sync(kAllLanes, is_finite);
  max_abs = warp_max(max_abs);
  float scale = 1;
  if (is_finite && max_abs > 0) {
    int exponent;
    const float part = frexpf(max_abs, &exponent);
    // max_abs = part * 2^exponent with part in [0.5, 1), and 448 = 0.875 * 2^9.
    scale = ldexpf(1.0f, max(part <= kMaxE4M3 / 512 ? exponent - 9 : exponent - 8, -126));
  }
  // Exact division by a power of two, then one rounding to e4m3.
  unsigned char* to = plane.key(slot);
  for (int i = lane; i < plane.dim; i += kWarp)
    to[i] = is_finite ? __nv_cvt_float_to_fp8(from[i] / scale, __NV_SATFINITE, __NV_E4M3) : 0;
  if (lane == 0) *plane.scale(slot) = is_finite ? scale : __int_as_float(0x7FC00000);
}

// A key moves together with its scale.
__global__ void move_keys(Plane plane, const std::int64_t* from, const std::int64_t* to,
                          std::int64_t count) {
  begin_dependent();
  const int lane = threadIdx.x % kWarp;
  const std::int64_t n = std::int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp;
  if (n >= count || from[n] == to[n]) return;
  // A slot out of range would change another sequence.
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
  launch_dependent(ctx, "kv_move of scaled keys", move_keys,
                   blocks_for(from_slots.dim(0), kRowsOfBlock), kRowsOfBlock * kWarp, 0,
                   plane_of(plane), from_slots.ptr<std::int64_t>(), to_slots.ptr<std::int64_t>(),
                   from_slots.dim(0));
}

}  // namespace sluice::cuda
