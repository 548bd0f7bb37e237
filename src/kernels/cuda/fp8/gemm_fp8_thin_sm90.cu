// GEMM of at most 16 FP8 rows with FP8 weights, or of int8 rows with int8 weights, on Hopper's
// wgmma with TMA (kernels/types/fp8.h, kernels/types/int8_rows.h).
//
// The weights are the operand A of the MMA, whose 64 rows they fill, and the rows of x are B. So an
// MMA computes nothing that is not stored, and a thread promotes at most 8 accumulators a step.
// The sums have the bits of gemm_fp8_sm90.cu: steps of 128 columns in ascending order.
//
// 1. run_tiles     persistent CTAs; a producer warpgroup loads (tile_pipeline_sm90.cuh)
// 2. ThinConsumer  mainloop of the one consumer warpgroup (fp8_steps.cuh)
// 3. store         epilogue: float32, a sum with the residual, or bfloat16
#include "kernels/cuda/fp8/fp8_plan.h"
#include "kernels/cuda/fp8/fp8_steps.cuh"
#include "kernels/cuda/fp8/gemm_fp8.h"
#include "kernels/cuda/fp8/row_codes.cuh"
#include "kernels/cuda/gemm/tile_pipeline_sm90.cuh"

namespace sluice::cuda {
namespace {

struct ThinArgs {
  TileLoads loads;
  Fp8Rows x;
  Fp8Scales w;
  float* out = nullptr;
  Bf16* half_out = nullptr;  // instead of `out`
  std::int64_t out_stride = 0;
  bool add = false;
  int m = 0, n = 0;
};

// Rows of x and of weights of a CTA's tile, as TileShape has them.
template <int kRows_, bool kGroupScales>
struct ThinShape {
  static constexpr int kRows = kRows_, kColumns = 64, kCluster = 1;
  static constexpr int kGroups = 1;  // consumer warpgroups
  static constexpr int kThreads = (kGroups + 1) * kGroupThreads;
  static constexpr int kRowBytes = kRows * kSwizzleBytes;
  static constexpr int kPartRows = kColumns;
  static constexpr int kStageBytes = kRowBytes + kColumns * kSwizzleBytes;
  static constexpr int kScaleBytes =
      kGroupScales ? kColumns / static_cast<int>(ops::kFp8ScaleRows) * 4 : 0;
  static_assert(kStageBytes % 1024 == 0);
};

// 2. The consumer warpgroup. kScaled: scales of groups of 128 columns, that is of a step.
template <class Codes, class S, bool kScaled>
class ThinConsumer {
 public:
  using Sum = typename Codes::Sum;
  static constexpr int kCount = S::kRows / 2;   // accumulators of a thread
  static constexpr int kTokens = S::kRows / 4;  // rows of x that a thread has

  __device__ ThinConsumer(const ThinArgs& args, Pipeline& pipeline, std::uint32_t shared)
      : args_(args),
        pipeline_(pipeline),
        shared_(shared),
        warp_(threadIdx.x % kGroupThreads / kWarp),
        lane_(threadIdx.x % kWarp) {}

  __device__ void multiply_tile(const Place& place) {
    Sum sums[kCount];
#pragma unroll
    for (Sum& sum : sums) sum = 0;
    place_ = place;
    const Inputs inputs = inputs_of(place);
    multiply_steps(*this, args_.loads.steps, sums);
    store(sums, inputs, place);
  }

  // What multiply_steps() calls.

  struct Step {
    Sum sums[kCount];
    float w_scale;  // of the warp's rows of weights, which lie in one group of rows
  };

  // Of the thread's rows of x.
  struct Scales {
    float4 of[kScaled ? kTokens : 1];
  };
  __device__ void load(Scales& scales, int step) const {
    if constexpr (kScaled) {
#pragma unroll
      for (int t = 0; t < kTokens; ++t)
        scales.of[t] = load_four(args_.x.scales(min(row_of(place_, t), args_.m - 1)) + step);
    }
  }

  // Starts the MMAs of the next step.
  __device__ void issue(Step& step) {
    const std::uint32_t stage = shared_ + at_.stage * S::kStageBytes;
    const std::uint64_t weights = tile_descriptor(stage + S::kRowBytes, 16),
                        rows = tile_descriptor(stage, 16);
    mbarrier_wait(shared_address(&pipeline_.filled[at_.stage]), at_.parity);
    pin_registers(step.sums);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < kSwizzleBytes / 32; ++s)
      Codes::multiply(step.sums, advanced(weights, 2 * s), advanced(rows, 2 * s), s > 0);
    wgmma_commit();
    if constexpr (kScaled)
      asm volatile("ld.shared.f32 %0, [%1];"
                   : "=f"(step.w_scale)
                   : "r"(scales_at<S>(shared_, args_.loads.stages, at_.stage) + 4 * warp_));
    at_.advance(args_.loads.stages);
  }

  // sums += those of step kStep of four times their scales, while the MMAs of kRunning later steps
  // run. Accumulator element 4 j + 2 r + c: weight row lane / 4 + 8 r of the warp's 16, and row
  // 8 j + 2 (lane % 4) + c of x.
  template <int kRunning, int kStep>
  __device__ void promote(Step& step, const Scales& x, Sum (&sums)[kCount]) {
    [[maybe_unused]] float scale[kTokens];
    if constexpr (kScaled) {
#pragma unroll
      for (int t = 0; t < kTokens; ++t) scale[t] = part_of<kStep>(x.of[t]) * step.w_scale;
    }
    wgmma_wait<kRunning>();
    pin_registers(step.sums);
    release_stage<S>(pipeline_, promoted_.stage);
    promoted_.advance(args_.loads.stages);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (kScaled)
        sums[i] = fmaf(step.sums[i], scale[i / 4 * 2 + i % 2], sums[i]);
      else
        sums[i] += step.sums[i];
    }
  }

 private:
  // Of the thread's rows of x.
  __device__ int row_of(const Place& place, int t) const {
    return place.row + t / 2 * 8 + lane_ % 4 * 2 + t % 2;
  }

  __device__ int column_of(const Place& place, int r) const {
    return place.column + warp_ * 16 + r * 8 + lane_ / 4;
  }

  // What the epilogue needs besides the sums: scales of a row, and what the output has before. They
  // load while the tile is multiplied, because they are a long way from memory.
  struct Inputs {
    float x_scale[kTokens], w_scale[2], before[2][kTokens];
  };
  __device__ Inputs inputs_of(const Place& place) const {
    Inputs inputs{};
    if constexpr (!kScaled) {
#pragma unroll
      for (int t = 0; t < kTokens; ++t)
        inputs.x_scale[t] = *args_.x.scales(min(row_of(place, t), args_.m - 1));
#pragma unroll
      for (int r = 0; r < 2; ++r)
        inputs.w_scale[r] = args_.w.of[min(column_of(place, r), args_.n - 1)];
    }
    if (!args_.add) return inputs;
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int t = 0; t < kTokens; ++t)
        if (row_of(place, t) < args_.m && column_of(place, r) < args_.n)
          inputs.before[r][t] =
              args_.out[row_of(place, t) * args_.out_stride + column_of(place, r)];
    return inputs;
  }

  // 3.
  __device__ void store(const Sum (&sums)[kCount], const Inputs& inputs, const Place& place) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int column = column_of(place, r);
      if (column >= args_.n) continue;
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const int row = row_of(place, t);
        if (row >= args_.m) continue;
        auto sum = static_cast<float>(sums[t / 2 * 4 + r * 2 + t % 2]);
        if constexpr (!kScaled) sum *= inputs.x_scale[t] * inputs.w_scale[r];
        const std::int64_t at = row * args_.out_stride + column;
        if (args_.half_out != nullptr)
          args_.half_out[at] = narrow<Bf16>(sum);
        else
          args_.out[at] = args_.add ? inputs.before[r][t] + sum : sum;
      }
    }
  }

  const ThinArgs& args_;
  Pipeline& pipeline_;
  std::uint32_t shared_;
  int warp_, lane_;
  Place place_{};
  PipelinePlace at_, promoted_;  // the next stages
};

template <class Codes, class S, bool kScaled>
__global__ void __launch_bounds__(S::kThreads, 1)
    fp8_thin_kernel(const __grid_constant__ ThinArgs args) {
  run_tiles<S, ThinConsumer<Codes, S, kScaled>, 0>(args);
}

template <class Codes, int kRows, bool kScaled>
void launch(Context& ctx, const GemmArgs& a, const Fp8Scales& scales, const Fp8TilePlan& plan) {
  using S = ThinShape<kRows, kScaled>;
  const bool is_half = a.out_type == DType::kBF16;
  ThinArgs args{.loads = loads_of<S>(a, plan.stages),
                .x = {static_cast<unsigned char*>(const_cast<void*>(a.x)), a.x_stride, a.k},
                .w = scales,
                .out = is_half ? nullptr : a.out,
                .half_out = is_half ? reinterpret_cast<Bf16*>(a.out) : nullptr,
                .out_stride = a.out_stride,
                .add = a.add,
                .m = static_cast<int>(a.m),
                .n = static_cast<int>(a.n)};
  args.loads.scales = scales.of, args.loads.scale_stride = scales.stride;
  launch_tiles<S>(ctx, "GEMM of 8 bits and few rows", fp8_thin_kernel<Codes, S, kScaled>,
                  plan.blocks, args);
}

template <int kRows>
void launch(Context& ctx, const GemmArgs& a, const Fp8Scales& scales, const Fp8TilePlan& plan) {
  if (scales.int8) return launch<Int8Codes, kRows, false>(ctx, a, scales, plan);
  scales.in_groups ? launch<E4m3Codes, kRows, true>(ctx, a, scales, plan)
                   : launch<E4m3Codes, kRows, false>(ctx, a, scales, plan);
}

}  // namespace

void gemm_fp8_thin(Context& ctx, const GemmArgs& a, const Fp8Scales& scales,
                   const Fp8TilePlan& plan) {
  if (plan.tile == Fp8Tile::k8x64)
    launch<8>(ctx, a, scales, plan);
  else
    launch<16>(ctx, a, scales, plan);
}

}  // namespace sluice::cuda
