// Tiles of GEMMs with weights in fragments (kernels/types/int_fragments.h) on Hopper's wgmma.
//
// Weights are the M side of the MMA, and rows of x the N side: a warpgroup takes 64 rows of
// weights, which come as the fragments that its registers need. An output element is one sum over
// groups in ascending order, or of IntShape::kDeep such sums.
//
// 1. IntProducer   a warp loads boxes of units of weights, and tiles of x, by TMA. One copy takes
//                  all units of a stage: a copy of each would take longer to issue than to arrive.
// 2. IntConsumer   mainloop: codes become bfloat16 in registers while the MMAs before run. The sums
//                  of a group are promoted with its scales.
// 3. run_int_tiles the body of a kernel: the producer, and the consumer warpgroups
//
// `Work` says what a CTA takes and what becomes of its sums:
//
//   kLoadsEarly                      whether weights load before the kernel that makes x has ended
//   count(), item(index)             items of all CTAs; a CTA takes every gridDim.x-th one
//   x_map(), w_map(), weights()      what all items read
//   finish(item, sums, warp, lane)   accumulator 4 j + 2 r + c: row 16 warp + lane / 4 + 8 r of the
//                                    weights, row 8 j + 2 (lane % 4) + c of x. The threads of
//                                    IntShape::kFinishing call.
#pragma once

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/gemm/gemm_int.h"
#include "kernels/cuda/gemm/int_fragments.cuh"

namespace sluice::cuda {

inline constexpr int kIntWarpgroup = 4 * kWarp, kIntWarpgroupRows = 64;
inline constexpr int kIntRegisters = 64 << 10;  // of an SM

// The consumer warpgroups of a CTA: kWide take 64 rows of the weights each, and kDeep of the same
// rows take units of columns in turn.
template <int kWide_, int kDeep_>
struct IntShape {
  static constexpr int kWide = kWide_, kDeep = kDeep_;
  static constexpr int kConsumers = kWide * kDeep * kIntWarpgroup;
  static constexpr int kThreads = kConsumers + kIntWarpgroup;
  static constexpr int kFinishing = kWide * kIntWarpgroup;  // have all sums at the end
  static constexpr int kRows = kWide * kIntWarpgroupRows;   // of weights
  static constexpr int kTiles = kRows / kUnitRows;
};

// CTAs of an SM.
template <class Shape, int kRows>
inline constexpr int kIntCtas = int_ctas_per_sm(kRows, Shape::kWide* Shape::kDeep);

// Boxes of a stage, of `experts` stacks of `tiles` of 16 rows.
inline CUtensorMap map_of_units(const IntWeights& w, std::int64_t tiles, std::int64_t experts,
                                std::int64_t expert_bytes, int wide, int deep) {
  return map_of_runs({.data = w.of,
                      .items = experts,
                      .rows = tiles,
                      .runs = std::int64_t{w.units} * w.runs,
                      .run_bytes = w.unit_bytes / w.runs,
                      .item_bytes = expert_bytes},
                     wide * (kIntWarpgroupRows / kUnitRows), deep * w.runs);
}

// What a CTA takes at once.
struct IntItem {
  int expert = 0, tile = 0;  // of 16 rows of the weights, the first one
  int row = 0;               // of x, the first one
  int begin = 0, end = 0;    // units of columns
};

template <int kThreads, int kBarrier = 1>
__device__ inline void sync_int_consumers() {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
}

// filled: the bytes of a stage; emptied: an arrival of every consumer warp.
struct IntBarriers {
  std::uint64_t filled[kMaxIntTileStages], emptied[kMaxIntTileStages];
};
struct StagePlace {
  int stage = 0, parity = 0;
  __device__ void advance(int stages) {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

// Shared memory: tiles of x of all stages, two of 64 columns each, then their units.
template <int kRows, class Shape>
struct StageMemory {
  static constexpr int kXBytes = kRows * kFragmentUnitColumns * 2;  // of a unit of columns
  unsigned char* base;
  int stages, unit_bytes;

  __device__ unsigned char* x(int stage, int deep) const {
    return base + (stage * Shape::kDeep + deep) * kXBytes;
  }
  // Of a tile of 16 rows; on 128 bytes for the first tile of a stage.
  __device__ unsigned char* unit(int stage, int tile, int deep) const {
    return base + stages * Shape::kDeep * kXBytes +
           ((stage * Shape::kTiles + tile) * Shape::kDeep + deep) * unit_bytes;
  }
  // Of the warpgroups behind the first of the same rows.
  __device__ float* sums() const { return reinterpret_cast<float*>(unit(stages, 0, 0)); }
};

// 1. All lanes of a warp.
template <int kRows, class Shape, class Work>
class IntProducer {
 public:
  __device__ IntProducer(const Work& work, IntBarriers& barriers, StageMemory<kRows, Shape> memory)
      : work_(work), barriers_(barriers), memory_(memory), index_(static_cast<int>(blockIdx.x)) {
    if (more()) enter();
  }

  __device__ void produce() {
    if constexpr (Work::kLoadsEarly) {
      // The pipeline is empty, so the weights of the first stages need no wait. Then the same
      // stages get their rows of x, whose kernel has ended by now.
      const int first = index_;
      for (int i = 0; i < memory_.stages && more(); ++i) issue<true, false>();
      wait_for_earlier_kernels();
      index_ = first;
      at_ = {};
      if (more()) enter();
      for (int i = 0; i < memory_.stages && more(); ++i) issue<false, true>();
    }
    while (more()) issue<true, true>();
  }

 private:
  __device__ bool more() const { return index_ < work_.count(); }
  __device__ void enter() {
    item_ = work_.item(index_);
    unit_ = item_.begin;
  }

  template <bool kWeights, bool kX>
  __device__ void issue() {
    const int lane = threadIdx.x % kWarp;
    const IntWeights& w = work_.weights();
    const std::uint32_t filled = shared_address(&barriers_.filled[at_.stage]);
    const int deep = min(Shape::kDeep, item_.end - unit_);  // units of columns
    if constexpr (kWeights) {
      if (lane == 0) {
        // Parity ^ 1: the first round of a stage does not wait.
        mbarrier_wait(shared_address(&barriers_.emptied[at_.stage]), at_.parity ^ 1);
        mbarrier_arrive_expect_tx(
            filled, deep * memory_.kXBytes + Shape::kTiles * Shape::kDeep * w.unit_bytes);
        tma_load_runs(work_.w_map(), unit_ * w.runs, item_.tile, item_.expert,
                      shared_address(memory_.unit(at_.stage, 0, 0)), filled);
      }
      __syncwarp();
    }
    if constexpr (kX) {
      if (lane < 2 * deep)
        tma_load(work_.x_map(), unit_ * kFragmentUnitColumns + lane * kSwizzleColumns, item_.row,
                 shared_address(memory_.x(at_.stage, 0)) + lane * kRows * kSwizzleBytes, filled);
    }
    at_.advance(memory_.stages);
    unit_ += Shape::kDeep;
    if (unit_ < item_.end) return;
    index_ += static_cast<int>(gridDim.x);
    if (more()) enter();
  }

  const Work& work_;
  IntBarriers& barriers_;
  StageMemory<kRows, Shape> memory_;
  int index_, unit_ = 0;
  typename Work::Item item_{};
  StagePlace at_;
};

// 2. A consumer warpgroup. kFine: groups of 32 or 64 columns; else of a unit, or (kNvFp4) of an
// MMA.
template <IntKind kKind, int kRows, bool kFine, class Shape, class Work>
class IntConsumer {
 public:
  __device__ IntConsumer(const Work& work, IntBarriers& barriers, StageMemory<kRows, Shape> memory)
      : work_(work),
        barriers_(barriers),
        memory_(memory),
        // The shuffle tells the compiler that all lanes have the same value.
        warp_(__shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarp % Shape::kTiles, 0)),
        deep_(__shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / Shape::kFinishing, 0)),
        lane_(threadIdx.x % kWarp) {}

  __device__ void multiply(const typename Work::Item& item) {
    float sums[kCount];
#pragma unroll
    for (float& sum : sums) sum = 0;
    // A chunk of MMAs runs while the weights of the next chunk become bfloat16. No branch lies
    // between the start and the end of an MMA: the compiler would serialise them.
    Chunk even, odd;
    float acc[kCount];
    const int stages = (item.end - item.begin + Shape::kDeep - 1) / Shape::kDeep,
              own = stages - (item.begin + (stages - 1) * Shape::kDeep + deep_ >= item.end);
    if (Shape::kDeep == 1 || own > 0) {
      open(at_);
      read(even, at_, 0);
      for (int i = 0; i + 1 < own; ++i) multiply_unit<true>(even, odd, acc, sums);
      multiply_unit<false>(even, odd, acc, sums);
    }
    if constexpr (Shape::kDeep > 1) {
      if (own < stages) {
        open(at_);
        release();
      }
      if (!add_deep(sums)) return;
    }
    work_.finish(item, sums, warp_, lane_);
  }

 private:
  static constexpr int kCount = kRows / 2;
  static constexpr int kSteps = kFine ? 2 : 4;  // MMAs of a chunk

  struct Chunk {
    std::uint32_t a[kSteps][4];
    float2 scale;  // of its group
  };

  // Adds the sums of warpgroups of the same rows. False: another one has them.
  __device__ bool add_deep(float (&sums)[kCount]) {
    constexpr int kEach = kCount * Shape::kFinishing;
    float* const of = memory_.sums() + threadIdx.x % Shape::kFinishing;
    sync_int_consumers<Shape::kConsumers>();  // those of the last item were read
    if (deep_ > 0)
#pragma unroll
      for (int i = 0; i < kCount; ++i) of[(deep_ - 1) * kEach + i * Shape::kFinishing] = sums[i];
    sync_int_consumers<Shape::kConsumers>();
    if (deep_ > 0) return false;
#pragma unroll
    for (int d = 1; d < Shape::kDeep; ++d)
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums[i] += of[(d - 1) * kEach + i * Shape::kFinishing];
    return true;
  }

  // Waits for a stage.
  __device__ void open(const StagePlace& at) {
    mbarrier_wait(shared_address(&barriers_.filled[at.stage]), at.parity);
  }

  __device__ void read(Chunk& chunk, const StagePlace& at, int index) {
    const unsigned char* unit = memory_.unit(at.stage, warp_, deep_);
    if constexpr (kIsBlocks<kKind>)
      read_blocks(chunk, unit, index);
    else
      read_codes(chunk, unit, index);
  }

  __device__ void read_blocks(Chunk& chunk, const unsigned char* unit, int index) {
    static_assert(!kFine);
    chunk.scale = {1, 1};
    const BlockFragments<kKind> blocks(unit, index, lane_);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) blocks.to_weights(step, chunk.a[step]);
  }

  __device__ void read_codes(Chunk& chunk, const unsigned char* unit, int index) {
    const IntWeights& w = work_.weights();
    const int g = lane_ / 4, group = index * kSteps * w.groups / kUnitMmas;
    chunk.scale = fragment_scales<kKind>(unit, group, g, w.in_bf16);
    if constexpr (kKind == IntKind::kFp4) {
      static_assert(kSteps == 2);  // groups of 32
      const uint2 codes =
          *reinterpret_cast<const uint2*>(unit + (index / 2 * kWarp + lane_) * 16 + index % 2 * 8);
      e2m1_to_fragments(codes.x, Fp4Scales::one(), chunk.a[0]);
      e2m1_to_fragments(codes.y, Fp4Scales::one(), chunk.a[1]);
    } else if constexpr (kKind == IntKind::kNvFp4) {
      static_assert(kSteps == 4);
      const uint4 codes = *reinterpret_cast<const uint4*>(unit + (index * kWarp + lane_) * 16);
      const auto scales = NvScales<false>::at(unit, index, g);
      scales.to_fragments(codes.x, 0, chunk.a[0]);
      scales.to_fragments(codes.y, 1, chunk.a[1]);
      scales.to_fragments(codes.z, 2, chunk.a[2]);
      scales.to_fragments(codes.w, 3, chunk.a[3]);
    } else if constexpr (kKind == IntKind::kInt4) {
      FragmentZeros zeros = FragmentZeros::middle();
      // Without zeros these bytes are scales, and not used.
      const FragmentZeros stored = FragmentZeros::at(unit, w.has_zeros ? w.groups : 0, group, g);
      if (w.has_zeros) zeros = stored;
      if constexpr (kSteps == 4) {
        const uint4 codes = *reinterpret_cast<const uint4*>(unit + (index * kWarp + lane_) * 16);
        nibbles_to_fragments(codes.x, zeros, chunk.a[0]);
        nibbles_to_fragments(codes.y, zeros, chunk.a[1]);
        nibbles_to_fragments(codes.z, zeros, chunk.a[2]);
        nibbles_to_fragments(codes.w, zeros, chunk.a[3]);
      } else {
        const uint2 codes = *reinterpret_cast<const uint2*>(
            unit + (index / 2 * kWarp + lane_) * 16 + index % 2 * 8);
        nibbles_to_fragments(codes.x, zeros, chunk.a[0]);
        nibbles_to_fragments(codes.y, zeros, chunk.a[1]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kSteps / 2; ++i) {
        const uint4 codes = *reinterpret_cast<const uint4*>(
            unit + ((index * (kSteps / 2) + i) * kWarp + lane_) * 16);
        bytes_to_fragments<kKind>(codes.x, codes.y, chunk.a[2 * i]);
        bytes_to_fragments<kKind>(codes.z, codes.w, chunk.a[2 * i + 1]);
      }
    }
  }

  // Starts the MMAs of a chunk of the stage. `add`: to what the accumulators have.
  __device__ void start(const Chunk& chunk, int index, bool add, float (&acc)[kCount]) {
    const std::uint32_t x = shared_address(memory_.x(at_.stage, deep_));
    pin_registers(acc);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int step = index * kSteps + s;  // of 16 columns, four of them in a tile
      wgmma_rs(acc, chunk.a[s],
               tile_descriptor(x + step / 4 * (kRows * kSwizzleBytes), 16) + step % 4 * 2,
               add || s > 0);
    }
    wgmma_commit();
  }

  __device__ void promote(float (&acc)[kCount], const float2& scale, float (&sums)[kCount]) {
    pin_registers(acc);
    // Accumulator 4 j + 2 r + c: row lane / 4 + 8 r of the weights, row 8 j + 2 (lane % 4) + c of
    // x.
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      sums[i] = fmaf(acc[i], i / 2 % 2 == 0 ? scale.x : scale.y, sums[i]);
  }

  // Behind what all lanes read of the stage.
  __device__ void release() {
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(shared_address(&barriers_.emptied[at_.stage]));
    at_.advance(memory_.stages);
  }

  // `even` holds the first chunk of the unit. With kMore it holds that of the next unit after.
  template <bool kMore>
  __device__ void multiply_unit(Chunk& even, Chunk& odd, float (&acc)[kCount],
                                float (&sums)[kCount]) {
    StagePlace next = at_;
    next.advance(memory_.stages);
    if constexpr (kFine) {
      constexpr int kChunks = kUnitMmas / kSteps;
#pragma unroll
      for (int i = 0; i < kChunks; i += 2) {
        start(even, i, false, acc);
        read(odd, at_, i + 1);
        wgmma_wait<0>();
        promote(acc, even.scale, sums);
        start(odd, i + 1, false, acc);
        if (i + 2 < kChunks) {
          read(even, at_, i + 2);
        } else if constexpr (kMore) {
          open(next);
          read(even, next, 0);
        }
        wgmma_wait<0>();
        promote(acc, odd.scale, sums);
      }
    } else {
      const float2 scale = even.scale;
      start(even, 0, false, acc);
      read(odd, at_, 1);
      start(odd, 1, true, acc);
      if constexpr (kMore) {
        wgmma_wait<1>();  // the MMAs that read `even`
        open(next);
        read(even, next, 0);
      }
      wgmma_wait<0>();
      promote(acc, scale, sums);
    }
    release();
  }

  const Work& work_;
  IntBarriers& barriers_;
  StageMemory<kRows, Shape> memory_;
  int warp_, deep_, lane_;
  StagePlace at_;
};

// 3. All threads of a CTA of Shape::kThreads.
template <IntKind kKind, int kRows, bool kFine, class Shape, class Work>
__device__ inline void run_int_tiles(const Work& work, int stages) {
  extern __shared__ unsigned char shared[];
  __shared__ IntBarriers barriers;
  const StageMemory<kRows, Shape> memory{
      shared + ((shared_address(shared) + 1023) / 1024 * 1024 - shared_address(shared)), stages,
      work.weights().unit_bytes};
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      mbarrier_init(shared_address(&barriers.filled[i]), 1);
      mbarrier_init(shared_address(&barriers.emptied[i]), Shape::kConsumers / kWarp);
    }
    fence_mbarrier_init();
    prefetch_tensor_map(work.x_map());
    prefetch_tensor_map(work.w_map());
  }
  __syncthreads();
  // What the CTA has at the start is what it may share out again.
  constexpr int kStart = kIntRegisters / kIntCtas<Shape, kRows> / Shape::kThreads / 8 * 8,
                kProducer = kStart > 128 ? 40 : 32,
                kConsumer = (kStart * Shape::kThreads - kProducer * kIntWarpgroup) /
                            Shape::kConsumers / 8 * 8;
  if (threadIdx.x >= Shape::kConsumers) {
    setmaxnreg_dec<kProducer>();
    if (threadIdx.x < Shape::kConsumers + kWarp)
      IntProducer<kRows, Shape, Work>(work, barriers, memory).produce();
    return;
  }
  setmaxnreg_inc<kConsumer>();
  wait_for_earlier_kernels();  // they may still read what the epilogue overwrites
  IntConsumer<kKind, kRows, kFine, Shape, Work> consumer(work, barriers, memory);
  for (int i = static_cast<int>(blockIdx.x); i < work.count(); i += static_cast<int>(gridDim.x))
    consumer.multiply(work.item(i));
}

}  // namespace sluice::cuda
