// GEMM in float32 arithmetic for any types and shapes. The sum over k runs in one order for every
// m, n and batch.
//   rows_kernel    few rows: a warp for each output column
//   tiled_kernel   many rows: tiles of 64 x 64 in shared memory
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/gemm_plan.h"
#include "kernels/cuda/gemm/gemm_rows.cuh"

namespace sluice::cuda {
namespace {

constexpr int kWarpsPerBlock = 4;

// A warp computes column n for kRows rows of x: a weight is loaded once for all of them. Grid:
// columns, groups of rows, batch.
template <class TX, class TW, int kRows, bool kAligned>
__global__ void __launch_bounds__(kWarpsPerBlock* kWarp) rows_kernel(GemmArgs a) {
  begin_dependent();
  const std::int64_t n = std::int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kWarp;
  const std::int64_t m0 = std::int64_t{blockIdx.y} * kRows;
  if (n >= a.n) return;
  const TX* base = static_cast<const TX*>(a.x) + blockIdx.z * a.x_batch;
  const TX* x[kRows];
  // Rows past the end repeat the last row: their sums are not stored.
  for (int r = 0; r < kRows; ++r) x[r] = base + min(m0 + r, a.m - 1) * a.x_stride;
  float acc[kRows];
  dot_rows<TX, TW, kRows, kAligned>(
      x, static_cast<const TW*>(a.w) + blockIdx.z * a.w_batch + n * a.w_stride, a.k, acc);
  if (threadIdx.x % kWarp != 0) return;
  for (int r = 0; r < kRows; ++r)
    if (m0 + r < a.m) a.out[blockIdx.z * a.out_batch + (m0 + r) * a.out_stride + n] = acc[r];
}

constexpr int kTile = 64;
constexpr int kTileK = 16;
constexpr int kThreads = 256;

// A thread has 4 x 4 outputs. k is the outer index in shared memory, so that a thread reads its
// four rows and four columns as one float4 each. The padding of 4 avoids bank conflicts of the
// stores. Grid: tiles of columns, tiles of rows, batch.
template <class TX, class TW>
__global__ void __launch_bounds__(kThreads) tiled_kernel(GemmArgs a) {
  __shared__ float xs[kTileK][kTile + 4];
  __shared__ float ws[kTileK][kTile + 4];
  const TX* x = static_cast<const TX*>(a.x) + blockIdx.z * a.x_batch;
  const TW* w = static_cast<const TW*>(a.w) + blockIdx.z * a.w_batch;
  const std::int64_t n0 = std::int64_t{blockIdx.x} * kTile, m0 = std::int64_t{blockIdx.y} * kTile;
  // A thread loads four elements of one row, and computes outputs elsewhere in the tile.
  const int load_row = threadIdx.x / 4, load_k = threadIdx.x % 4 * 4;
  const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
  const TX* from_x = x + min(m0 + load_row, a.m - 1) * a.x_stride;
  const TW* from_w = w + min(n0 + load_row, a.n - 1) * a.w_stride;
  float acc[4][4] = {};
  for (std::int64_t k0 = 0; k0 < a.k; k0 += kTileK) {
    for (int i = 0; i < 4; ++i) {
      const std::int64_t k = k0 + load_k + i;
      xs[load_k + i][load_row] = k < a.k ? widen(from_x[k]) : 0.0f;
      ws[load_k + i][load_row] = k < a.k ? widen(from_w[k]) : 0.0f;
    }
    __syncthreads();  // the tile is complete
    // No zeros are added at the end of k: a sum has exactly k terms.
    const int count = static_cast<int>(min(std::int64_t{kTileK}, a.k - k0));
    for (int k = 0; k < count; ++k) {
      const float4 xv = *reinterpret_cast<const float4*>(&xs[k][row]);
      const float4 wv = *reinterpret_cast<const float4*>(&ws[k][column]);
      const float left[4] = {xv.x, xv.y, xv.z, xv.w}, right[4] = {wv.x, wv.y, wv.z, wv.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] = fmaf(left[i], right[j], acc[i][j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      if (m0 + row + i < a.m && n0 + column + j < a.n)
        a.out[blockIdx.z * a.out_batch + (m0 + row + i) * a.out_stride + n0 + column + j] =
            acc[i][j];
}

// out += bias. Grid: rows.
template <class Bias>
__global__ void bias_kernel(float* out, std::int64_t stride, const Bias* bias, std::int64_t n) {
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x)
    out[blockIdx.x * stride + i] += widen(bias[i]);
}

// Up to 8 rows of x share a load of the weights.
template <class TX, class TW, bool kAligned>
void launch_rows(Context& ctx, const GemmArgs& args) {
  // The number of rows is a template argument, so that accumulators stay in registers.
  const int rows = gemm_rows_at_once(args.m);
  const dim3 grid(blocks_for(args.n, kWarpsPerBlock), blocks_for(args.m, rows),
                  static_cast<unsigned>(args.batch));
  const auto kernel = rows == 1   ? rows_kernel<TX, TW, 1, kAligned>
                      : rows == 2 ? rows_kernel<TX, TW, 2, kAligned>
                      : rows == 4 ? rows_kernel<TX, TW, 4, kAligned>
                                  : rows_kernel<TX, TW, 8, kAligned>;
  launch_dependent(ctx, "GEMM by rows", kernel, grid, kWarpsPerBlock * kWarp, 0, args);
}

// All rows of x and w begin on 16 bytes, in every batch.
bool all_aligned(const GemmArgs& a) {
  const std::int64_t x_bytes = dtype_size(a.x_type), w_bytes = dtype_size(a.w_type);
  return rows_aligned(a.x, a.x_stride, x_bytes) && rows_aligned(a.x, a.x_batch, x_bytes) &&
         rows_aligned(a.w, a.w_stride, w_bytes) && rows_aligned(a.w, a.w_batch, w_bytes);
}

}  // namespace

void gemm_by_rows(Context& ctx, const GemmArgs& args) {
  const bool aligned = all_aligned(args);
  // One instance for each pair of types.
  with_plane_type(args.x_type, [&](auto x) {
    with_float_type(args.w_type, [&](auto w) {
      if (aligned)
        launch_rows<decltype(x), decltype(w), true>(ctx, args);
      else
        launch_rows<decltype(x), decltype(w), false>(ctx, args);
    });
  });
}

void gemm_tiled(Context& ctx, const GemmArgs& args) {
  const dim3 grid(blocks_for(args.n, kTile), blocks_for(args.m, kTile),
                  static_cast<unsigned>(args.batch));
  with_plane_type(args.x_type, [&](auto x) {
    with_float_type(args.w_type, [&](auto w) {
      tiled_kernel<decltype(x), decltype(w)><<<grid, kThreads, 0, stream_of(ctx)>>>(args);
    });
  });
  check_launch("tiled GEMM");
}

void add_bias(Context& ctx, const GemmArgs& args) {
  with_float_type(args.bias_type, [&](auto b) {
    using Bias = decltype(b);
    bias_kernel<<<static_cast<unsigned>(args.m), block_for(args.n), 0, stream_of(ctx)>>>(
        args.out, args.out_stride, static_cast<const Bias*>(args.bias), args.n);
  });
  check_launch("adding a bias");
}

}  // namespace sluice::cuda
