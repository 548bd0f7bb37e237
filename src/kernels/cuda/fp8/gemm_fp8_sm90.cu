// GEMM of FP8 rows with FP8 weights, or of int8 rows with int8 weights, on Hopper's wgmma with TMA
// (kernels/types/fp8.h, kernels/types/int8_rows.h).
//
// An output element is one sum over steps of 128 columns in ascending order. Neither the number of
// rows nor the tile size enters the sum, so the GEMM is batch-invariant.
//
// 1. run_tiles     persistent CTAs; a producer warpgroup loads (tile_pipeline_sm90.cuh)
// 2. Fp8Consumer   mainloop: a warpgroup takes 64 rows of a tile. The accumulators of a step are
//                  multiplied with the scales and promoted to the sums, while the MMAs of the next
//                  step run.
// 3. store         epilogue: float32, a sum with the residual, or bfloat16
#include "kernels/cuda/fp8/fp8_plan.h"
#include "kernels/cuda/fp8/fp8_steps.cuh"
#include "kernels/cuda/fp8/gemm_fp8.h"
#include "kernels/cuda/fp8/row_codes.cuh"
#include "kernels/cuda/gemm/tile_pipeline_sm90.cuh"

namespace sluice::cuda {
namespace {

struct Fp8TileArgs {
  TileLoads loads;
  Fp8Rows x;
  Fp8Scales w;
  float* out = nullptr;
  Bf16* half_out = nullptr;  // instead of `out`
  std::int64_t out_stride = 0;
  bool add = false;
  bool in_pairs = false;  // two neighbouring outputs are aligned
  int m = 0, n = 0;
};

// 2. A consumer warpgroup. kGroups: scales of groups of 128 columns, that is of a step.
template <class Codes, class S, bool kGroups>
class Fp8Consumer {
 public:
  using Sum = typename Codes::Sum;

  __device__ Fp8Consumer(const Fp8TileArgs& args, Pipeline& pipeline, std::uint32_t shared)
      : args_(args),
        pipeline_(pipeline),
        shared_(shared),
        // The shuffle tells the compiler that all lanes have the same value.
        group_(S::kGroups == 1
                   ? 0
                   : __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0)),
        lane_(threadIdx.x % kWarp) {}

  __device__ void multiply_tile(const Place& place) {
    Sum sums[kCount];
#pragma unroll
    for (Sum& sum : sums) sum = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) scales_of_[r] = args_.x.scales(row_of(place, r));
    [[maybe_unused]] RowScales scales;
    if constexpr (kLoadsAhead) load(scales, place);
    multiply_steps(*this, args_.loads.steps, sums);
    if constexpr (kGroups) {
      store(sums, place);
    } else {
      if constexpr (!kLoadsAhead) load(scales, place);
      float scaled[kCount];
      apply(scales, sums, scaled);
      store(scaled, place);
    }
  }

  // What multiply_steps() calls.

  static constexpr int kCount = S::kColumns / 2;
  using Step = Sum[kCount];

  // Of the two rows of x that a thread has.
  struct Scales {
    float4 of[2];
  };
  __device__ void load(Scales& scales, int step) const {
    if constexpr (kGroups) {
#pragma unroll
      for (int r = 0; r < 2; ++r) scales.of[r] = load_four(scales_of_[r] + step);
    }
  }

  // Starts the MMAs of the next step.
  __device__ void issue(Step& step_sums) {
    const std::uint32_t stage = shared_ + at_.stage * S::kStageBytes;
    const std::uint64_t row_tile = row_descriptor<S>(stage + group_ * 64 * kSwizzleBytes),
                        weight_tile = tile_descriptor(stage + S::kRowBytes, 16);
    mbarrier_wait(shared_address(&pipeline_.filled[at_.stage]), at_.parity);
    pin_registers(step_sums);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < kSwizzleBytes / 32; ++s)
      Codes::multiply(step_sums, advanced(row_tile, 2 * s), advanced(weight_tile, 2 * s), s > 0);
    wgmma_commit();
    at_.advance(args_.loads.stages);
  }

  // sums += those of step kStep of four times their scales, while the MMAs of kRunning later steps
  // run.
  template <int kRunning, int kStep>
  __device__ void promote(Step& step_sums, const Scales& x, Sum (&sums)[kCount]) {
    float w_scale[kScales] = {};
    if constexpr (kGroups)
      load_shared(scales_at<S>(shared_, args_.loads.stages, promoted_.stage), w_scale);
    wgmma_wait<kRunning>();
    pin_registers(step_sums);
    release_stage<S>(pipeline_, promoted_.stage);
    promoted_.advance(args_.loads.stages);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      // Accumulator element 4 j + 2 r + c: row lane / 4 + 8 r, column 8 j + 2 (lane % 4) + c.
      if constexpr (kGroups)
        sums[i] = fmaf(step_sums[i], part_of<kStep>(x.of[i / 2 % 2]) * w_scale[i / 8], sums[i]);
      else
        sums[i] += step_sums[i];
    }
  }

 private:
  static constexpr int kScales = S::kColumns / ops::kFp8ScaleRows;
  // Small tiles have registers for the scales of rows while they are multiplied.
  static constexpr bool kLoadsAhead = !kGroups && S::kRows <= 64;

  // Scales of the thread's rows of x and of weights, without groups.
  struct RowScales {
    float x[2], w[S::kColumns / 8][2];
  };
  __device__ void load(RowScales& scales, const Place& place) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) scales.x[r] = *scales_of_[r];
#pragma unroll
    for (int j = 0; j < S::kColumns / 8; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        scales.w[j][c] = args_.w.of[min(place.column + lane_ % 4 * 2 + j * 8 + c, args_.n - 1)];
  }
  __device__ static void apply(const RowScales& scales, const Sum (&sums)[kCount],
                               float (&out)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      out[i] = static_cast<float>(sums[i]) * (scales.x[i / 2 % 2] * scales.w[i / 4][i % 2]);
  }

  // The row of x that accumulators with this r have, within the matrix.
  __device__ int row_of(const Place& place, int r) const {
    const int warp = threadIdx.x % kGroupThreads / kWarp;
    return min(place.row + group_ * 64 + warp * 16 + r * 8 + lane_ / 4, args_.m - 1);
  }

  template <int kCount>
  __device__ static void load_shared(std::uint32_t from, float (&to)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4)
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(to[i]), "=f"(to[i + 1]), "=f"(to[i + 2]), "=f"(to[i + 3])
                   : "r"(from + 4 * i));
  }

  // 3.
  __device__ void store(const float (&sums)[kCount], const Place& place) const {
    const int warp = threadIdx.x % kGroupThreads / kWarp,
              first = place.column + lane_ % 4 * 2;  // column of the thread
    const int rows[2] = {group_ * 64 + warp * 16 + lane_ / 4,
                         group_ * 64 + warp * 16 + 8 + lane_ / 4};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (rows[r] >= S::kRows || place.row + rows[r] >= args_.m) continue;
      const std::int64_t at = (place.row + rows[r]) * args_.out_stride + first;
      if (args_.half_out != nullptr)
        put_row<false>(args_.half_out + at, sums, r, first);
      else if (args_.add)
        put_row<true>(args_.out + at, sums, r, first);
      else
        put_row<false>(args_.out + at, sums, r, first);
    }
  }
  // The thread's columns of one row; two of them are one store where rows are aligned.
  template <bool kAdd, class T>
  __device__ void put_row(T* to, const float (&sums)[kCount], int r, int first) const {
    struct alignas(2 * sizeof(T)) Pair {
      T one, two;
    };
    const auto value = [&](int i, int c) {
      const float sum = sums[i + 2 * r + c % 2];
      if constexpr (kAdd) return widen(to[c]) + sum;
      return sum;
    };
    if (args_.in_pairs && place_is_whole(first)) {
#pragma unroll
      for (int j = 0; j < S::kColumns / 8; ++j)
        *reinterpret_cast<Pair*>(to + 8 * j) = {narrow<T>(value(4 * j, 8 * j)),
                                                narrow<T>(value(4 * j, 8 * j + 1))};
      return;
    }
#pragma unroll
    for (int j = 0; j < S::kColumns / 8; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        if (first + 8 * j + c < args_.n) to[8 * j + c] = narrow<T>(value(4 * j, 8 * j + c));
  }
  __device__ bool place_is_whole(int first) const {
    return first - lane_ % 4 * 2 + S::kColumns <= args_.n;
  }

  const Fp8TileArgs& args_;
  Pipeline& pipeline_;
  std::uint32_t shared_;
  int group_, lane_;
  const float* scales_of_[2] = {};
  PipelinePlace at_, promoted_;  // the next stages
};

// One CTA an SM: three sets of accumulators, and a deep pipeline.
template <class Codes, class S, bool kGroups>
__global__ void __launch_bounds__(S::kThreads, 1)
    fp8_tiles_kernel(const __grid_constant__ Fp8TileArgs args) {
  constexpr int kRegisters = S::kRows > 64 ? 240 : 0;
  run_tiles<S, Fp8Consumer<Codes, S, kGroups>, kRegisters>(args);
}

template <class Codes, class S, bool kGroups>
bool launch(Context& ctx, const GemmArgs& a, const Fp8Scales& scales, const Fp8TilePlan& plan) {
  const bool is_half = a.out_type == DType::kBF16;
  Fp8TileArgs args{
      .loads = loads_of<S>(a, plan.stages),
      .x = {static_cast<unsigned char*>(const_cast<void*>(a.x)), a.x_stride, a.k},
      .w = scales,
      .out = is_half ? nullptr : a.out,
      .half_out = is_half ? reinterpret_cast<Bf16*>(a.out) : nullptr,
      .out_stride = a.out_stride,
      .add = a.add,
      .in_pairs = a.out_stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(a.out) % 8 == 0,
      .m = static_cast<int>(a.m),
      .n = static_cast<int>(a.n)};
  args.loads.scales = scales.of, args.loads.scale_stride = scales.stride;
  return launch_tiles<S>(ctx, "GEMM of 8 bits", fp8_tiles_kernel<Codes, S, kGroups>, plan.blocks,
                         args);
}

// False if the GPU cannot run all clusters at once. Then nothing was launched.
template <int kRows, int kColumns, int kCluster>
bool launch(Context& ctx, const GemmArgs& a, const Fp8Scales& scales, const Fp8TilePlan& plan) {
  using Rows = TileShape<kRows, kColumns, kCluster>;
  if (scales.int8) return launch<Int8Codes, Rows, false>(ctx, a, scales, plan);
  if (!scales.in_groups) return launch<E4m3Codes, Rows, false>(ctx, a, scales, plan);
  constexpr int kScaleBytes = kColumns / static_cast<int>(ops::kFp8ScaleRows) * 4;
  return launch<E4m3Codes, TileShape<kRows, kColumns, kCluster, kScaleBytes>, true>(ctx, a, scales,
                                                                                    plan);
}

bool launch(Context& ctx, const GemmArgs& a, const Fp8Scales& scales, const Fp8TilePlan& plan) {
  switch (plan.tile) {
    case Fp8Tile::k8x64:
    case Fp8Tile::k16x64:
      gemm_fp8_thin(ctx, a, scales, plan);
      return true;
    case Fp8Tile::k64x64:
      return launch<64, 64, 1>(ctx, a, scales, plan);
    case Fp8Tile::k64x128:
      return launch<64, 128, 1>(ctx, a, scales, plan);
    case Fp8Tile::k128x128:
      return launch<128, 128, 1>(ctx, a, scales, plan);
    case Fp8Tile::k256x128:
      return launch<128, 128, 2>(ctx, a, scales, plan);
  }
  return false;
}

}  // namespace

void gemm_fp8_tiles(Context& ctx, const GemmArgs& a, const Fp8Scales& scales) {
  if (a.m == 0 || a.n == 0) return;
  const int num_sms = ctx.cuda->info().num_sms;
  if (!launch(ctx, a, scales, plan_fp8_tiles(a.m, a.n, num_sms)))
    launch(ctx, a, scales, plan_fp8_tiles(a.m, a.n, num_sms, false));
}

}  // namespace sluice::cuda
