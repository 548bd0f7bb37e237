// Batch-invariant GEMM on Hopper's wgmma with TMA: an output has the same bits whatever rows are
// beside it.
//
// An output element is one sum. k ascends in steps of 16, and each step is one MMA on top of the
// sum so far. Neither the number of rows nor the tile size enters the sum. So the tile may suit the
// number of rows (batch_invariant_plan.h). There is no split-K.
//
// 1. run_tiles      persistent CTAs; a producer warpgroup loads (tile_pipeline_sm90.cuh)
// 2. MmaConsumer    mainloop: a warpgroup takes 64 rows of a tile
// 3. store          epilogue: float32 to global memory
//
// The largest tiles go to clusters of two CTAs: each loads half of the weights and multicasts it.
#include "kernels/cuda/gemm/batch_invariant_plan.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/tile_pipeline_sm90.cuh"

namespace sluice::cuda {
namespace {

struct BatchInvariantArgs {
  TileLoads loads;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  int m = 0, n = 0;
};

// c += a b^T for one step of 16 in k.
template <int kColumns>
__device__ inline void multiply(float (&c)[kColumns / 2], std::uint64_t a, std::uint64_t b) {
  if constexpr (kColumns == 32)
    wgmma_m64n32(c, a, b, true);
  else if constexpr (kColumns == 64)
    wgmma_m64n64(c, a, b, true);
  else if constexpr (kColumns == 128)
    wgmma_m64n128(c, a, b);
  else
    wgmma_m64n256(c, a, b, true);
}

// 2. A consumer warpgroup.
template <class S>
class MmaConsumer {
 public:
  __device__ MmaConsumer(const BatchInvariantArgs& args, Pipeline& pipeline, std::uint32_t shared)
      : args_(args),
        pipeline_(pipeline),
        // The shuffles tell the compiler that all lanes have the same value.
        shared_(__shfl_sync(kAllLanes, shared, 0)),
        group_(__shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroupThreads, 0)),
        lane_(threadIdx.x % kWarp) {}

  __device__ void multiply_tile(const Place& place) {
    float sums[S::kColumns / 2];
#pragma unroll
    for (float& sum : sums) sum = 0;
    // The second warpgroup stays a step behind the first, so that one stores while the other
    // multiplies. With no more stages than steps the first cannot lap the second.
    const bool takes_turns = S::kGroups > 1 && args_.loads.steps >= args_.loads.stages;
    if (takes_turns && group_ == 1) await_turn(1);
    int last_stage = 0;
    for (int step = 0; step < args_.loads.steps; ++step) {
      const std::uint32_t stage = shared_ + at_.stage * S::kStageBytes;
      const std::uint64_t row_tile = row_descriptor<S>(stage + group_ * 64 * kSwizzleBytes),
                          weight_tile = tile_descriptor(stage + S::kRowBytes, 16);
      mbarrier_wait(shared_address(&pipeline_.filled[at_.stage]), at_.parity);
      pin_registers(sums);
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < kSwizzleColumns / 16; ++s)
        multiply<S::kColumns>(sums, row_tile + 2 * s, weight_tile + 2 * s);  // 32 bytes on
      wgmma_commit();
      // The wgmma of a stage runs while the one before it is waited for.
      if (takes_turns && group_ == 0 && step == 0) give_turn(1);
      if (step > 0) {
        wgmma_wait<1>();
        pin_registers(sums);
        release_stage<S>(pipeline_, last_stage);
      }
      last_stage = at_.stage;
      at_.advance(args_.loads.stages);
    }
    wgmma_wait<0>();
    pin_registers(sums);
    release_stage<S>(pipeline_, last_stage);
    store(sums, place);
  }

 private:
  // 3. Accumulator element 4 j + 2 r + c: row lane / 4 + 8 r, column 8 j + 2 (lane % 4) + c.
  __device__ void store(const float (&sums)[S::kColumns / 2], const Place& place) const {
    const int warp = threadIdx.x % kGroupThreads / kWarp;
    const bool pairs = args_.n % 2 == 0;  // then two columns are one aligned store
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = group_ * 64 + warp * 16 + r * 8 + lane_ / 4;
      if (row >= S::kRows || place.row + row >= args_.m) continue;
      float* to = args_.out + (place.row + row) * args_.out_stride;
#pragma unroll
      for (int j = 0; j < S::kColumns / 8; ++j) {
        const int column = place.column + j * 8 + lane_ % 4 * 2;
        const float first = sums[4 * j + 2 * r], second = sums[4 * j + 2 * r + 1];
        if (pairs && column < args_.n) {
          *reinterpret_cast<float2*>(to + column) = {first, second};
        } else {
          if (column < args_.n) to[column] = first;
          if (column + 1 < args_.n) to[column + 1] = second;
        }
      }
    }
  }

  const BatchInvariantArgs& args_;
  Pipeline& pipeline_;
  std::uint32_t shared_;
  int group_, lane_;
  PipelinePlace at_;
};

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kCtasPerSm)
    batch_invariant_kernel(const __grid_constant__ BatchInvariantArgs args) {
  // Wide tiles need more accumulators than an even share of the registers.
  constexpr int kRegisters = S::kColumns > 128 ? 240 : 0;
  run_tiles<S, MmaConsumer<S>, kRegisters>(args);
}

// False if the GPU cannot run all clusters at once. Then nothing was launched.
template <class S>
bool launch(Context& ctx, const GemmArgs& a, const BatchInvariantPlan& plan) {
  const BatchInvariantArgs args{.loads = loads_of<S>(a, plan.stages),
                                .out = a.out,
                                .out_stride = a.out_stride,
                                .m = static_cast<int>(a.m),
                                .n = static_cast<int>(a.n)};
  return launch_tiles<S>(ctx, "batch-invariant GEMM", batch_invariant_kernel<S>, plan.blocks, args);
}

bool launch(Context& ctx, const GemmArgs& a, const BatchInvariantPlan& plan) {
  switch (plan.tile) {
    case BatchInvariantTile::k8x32:
      return launch<TileShape<8, 32, 1>>(ctx, a, plan);
    case BatchInvariantTile::k8x64:
      return launch<TileShape<8, 64, 1>>(ctx, a, plan);
    case BatchInvariantTile::k64x64:
      return launch<TileShape<64, 64, 1>>(ctx, a, plan);
    case BatchInvariantTile::k128x128:
      return launch<TileShape<128, 128, 1>>(ctx, a, plan);
    case BatchInvariantTile::k128x256:
      return launch<TileShape<128, 256, 2>>(ctx, a, plan);
  }
  return false;
}

}  // namespace

void gemm_batch_invariant(Context& ctx, const GemmArgs& a) {
  const int num_sms = ctx.cuda->info().num_sms;
  if (!launch(ctx, a, plan_batch_invariant(a.m, a.n, num_sms)))
    launch(ctx, a, plan_batch_invariant(a.m, a.n, num_sms, false));
}

}  // namespace sluice::cuda
