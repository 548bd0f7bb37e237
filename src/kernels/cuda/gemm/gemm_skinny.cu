// Products of few rows in bfloat16: every weight is read once, at the speed of memory; what stands
// before and after a product in a layer (a norm of its rows, the gate of an MLP, the sum with the
// stream) is done inside it.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/gemm_plan.h"
#include "kernels/cuda/gemm/weight_pipeline.cuh"

namespace sluice::cuda {
namespace {

struct SkinnyArgs {
  GemmArgs a;
  RowsAround around;
  int tiles = 0;
  bool x_in_shared = false;
};

__device__ float bias_at(const GemmArgs& a, std::int64_t n) {
  if (a.bias == nullptr) return 0;
  if (a.bias_type == DType::kBF16) return widen(static_cast<const Bf16*>(a.bias)[n]);
  if (a.bias_type == DType::kF16) return widen(static_cast<const F16*>(a.bias)[n]);
  return static_cast<const float*>(a.bias)[n];
}

// Grid: blocks that take tiles of 16 rows of w (of gates and of ups, for two parts) in turn, then
// the batch. The first weights of the next tile are asked for before this one's sums are joined;
// those of the first tile before the kernel that makes x has ended. kWhole: tiles and turns are
// whole and x lies in shared memory, so nothing is checked on the way.
template <int kParts, int kTiles, int kStages, bool kWhole>
__global__ void __launch_bounds__(kPipelineThreads, 2)
    skinny_kernel(const __grid_constant__ SkinnyArgs args) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float factor[kMaxStreamedRows];    // of rows that are normalised
  __shared__ float squares_of[kPipelineWarps];  // of one row
  using Shape = PipelineShape<kParts, kStages>;
  const GemmArgs& a = args.a;
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, rows = static_cast<int>(a.m),
            k = static_cast<int>(a.k);
  const PipelineReduction<kParts> join{.part = reinterpret_cast<float*>(shared + Shape::kBytes),
                                       .rows = rows};
  Bf16* const staged =
      reinterpret_cast<Bf16*>(shared + Shape::kBytes + PipelineReduction<kParts>::bytes(rows));
  const bool norm = args.around.norm != nullptr,
             one_norm = norm && rows == 1 && k <= OneRowNorm::kMost;

  const Bf16* const w = static_cast<const Bf16*>(a.w) + blockIdx.y * a.w_batch;
  const int first = warp * kUnitColumns, blocks = static_cast<int>(gridDim.x);
  const int steps = first < k ? (k - first + kTurnColumns - 1) / kTurnColumns : 0;
  WeightPipeline<kParts, kStages> pipeline(shared);
  int issued_tile = static_cast<int>(blockIdx.x), issued_step = 0;
  [[maybe_unused]] const Bf16* from =
      w + issued_tile * (kPipelineRows * a.w_stride) + first + pipeline.lane_offset(a.w_stride);
  [[maybe_unused]] const std::int64_t to_next_tile =
      blocks * (kPipelineRows * a.w_stride) - (steps - 1) * std::int64_t{kTurnColumns};
  const auto issue = [&] {
    if (steps > 0 && issued_tile < args.tiles) {
      if constexpr (kWhole) {
        pipeline.ask_whole(from, a.n * a.w_stride, a.w_stride);
        from += issued_step + 1 == steps ? to_next_tile : kTurnColumns;
      } else {
        const Bf16* rows_of[kParts];
#pragma unroll
        for (int p = 0; p < kParts; ++p)
          rows_of[p] = w + (p * a.n + issued_tile * kPipelineRows) * a.w_stride;
        pipeline.issue(
            rows_of, a.w_stride,
            static_cast<int>(min(a.n - issued_tile * kPipelineRows, std::int64_t{kPipelineRows})),
            first + issued_step * kTurnColumns, k);
      }
      if (++issued_step == steps) issued_step = 0, issued_tile += blocks;
    }
    pipeline.commit();
  };
#pragma unroll
  for (int i = 0; i < Shape::kStages - 1; ++i) issue();
  OneRowNorm row;
  if (one_norm)
    row.load_weights(args.around.norm, k);
  else if (norm)
    prefetch_lines(args.around.norm, a.k * 4);
  start_next_kernel();
  wait_for_earlier_kernels();

  // The element of a tile that this thread joins, and what it needs besides the sums, which is
  // asked for a tile ahead.
  const int m = threadIdx.x / kPipelineRows, column = threadIdx.x % kPipelineRows;
  [[maybe_unused]] float* const out =
      kParts == 2 ? nullptr : a.out + blockIdx.y * a.out_batch + m * a.out_stride;
  [[maybe_unused]] float before = 0, up_bias = 0;
  float bias = 0, scale = 1;
  const auto meet = [&](int tile) {
    const int n = tile * kPipelineRows + column;
    if (m >= rows || n >= a.n) return;
    if (kParts == 1 && args.around.add) before = out[n];
    bias = bias_at(a, n);
    if (kParts == 2) up_bias = bias_at(a, a.n + n);
  };
  meet(static_cast<int>(blockIdx.x));

  const Bf16* const x_rows = static_cast<const Bf16*>(a.x) + blockIdx.y * a.x_batch;
  if (one_norm) {
    row.normalise(static_cast<const float*>(a.x), k, staged, squares_of);
    if (m == 0) scale = OneRowNorm::factor(squares_of, k, args.around.eps);
  } else if (norm) {
    normalise_rows(static_cast<const float*>(a.x), a.x_stride, rows, a.k, args.around.norm,
                   args.around.eps, staged, factor);
  } else if (kWhole || args.x_in_shared) {
    stage_rows([&](int i) { return x_rows + i * a.x_stride; }, rows, a.k, staged);
    __syncthreads();
  }
  // Rows past the last one repeat it: their sums are never stored.
  const Bf16* x[kTiles];
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int i = min(n * 8 + g, rows - 1);
    x[n] = (kWhole || norm || args.x_in_shared ? staged + i * (k + kXPadding)
                                               : x_rows + i * a.x_stride) +
           first;
  }
  XUnit<kTiles> x_next;
  const auto load_x = [&](int step) {
    const Bf16* here[kTiles];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) here[n] = x[n] + step * kTurnColumns;
    if constexpr (kWhole)
      x_next.load_whole(here);
    else
      x_next.load(here, k - first - step * kTurnColumns);
  };
  if (steps > 0) load_x(0);

  int turn = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += blocks, turn ^= 1) {
    PipelineSums<kParts, kTiles> sums;
    multiply_tile(pipeline, steps, issue, load_x, x_next, sums);
    join.put(turn, sums);
    __syncthreads();  // the other turn's sums were read before this
    const int n = tile * kPipelineRows + column;
    if (m >= rows || n >= a.n) continue;
    if (norm && !one_norm) scale = factor[m];
    const float value = fmaf(join.sum(turn, 0, m, column), scale, bias);
    if constexpr (kParts == 2) {
      const float up = fmaf(join.sum(turn, 1, m, column), scale, up_bias);
      args.around.gated[m * args.around.gated_stride + n] =
          narrow<Bf16>(gate_function(value, args.around.gelu) * up);
    } else {
      out[n] = args.around.add ? before + value : value;
    }
    meet(tile + blocks);
  }
}

static_assert(16 * kPipelineRows <= kPipelineThreads);  // an element of a tile for each thread

}  // namespace

void gemm_skinny(Context& ctx, const GemmArgs& gemm, const RowsAround& around) {
  const SkinnyPlan plan = skinny_plan(ctx, gemm, around);
  const SkinnyArgs args{.a = gemm,
                        .around = around,
                        .tiles = static_cast<int>(plan.tiles),
                        .x_in_shared = plan.x_in_shared};
  const dim3 grid(static_cast<unsigned>(plan.blocks), static_cast<unsigned>(gemm.batch));
  const auto launch = [&]<int kParts, int kTiles, int kStages, bool kWhole>() {
    launch_dependent(ctx, kParts == 2 ? "a skinny product with gates" : "a skinny product",
                     skinny_kernel<kParts, kTiles, kStages, kWhole>, grid, kPipelineThreads,
                     plan.shared_bytes, args);
  };
  if (around.gated != nullptr) {
    if (plan.whole) return launch.template operator()<2, 1, kPipelineStages<2>, true>();
    if (plan.stages == kPipelineStages<2>)
      return launch.template operator()<2, 1, kPipelineStages<2>, false>();
    return launch.template operator()<2, 1, kFewPipelineStages<2>, false>();
  }
  if (plan.stages == kAloneStages) return launch.template operator()<1, 1, kAloneStages, true>();
  if (plan.whole) return launch.template operator()<1, 1, kPipelineStages<1>, true>();
  if (plan.stages == kPipelineStages<1>)
    return gemm.m > 8 ? launch.template operator()<1, 2, kPipelineStages<1>, false>()
                      : launch.template operator()<1, 1, kPipelineStages<1>, false>();
  return gemm.m > 8 ? launch.template operator()<1, 2, kFewPipelineStages<1>, false>()
                    : launch.template operator()<1, 1, kFewPipelineStages<1>, false>();
}

}  // namespace sluice::cuda
