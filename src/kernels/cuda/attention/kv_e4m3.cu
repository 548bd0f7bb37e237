// KV writes to planes of e4m3, and reads of latents from them.
#include "kernels/cuda/attention/kv_e4m3.h"

#include "kernels/cuda/attention/attention_pages.cuh"
#include "kernels/cuda/attention/latent_codes.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/types/latent_rows.h"

namespace sluice::cuda {
namespace {

// Grid: rows. A head has `dim` elements, a row `columns`.
__global__ void write_rows(RowsOf<const float> src, std::int64_t columns, const std::int64_t* slots,
                           std::int64_t num_slots, const float* scales, std::int64_t dim,
                           std::uint8_t* plane, std::int64_t stride) {
  begin_dependent();
  const std::int64_t slot = slots[blockIdx.x];
  expect_below(slot, num_slots);
  const float* from = src.row(blockIdx.x);
  std::uint8_t* to = plane + slot * stride;
  for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x)
    to[i] = round_to_e4m3(from[i] * (scales == nullptr ? 1.0f : 1.0f / scales[i / dim]));
}

constexpr int kGroup = ops::kLatentGroup;

// ops::LatentRow for kernels: numbers, and bytes from the start of a row.
struct LatentLayout {
  int latent, rope, groups, rope_at, exponents_at, bytes;
};
LatentLayout layout_of(std::int64_t latent, std::int64_t rope) {
  const ops::LatentRow row{latent, rope};
  return {static_cast<int>(latent),
          static_cast<int>(rope),
          static_cast<int>(row.groups()),
          static_cast<int>(row.rope_at()),
          static_cast<int>(row.exponents_at()),
          static_cast<int>(row.bytes())};
}

// The exponent byte of a group, by the steps of kernels/cpu/attention/kv_latents.cpp.
__device__ int exponent_for(float largest) {
  int exponent = 0;
  frexpf(largest / ops::kMaxE4M3, &exponent);
  if (ldexpf(1.0f, exponent - 1) * ops::kMaxE4M3 >= largest) --exponent;
  return min(max(exponent, -110), 100) + 127;
}

// Grid: rows. A warp has a group at a time.
__global__ void write_latent_rows(RowsOf<const float> latent, RowsOf<const float> rope,
                                  LatentLayout row, const std::int64_t* slots,
                                  std::int64_t num_slots, std::uint8_t* plane,
                                  std::int64_t stride) {
  constexpr int kEach = kGroup / kWarp;
  begin_dependent();
  const std::int64_t slot = slots[blockIdx.x];
  expect_below(slot, num_slots);
  const float *numbers = latent.row(blockIdx.x), *rotated = rope.row(blockIdx.x);
  std::uint8_t* to = plane + slot * stride;
  const int lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
  for (int g = threadIdx.x / kWarp; g < row.groups; g += warps) {
    const int begin = g * kGroup, count = min(kGroup, row.latent - begin);
    float x[kEach], largest = 0;
    bool is_finite = true;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int i = j * kWarp + lane;
      x[j] = i < count ? numbers[begin + i] : 0.0f;
      largest = fmaxf(largest, fabsf(x[j]));
      is_finite = is_finite && isfinite(x[j]);
    }
    // NaN or infinity in a group: its scale is NaN, and its numbers are 0.
    is_finite = __all_sync(kAllLanes, is_finite);
    largest = warp_max(largest);
    const int exponent = is_finite ? exponent_for(largest) : kNanExponent;
    const float factor = ldexpf(1.0f, 127 - exponent);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int i = j * kWarp + lane;
      if (i < count) to[begin + i] = is_finite ? round_to_e4m3(x[j] * factor) : 0;
    }
    if (lane == 0) to[row.exponents_at + g] = static_cast<std::uint8_t>(exponent);
  }
  auto* to_rope = reinterpret_cast<Bf16*>(to + row.rope_at);
  for (int i = threadIdx.x; i < row.rope; i += blockDim.x) to_rope[i] = narrow<Bf16>(rotated[i]);
  // Zeros between the parts of a row.
  if (threadIdx.x == 0) {
    for (int i = row.latent; i < row.rope_at; ++i) to[i] = 0;
    for (int i = row.exponents_at + row.groups; i < row.bytes; ++i) to[i] = 0;
  }
}

// Grid: rows.
__global__ void gather_latent_rows(const std::uint8_t* plane, std::int64_t stride,
                                   std::int64_t num_slots, LatentLayout row,
                                   const std::int32_t* slots, RowsOf<float> out) {
  begin_dependent();
  const std::int64_t slot = slots[blockIdx.x];
  expect_below(slot, num_slots);
  const std::uint8_t* from = plane + slot * stride;
  float* to = out.row(blockIdx.x);
  for (int i = threadIdx.x; i < row.latent; i += blockDim.x)
    to[i] = widen(ops::E4M3{from[i]}) * latent_scale(from[row.exponents_at + i / kGroup]);
  const auto* rotated = reinterpret_cast<const Bf16*>(from + row.rope_at);
  for (int i = threadIdx.x; i < row.rope; i += blockDim.x) to[row.latent + i] = widen(rotated[i]);
}

}  // namespace

void write_latent_codes(Context& ctx, const Tensor& latent, const Tensor& rope, const Tensor& slots,
                        const Tensor& plane) {
  if (slots.dim(0) == 0) return;
  launch_dependent(ctx, "write_latents of e4m3", write_latent_rows,
                   static_cast<unsigned>(slots.dim(0)), block_for(latent.dim(1) / 4), 0,
                   rows_of<const float>(latent), rows_of<const float>(rope),
                   layout_of(latent.dim(1), rope.dim(1)), slots.ptr<std::int64_t>(), plane.dim(0),
                   static_cast<std::uint8_t*>(plane.data), plane.stride[0]);
}

void gather_latent_codes(Context& ctx, const Tensor& plane, const Tensor& slots,
                         std::int64_t latent, const Tensor& out) {
  if (slots.dim(0) == 0) return;
  launch_dependent(ctx, "gather_latents of e4m3", gather_latent_rows,
                   static_cast<unsigned>(slots.dim(0)), block_for(latent), 0,
                   static_cast<const std::uint8_t*>(plane.data), plane.stride[0], plane.dim(0),
                   layout_of(latent, out.dim(1) - latent), slots.ptr<std::int32_t>(),
                   rows_of<float>(out));
}

void write_e4m3_rows(Context& ctx, const Tensor& src, const Tensor& slots,
                     const ops::KvPlane& plane) {
  if (src.numel() == 0) return;
  const std::int64_t columns = src.dim(1), heads = plane.scales.defined() ? plane.scales.dim(0) : 1;
  launch_dependent(ctx, "kv_write of e4m3", write_rows, static_cast<unsigned>(src.dim(0)),
                   block_for(columns), 0, rows_of<const float>(src), columns,
                   slots.ptr<std::int64_t>(), plane.data.dim(0), plane.head_scales(),
                   columns / heads, static_cast<std::uint8_t*>(plane.data.data),
                   plane.data.stride[0]);
}

}  // namespace sluice::cuda
