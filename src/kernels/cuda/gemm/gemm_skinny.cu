// GEMM of few rows in bfloat16, bound by memory: every weight is read once. The operations before
// and after the GEMM in a layer are fused: a norm of the rows of x, the SwiGLU activation, the
// residual.
//
// The phases of skinny_kernel; the pipeline is that of kernels/cuda/gemm/weight_pipeline.cuh:
//   1. issue            cp.async of weights, before the kernel that makes x has ended
//   2. element.load     bias and residual of the next tile
//   3. stage x          rows of x to shared memory, with the norm
//   for each tile of 16 output columns:
//   4. load_x           fragments of x, one step ahead
//   5. multiply_tile    mainloop: each warp multiplies its share of k
//   6. reduction.put    the warps' sums to shared memory
//   7. element.store    epilogue: sum over the warps, scale, bias, activation or residual
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/gemm_plan.h"
#include "kernels/cuda/gemm/skinny_output.cuh"

namespace sluice::cuda {
namespace {

struct SkinnyArgs {
  GemmArgs a;
  RowsAround around;
  int tiles = 0;
  bool x_in_shared = false;
};

// Grid: CTAs that take tiles of 16 rows of w in turn (two parts: 16 of gate and 16 of up); batch.
// kWhole: all tiles and turns are whole and x is in shared memory, so the mainloop checks nothing.
template <int kParts, int kTiles, int kStages, bool kWhole>
__global__ void __launch_bounds__(kPipelineThreads, 2)
    skinny_kernel(const __grid_constant__ SkinnyArgs args) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float factor[kMaxStreamedRows];    // of rows that are normalised
  __shared__ float squares_of[kPipelineWarps];  // of one row
  using Shape = PipelineShape<kParts, kStages>;
  const GemmArgs& a = args.a;
  const int warp = threadIdx.x / kWarp, lane_row = threadIdx.x % kWarp / 4,
            rows = static_cast<int>(a.m), k = static_cast<int>(a.k);
  // Shared memory: the warps' pipelines, their sums, then rows of x.
  const PipelineReduction<kParts> reduction{
      .part = reinterpret_cast<float*>(shared + Shape::kBytes), .rows = rows};
  Bf16* const staged =
      reinterpret_cast<Bf16*>(shared + Shape::kBytes + PipelineReduction<kParts>::bytes(rows));
  const bool has_norm = args.around.norm != nullptr,
             has_one_norm = has_norm && rows == 1 && k <= OneRowNorm::kMaxElements;

  // 1. Weights. They do not depend on the kernel before, so the first units load before the wait.
  const Bf16* const w = static_cast<const Bf16*>(a.w) + blockIdx.y * a.w_batch;
  const int first = warp * kUnitColumns, ctas = static_cast<int>(gridDim.x);
  const int steps = first < k ? (k - first + kTurnColumns - 1) / kTurnColumns : 0;
  WeightPipeline<kParts, kStages> pipeline(shared);
  int issued_tile = static_cast<int>(blockIdx.x), issued_step = 0;
  [[maybe_unused]] const Bf16* from =
      w + issued_tile * (kPipelineRows * a.w_stride) + first + pipeline.lane_offset(a.w_stride);
  [[maybe_unused]] const std::int64_t to_next_tile =
      ctas * (kPipelineRows * a.w_stride) - (steps - 1) * std::int64_t{kTurnColumns};
  // The next unit of this tile, or the first one of the next tile: the pipeline does not drain
  // between tiles. Every call commits one cp.async group, also past the last tile.
  const auto issue = [&] {
    if (steps > 0 && issued_tile < args.tiles) {
      if constexpr (kWhole) {
        pipeline.issue_whole(from, a.n * a.w_stride, a.w_stride);
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
      if (++issued_step == steps) issued_step = 0, issued_tile += ctas;
    }
    pipeline.commit();
  };
#pragma unroll
  for (int i = 0; i < Shape::kStages - 1; ++i) issue();
  OneRowNorm row;
  if (has_one_norm)
    row.load_weights(args.around.norm, k);
  else if (has_norm)
    prefetch_lines(args.around.norm, a.k * 4);
  start_next_kernel();
  wait_for_earlier_kernels();

  // 2. Inputs of the epilogue of the first tile.
  const int m = threadIdx.x / kPipelineRows;
  OutputElement<kParts> element{
      .a = a,
      .around = args.around,
      .rows = rows,
      .m = m,
      .column = static_cast<int>(threadIdx.x % kPipelineRows),
      .out = kParts == 2 ? nullptr : a.out + blockIdx.y * a.out_batch + m * a.out_stride};
  element.load(static_cast<int>(blockIdx.x));

  // 3. x in shared memory, normalised if the layer has a norm there. The factor of a row is applied
  // to its sums, because it is known only after the whole row was read.
  const Bf16* const x_rows = static_cast<const Bf16*>(a.x) + blockIdx.y * a.x_batch;
  if (has_one_norm) {
    row.normalise(static_cast<const float*>(a.x), k, staged, squares_of);
    if (m == 0) element.scale_all(OneRowNorm::factor(squares_of, k, args.around.eps));
  } else if (has_norm) {
    normalise_rows(static_cast<const float*>(a.x), a.x_stride, rows, a.k, args.around.norm,
                   args.around.eps, staged, factor);
  } else if (kWhole || args.x_in_shared) {
    const auto row_of = [&](int i) { return x_rows + i * a.x_stride; };
    if (rows == 1)
      stage_row(x_rows, k, staged);
    else
      stage_rows_async(row_of, rows, a.k, staged);
    __syncthreads();
  }
  // Rows past the last one repeat the last row: their sums are never stored.
  const Bf16* x[kTiles];
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int i = min(n * 8 + lane_row, rows - 1);
    x[n] = (kWhole || has_norm || args.x_in_shared ? staged + i * (k + kXPadding)
                                                   : x_rows + i * a.x_stride) +
           first;
  }
  // 4. The lane's fragment of x, one step ahead.
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
  for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += ctas, turn ^= 1) {
    PipelineSums<kParts, kTiles> sums;
    multiply_tile(pipeline, steps, issue, load_x, x_next, sums);  // 5.
    reduction.put(turn, sums);                                    // 6.
    // One barrier a tile is enough, because turns alternate between two buffers: the sums of the
    // turn before the last were read before this thread arrived at the last barrier.
    __syncthreads();
    if (!element.has_output(tile)) continue;
    if (has_norm && !has_one_norm) element.scale_all(factor[m]);
    element.store(reduction, turn, tile);  // 7.
    element.load(tile + ctas);
  }
}

static_assert(16 * kPipelineRows <= kPipelineThreads);  // a thread for each element of a tile

}  // namespace

void gemm_skinny(Context& ctx, const GemmArgs& gemm, const RowsAround& around) {
  const SkinnyPlan plan = skinny_plan(ctx, gemm, around);
  const SkinnyArgs args{.a = gemm,
                        .around = around,
                        .tiles = static_cast<int>(plan.tiles),
                        .x_in_shared = plan.x_in_shared};
  const dim3 grid(static_cast<unsigned>(plan.blocks), static_cast<unsigned>(gemm.batch));
  // One tile of x holds 8 rows, two tiles hold 16. Fewer stages serve where shared memory is short.
  const auto launch = [&]<int kParts, int kTiles, int kStages, bool kWhole>() {
    launch_dependent(ctx, kParts == 2 ? "skinny GEMM with SwiGLU" : "skinny GEMM",
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
