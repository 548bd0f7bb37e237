// GEMM of few rows with FP8 weights, or of one row with int8 weights, bound by memory: every weight
// is read once. A norm of the rows of x, their rounding to e4m3 or int8, the SwiGLU activation and
// the residual are fused.
//
// The phases of fp8_skinny_kernel; the pipeline is that of kernels/cuda/gemm/weight_pipeline.cuh,
// which copies rows of bytes as rows of half as many numbers of two bytes:
//   1. issue            cp.async of weights and their scales, before the kernel that makes x ended
//   2. load_inputs      bias, residual and scales of weights of the next tile
//   3. RoundedRows      rows of x to shared memory as codes (rounded_rows.cuh, one_rounded_row.cuh)
//   for each tile of 16 output columns:
//   4. Fp8Pipeline      mainloop: each warp multiplies its share of k, and the sums of a group are
//                       promoted with its scales.
//   5. reduction.put    the warps' sums to shared memory
//   6. element.store    epilogue: sum over the warps, scale, bias, activation or residual
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/fp8/fp8_plan.h"
#include "kernels/cuda/fp8/gemm_fp8.h"
#include "kernels/cuda/fp8/one_rounded_row.cuh"
#include "kernels/cuda/gemm/skinny_output.cuh"

namespace sluice::cuda {
namespace {

constexpr int kGroup = static_cast<int>(ops::kFp8Group);
static_assert(kGroup == 2 * kUnitColumns);  // a unit of a warp is a group

struct Fp8SkinnyArgs {
  GemmArgs a;
  Fp8Scales w;
  RowsAround around;
  int tiles = 0;
  int staged_bytes = 0;  // of a row of x in shared memory
  bool one_row = false;  // that OneRoundedRow takes
};

// 4. The pipeline of this warp: a unit is 16 rows by 128 columns of codes for each part of a tile.
template <int kParts, int kDepth>
class Fp8Pipeline : public WeightPipeline<kParts, kDepth> {
  using Base = WeightPipeline<kParts, kDepth>;

 public:
  // scales: of all warps, behind the pipelines.
  __device__ Fp8Pipeline(unsigned char* shared, float* scales)
      : Base(shared), scales_(scales + threadIdx.x / kWarp * (kDepth * kParts)) {}

  // Copies the scales of the unit that is issued next; before its issue.
  __device__ void issue_scales(const float* const (&from)[kParts]) {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int p = 0; p < kParts; ++p)
      if (lane == p) cp_async_4(shared_address(scales_ + this->issue_at_ * kParts + p), from[p]);
  }

  // sums += the oldest unit times the group of x. x: the lane's row; x_scale: of the lane's two
  // columns of the accumulators.
  template <class Codes, bool kInGroups>
  __device__ void take_group(const unsigned char* x, const float (&x_scale)[2],
                             PipelineSums<kParts, 1>& sums) {
    const int lane = threadIdx.x % kWarp, g = lane / 4, quad = lane % 4;
    const unsigned char* stage = this->bytes_ + this->take_at_ * Base::Shape::kStageBytes;
    typename Codes::Sum group_sums[kParts][kUnitSteps][4] = {};  // two chains of MMAs
#pragma unroll
    for (int s = 0; s < kUnitSteps; ++s) {
      const uint4 xs = *reinterpret_cast<const uint4*>(x + (s * 4 + quad) * 16);
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const uint4 low = *reinterpret_cast<const uint4*>(stage + p * kPartBytes +
                                                          pipeline_place(g, s * 4 + quad)),
                    high = *reinterpret_cast<const uint4*>(stage + p * kPartBytes +
                                                           pipeline_place(g + 8, s * 4 + quad));
        // Rows g and g + 8 of w, and a row of x: the same columns in the same places.
        Codes::mma(group_sums[p][s], {low.x, high.x, low.y, high.y}, xs.x, xs.y);
        Codes::mma(group_sums[p][s], {low.z, high.z, low.w, high.w}, xs.z, xs.w);
      }
    }
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const float w_scale =
          kInGroups ? scales_[this->take_at_ * kParts + p] * Codes::kMmaScale : Codes::kMmaScale;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& sum = sums.c[p][0][i];
        const auto of_group = group_sums[p][0][i] + group_sums[p][1][i];
        if constexpr (std::is_same_v<typename Codes::Sum, float>)
          sum = fmaf(of_group, kInGroups ? w_scale * x_scale[i % 2] : w_scale, sum);
        else  // exact; the bits of an integer
          sum = __int_as_float(__float_as_int(sum) + of_group);
      }
    }
    this->take_at_ = this->take_at_ + 1 == kDepth ? 0 : this->take_at_ + 1;
  }

 private:
  float* scales_;
};

// Grid: CTAs that take tiles of 16 rows of w in turn (two parts: 16 of gate and 16 of up).
// kWhole: all tiles and turns of the warps are whole, so issue() checks nothing.
template <class Codes, int kParts, int kStages, bool kInGroups, bool kWhole>
__global__ void __launch_bounds__(kPipelineThreads, 2)
    fp8_skinny_kernel(const __grid_constant__ Fp8SkinnyArgs args) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float factor[kMaxStreamedRows], row_scale[kMaxStreamedRows];
  __shared__ OneRowParts parts;
  using Shape = PipelineShape<kParts, kStages>;
  const GemmArgs& a = args.a;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, rows = static_cast<int>(a.m),
            k = static_cast<int>(a.k);
  // Shared memory: the warps' pipelines, their sums, rows of x, scales of weights.
  const PipelineReduction<kParts> reduction{
      .part = reinterpret_cast<float*>(shared + Shape::kBytes), .rows = rows};
  float* const w_scales =
      reinterpret_cast<float*>(shared + Shape::kBytes + PipelineReduction<kParts>::bytes(rows));
  const RoundedRows<Codes> x(
      reinterpret_cast<unsigned char*>(w_scales + kPipelineWarps * kStages * kParts), rows, k,
      args.staged_bytes);

  // 1. Weights. They do not depend on the kernel before, so the first units load before the wait.
  const auto* const w = static_cast<const Bf16*>(a.w);  // two numbers each
  const std::int64_t w_stride = a.w_stride / 2;
  const int ctas = static_cast<int>(gridDim.x);
  const int steps = warp < x.groups ? (x.groups - warp + kPipelineWarps - 1) / kPipelineWarps : 0;
  Fp8Pipeline<kParts, kStages> pipeline(shared, w_scales);
  int issued_tile = static_cast<int>(blockIdx.x), issued_step = 0;
  // With kWhole: this lane's first piece of the next unit, and the scale of the unit.
  [[maybe_unused]] const Bf16* from = w + issued_tile * (kPipelineRows * w_stride) +
                                      warp * kUnitColumns + pipeline.lane_offset(w_stride);
  [[maybe_unused]] const std::int64_t to_next_tile =
      ctas * (kPipelineRows * w_stride) - (steps - 1) * std::int64_t{kTurnColumns};
  [[maybe_unused]] const float* scale_from = args.w.of + warp * args.w.stride + issued_tile;
  [[maybe_unused]] const std::int64_t scale_step = kPipelineWarps * args.w.stride,
                                      scale_to_next_tile = ctas - (steps - 1) * scale_step,
                                      scale_part = a.n / ops::kFp8ScaleRows;
  // The next unit of this tile, or the first one of the next tile: the pipeline does not drain
  // between tiles. Every call commits one cp.async group, also past the last tile.
  const auto issue = [&] {
    if (kWhole && issued_tile < args.tiles) {
      if constexpr (kInGroups) {
        const float* scales_of[kParts];
#pragma unroll
        for (int p = 0; p < kParts; ++p) scales_of[p] = scale_from + p * scale_part;
        pipeline.issue_scales(scales_of);
        scale_from += issued_step + 1 == steps ? scale_to_next_tile : scale_step;
      }
      pipeline.issue_whole(from, a.n * w_stride, w_stride);
      from += issued_step + 1 == steps ? to_next_tile : kTurnColumns;
      if (++issued_step == steps) issued_step = 0, issued_tile += ctas;
    } else if (!kWhole && steps > 0 && issued_tile < args.tiles) {
      const int group = warp + issued_step * kPipelineWarps;
      const Bf16* rows_of[kParts];
      const float* scales_of[kParts];
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const std::int64_t row = p * a.n + issued_tile * kPipelineRows;
        rows_of[p] = w + row * w_stride;
        scales_of[p] = args.w.of + group * args.w.stride + row / ops::kFp8ScaleRows;
      }
      if constexpr (kInGroups) pipeline.issue_scales(scales_of);
      pipeline.issue(
          rows_of, w_stride,
          static_cast<int>(min(a.n - issued_tile * kPipelineRows, std::int64_t{kPipelineRows})),
          group * kUnitColumns, k / 2);
      if (++issued_step == steps) issued_step = 0, issued_tile += ctas;
    }
    pipeline.commit();
  };
#pragma unroll
  for (int i = 0; i < Shape::kStages - 1; ++i) issue();
  const float* const norm = args.around.norm;
  OneRoundedRow<Codes> row(x, parts);
  if (args.one_row && norm != nullptr)
    row.load_norm(norm);
  else if (norm != nullptr)
    prefetch_lines(norm, a.k * 4);
  start_next_kernel();
  wait_for_earlier_kernels();

  // 2. Inputs of the epilogue of the first tile.
  const int m = threadIdx.x / kPipelineRows;
  OutputElement<kParts> element{.a = a,
                                .around = args.around,
                                .rows = rows,
                                .m = m,
                                .column = static_cast<int>(threadIdx.x % kPipelineRows),
                                .out = kParts == 2 ? nullptr : a.out + m * a.out_stride};
  [[maybe_unused]] float w_scale[kParts] = {};  // of rows of weights
  const auto load_inputs = [&](int tile) {
    element.load(tile);
    if constexpr (!kInGroups) {
      if (!element.has_output(tile)) return;
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        w_scale[p] = args.w.of[p * a.n + tile * kPipelineRows + element.column];
    }
  };
  load_inputs(static_cast<int>(blockIdx.x));

  // 3. The factor of a normalised row is applied to its sums, because it is known only after the
  // whole row was read.
  float row_factor = 1;
  if (args.one_row)
    row_factor =
        norm == nullptr
            ? row.template round_plain<kInGroups>(static_cast<const Bf16*>(a.x))
            : row.template round_normed<kInGroups>(static_cast<const float*>(a.x), args.around.eps);
  else if (a.x_type == DType::kBF16)
    x.template round<kInGroups>(static_cast<const Bf16*>(a.x), a.x_stride, args.around, factor,
                                row_scale);
  else
    x.template round<kInGroups>(static_cast<const float*>(a.x), a.x_stride, args.around, factor,
                                row_scale);
  // Rows past the last one repeat the last row: their sums are never stored.
  const unsigned char* const x_row = x.codes + min(lane / 4, rows - 1) * x.stride;
  const int scale_rows[2] = {min(lane % 4 * 2, rows - 1), min(lane % 4 * 2 + 1, rows - 1)};

  int turn = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += ctas, turn ^= 1) {
    PipelineSums<kParts, 1> sums;
    sums.clear();
    for (int step = 0; step < steps; ++step) {  // 4.
      const int group = warp + step * kPipelineWarps;
      float x_scale[2] = {};
      if constexpr (kInGroups)
        x_scale[0] = *x.scale(scale_rows[0], group), x_scale[1] = *x.scale(scale_rows[1], group);
      pipeline.await();
      issue();
      pipeline.template take_group<Codes, kInGroups>(x_row + group * kGroup, x_scale, sums);
    }
    reduction.put(turn, sums);  // 5.
    // One barrier a tile is enough, because turns alternate between two buffers: the sums of the
    // turn before the last were read before this thread arrived at the last barrier.
    __syncthreads();
    if (!element.has_output(tile)) continue;
    if (!args.one_row) {
      row_factor = norm == nullptr ? 1.0f : factor[m];
      if constexpr (!kInGroups) row_factor *= row_scale[m];
    }
    element.scale_all(row_factor);
    if constexpr (!kInGroups) {
      element.scale *= w_scale[0];
      if constexpr (kParts == 2) element.up_scale *= w_scale[1];
    }
    element.template store<typename Codes::Sum>(reduction, turn, tile);  // 6.
    load_inputs(tile + ctas);
  }
}

// A row behind the first may begin on 8 bytes, where rows are taken one by one.
bool takes_one_row(const GemmArgs& a, const RowsAround& around) {
  if (a.m != 1 || !begins_on_16(a.x)) return false;
  return around.norm == nullptr
             ? a.x_type == DType::kBF16 && a.k <= OneRoundedRow<E4m3Codes>::kMaxPlain
             : a.x_type == DType::kF32 && a.k <= OneRoundedRow<E4m3Codes>::kMaxNormed;
}

}  // namespace

void gemm_fp8_skinny(Context& ctx, const GemmArgs& gemm, const Fp8Scales& scales,
                     const RowsAround& around, const Fp8SkinnyPlan& plan) {
  const Fp8SkinnyArgs args{.a = gemm,
                           .w = scales,
                           .around = around,
                           .tiles = static_cast<int>(plan.tiles),
                           .staged_bytes = static_cast<int>(fp8_staged_bytes(gemm.k)),
                           .one_row = takes_one_row(gemm, around)};
  const auto launch = [&]<int kParts, int kStages>() {
    const bool whole = gemm.n % kPipelineRows == 0 && gemm.k % (kPipelineWarps * kGroup) == 0;
    const auto run = [&](auto kernel) {
      launch_dependent(ctx, "FP8 skinny GEMM", kernel, dim3(static_cast<unsigned>(plan.blocks)),
                       kPipelineThreads, plan.shared_bytes, args);
    };
    const auto run_codes = [&]<class Codes, bool kInGroups>() {
      run(whole ? fp8_skinny_kernel<Codes, kParts, kStages, kInGroups, true>
                : fp8_skinny_kernel<Codes, kParts, kStages, kInGroups, false>);
    };
    if (scales.int8) return run_codes.template operator()<Int8Codes, false>();
    if (scales.in_groups) return run_codes.template operator()<E4m3Codes, true>();
    run_codes.template operator()<E4m3Codes, false>();
  };
  if (around.gated != nullptr) {
    if (plan.stages == kPipelineStages<2>)
      return launch.template operator()<2, kPipelineStages<2>>();
    return launch.template operator()<2, kFewPipelineStages<2>>();
  }
  if (plan.stages == kPipelineStages<1>) return launch.template operator()<1, kPipelineStages<1>>();
  launch.template operator()<1, kFewPipelineStages<1>>();
}

}  // namespace sluice::cuda
