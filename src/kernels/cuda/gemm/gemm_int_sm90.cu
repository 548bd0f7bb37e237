// GEMM of rows of bfloat16 with integer weights in fragments (kernels/types/int_fragments.h) on
// Hopper's wgmma.
//
// Weights are the M side of the MMA, and rows of x the N side: a warpgroup takes 64 rows of
// weights, which come as the fragments that its registers need. An output element is one sum over
// groups in ascending order, unless CTAs share the columns (int_plan.h). Neither the number of rows
// nor the tile size enters the sum.
//
// 1. IntProducer   a warp loads units of weights, and tiles of x by TMA. It loads weights before
//                  the kernel that makes x has ended.
// 2. IntConsumer   mainloop: integers become bfloat16 in registers while the MMAs before run. The
//                  sums of a group are promoted with its scales.
// 3. share_sums    where CTAs share the columns: the last one adds their sums
// 4. store         epilogue: float32 with bias or residual, or bfloat16
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/gemm/gemm_int.h"
#include "kernels/cuda/gemm/int_fragments.cuh"
#include "kernels/cuda/gemm/skinny_output.cuh"

namespace sluice::cuda {
namespace {

constexpr int kWarpgroup = 4 * kWarp, kConsumers = 2 * kWarpgroup;
constexpr int kTileUnits = kIntTileRows / kUnitRows;  // units of a stage
constexpr int kBandTiles = 8;  // tiles of x whose rows stay in L2 while they run together

struct IntTileArgs {
  CUtensorMap x;
  GemmArgs a;
  IntWeights w;
  Bf16* half_out = nullptr;  // instead of `out`
  int row_tiles = 0;         // of x
  int column_tiles = 0;      // of the weights' rows
  int splits = 1, stages = 1;
  float* partial = nullptr;          // [tile][split][sum of a thread][consumer thread]
  std::uint32_t* arrived = nullptr;  // [tile], 0 between launches
};

// What a CTA takes at once.
struct Item {
  int tile, split, row, column;  // row: of x, the first one; column: the first row of the weights
  int begin, end;                // units of columns
};
template <int kRows>
__device__ inline Item item_of(const IntTileArgs& args, int index) {
  const int tile = index / args.splits, split = index % args.splits;
  const int first = tile / (kBandTiles * args.column_tiles) * kBandTiles,
            band = min(args.row_tiles - first, kBandTiles);
  const int within = tile - first * args.column_tiles;
  return {tile,
          split,
          (first + within % band) * kRows,
          within / band * kIntTileRows,
          args.w.units * split / args.splits,
          args.w.units * (split + 1) / args.splits};
}
__device__ inline int item_count(const IntTileArgs& args) {
  return args.row_tiles * args.column_tiles * args.splits;
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
template <int kRows>
struct StageMemory {
  static constexpr int kXBytes = kRows * kFragmentUnitColumns * 2;
  unsigned char* base;
  int stages, unit_bytes;

  __device__ unsigned char* x(int stage) const { return base + stage * kXBytes; }
  __device__ unsigned char* unit(int stage, int i) const {
    return base + stages * kXBytes + (stage * kTileUnits + i) * unit_bytes;
  }
};

// 1. All lanes of a warp.
template <int kRows>
class IntProducer {
 public:
  __device__ IntProducer(const IntTileArgs& args, IntBarriers& barriers, StageMemory<kRows> memory)
      : args_(args), barriers_(barriers), memory_(memory), index_(static_cast<int>(blockIdx.x)) {
    if (more()) enter();
  }

  __device__ void produce() {
    // The pipeline is empty, so the weights of the first stages need no wait. Then the same stages
    // get their rows of x, whose kernel has ended by now.
    const int first_index = index_, first_unit = unit_;
    for (int i = 0; i < args_.stages && more(); ++i) issue<true, false>();
    wait_for_earlier_kernels();
    index_ = first_index;
    at_ = {};
    if (more()) enter();
    unit_ = first_unit;
    for (int i = 0; i < args_.stages && more(); ++i) issue<false, true>();
    while (more()) issue<true, true>();
  }

 private:
  __device__ bool more() const { return index_ < item_count(args_); }
  __device__ void enter() {
    item_ = item_of<kRows>(args_, index_);
    unit_ = item_.begin;
  }

  template <bool kWeights, bool kX>
  __device__ void issue() {
    const int lane = threadIdx.x % kWarp;
    const std::uint32_t filled = shared_address(&barriers_.filled[at_.stage]);
    if constexpr (kWeights) {
      const int tile = item_.column / kUnitRows,
                count = min(kTileUnits,
                            (static_cast<int>(args_.a.n) + kUnitRows - 1) / kUnitRows - tile);
      if (lane == 0) {
        // Parity ^ 1: the first round of a stage does not wait.
        mbarrier_wait(shared_address(&barriers_.emptied[at_.stage]), at_.parity ^ 1);
        mbarrier_arrive_expect_tx(filled, StageMemory<kRows>::kXBytes + count * args_.w.unit_bytes);
      }
      __syncwarp();
      if (lane < count)
        tma_load_bytes(
            args_.w.of + (static_cast<std::int64_t>(tile + lane) * args_.w.units + unit_) *
                             args_.w.unit_bytes,
            args_.w.unit_bytes, shared_address(memory_.unit(at_.stage, lane)), filled);
    }
    if constexpr (kX) {
      if (lane < 2)
        tma_load(args_.x, unit_ * kFragmentUnitColumns + lane * kSwizzleColumns, item_.row,
                 shared_address(memory_.x(at_.stage)) + lane * kRows * kSwizzleBytes, filled);
    }
    at_.advance(args_.stages);
    if (++unit_ < item_.end) return;
    index_ += static_cast<int>(gridDim.x);
    if (more()) enter();
  }

  const IntTileArgs& args_;
  IntBarriers& barriers_;
  StageMemory<kRows> memory_;
  int index_, unit_ = 0;
  Item item_{};
  StagePlace at_;
};

// 2. A consumer warpgroup. kFine: groups of 32 or 64 columns; else of a unit.
template <int kBits, int kRows, bool kFine>
class IntConsumer {
 public:
  __device__ IntConsumer(const IntTileArgs& args, IntBarriers& barriers, StageMemory<kRows> memory,
                         int& is_last)
      : args_(args),
        barriers_(barriers),
        memory_(memory),
        is_last_(is_last),
        // The shuffle tells the compiler that all lanes have the same value.
        warp_(__shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kWarp, 0)),
        lane_(threadIdx.x % kWarp) {}

  __device__ void multiply(const Item& item) {
    float sums[kCount];
#pragma unroll
    for (float& sum : sums) sum = 0;
    // A chunk of MMAs runs while the weights of the next chunk become bfloat16. No branch lies
    // between the start and the end of an MMA: the compiler would serialise them.
    Chunk even, odd;
    float acc[kCount];
    open(at_);
    read(even, at_, 0);
    for (int unit = item.begin; unit + 1 < item.end; ++unit)
      multiply_unit<true>(even, odd, acc, sums);
    multiply_unit<false>(even, odd, acc, sums);
    if (args_.splits > 1 && !share_sums(item, sums)) return;
    store(item, sums);
  }

 private:
  static constexpr int kCount = kRows / 2;
  static constexpr int kSteps = kFine ? 2 : 4;  // MMAs of a chunk

  struct Chunk {
    std::uint32_t a[kSteps][4];
    float2 scale;  // of its group
  };

  // Waits for a stage.
  __device__ void open(const StagePlace& at) {
    mbarrier_wait(shared_address(&barriers_.filled[at.stage]), at.parity);
  }

  __device__ void read(Chunk& chunk, const StagePlace& at, int index) {
    const unsigned char* unit = memory_.unit(at.stage, warp_);
    const int g = lane_ / 4, group = index * kSteps * args_.w.groups / kUnitMmas;
    chunk.scale =
        fragment_scales(unit + kCodeBytes<kBits> + group * (kUnitRows * 2), g, args_.w.in_bf16);
    FragmentZeros<kBits> zeros = FragmentZeros<kBits>::middle();
    if constexpr (kBits == 4) {
      // Without zeros these bytes belong to the next unit, or lie behind all of them.
      const FragmentZeros<kBits> stored = FragmentZeros<kBits>::at(
          unit + kCodeBytes<kBits> + args_.w.groups * (kUnitRows * 2) + group * kUnitRows, g);
      if (args_.w.has_zeros) zeros = stored;
      if constexpr (kSteps == 4) {
        const uint4 codes = *reinterpret_cast<const uint4*>(unit + (index * kWarp + lane_) * 16);
        to_fragments(codes.x, zeros, chunk.a[0]);
        to_fragments(codes.y, zeros, chunk.a[1]);
        to_fragments(codes.z, zeros, chunk.a[2]);
        to_fragments(codes.w, zeros, chunk.a[3]);
      } else {
        const uint2 codes = *reinterpret_cast<const uint2*>(
            unit + (index / 2 * kWarp + lane_) * 16 + index % 2 * 8);
        to_fragments(codes.x, zeros, chunk.a[0]);
        to_fragments(codes.y, zeros, chunk.a[1]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kSteps / 2; ++i) {
        const uint4 codes = *reinterpret_cast<const uint4*>(
            unit + ((index * (kSteps / 2) + i) * kWarp + lane_) * 16);
        to_fragments(codes.x, codes.y, zeros, chunk.a[2 * i]);
        to_fragments(codes.z, codes.w, zeros, chunk.a[2 * i + 1]);
      }
    }
  }

  // Starts the MMAs of a chunk of the stage. `add`: to what the accumulators have.
  __device__ void start(const Chunk& chunk, int index, bool add, float (&acc)[kCount]) {
    const std::uint32_t x = shared_address(memory_.x(at_.stage));
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

  __device__ void release() {
    if (lane_ == 0) mbarrier_arrive(shared_address(&barriers_.emptied[at_.stage]));
    at_.advance(args_.stages);
  }

  // `even` holds the first chunk of the unit. With kMore it holds that of the next unit after.
  template <bool kMore>
  __device__ void multiply_unit(Chunk& even, Chunk& odd, float (&acc)[kCount],
                                float (&sums)[kCount]) {
    StagePlace next = at_;
    next.advance(args_.stages);
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

  // 3. Adds the sums of the CTAs of a tile in ascending order of their columns. False: another CTA
  // does that.
  __device__ bool share_sums(const Item& item, float (&sums)[kCount]) {
    float* const own =
        args_.partial +
        (static_cast<std::int64_t>(item.tile) * args_.splits) * (kCount * kConsumers) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kCount; ++i) __stcg(own + (item.split * kCount + i) * kConsumers, sums[i]);
    __threadfence();
    sync_consumers();
    if (threadIdx.x == 0) {
      is_last_ = static_cast<int>(atomicAdd(args_.arrived + item.tile, 1u)) == args_.splits - 1;
      if (is_last_) args_.arrived[item.tile] = 0;
    }
    sync_consumers();
    const bool adds = is_last_ != 0;
    sync_consumers();  // before the next tile writes is_last_
    if (!adds) return false;
    __threadfence();
#pragma unroll
    for (float& sum : sums) sum = 0;
    for (int split = 0; split < args_.splits; ++split)
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums[i] += __ldcg(own + (split * kCount + i) * kConsumers);
    return true;
  }
  __device__ static void sync_consumers() {
    asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory");
  }

  // 4.
  __device__ void store(const Item& item, const float (&sums)[kCount]) const {
    const GemmArgs& a = args_.a;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int n = item.column + warp_ * kUnitRows + r * 8 + lane_ / 4;
      if (n >= a.n) continue;
      const float bias = bias_at(a, n);
#pragma unroll
      for (int j = 0; j < kRows / 8; ++j)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int m = item.row + j * 8 + lane_ % 4 * 2 + c;
          if (m >= a.m) continue;
          const float value = sums[4 * j + 2 * r + c] + bias;
          const std::int64_t at = m * a.out_stride + n;
          if (args_.half_out != nullptr)
            args_.half_out[at] = narrow<Bf16>(value);
          else
            a.out[at] = a.add ? a.out[at] + value : value;
        }
    }
  }

  const IntTileArgs& args_;
  IntBarriers& barriers_;
  StageMemory<kRows> memory_;
  int& is_last_;
  int warp_, lane_;
  StagePlace at_;
};

template <int kBits, int kRows, bool kFine>
__global__ void __launch_bounds__(kConsumers + kWarpgroup, kRows <= 32 ? 2 : 1)
    int_tiles_kernel(const __grid_constant__ IntTileArgs args) {
  extern __shared__ unsigned char shared[];
  __shared__ IntBarriers barriers;
  __shared__ int is_last;
  const StageMemory<kRows> memory{
      shared + ((shared_address(shared) + 1023) / 1024 * 1024 - shared_address(shared)),
      args.stages, args.w.unit_bytes};
  if (threadIdx.x == 0) {
    for (int i = 0; i < args.stages; ++i) {
      mbarrier_init(shared_address(&barriers.filled[i]), 1);
      mbarrier_init(shared_address(&barriers.emptied[i]), kConsumers / kWarp);
    }
    fence_mbarrier_init();
    prefetch_tensor_map(args.x);
  }
  __syncthreads();
  start_next_kernel();
  if (threadIdx.x >= kConsumers) {
    setmaxnreg_dec<kRows <= 32 ? 32 : 40>();
    if (threadIdx.x < kConsumers + kWarp) IntProducer<kRows>(args, barriers, memory).produce();
    return;
  }
  setmaxnreg_inc<kRows <= 32 ? 104 : 232>();
  wait_for_earlier_kernels();  // they may still read what the epilogue overwrites
  IntConsumer<kBits, kRows, kFine> consumer(args, barriers, memory, is_last);
  for (int i = static_cast<int>(blockIdx.x); i < item_count(args); i += static_cast<int>(gridDim.x))
    consumer.multiply(item_of<kRows>(args, i));
}

constexpr int kOrderThreads = 256;

// Grid: pieces of a row; rows. A thread writes eight columns.
__global__ void __launch_bounds__(kOrderThreads)
    order_columns_kernel(const Bf16* x, std::int64_t x_stride, const std::int32_t* order, int k,
                         Bf16* out, std::int64_t out_stride) {
  begin_dependent();
  const int at = (static_cast<int>(blockIdx.x * blockDim.x) + static_cast<int>(threadIdx.x)) * 8;
  if (at >= k) return;
  const Bf16* from = x + blockIdx.y * x_stride;
  alignas(16) Bf16 values[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = from[order == nullptr ? at + i : order[at + i]];
  *reinterpret_cast<uint4*>(out + blockIdx.y * out_stride + at) =
      *reinterpret_cast<const uint4*>(values);
}

}  // namespace

void order_columns(Context& ctx, const void* x, std::int64_t x_stride, const std::int32_t* order,
                   std::int64_t m, std::int64_t k, void* out, std::int64_t out_stride) {
  launch_dependent(ctx, "order of columns", order_columns_kernel,
                   dim3(blocks_for(k, kOrderThreads * 8), static_cast<unsigned>(m)), kOrderThreads,
                   0, static_cast<const Bf16*>(x), x_stride, order, static_cast<int>(k),
                   static_cast<Bf16*>(out), out_stride);
}

void gemm_int_tiles(Context& ctx, const GemmArgs& a, const IntWeights& w) {
  if (a.m == 0 || a.n == 0) return;
  const IntTilePlan plan = plan_int_tiles({.m = a.m,
                                           .n = a.n,
                                           .k = a.k,
                                           .unit_bytes = w.unit_bytes,
                                           .num_sms = ctx.cuda->info().num_sms,
                                           .scratch_bytes = ctx.cuda->scratch_bytes() / 2,
                                           .deterministic = ctx.deterministic});
  const bool is_half = a.out_type == DType::kBF16;
  const IntTileArgs args{.x = map_of_boxes(a.x, a.m, a.k, a.x_stride, plan.rows),
                         .a = a,
                         .w = w,
                         .half_out = is_half ? reinterpret_cast<Bf16*>(a.out) : nullptr,
                         .row_tiles = static_cast<int>(blocks_for(a.m, plan.rows)),
                         .column_tiles = static_cast<int>(blocks_for(a.n, kIntTileRows)),
                         .splits = plan.splits,
                         .stages = plan.stages,
                         .partial = static_cast<float*>(ctx.cuda->scratch()),
                         .arrived = ctx.cuda->counters()};
  const auto launch = [&]<int kBits, int kRows>() {
    const auto run = [&](auto kernel) {
      launch_dependent(ctx, "GEMM of integer weights", kernel,
                       dim3(static_cast<unsigned>(plan.blocks)), kConsumers + kWarpgroup,
                       plan.shared_bytes, args);
    };
    if (w.groups == 1)
      run(int_tiles_kernel<kBits, kRows, false>);
    else
      run(int_tiles_kernel<kBits, kRows, true>);
  };
  const auto with_rows = [&]<int kBits>() {
    switch (plan.rows) {
      case 16:
        return launch.template operator()<kBits, 16>();
      case 32:
        return launch.template operator()<kBits, 32>();
      case 64:
        return launch.template operator()<kBits, 64>();
      default:
        return launch.template operator()<kBits, 128>();
    }
  };
  if (w.bits == 4)
    with_rows.template operator()<4>();
  else
    with_rows.template operator()<8>();
}

}  // namespace sluice::cuda
