// GEMM in float32 arithmetic for few columns and long rows, on Hopper: a router, or an indexer's
// weights. The CTAs of a cluster share the columns of x and w, so that a small output still keeps
// many SMs busy.
//
// 1. SplitTile        mainloop: 32 rows by 64 columns of the output, over an eighth of k
// 2. store_to_cta     each CTA of the cluster gathers the sums of four rows
// 3. out              the eight sums of an element are added in the order of k
//
// The order of summation depends on k alone.
#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/gemm/gemm.h"

namespace sluice::cuda {
namespace {

constexpr int kRows = 32, kColumns = 64;  // of a tile
constexpr int kStep = 32;                 // of k
constexpr int kSplits = 8;                // CTAs of a cluster
constexpr int kThreads = 128;             // each has 4 x 4 outputs
constexpr int kOwned = kRows / kSplits;   // rows that a CTA of the cluster stores
constexpr int kPadding = 4;               // against bank conflicts; rows stay on 16 bytes

// Eight neighbouring elements of a row that begins on 16 bytes; zeros from `end` on.
template <class T>
__device__ inline void load_eight(const T* row, std::int64_t k, std::int64_t end, float (&to)[8]) {
  if (k + 8 <= end) {
    alignas(16) T raw[8];
#pragma unroll
    for (int i = 0; i < static_cast<int>(8 * sizeof(T) / 16); ++i)
      reinterpret_cast<uint4*>(raw)[i] = reinterpret_cast<const uint4*>(row + k)[i];
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = widen(raw[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i] = k + i < end ? widen(row[k + i]) : 0.0f;
}

// 1. k is the outer index in shared memory, so that a thread reads its four rows and four columns
// as one float4 each.
struct SplitTile {
  float x[kStep][kRows + kPadding], w[kStep][kColumns + kPadding];
};

// Grid: the splits of tiles of columns, tiles of rows, batch.
template <class TX, class TW>
__global__ void __launch_bounds__(kThreads) split_kernel(const __grid_constant__ GemmArgs a) {
  __shared__ SplitTile tile;
  __shared__ float gathered[kSplits][kOwned][kColumns];
  cluster_arrive();  // stores into another CTA wait for its begin
  begin_dependent();
  const unsigned split = blockIdx.x % kSplits;
  const std::int64_t n0 = std::int64_t{blockIdx.x / kSplits} * kColumns,
                     m0 = std::int64_t{blockIdx.y} * kRows;
  const std::int64_t share = (a.k + kSplits * kStep - 1) / (kSplits * kStep) * kStep,
                     begin = min(split * share, a.k), end = min(begin + share, a.k);
  // A thread loads 8 elements of a row of x and 16 of a row of w.
  const int x_row = threadIdx.x / 4, x_k = threadIdx.x % 4 * 8, w_row = threadIdx.x / 2,
            w_k = threadIdx.x % 2 * 8;
  const TX* from_x =
      static_cast<const TX*>(a.x) + blockIdx.z * a.x_batch + min(m0 + x_row, a.m - 1) * a.x_stride;
  const TW* from_w =
      static_cast<const TW*>(a.w) + blockIdx.z * a.w_batch + min(n0 + w_row, a.n - 1) * a.w_stride;
  const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
  float next_x[8], next_w[2][8], sums[4][4] = {};
  const auto load = [&](std::int64_t k) {
    load_eight(from_x, k + x_k, end, next_x);
#pragma unroll
    for (int i = 0; i < 2; ++i) load_eight(from_w, k + w_k + 16 * i, end, next_w[i]);
  };
  load(begin);
  for (std::int64_t k0 = begin; k0 < end; k0 += kStep) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      tile.x[x_k + i][x_row] = next_x[i];
      tile.w[w_k + i][w_row] = next_w[0][i];
      tile.w[w_k + 16 + i][w_row] = next_w[1][i];
    }
    __syncthreads();  // the tile is complete
    if (k0 + kStep < end) load(k0 + kStep);
#pragma unroll 8
    for (int k = 0; k < kStep; ++k) {
      const float4 xv = *reinterpret_cast<const float4*>(&tile.x[k][row]),
                   wv = *reinterpret_cast<const float4*>(&tile.w[k][column]);
      const float left[4] = {xv.x, xv.y, xv.z, xv.w}, right[4] = {wv.x, wv.y, wv.z, wv.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
    }
    __syncthreads();  // the tile is read
  }

  // 2. The thread's four rows belong to one CTA.
  static_assert(kOwned == 4);
  cluster_wait();
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; j += 2)
      store_to_cta(&gathered[split][i][column + j], static_cast<unsigned>(row / kOwned),
                   float2{sums[i][j], sums[i][j + 1]});
  cluster_arrive();
  cluster_wait();

  // 3.
  for (int i = threadIdx.x; i < kOwned * kColumns; i += kThreads) {
    const int r = i / kColumns, c = i % kColumns;
    const std::int64_t m = m0 + split * kOwned + r, n = n0 + c;
    if (m >= a.m || n >= a.n) continue;
    float sum = gathered[0][r][c];
#pragma unroll
    for (int s = 1; s < kSplits; ++s) sum += gathered[s][r][c];
    a.out[blockIdx.z * a.out_batch + m * a.out_stride + n] = sum;
  }
}

}  // namespace

void gemm_split(Context& ctx, const GemmArgs& args) {
  const dim3 grid(blocks_for(args.n, kColumns) * kSplits, blocks_for(args.m, kRows),
                  static_cast<unsigned>(args.batch));
  const ClusterLaunch launch(ctx, grid, kThreads, 0, dim3(kSplits));
  with_plane_type(args.x_type, [&](auto x) {
    with_float_type(args.w_type, [&](auto w) {
      launch.run("GEMM of few columns", split_kernel<decltype(x), decltype(w)>, args);
    });
  });
}

}  // namespace sluice::cuda
