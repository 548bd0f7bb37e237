// GEMM of few rows with FP8 weights, bound by memory: every weight is read once. A norm of the rows
// of x, their rounding to e4m3, the SwiGLU activation and the residual are fused.
//
// The phases of fp8_skinny_kernel; the pipeline is that of kernels/cuda/gemm/weight_pipeline.cuh,
// which copies rows of e4m3 as rows of half as many numbers of two bytes:
//   1. issue            cp.async of weights and their scales, before the kernel that makes x ended
//   2. element.load     bias and residual of the next tile
//   3. RoundedRows      rows of x to shared memory as e4m3, with a scale for each group
//   for each tile of 16 output columns:
//   4. Fp8Pipeline      mainloop: each warp multiplies its share of k, and the sums of a group are
//                       promoted with its scales.
//   5. reduction.put    the warps' sums to shared memory
//   6. element.store    epilogue: sum over the warps, scale, bias, activation or residual
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/fp8/fp8.cuh"
#include "kernels/cuda/fp8/fp8_plan.h"
#include "kernels/cuda/fp8/gemm_fp8.h"
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
};

// 3. Rows of x in shared memory: e4m3, then scales [rows][groups + 1], then what their makers
// leave there, of the same shape. Eight lanes make a group of 128 columns, 16 columns each.
struct RoundedRows {
  static constexpr int kLaneColumns = 16, kGroupLanes = kGroup / kLaneColumns;
  static constexpr int kGroupsAtOnce = kPipelineThreads / kGroupLanes;  // of a CTA

  unsigned char* codes;
  int rows, k, groups, stride;

  __device__ RoundedRows(unsigned char* shared, int num_rows, int columns, int row_stride)
      : codes(shared),
        rows(num_rows),
        k(columns),
        groups((columns + kGroup - 1) / kGroup),
        stride(row_stride) {}

  __device__ float* scales() const { return reinterpret_cast<float*>(codes + rows * stride); }
  __device__ float* squares() const { return scales() + rows * (groups + 1); }
  __device__ float* scale(int m, int g) const { return scales() + m * (groups + 1) + g; }
  __device__ float* square(int m, int g) const { return squares() + m * (groups + 1) + g; }

  struct Lane {
    float4 v[4];  // 16 columns

    template <class T>
    __device__ void load(const T* from) {
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = load_four(from + 4 * i);
    }
    __device__ void scale(const Lane& by) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        v[i].x *= by.v[i].x, v[i].y *= by.v[i].y, v[i].z *= by.v[i].z, v[i].w *= by.v[i].w;
    }
    __device__ float squares() const {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sum += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
      return sum;
    }
    __device__ unsigned largest() const {
      return max(max(largest_of(v[0]), largest_of(v[1])), max(largest_of(v[2]), largest_of(v[3])));
    }
    __device__ uint4 rounded(float factor) const {
      return {to_e4m3(v[0], factor), to_e4m3(v[1], factor), to_e4m3(v[2], factor),
              to_e4m3(v[3], factor)};
    }
  };

  // Calls body(m, g, the lane's columns times the norm weight, their squares without it) for all
  // groups. Two are loaded together, because no MMA runs meanwhile.
  template <class T, class Body>
  __device__ void for_groups(const T* x, std::int64_t x_stride, const float* norm,
                             Body&& body) const {
    constexpr int kTogether = 2;
    const int total = rows * groups, first = static_cast<int>(threadIdx.x) / kGroupLanes,
              within = static_cast<int>(threadIdx.x) % kGroupLanes * kLaneColumns;
    // All lanes of a warp take part, because they reduce together.
    for (int begin = first; begin - first % (kWarp / kGroupLanes) < total;
         begin += kTogether * kGroupsAtOnce) {
      Lane lane[kTogether], weight[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int at = begin + j * kGroupsAtOnce, m = at / groups,
                  column = at % groups * kGroup + within;
        lane[j] = {}, weight[j] = {};
        if (at >= total || column >= k) continue;
        lane[j].load(x + m * x_stride + column);
        if (norm != nullptr) weight[j].load(norm + column);
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int at = begin + j * kGroupsAtOnce;
        float squares = 0;
        if (norm != nullptr) {
          squares = lane[j].squares();
          lane[j].scale(weight[j]);
        }
        body(at < total ? at / groups : -1, at % groups, lane[j], squares);
      }
    }
  }
  __device__ void put(int m, int g, const Lane& lane, float factor) const {
    const int within = static_cast<int>(threadIdx.x) % kGroupLanes * kLaneColumns;
    *reinterpret_cast<uint4*>(codes + m * stride + g * kGroup + within) = lane.rounded(factor);
  }
  // Over the lanes of a group.
  __device__ static unsigned group_max(unsigned x) {
#pragma unroll
    for (int step = 1; step < kGroupLanes; step *= 2)
      x = max(x, __shfl_xor_sync(kAllLanes, x, step));
    return x;
  }
  __device__ static float group_sum(float x) {
#pragma unroll
    for (int step = 1; step < kGroupLanes; step *= 2) x += __shfl_xor_sync(kAllLanes, x, step);
    return x;
  }

  // Rounds the rows, times the norm weight where there is one. With `norm`, factor[m] := 1 / root
  // mean square of row m; the epilogue multiplies the sums with it. Without groups a row has one
  // scale, which the epilogue needs only once: row_scale[m].
  template <bool kInGroups, class T>
  __device__ void round(const T* x, std::int64_t x_stride, const RowsAround& around, float* factor,
                        float* row_scale) const {
    const float* const norm = around.norm;
    const bool leads = static_cast<int>(threadIdx.x) % kGroupLanes == 0;
    for_groups(x, x_stride, norm, [&](int m, int g, const Lane& lane, float squares) {
      const unsigned largest = group_max(lane.largest());
      const float sum = norm == nullptr ? 0.0f : group_sum(squares);
      if (m < 0) return;
      if (norm != nullptr && leads) *square(m, g) = sum;
      if constexpr (kInGroups) {
        const ops::Fp8Scale by = fp8_scale(largest);
        if (leads) *scale(m, g) = by.scale;
        put(m, g, lane, by.factor);
      } else if (leads) {
        *scale(m, g) = __uint_as_float(largest);
      }
    });
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / kWarp,
              lane = static_cast<int>(threadIdx.x) % kWarp;
    if (warp < rows && (norm != nullptr || !kInGroups)) {
      if (norm != nullptr) {
        float total = 0;
        for (int g = lane; g < groups; g += kWarp) total += *square(warp, g);
        total = warp_sum(total);
        if (lane == 0) factor[warp] = 1.0f / sqrtf(total / static_cast<float>(k) + around.eps);
      }
      if constexpr (!kInGroups) {
        unsigned largest = 0;
        for (int g = lane; g < groups; g += kWarp)
          largest = max(largest, __float_as_uint(*scale(warp, g)));
        largest = warp_max(largest);
        if (lane == 0) {
          const ops::Fp8Scale by = fp8_scale(largest);
          row_scale[warp] = by.scale;
          *square(warp, groups) = by.factor;
        }
      }
    }
    if constexpr (!kInGroups) {
      __syncthreads();
      for_groups(x, x_stride, norm, [&](int m, int g, const Lane& lane, float) {
        if (m >= 0) put(m, g, lane, *square(m, groups));
      });
    }
    // Factors are read after the barrier of the first tile.
    if constexpr (!kInGroups) __syncthreads();
  }
};

// 4. The pipeline of this warp: a unit is 16 rows by 128 columns of e4m3 for each part of a tile.
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
  template <bool kInGroups>
  __device__ void take_group(const unsigned char* x, const float (&x_scale)[2],
                             PipelineSums<kParts, 1>& sums) {
    const int lane = threadIdx.x % kWarp, g = lane / 4, quad = lane % 4;
    const unsigned char* stage = this->bytes_ + this->take_at_ * Base::Shape::kStageBytes;
    float group_sums[kParts][kUnitSteps][4] = {};  // two chains of MMAs
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
        mma_e4m3(group_sums[p][s], {low.x, high.x, low.y, high.y}, xs.x, xs.y);
        mma_e4m3(group_sums[p][s], {low.z, high.z, low.w, high.w}, xs.z, xs.w);
      }
    }
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const float w_scale =
          kInGroups ? scales_[this->take_at_ * kParts + p] * kE4m3SumScale : kE4m3SumScale;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums.c[p][0][i] = fmaf(group_sums[p][0][i] + group_sums[p][1][i],
                               kInGroups ? w_scale * x_scale[i % 2] : w_scale, sums.c[p][0][i]);
    }
    this->take_at_ = this->take_at_ + 1 == kDepth ? 0 : this->take_at_ + 1;
  }

 private:
  float* scales_;
};

// Grid: CTAs that take tiles of 16 rows of w in turn (two parts: 16 of gate and 16 of up).
// kWhole: all tiles and turns of the warps are whole, so issue() checks nothing.
template <int kParts, int kStages, bool kInGroups, bool kWhole>
__global__ void __launch_bounds__(kPipelineThreads, 2)
    fp8_skinny_kernel(const __grid_constant__ Fp8SkinnyArgs args) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float factor[kMaxStreamedRows], row_scale[kMaxStreamedRows];
  using Shape = PipelineShape<kParts, kStages>;
  const GemmArgs& a = args.a;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, rows = static_cast<int>(a.m),
            k = static_cast<int>(a.k);
  // Shared memory: the warps' pipelines, their sums, rows of x, scales of weights.
  const PipelineReduction<kParts> reduction{
      .part = reinterpret_cast<float*>(shared + Shape::kBytes), .rows = rows};
  float* const w_scales =
      reinterpret_cast<float*>(shared + Shape::kBytes + PipelineReduction<kParts>::bytes(rows));
  const RoundedRows x(
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
  element.load(static_cast<int>(blockIdx.x));

  // 3. The factor of a normalised row is applied to its sums, because it is known only after the
  // whole row was read.
  if (a.x_type == DType::kBF16)
    x.round<kInGroups>(static_cast<const Bf16*>(a.x), a.x_stride, args.around, factor, row_scale);
  else
    x.round<kInGroups>(static_cast<const float*>(a.x), a.x_stride, args.around, factor, row_scale);
  const bool has_norm = args.around.norm != nullptr;
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
      pipeline.template take_group<kInGroups>(x_row + group * kGroup, x_scale, sums);
    }
    reduction.put(turn, sums);  // 5.
    // One barrier a tile is enough, because turns alternate between two buffers: the sums of the
    // turn before the last were read before this thread arrived at the last barrier.
    __syncthreads();
    if (!element.has_output(tile)) continue;
    const float row_factor = has_norm ? factor[m] : 1.0f;
    element.scale_all(row_factor);
    if constexpr (!kInGroups) {
      const int n = tile * kPipelineRows + element.column;
      element.scale = row_factor * row_scale[m] * args.w.of[n];
      if constexpr (kParts == 2) element.up_scale = row_factor * row_scale[m] * args.w.of[a.n + n];
    }
    element.store(reduction, turn, tile);  // 6.
    element.load(tile + ctas);
  }
}

}  // namespace

void gemm_fp8_skinny(Context& ctx, const GemmArgs& gemm, const Fp8Scales& scales,
                     const RowsAround& around, const Fp8SkinnyPlan& plan) {
  const Fp8SkinnyArgs args{.a = gemm,
                           .w = scales,
                           .around = around,
                           .tiles = static_cast<int>(plan.tiles),
                           .staged_bytes = static_cast<int>(fp8_staged_bytes(gemm.k))};
  const auto launch = [&]<int kParts, int kStages>() {
    const bool whole = gemm.n % kPipelineRows == 0 && gemm.k % (kPipelineWarps * kGroup) == 0;
    const auto run = [&](auto kernel) {
      launch_dependent(ctx, "FP8 skinny GEMM", kernel, dim3(static_cast<unsigned>(plan.blocks)),
                       kPipelineThreads, plan.shared_bytes, args);
    };
    if (scales.in_groups)
      run(whole ? fp8_skinny_kernel<kParts, kStages, true, true>
                : fp8_skinny_kernel<kParts, kStages, true, false>);
    else
      run(whole ? fp8_skinny_kernel<kParts, kStages, false, true>
                : fp8_skinny_kernel<kParts, kStages, false, false>);
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
