// Streaming rows of bfloat16 weights past a few rows of x: the inner part of products for small batches.
//
// A warp multiplies 16 rows of weights, the tall side of m16n8k16, with up to 8 rows of x for each tile. Lane 4 g + t reads
// 16 bytes of rows g and g + 8 at columns 32 b + 8 t, straight into registers: the order of columns inside a step is
// whatever x and w agree on, and eight neighbours make the fragments of two products. The warps of a block share the
// columns in chunks, and the block adds their sums in ascending order, so an element's order of summation depends on
// K alone.
#pragma once

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace sluice::cuda {

inline constexpr int kStreamWarps = 8;
inline constexpr int kStreamThreads = kStreamWarps * kWarp;
inline constexpr int kStreamRows = 16;      // of weights, of a tile
inline constexpr int kStepColumns = 32;
// Steps of a chunk, so that a lane has 8 loads of weights under way for one tile of rows as for two.
template <int kParts>
inline constexpr int kChunkSteps = 4 / kParts;

__device__ inline uint4 load_once(const Bf16* p) {
  uint4 r;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
  return r;
}

// What a lane holds of kParts tiles of weights for a chunk of columns.
template <int kParts>
struct StreamedWeights {
  uint4 part[kParts][2][kChunkSteps<kParts>];

  // rows[p][h]: row g + 8 h of tile p; `column`: this lane's first. Columns from k on are zeros.
  __device__ void load(const Bf16* const (&rows)[kParts][2], std::int64_t column, std::int64_t k) {
#pragma unroll
    for (int s = 0; s < kChunkSteps<kParts>; ++s) {
      const std::int64_t at = column + s * kStepColumns;
#pragma unroll
      for (int p = 0; p < kParts; ++p)
#pragma unroll
        for (int h = 0; h < 2; ++h) part[p][h][s] = at < k ? load_once(rows[p][h] + at) : uint4{};
    }
  }
};

template <int kParts, int kTiles>
struct StreamedSums {
  float c[kParts][kTiles][4];

  __device__ void clear() {
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) c[p][n][i] = 0;
  }

  // x[n]: row g of tile n, or null for a row of zeros.
  __device__ void add(const StreamedWeights<kParts>& w, const Bf16* const (&x)[kTiles], std::int64_t column, std::int64_t k) {
#pragma unroll
    for (int s = 0; s < kChunkSteps<kParts>; ++s) {
      const std::int64_t at = column + s * kStepColumns;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const uint4 v = x[n] != nullptr && at < k ? *reinterpret_cast<const uint4*>(x[n] + at) : uint4{};
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
          const uint4 &low = w.part[p][0][s], &high = w.part[p][1][s];
          multiply16(c[p][n], {low.x, high.x, low.y, high.y}, v.x, v.y);
          multiply16(c[p][n], {low.z, high.z, low.w, high.w}, v.z, v.w);
        }
      }
    }
  }
};

// The sums of a block's warps, joined: [part][warp][row of x][row of w], padded so that a warp's stores do not collide.
template <int kParts, int kTiles>
struct StreamedParts {
  static constexpr int kStride = kStreamRows + 4;
  float part[kParts][kStreamWarps][8 * kTiles][kStride];

  __device__ void put(const StreamedSums<kParts, kTiles>& sums) {
    const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, quad = threadIdx.x % 4;
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) part[p][warp][n * 8 + quad * 2 + i % 2][g + i / 2 * 8] = sums.c[p][n][i];
  }
  __device__ float sum(int p, int x_row, int w_row) const {
    float total = 0;
#pragma unroll
    for (int warp = 0; warp < kStreamWarps; ++warp) total += part[p][warp][x_row][w_row];
    return total;
  }
};

}  // namespace sluice::cuda
