// Products of up to 16 rows in bfloat16: every weight is read once, at the speed of memory.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_stream.cuh"

namespace sluice::cuda {
namespace {

constexpr int kBlocksPerMultiprocessor = 2;

__device__ float bias_at(const GemmArgs& a, std::int64_t n) {
  if (a.bias == nullptr) return 0;
  if (a.bias_type == DType::kBF16) return widen(static_cast<const Bf16*>(a.bias)[n]);
  if (a.bias_type == DType::kF16) return widen(static_cast<const F16*>(a.bias)[n]);
  return static_cast<const float*>(a.bias)[n];
}

// Grid: blocks that take tiles of 16 columns in turn, then the batch. The first weights of the next tile are asked for
// before this one's sums are joined; those of the first tile before the kernel that makes x has ended.
template <int kTiles>
__global__ void __launch_bounds__(kStreamThreads, kBlocksPerMultiprocessor) skinny_kernel(const __grid_constant__ GemmArgs a) {
  __shared__ StreamedParts<1, kTiles> parts[2];
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, quad = threadIdx.x % 4;
  constexpr std::int64_t kChunk = kChunkSteps<1> * kStepColumns, kTurn = kStreamWarps * kChunk;
  const Bf16* w = static_cast<const Bf16*>(a.w) + blockIdx.y * a.w_batch;
  const Bf16* x_base = static_cast<const Bf16*>(a.x) + blockIdx.y * a.x_batch;
  const std::int64_t first = warp * kChunk + quad * 8;
  const Bf16* rows[1][2];
  const auto choose = [&](std::int64_t tile) {
    for (int h = 0; h < 2; ++h) rows[0][h] = w + min(tile * kStreamRows + g + 8 * h, a.n - 1) * a.w_stride;
  };
  const Bf16* x[kTiles];
#pragma unroll
  for (int n = 0; n < kTiles; ++n) x[n] = n * 8 + g < a.m ? x_base + (n * 8 + g) * a.x_stride : nullptr;

  StreamedWeights<1> now, next;
  choose(blockIdx.x);
  next.load(rows, first, a.k);
  start_next_kernel();
  wait_for_earlier_kernels();
  int turn = 0;
  for (std::int64_t tile = blockIdx.x; tile * kStreamRows < a.n; tile += gridDim.x, turn ^= 1) {
    StreamedSums<1, kTiles> sums;
    sums.clear();
    for (std::int64_t column = first; column < a.k + quad * 8; column += kTurn) {
      now = next;
      if (column + kTurn < a.k + quad * 8) {
        next.load(rows, column + kTurn, a.k);
      } else if ((tile + gridDim.x) * kStreamRows < a.n) {
        choose(tile + gridDim.x);
        next.load(rows, first, a.k);
      }
      sums.add(now, x, column, a.k);
    }
    parts[turn].put(sums);
    __syncthreads();   // the other turn's sums were read before this
    for (int i = threadIdx.x; i < 8 * kTiles * kStreamRows; i += kStreamThreads) {
      const std::int64_t m = i / kStreamRows, n = tile * kStreamRows + i % kStreamRows;
      if (m < a.m && n < a.n)
        a.out[blockIdx.y * a.out_batch + m * a.out_stride + n] =
            parts[turn].sum(0, static_cast<int>(m), i % kStreamRows) + bias_at(a, n);
    }
  }
}

}  // namespace

void gemm_skinny(Context& ctx, const GemmArgs& args) {
  const auto tiles = static_cast<std::int64_t>(blocks_for(args.n, kStreamRows));
  const std::int64_t most = std::int64_t{kBlocksPerMultiprocessor} * (ctx.cuda == nullptr ? 1 : ctx.cuda->facts().num_multiprocessors);
  const dim3 grid(static_cast<unsigned>(std::min(tiles, std::max<std::int64_t>(most / args.batch, 1))),
                  static_cast<unsigned>(args.batch));
  const auto kernel = args.m <= 8 ? skinny_kernel<1> : skinny_kernel<2>;
  launch_dependent(ctx, "a skinny product", kernel, grid, kStreamThreads, 0, args);
}

}  // namespace sluice::cuda
