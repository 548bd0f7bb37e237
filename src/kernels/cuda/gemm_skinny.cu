// Products of few rows in bfloat16: every weight is read once, at the speed of memory; what stands before and after a
// product in a layer (a norm of its rows, the gate of an MLP, the sum with the stream) is done inside it.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch_plan.h"
#include "kernels/cuda/weight_ring.cuh"

namespace sluice::cuda {
namespace {

constexpr std::int64_t kDeclaredBytes = 1 << 10;   // of shared memory that the kernel declares, at most
constexpr std::int64_t kMostXBytes = 104 << 10;   // of x in shared memory; more is read where it lies

struct SkinnyArgs {
  GemmArgs a;
  RowsAround around;
  std::int64_t tiles = 0;
  bool x_in_shared = false;
};

__device__ float bias_at(const GemmArgs& a, std::int64_t n) {
  if (a.bias == nullptr) return 0;
  if (a.bias_type == DType::kBF16) return widen(static_cast<const Bf16*>(a.bias)[n]);
  if (a.bias_type == DType::kF16) return widen(static_cast<const F16*>(a.bias)[n]);
  return static_cast<const float*>(a.bias)[n];
}

// Grid: blocks that take tiles of 16 rows of w (of gates and of ups, for two parts) in turn, then the batch. The first
// weights of the next tile are asked for before this one's sums are joined; those of the first tile before the kernel
// that makes x has ended.
template <int kParts, int kTiles, int kStages>
__global__ void __launch_bounds__(kRingThreads, 2) skinny_kernel(const __grid_constant__ SkinnyArgs args) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float factor[kMostStreamedRows];   // of rows that are normalised
  using Shape = RingShape<kParts, kStages>;
  const GemmArgs& a = args.a;
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, rows = static_cast<int>(a.m);
  const RingJoin<kParts> join{.part = reinterpret_cast<float*>(shared + Shape::kBytes), .rows = rows};
  unsigned char* rest = shared + Shape::kBytes + RingJoin<kParts>::bytes(rows);
  const bool norm = args.around.norm != nullptr;
  Bf16* staged = reinterpret_cast<Bf16*>(rest);

  const Bf16* w = static_cast<const Bf16*>(a.w) + blockIdx.y * a.w_batch;
  const std::int64_t first = warp * kUnitColumns;
  const int steps = first < a.k ? static_cast<int>((a.k - first + kTurnColumns - 1) / kTurnColumns) : 0;
  WeightRing<kParts, kStages> ring(shared);
  std::int64_t asked_tile = blockIdx.x;
  int asked_step = 0;
  const auto ask = [&] {
    if (steps > 0 && asked_tile < args.tiles) {
      const Bf16* from[kParts];
#pragma unroll
      for (int p = 0; p < kParts; ++p) from[p] = w + (p * a.n + asked_tile * kRingRows) * a.w_stride;
      ring.ask(from, a.w_stride, static_cast<int>(min(a.n - asked_tile * kRingRows, std::int64_t{kRingRows})),
               first + asked_step * std::int64_t{kTurnColumns}, a.k);
      if (++asked_step == steps) asked_step = 0, asked_tile += gridDim.x;
    }
    ring.commit();
  };
#pragma unroll
  for (int i = 0; i < Shape::kStages - 1; ++i) ask();
  if (norm) prefetch_lines(args.around.norm, a.k * 4);
  start_next_kernel();
  wait_for_earlier_kernels();

  const Bf16* x[kTiles];
  if (norm) {
    normalise_rows(static_cast<const float*>(a.x), a.x_stride, rows, a.k, args.around.norm, args.around.eps, staged, factor);
  } else if (args.x_in_shared) {
    const Bf16* from = static_cast<const Bf16*>(a.x) + blockIdx.y * a.x_batch;
    stage_rows([&](int i) { return from + i * a.x_stride; }, rows, a.k, staged);
    __syncthreads();
  }
  // Rows past the last one repeat it: their sums are never stored.
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int row = min(n * 8 + g, rows - 1);
    x[n] = (norm || args.x_in_shared ? staged + row * (a.k + kXPadding)
                                     : static_cast<const Bf16*>(a.x) + blockIdx.y * a.x_batch + row * a.x_stride) + first;
  }

  // A step ahead, as x may have to come from far.
  XUnit<kTiles> x_now, x_next;
  const auto load_x = [&](int step) {
    const std::int64_t column = step * std::int64_t{kTurnColumns};
    const Bf16* here[kTiles];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) here[n] = x[n] + column;
    x_next.load(here, a.k - first - column);
  };
  if (steps > 0) load_x(0);

  int turn = 0;
  for (std::int64_t tile = blockIdx.x; tile < args.tiles; tile += gridDim.x, turn ^= 1) {
    // The element that this thread joins, and what it needs besides the sums, which has its way to come meanwhile.
    const int m = threadIdx.x / kRingRows;
    const std::int64_t n = tile * kRingRows + threadIdx.x % kRingRows;
    const bool joins = m < rows && n < a.n;
    [[maybe_unused]] float* const to = kParts == 2 ? nullptr : a.out + blockIdx.y * a.out_batch + m * a.out_stride + n;
    [[maybe_unused]] const float before = kParts == 1 && joins && args.around.add ? *to : 0.0f;
    const float bias = joins ? bias_at(a, n) : 0.0f;
    [[maybe_unused]] const float up_bias = kParts == 2 && joins ? bias_at(a, a.n + n) : 0.0f;
    RingSums<kParts, kTiles> sums;
    sums.clear();
    for (int step = 0; step < steps; ++step) {
      x_now = x_next;
      load_x(step + 1 == steps ? 0 : step + 1);
      ring.await();
      ask();
      ring.take(x_now, sums);
    }
    join.put(turn, sums);
    __syncthreads();   // the other turn's sums were read before this
    if (!joins) continue;
    const float scale = norm ? factor[m] : 1.0f;
    const float value = fmaf(join.sum(turn, 0, m, threadIdx.x % kRingRows), scale, bias);
    if constexpr (kParts == 2) {
      const float up = fmaf(join.sum(turn, 1, m, threadIdx.x % kRingRows), scale, up_bias);
      args.around.gated[m * args.around.gated_stride + n] = narrow<Bf16>(gate_function(value, args.around.gelu) * up);
    } else {
      *to = args.around.add ? before + value : value;
    }
  }
}

static_assert(16 * kRingRows <= kRingThreads);   // an element of a tile for each thread

template <int kParts, int kStages>
std::int64_t shared_bytes(const SkinnyArgs& args, bool alone) {
  std::int64_t bytes = RingShape<kParts, kStages>::kBytes + RingJoin<kParts>::bytes(args.a.m);
  if (args.x_in_shared) bytes += args.a.m * (args.a.k + kXPadding) * 2;
  return alone ? std::max(bytes, kAloneBytes) : bytes;
}

bool x_fits(const GemmArgs& args) { return args.m * (args.k + kXPadding) * 2 <= kMostXBytes; }

}  // namespace

bool norm_fits(std::int64_t rows, std::int64_t k) {
  // Every block normalises all rows; beyond this a launch that does it once is as fast.
  constexpr std::int64_t kMostElements = 16 << 10;
  return rows <= kMostStreamedRows && rows * k <= kMostElements && x_fits({.m = rows, .k = k});
}

void gemm_skinny(Context& ctx, const GemmArgs& gemm, const RowsAround& around) {
  SkinnyArgs args{.a = gemm, .around = around, .tiles = blocks_for(gemm.n, kRingRows), .x_in_shared = x_fits(gemm)};
  const std::int64_t most = ctx.cuda == nullptr ? 1 : ctx.cuda->facts().num_multiprocessors;
  const dim3 grid(static_cast<unsigned>(std::min(args.tiles, std::max<std::int64_t>(most / gemm.batch, 1))),
                  static_cast<unsigned>(gemm.batch));
  // Products that end in a sum stand between others, whose blocks keep theirs apart.
  const bool alone = !around.add && ctx.cuda != nullptr && most_shared_bytes(ctx.cuda->facts().sm) >= 2 * kAloneBytes;
  const auto launch = [&]<int kParts, int kTiles, int kStages>(const char* what) {
    if (around.norm == nullptr && ctx.cuda != nullptr &&
        shared_bytes<kParts, kStages>(args, alone) + kDeclaredBytes > most_shared_bytes(ctx.cuda->facts().sm))
      args.x_in_shared = false;
    launch_dependent(ctx, what, skinny_kernel<kParts, kTiles, kStages>, grid, kRingThreads, shared_bytes<kParts, kStages>(args, alone),
                     args);
  };
  if (around.gated != nullptr) return launch.template operator()<2, 1, kRingStages<2>>("a skinny product with gates");
  constexpr const char* kWhat = "a skinny product";
  if (gemm.m > 8) return launch.template operator()<1, 2, kRingStages<1>>(kWhat);
  if (alone) return launch.template operator()<1, 1, kAloneStages>(kWhat);
  launch.template operator()<1, 1, kRingStages<1>>(kWhat);
}

}  // namespace sluice::cuda
