// SwiGLU for many rows: act(x Wg^T) * (x Wu^T) of the gate/up projections, on Hopper's wgmma with
// TMA. The activation is fused into the epilogue, in float32.
//
// 1. Tiles         persistent CTAs; a cluster of two takes neighbouring row tiles
// 2. Loader        one thread issues TMA for a step of 64 columns of x and of weights. Each CTA of
//                  the cluster loads half of the weights and multicasts it to both.
// 3. MmaConsumer   mainloop: a CTA has 192 rows of x (64 for each of three warpgroups), 128 gate
//                  rows and 128 up rows of weights. A lane holds a gate and the matching up.
// 4. store         epilogue: activation, bfloat16, TMA store
//
// The next step is issued as soon as all consumers have released the oldest stage, also across
// tiles: the loads of a tile run during the epilogue of the tile before.
//
// A large GEMM runs at the clock that the power limit allows, so data movement costs speed:
// - three consumer warpgroups share the weights in shared memory;
// - no producer warpgroup, because a fourth one would leave too few registers;
// - bands of tiles keep x in L2, and weights and outputs are evict_first.
//
// The order of summation of an output is that of K. Persistent CTAs, clusters and the pipeline as
// in CUTLASS 3's Hopper kernels.
#include "kernels/cuda/common/activations.cuh"
#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/swiglu_plan.h"

namespace sluice::cuda {
namespace {

constexpr int kGroups = kSwigluGroups, kGroupThreads = 4 * kWarp,
              kThreads = kGroups * kGroupThreads;
constexpr int kGroupRows = 64, kRows = kGroups * kGroupRows;  // of a warpgroup, of a CTA
constexpr int kColumns = kSwigluColumns;  // gate columns of a CTA, and up columns
constexpr int kStepColumns = kSwizzleColumns;
constexpr int kStages = 3;
constexpr int kRowBytes = kRows * kSwizzleBytes,
              kHalfBytes = kColumns * kSwizzleBytes;  // of x; of gate or up weights
constexpr int kStageBytes = kRowBytes + 2 * kHalfBytes;
constexpr int kBoxBytes = kGroupRows * kSwizzleBytes;  // 64 rows and columns, of x or of the output
constexpr int kOutBytes = kColumns / kSwizzleColumns * kBoxBytes;  // of a warpgroup
// 1024 more, because the 128-byte swizzle needs tiles on 1024 bytes.
constexpr int kBytes = kStages * kStageBytes + kGroups * kOutBytes + 1024;
constexpr std::uint16_t kBothCtas = 0b11;
static_assert(kSwigluCluster == 2 && kSwigluRows == kSwigluCluster * kRows);

struct SwigluArgs {
  CUtensorMap x, w, out;  // boxes of kRows, kColumns and kGroupRows rows
  int m = 0;
  int rows = 0, columns = 0;  // tiles of clusters
  int steps = 0;
  int first_up = 0;  // the first up row of w
};

struct Pipeline {
  std::uint64_t filled[kStages], emptied[kStages];  // barriers
};

// A stage of the pipeline and the parity of its mbarrier phase.
struct PipelinePlace {
  int stage = 0, parity = 0;
  __device__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// 1. The tiles of a CTA, one after the other.
class Tiles {
 public:
  __device__ explicit Tiles(const SwigluArgs& args)
      : args_(args), t_(static_cast<int>(blockIdx.x) / kSwigluCluster) {
    locate();
  }
  __device__ bool is_end() const { return t_ >= args_.rows * args_.columns; }
  __device__ void advance() {
    t_ += static_cast<int>(gridDim.x) / kSwigluCluster;
    locate();
  }

  int row = 0, column = 0;  // the first of the tile

 private:
  __device__ void locate() {
    if (is_end()) return;
    const SwigluPlace place = swiglu_place(t_, args_.rows, args_.columns);
    row = (place.row * kSwigluCluster + static_cast<int>(blockIdx.x) % kSwigluCluster) * kRows;
    column = place.column * kColumns;
  }

  const SwigluArgs& args_;
  int t_;
};

// 2. Issues one step after the other. One thread calls.
class Loader {
 public:
  __device__ Loader(const SwigluArgs& args, Pipeline& pipeline, std::uint32_t shared)
      : args_(args), pipeline_(pipeline), shared_(shared), tiles_(args) {}

  // Waits until both CTAs have released the stage: the multicast writes into both. Nothing happens
  // after the last step.
  __device__ void load() {
    if (tiles_.is_end()) return;
    const std::uint32_t stage = shared_ + place_.stage * kStageBytes,
                        filled = shared_address(&pipeline_.filled[place_.stage]);
    const int rank = static_cast<int>(blockIdx.x) % kSwigluCluster, column = step_ * kStepColumns;
    mbarrier_wait(shared_address(&pipeline_.emptied[place_.stage]), place_.parity ^ 1);
    const bool has_rows = tiles_.row < args_.m;
    // A tile past the last row still takes its half of the weights for the other CTA.
    mbarrier_arrive_expect_tx(filled, has_rows ? kStageBytes : 2 * kHalfBytes);
    if (has_rows) tma_load(args_.x, column, tiles_.row, stage, filled);
    tma_load_multicast(args_.w, column, tiles_.column + rank * args_.first_up,
                       stage + kRowBytes + rank * kHalfBytes, filled, kBothCtas, l2_evict_first());
    place_.advance();
    if (++step_ < args_.steps) return;
    step_ = 0;
    tiles_.advance();
  }

 private:
  const SwigluArgs& args_;
  Pipeline& pipeline_;
  std::uint32_t shared_;
  Tiles tiles_;
  int step_ = 0;
  PipelinePlace place_;
};

// 3. One of three consumer warpgroups. Thread 0 is also the producer.
template <Activation kFn>
class MmaConsumer {
 public:
  __device__ MmaConsumer(const SwigluArgs& args, Pipeline& pipeline, std::uint32_t shared)
      : args_(args),
        pipeline_(pipeline),
        loader_(args, pipeline, shared),
        group_(threadIdx.x / kGroupThreads),
        lane_(threadIdx.x % kWarp),
        steps_(shared),
        out_(shared + kStages * kStageBytes + group_ * kOutBytes) {
    for (int i = 0; i < kStages; ++i) load();
  }

  // The warpgroup's rows of a tile.
  __device__ void multiply(int row, int column) {
    row += group_ * kGroupRows;
    if (row >= args_.m) return pass();
    float sums[kColumns];  // 64 gate sums, then 64 up sums
    int last_stage = 0;
    for (int step = 0; step < args_.steps; ++step) {
      const std::uint32_t stage = steps_ + place_.stage * kStageBytes;
      const std::uint32_t rows = stage + group_ * kBoxBytes, weights = stage + kRowBytes;
      mbarrier_wait(shared_address(&pipeline_.filled[place_.stage]), place_.parity);
      pin_registers(sums);
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < kStepColumns / 16; ++s)
        wgmma_m64n256(sums, tile_descriptor(rows + s * 32, 16),
                      tile_descriptor(weights + s * 32, 16), step > 0 || s > 0);
      wgmma_commit();
      if (step > 0) {
        wgmma_wait<1>();
        pin_registers(sums);
        release(last_stage);
      }
      last_stage = place_.stage;
      place_.advance();
    }
    wgmma_wait<0>();
    pin_registers(sums);
    release(last_stage);
    store(sums, row, column);
  }

 private:
  __device__ void load() {
    if (threadIdx.x == 0) loader_.load();
    __syncwarp();
  }

  // Arrives in both CTAs, because each CTA's loader writes into both.
  __device__ void release(int stage) {
    if (lane_ < kSwigluCluster)
      mbarrier_arrive_remote(shared_address(&pipeline_.emptied[stage]),
                             static_cast<unsigned>(lane_));
    __syncwarp();
    load();
  }

  // A warpgroup past the last row releases every stage, or the producers would wait for it.
  __device__ void pass() {
    for (int step = 0; step < args_.steps; ++step) {
      mbarrier_wait(shared_address(&pipeline_.filled[place_.stage]), place_.parity);
      release(place_.stage);
      place_.advance();
    }
  }

  // 4. stmatrix puts the tile into swizzled boxes, one thread stores the boxes by TMA.
  __device__ void store(const float (&sums)[kColumns], int row, int column) const {
    const bool leads = threadIdx.x % kGroupThreads == 0;
    if (leads) tma_store_wait_read();  // the boxes of the tile before have been read
    sync_warpgroup(group_);
    const int at = threadIdx.x % kGroupThreads / kWarp * 16 + lane_ % 16;
#pragma unroll
    for (int j = 0; j < kColumns / 8; j += 2) {
      std::uint32_t both[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int c = 4 * (j + i / 2) + i % 2 * 2;
        both[i] = pack_bf16(activated_roughly<kFn>(sums[c]) * sums[kColumns / 2 + c],
                            activated_roughly<kFn>(sums[c + 1]) * sums[kColumns / 2 + c + 1]);
      }
      stmatrix_x4(out_ + j / 8 * kBoxBytes + swizzled(at, j % 8 + lane_ / 16), both);
    }
    fence_async_proxy();
    sync_warpgroup(group_);
    if (!leads) return;
#pragma unroll
    for (int box = 0; box < kColumns / kSwizzleColumns; ++box)
      tma_store(args_.out, column + box * kSwizzleColumns, row, out_ + box * kBoxBytes,
                l2_evict_first());
    tma_store_commit();
  }

  const SwigluArgs& args_;
  Pipeline& pipeline_;
  Loader loader_;
  int group_, lane_;
  std::uint32_t steps_, out_;
  PipelinePlace place_;
};

template <Activation kFn>
__global__ void __launch_bounds__(kThreads, 1)
    swiglu_kernel(const __grid_constant__ SwigluArgs args) {
  extern __shared__ unsigned char shared[];
  __shared__ Pipeline pipeline;
  const std::uint32_t aligned = (shared_address(shared) + 1023) / 1024 * 1024;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(shared_address(&pipeline.filled[i]), 1);
      mbarrier_init(shared_address(&pipeline.emptied[i]), kSwigluCluster * kThreads / kWarp);
    }
    fence_mbarrier_init();
    prefetch_tensor_map(args.x);
    prefetch_tensor_map(args.w);
    prefetch_tensor_map(args.out);
  }
  __syncthreads();
  cluster_arrive();
  cluster_wait();  // the other CTA's mbarriers are initialised
  wait_for_earlier_kernels();
  start_next_kernel();
  MmaConsumer<kFn> consumer(args, pipeline, aligned);
  for (Tiles tiles(args); !tiles.is_end(); tiles.advance())
    consumer.multiply(tiles.row, tiles.column);
  if (threadIdx.x % kGroupThreads == 0) tma_store_wait_read();
  // Hazard: the other CTA may still arrive at mbarriers of this one.
  cluster_arrive();
  cluster_wait();
}

}  // namespace

bool gemm_swiglu(Context& ctx, const GemmArgs& a, const RowsAround& around) {
  const SwigluArgs args{
      .x = map_of_boxes(a.x, a.m, a.k, a.x_stride, kRows),
      .w = map_of_boxes(a.w, 2 * a.n, a.k, a.w_stride, kColumns),
      .out = map_of_boxes(around.gated, a.m, a.n, around.gated_stride, kGroupRows),
      .m = static_cast<int>(a.m),
      .rows = static_cast<int>(blocks_for(a.m, kSwigluRows)),
      .columns = static_cast<int>(blocks_for(a.n, kColumns)),
      .steps = static_cast<int>(blocks_for(a.k, kStepColumns)),
      .first_up = static_cast<int>(a.n)};
  const int clusters =
      std::min(args.rows * args.columns, ctx.cuda->info().num_sms / kSwigluCluster);
  const ClusterLaunch launch(ctx, dim3(static_cast<unsigned>(clusters * kSwigluCluster)), kThreads,
                             kBytes, dim3(kSwigluCluster));
  const auto kernel =
      around.gelu ? swiglu_kernel<Activation::kGeluTanh> : swiglu_kernel<Activation::kSilu>;
  if (!launch.fits(kernel)) return false;
  launch.run("gate/up projections with SwiGLU", kernel, args);
  return true;
}

}  // namespace sluice::cuda
