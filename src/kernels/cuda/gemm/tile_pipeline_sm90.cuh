// The producer side of the persistent GEMMs on Hopper: tiles of x and w come by TMA into a pipeline
// in shared memory, 128 bytes of each row a step. So a step has 64 columns of bfloat16, or 128 of
// FP8, whose rows are loaded as half as many columns of two bytes.
//
// 1. place_of       persistent CTAs take one tile after the other
// 2. TileProducer   one thread of a producer warpgroup fills the pipeline. It loads weights before
//                   the kernel that makes x has ended.
// 3. run_tiles      the body of a kernel: the producer, and consumers of the kernel's own
#pragma once

#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/gemm/gemm.h"

namespace sluice::cuda {

inline constexpr int kGroupThreads = 4 * kWarp;
// Row tiles of a band. The tiles of a band run together: they share weights, and their rows of x
// stay in L2.
inline constexpr int kBand = 8;

inline constexpr int kMaxTileStages = 20;

// Rows and columns of a CTA's tile, and CTAs that share weights. With 8 rows the MMA still takes
// 64: the descriptor reads the same 8 rows again.
// kScaleBytes: of the scales of w that come with a stage, behind all tiles.
template <int kRows_, int kColumns_, int kCluster_, int kScaleBytes_ = 0>
struct TileShape {
  static constexpr int kRows = kRows_, kColumns = kColumns_, kCluster = kCluster_;
  static constexpr int kScaleBytes = kScaleBytes_;
  static constexpr int kGroups = kRows < 64 ? 1 : kRows / 64;
  static constexpr int kThreads = (kGroups + 1) * kGroupThreads;
  static constexpr int kCtasPerSm = kRows <= 64 ? 2 : 1;
  static constexpr int kRowBytes = kRows * kSwizzleBytes;  // of a step
  static constexpr int kPartRows = kColumns / kCluster;    // of the weights that a CTA loads
  static constexpr int kStageBytes = kRowBytes + kColumns * kSwizzleBytes;
  static_assert(kRows == 8 || kRows % 64 == 0);
  static_assert(kStageBytes % 1024 == 0);
};

// Tensor maps clamp at the edges: partial tiles read zeros, and zeros add nothing to a sum.
struct TileLoads {
  CUtensorMap x, w;
  int rows = 0, columns = 0;  // tiles, those of a cluster counted as one
  int steps = 0;
  int stages = 1;
  // Scales of w, [steps][scale_stride] float32: those of a tile begin on 16 bytes.
  const float* scales = nullptr;
  std::int64_t scale_stride = 0;
};

// filled: the TMA bytes of a stage; emptied: an arrival of every consumer warp.
struct Pipeline {
  std::uint64_t filled[kMaxTileStages], emptied[kMaxTileStages];  // barriers
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
__device__ inline Place place_of(const TileLoads& args, int tile, int rank) {
  // Bands of kBand row tiles, and column by column within a band.
  const int first = tile / (kBand * args.columns) * kBand, band = min(args.rows - first, kBand);
  const int within = tile - first * args.columns;
  return {((first + within % band) * S::kCluster + rank) * S::kRows, within / band * S::kColumns};
}

// Of a stage.
template <class S>
__device__ inline std::uint32_t scales_at(std::uint32_t shared, int stages, int stage) {
  return shared + stages * S::kStageBytes + stage * S::kScaleBytes;
}

// One thread of a CTA.
template <class S>
class TileProducer {
 public:
  __device__ TileProducer(const TileLoads& args, Pipeline& pipeline, std::uint32_t shared)
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
    const TileProducer begin = *this;
    for (int i = 0; i < args_.stages && more(); ++i) issue_step<true, false>();
    wait_for_earlier_kernels();
    rewind(begin);
    for (int i = 0; i < args_.stages && more(); ++i) issue_step<false, true>();
    while (more()) issue_step<true, true>();
  }

 private:
  __device__ bool more() const { return tile_ < args_.rows * args_.columns; }
  __device__ void rewind(const TileProducer& other) {
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
      mbarrier_arrive_expect_tx(filled, S::kStageBytes + S::kScaleBytes);
      if constexpr (S::kScaleBytes > 0)
        tma_load_bytes(args_.scales + step_ * args_.scale_stride +
                           place_.column / (S::kColumns * 4 / S::kScaleBytes),
                       S::kScaleBytes, scales_at<S>(shared_, args_.stages, at_.stage), filled);
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

  const TileLoads& args_;
  Pipeline& pipeline_;
  std::uint32_t shared_;
  int rank_, tile_, step_ = 0;
  Place place_{};
  PipelinePlace at_;
};

// The descriptor of 64 rows of x. With 8 rows its stride is 0, so that all 64 rows of the MMA read
// the same 8.
template <class S>
__device__ inline std::uint64_t row_descriptor(std::uint32_t address) {
  const std::uint64_t tile = tile_descriptor(address, 16);
  return S::kRows < 64 ? tile & ~(std::uint64_t{0x3FFF} << 32) : tile;
}

// One arrival for each warp and CTA: with a cluster, both CTAs must know that the weights are read.
template <class S>
__device__ inline void release_stage(Pipeline& pipeline, int stage) {
  const std::uint32_t emptied = shared_address(&pipeline.emptied[stage]);
  // Every lane has read scales; the lanes that arrive speak for them.
  if constexpr (S::kScaleBytes > 0) __syncwarp();
  const unsigned lane = threadIdx.x % kWarp;
  if constexpr (S::kCluster == 1) {
    if (lane == 0) mbarrier_arrive(emptied);
  } else {
    if (lane < S::kCluster) mbarrier_arrive_remote(emptied, lane);
  }
}

// 3. Args: `loads` and what Consumer(args, pipeline, shared) reads. Consumer::multiply_tile(place)
// takes the tiles in the order of the producer. kRegisters: of a consumer's thread; 0: an even
// share.
template <class S, class Consumer, int kRegisters, class Args>
__device__ inline void run_tiles(const Args& args) {
  extern __shared__ unsigned char shared[];
  __shared__ Pipeline pipeline;
  const TileLoads& loads = args.loads;
  const std::uint32_t aligned = (shared_address(shared) + 1023) / 1024 * 1024;
  if (threadIdx.x == 0) {
    for (int i = 0; i < loads.stages; ++i) {
      mbarrier_init(shared_address(&pipeline.filled[i]), 1);
      mbarrier_init(shared_address(&pipeline.emptied[i]),
                    S::kCluster * S::kGroups * kGroupThreads / kWarp);
    }
    fence_mbarrier_init();
    prefetch_tensor_map(loads.x);
    prefetch_tensor_map(loads.w);
  }
  __syncthreads();
  if constexpr (S::kCluster > 1) {
    cluster_arrive();
    cluster_wait();  // the other CTA's mbarriers are initialised
  }
  start_next_kernel();
  if (threadIdx.x >= S::kGroups * kGroupThreads) {
    if constexpr (kRegisters > 0) setmaxnreg_dec<24>();
    if (threadIdx.x == S::kGroups * kGroupThreads)
      TileProducer<S>(loads, pipeline, aligned).produce();
  } else {
    if constexpr (kRegisters > 0) setmaxnreg_inc<kRegisters>();
    wait_for_earlier_kernels();  // they may still read what the epilogue overwrites
    Consumer consumer(args, pipeline, aligned);
    const int rank = static_cast<int>(blockIdx.x) % S::kCluster;
    for (int tile = static_cast<int>(blockIdx.x) / S::kCluster; tile < loads.rows * loads.columns;
         tile += static_cast<int>(gridDim.x) / S::kCluster)
      consumer.multiply_tile(place_of<S>(loads, tile, rank));
  }
  if constexpr (S::kCluster > 1) {
    cluster_arrive();
    cluster_wait();  // the other CTA writes into this one's memory no more
  }
}

template <class S>
TileLoads loads_of(const GemmArgs& a, int stages) {
  // Columns of two bytes.
  const auto halves = [](std::int64_t elements, DType dtype) {
    return elements * dtype_size(dtype) / 2;
  };
  const std::int64_t columns = halves(a.k, a.w_type);
  return {.x = map_of_boxes(a.x, a.m, columns, halves(a.x_stride, a.x_type), S::kRows),
          .w = map_of_boxes(a.w, a.n, columns, halves(a.w_stride, a.w_type), S::kPartRows),
          .rows = static_cast<int>(blocks_for(a.m, S::kRows * S::kCluster)),
          .columns = static_cast<int>(blocks_for(a.n, S::kColumns)),
          .steps = static_cast<int>(blocks_for(columns, kSwizzleColumns)),
          .stages = stages};
}

// Launches a kernel that calls run_tiles. False if the GPU cannot run all clusters at once. Then
// nothing was launched. Tests of the plans check that the stages of every plan fit.
template <class S, class Args>
bool launch_tiles(Context& ctx, const char* what, void (*kernel)(Args), int blocks,
                  const Args& args) {
  const dim3 grid(static_cast<unsigned>(blocks));
  const std::int64_t bytes =
      args.loads.stages * (S::kStageBytes + S::kScaleBytes) + 1024;  // for swizzled tiles
  if constexpr (S::kCluster == 1) {
    launch_dependent(ctx, what, kernel, grid, S::kThreads, bytes, args);
  } else {
    const ClusterLaunch clusters(ctx, grid, S::kThreads, bytes, dim3(S::kCluster));
    if (!clusters.fits(kernel)) return false;
    clusters.run(what, kernel, args);
  }
  return true;
}

}  // namespace sluice::cuda
