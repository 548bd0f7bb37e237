// Batch-invariant GEMM on Hopper's wgmma with TMA: an output has the same bits whatever rows are
// beside it.
//
// An output element is one sum. k ascends in steps of 16, and each step is one MMA on top of the
// sum so far. Neither the number of rows nor the tile size enters the sum. So the tile may suit the
// number of rows (batch_invariant_plan.h). There is no split-K.
//
// 1. place_of       persistent CTAs take one tile after the other
// 2. Producer       one thread of a producer warpgroup fills the pipeline by TMA. It loads weights
//                   before the kernel that makes x has ended.
// 3. MmaConsumer    mainloop: a warpgroup takes 64 rows of a tile
// 4. store          epilogue: float32 to global memory
//
// The largest tiles go to clusters of two CTAs: each loads half of the weights and multicasts it.
#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/gemm/batch_invariant_plan.h"
#include "kernels/cuda/gemm/gemm.h"

namespace sluice::cuda {
namespace {

constexpr int kGroupThreads = 4 * kWarp;
// Row tiles of a band. The tiles of a band run together: they share weights, and their rows of x
// stay in L2.
constexpr int kBand = 8;

// Rows and columns of a CTA's tile, and CTAs that share weights. With 8 rows the MMA still takes
// 64: the descriptor reads the same 8 rows again.
template <int kRows_, int kColumns_, int kCluster_>
struct Shape {
  static constexpr int kRows = kRows_, kColumns = kColumns_, kCluster = kCluster_;
  static constexpr int kGroups = kRows < 64 ? 1 : kRows / 64;
  static constexpr int kThreads = (kGroups + 1) * kGroupThreads;
  static constexpr int kCtasPerSm = kRows <= 64 ? 2 : 1;
  static constexpr int kRowBytes = kRows * kSwizzleBytes;  // 64 columns of x are a step
  static constexpr int kPartRows = kColumns / kCluster;    // of the weights that a CTA loads
  static constexpr int kStageBytes = kRowBytes + kColumns * kSwizzleBytes;
  static_assert(kRows == 8 || kRows % 64 == 0);
  static_assert(kStageBytes % 1024 == 0);
};

// Tensor maps clamp at the edges: partial tiles read zeros, and zeros add nothing to a sum.
struct BatchInvariantArgs {
  CUtensorMap x, w;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  int m = 0, n = 0;
  int rows = 0, columns = 0;  // tiles, those of a cluster counted as one
  int steps = 0;
  int stages = 1;
};

// filled: the TMA bytes of a stage; emptied: an arrival of every consumer warp.
struct Pipeline {
  std::uint64_t filled[kMaxBatchInvariantStages], emptied[kMaxBatchInvariantStages];  // barriers
};
struct PipelinePlace {
  int stage = 0, parity = 0;
  __device__ void advance(int stages) {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

struct Place {
  int row, column;  // the first of the tile
};
template <class S>
__device__ inline Place place_of(const BatchInvariantArgs& args, int tile, int rank) {
  // Bands of kBand row tiles, and column by column within a band.
  const int first = tile / (kBand * args.columns) * kBand, band = min(args.rows - first, kBand);
  const int within = tile - first * args.columns;
  return {((first + within % band) * S::kCluster + rank) * S::kRows, within / band * S::kColumns};
}

// 2. One thread of a CTA.
template <class S>
class Producer {
 public:
  __device__ Producer(const BatchInvariantArgs& args, Pipeline& pipeline, std::uint32_t shared)
      : args_(args),
        pipeline_(pipeline),
        shared_(shared),
        rank_(static_cast<int>(blockIdx.x) % S::kCluster),
        tile_(static_cast<int>(blockIdx.x) / S::kCluster) {
    if (tile_ < args_.rows * args_.columns) place_ = place_of<S>(args_, tile_, rank_);
  }

  __device__ void produce() {
    // The pipeline is empty, so the weights of the first stages need no wait. Then the same stages
    // get their rows of x, whose kernel has ended by now.
    const Producer begin = *this;
    for (int i = 0; i < args_.stages && more(); ++i) issue_step<true, false>();
    wait_for_earlier_kernels();
    rewind(begin);
    for (int i = 0; i < args_.stages && more(); ++i) issue_step<false, true>();
    while (more()) issue_step<true, true>();
  }

 private:
  __device__ bool more() const { return tile_ < args_.rows * args_.columns; }
  __device__ void rewind(const Producer& other) {
    tile_ = other.tile_, step_ = other.step_, place_ = other.place_, at_ = other.at_;
  }

  template <bool kWeights, bool kRows>
  __device__ void issue_step() {
    const std::uint32_t stage = shared_ + at_.stage * S::kStageBytes,
                        filled = shared_address(&pipeline_.filled[at_.stage]);
    const int column = step_ * kSwizzleColumns;
    if constexpr (kWeights) {
      // Parity ^ 1: the first round of a stage does not wait.
      mbarrier_wait(shared_address(&pipeline_.emptied[at_.stage]), at_.parity ^ 1);
      mbarrier_arrive_expect_tx(filled, S::kStageBytes);
      const std::uint32_t part = stage + S::kRowBytes + rank_ * S::kPartRows * kSwizzleBytes;
      const int first = place_.column + rank_ * S::kPartRows;
      if constexpr (S::kCluster == 1)
        tma_load(args_.w, column, first, part, filled);
      else
        tma_load_multicast(args_.w, column, first, part, filled,
                           static_cast<std::uint16_t>((1 << S::kCluster) - 1), l2_evict_first());
    }
    // Rows and weights of a stage count in one mbarrier phase.
    if constexpr (kRows) tma_load(args_.x, column, place_.row, stage, filled);
    at_.advance(args_.stages);
    if (++step_ < args_.steps) return;
    step_ = 0;
    tile_ += static_cast<int>(gridDim.x) / S::kCluster;
    if (more()) place_ = place_of<S>(args_, tile_, rank_);
  }

  const BatchInvariantArgs& args_;
  Pipeline& pipeline_;
  std::uint32_t shared_;
  int rank_, tile_, step_ = 0;
  Place place_{};
  PipelinePlace at_;
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

// 3. A consumer warpgroup.
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
    const bool takes_turns = S::kGroups > 1 && args_.steps >= args_.stages;
    if (takes_turns && group_ == 1) await_turn(1);
    int last_stage = 0;
    for (int step = 0; step < args_.steps; ++step) {
      const std::uint32_t stage = shared_ + at_.stage * S::kStageBytes;
      const std::uint64_t row_tile = rows_at(stage + group_ * 64 * kSwizzleBytes),
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
        release(last_stage);
      }
      last_stage = at_.stage;
      at_.advance(args_.stages);
    }
    wgmma_wait<0>();
    pin_registers(sums);
    release(last_stage);
    store(sums, place);
  }

 private:
  // With 8 rows the descriptor's stride is 0, so that all 64 rows of the MMA read the same 8.
  __device__ static std::uint64_t rows_at(std::uint32_t address) {
    const std::uint64_t tile = tile_descriptor(address, 16);
    return S::kRows < 64 ? tile & ~(std::uint64_t{0x3FFF} << 32) : tile;
  }

  // One arrival for each warp and CTA: with a cluster, both CTAs must know that the weights are
  // read.
  __device__ void release(int stage) const {
    const std::uint32_t emptied = shared_address(&pipeline_.emptied[stage]);
    if constexpr (S::kCluster == 1) {
      if (lane_ == 0) mbarrier_arrive(emptied);
    } else {
      if (lane_ < S::kCluster) mbarrier_arrive_remote(emptied, static_cast<unsigned>(lane_));
    }
  }

  // 4. Accumulator element 4 j + 2 r + c: row lane / 4 + 8 r, column 8 j + 2 (lane % 4) + c.
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
  extern __shared__ unsigned char shared[];
  __shared__ Pipeline pipeline;
  const std::uint32_t aligned = (shared_address(shared) + 1023) / 1024 * 1024;
  if (threadIdx.x == 0) {
    for (int i = 0; i < args.stages; ++i) {
      mbarrier_init(shared_address(&pipeline.filled[i]), 1);
      mbarrier_init(shared_address(&pipeline.emptied[i]),
                    S::kCluster * S::kGroups * kGroupThreads / kWarp);
    }
    fence_mbarrier_init();
    prefetch_tensor_map(args.x);
    prefetch_tensor_map(args.w);
  }
  __syncthreads();
  if constexpr (S::kCluster > 1) {
    cluster_arrive();
    cluster_wait();  // the other CTA's mbarriers are initialised
  }
  start_next_kernel();
  if (threadIdx.x >= S::kGroups * kGroupThreads) {
    // Wide tiles need more accumulators than an even share of the registers.
    if constexpr (S::kColumns > 128) setmaxnreg_dec<24>();
    if (threadIdx.x == S::kGroups * kGroupThreads) Producer<S>(args, pipeline, aligned).produce();
  } else {
    if constexpr (S::kColumns > 128) setmaxnreg_inc<240>();
    wait_for_earlier_kernels();  // they may still read what store() overwrites
    MmaConsumer<S> consumer(args, pipeline, aligned);
    const int rank = static_cast<int>(blockIdx.x) % S::kCluster;
    for (int tile = static_cast<int>(blockIdx.x) / S::kCluster; tile < args.rows * args.columns;
         tile += static_cast<int>(gridDim.x) / S::kCluster)
      consumer.multiply_tile(place_of<S>(args, tile, rank));
  }
  if constexpr (S::kCluster > 1) {
    cluster_arrive();
    cluster_wait();  // the other CTA writes into this one's memory no more
  }
}

// False if the GPU cannot run all clusters at once. Then nothing was launched.
template <class S>
bool launch(Context& ctx, const GemmArgs& a, const BatchInvariantPlan& plan) {
  const BatchInvariantArgs args{.x = map_of_boxes(a.x, a.m, a.k, a.x_stride, S::kRows),
                                .w = map_of_boxes(a.w, a.n, a.k, a.w_stride, S::kPartRows),
                                .out = a.out,
                                .out_stride = a.out_stride,
                                .m = static_cast<int>(a.m),
                                .n = static_cast<int>(a.n),
                                .rows = static_cast<int>(blocks_for(a.m, S::kRows * S::kCluster)),
                                .columns = static_cast<int>(blocks_for(a.n, S::kColumns)),
                                .steps = static_cast<int>(blocks_for(a.k, kSwizzleColumns)),
                                .stages = plan.stages};
  const dim3 grid(static_cast<unsigned>(plan.blocks));
  // batch_invariant_plan_test.cpp checks that the stages of every plan fit.
  const std::int64_t bytes = plan.stages * S::kStageBytes + 1024;  // for swizzled tiles
  const auto kernel = batch_invariant_kernel<S>;
  if constexpr (S::kCluster == 1) {
    launch_dependent(ctx, "batch-invariant GEMM", kernel, grid, S::kThreads, bytes, args);
  } else {
    const ClusterLaunch clusters(ctx, grid, S::kThreads, bytes, dim3(S::kCluster));
    if (!clusters.fits(kernel)) return false;
    clusters.run("batch-invariant GEMM", kernel, args);
  }
  return true;
}

bool launch(Context& ctx, const GemmArgs& a, const BatchInvariantPlan& plan) {
  switch (plan.tile) {
    case BatchInvariantTile::k8x32:
      return launch<Shape<8, 32, 1>>(ctx, a, plan);
    case BatchInvariantTile::k8x64:
      return launch<Shape<8, 64, 1>>(ctx, a, plan);
    case BatchInvariantTile::k64x64:
      return launch<Shape<64, 64, 1>>(ctx, a, plan);
    case BatchInvariantTile::k128x128:
      return launch<Shape<128, 128, 1>>(ctx, a, plan);
    case BatchInvariantTile::k128x256:
      return launch<Shape<128, 256, 2>>(ctx, a, plan);
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
