// How attention on mma.sync reads pages of the KV pool.
//
//   Bf16Pages   bfloat16, multiplied as it is
//   E4m3Pages   e4m3, multiplied as float16, which holds all its numbers and NaN. Queries get a
//               power of two, so that they fit; the weights of a softmax are at most 1
//
// An ldmatrix moves rows of 16 bytes. Of e4m3 a lane receives four numbers where it receives two of
// bfloat16. So it serves two MMAs, whose columns have an order of their own: along k of Q K^T, and
// along the columns of an output. Queries and outputs follow that order.
#pragma once

#include <cuda_fp8.h>

#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/common/halves.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/types/fp8.h"

namespace sluice::cuda {

__device__ inline float widen(ops::E4M3 x) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, __NV_E4M3)));
}

// x as e4m3, as the CPU rounds it: beyond 448 it is 448, NaN stays.
__device__ inline std::uint8_t round_to_e4m3(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}
__device__ inline std::uint32_t round_to_e4m3(const float4& x, float factor) {
  const __nv_fp8x2_storage_t low = __nv_cvt_float2_to_fp8x2({x.x * factor, x.y * factor},
                                                            __NV_SATFINITE, __NV_E4M3),
                             high = __nv_cvt_float2_to_fp8x2({x.z * factor, x.w * factor},
                                                             __NV_SATFINITE, __NV_E4M3);
  return low | static_cast<std::uint32_t>(high) << 16;
}

// kStepsEach: MMAs of 16 keys or columns for an ldmatrix of 32 bytes a row.
struct Bf16Pages {
  using Element = Bf16;
  static constexpr int kBytes = 2, kStepsEach = 1;
  static constexpr bool kHasScales = false;

  static __device__ Element narrowed(float x, float) { return narrow<Bf16>(x); }
  static __device__ std::uint32_t pack(float low, float high) { return pack_bf16(low, high); }
  static __device__ void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                             std::uint32_t b1) {
    mma_m16n8k16(c, a, b0, b1);
  }
  // Keys, and transposed values, as A fragments.
  static __device__ void keys_as_a(const std::uint32_t (&raw)[4], std::uint32_t (&a)[1][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[0][i] = raw[i];
  }
  static __device__ void values_as_a(const std::uint32_t (&raw)[4], std::uint32_t (&a)[1][4]) {
    keys_as_a(raw, a);
  }
  // B fragments: keys of tile 0 or 1 of 8 keys; values of a tile of 8 columns.
  static __device__ void keys_as_b(const std::uint32_t (&raw)[4], int tile, int,
                                   std::uint32_t (&b)[2]) {
    b[0] = raw[2 * tile], b[1] = raw[2 * tile + 1];
  }
  static __device__ void values_as_b(const std::uint32_t (&raw)[4], int tile,
                                     std::uint32_t (&b)[2]) {
    b[0] = raw[2 * tile], b[1] = raw[2 * tile + 1];
  }
  // Column within 16 of a pair of a query: register `half` of a B fragment.
  static __device__ int query_column(int quad, int half) { return half * 8 + quad * 2; }
  // Column within 16 of an output whose columns are the rows of the MMA.
  static __device__ int row_column(int lane_row, int half) { return lane_row + 8 * half; }
  // Column of element `odd` of a lane in tile n of 8 columns.
  static __device__ int tile_column(int n, int quad, int odd) { return n * 8 + quad * 2 + odd; }
};

struct E4m3Pages {
  using Element = std::uint8_t;
  static constexpr int kBytes = 1, kStepsEach = 2;
  static constexpr bool kHasScales = true;

  static __device__ Element narrowed(float x, float factor) { return round_to_e4m3(x * factor); }
  static __device__ std::uint32_t pack(float low, float high) { return pack_f16(low, high); }
  static __device__ void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                             std::uint32_t b1) {
    mma_m16n8k16_f16(c, a, b0, b1);
  }
  // Columns 4 quad .. 4 quad + 3 of 16: the first two are those of quad, the others those 8 later.
  static __device__ void keys_as_a(const std::uint32_t (&raw)[4], std::uint32_t (&a)[2][4]) {
#pragma unroll
    for (int step = 0; step < 2; ++step)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        a[step][i] = e4m3_pair(raw[2 * step + i]);
        a[step][i + 2] = e4m3_pair(raw[2 * step + i] >> 16);
      }
  }
  // Bytes 0 and 2 are two keys of an even column, bytes 1 and 3 those of the odd one after it.
  static __device__ std::uint32_t by_column(std::uint32_t raw) {
    return __byte_perm(raw, 0, 0x3120);
  }
  static __device__ void values_as_a(const std::uint32_t (&raw)[4], std::uint32_t (&a)[2][4]) {
#pragma unroll
    for (int step = 0; step < 2; ++step)
#pragma unroll
      for (int i = 0; i < 2; ++i) {  // keys 0 to 7, keys 8 to 15
        const std::uint32_t both = by_column(raw[step + 2 * i]);
        a[step][2 * i] = e4m3_pair(both);
        a[step][2 * i + 1] = e4m3_pair(both >> 16);
      }
  }
  static __device__ void keys_as_b(const std::uint32_t (&raw)[4], int tile, int step,
                                   std::uint32_t (&b)[2]) {
    b[0] = e4m3_pair(raw[2 * tile + step]), b[1] = e4m3_pair(raw[2 * tile + step] >> 16);
  }
  static __device__ void values_as_b(const std::uint32_t (&raw)[4], int tile,
                                     std::uint32_t (&b)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) b[i] = e4m3_pair(by_column(raw[tile / 2 * 2 + i]) >> tile % 2 * 16);
  }
  static __device__ int query_column(int quad, int half) { return quad * 4 + half * 2; }
  static __device__ int row_column(int lane_row, int half) { return lane_row * 2 + half; }
  static __device__ int tile_column(int n, int quad, int odd) {
    return n / 2 * 16 + quad * 4 + odd * 2 + n % 2;
  }
};

}  // namespace sluice::cuda
