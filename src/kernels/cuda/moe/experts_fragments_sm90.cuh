// Expert MLPs with weights in fragments for many tokens, on Hopper's wgmma: a grouped GEMM over
// experts, with the mainloop of kernels/cuda/gemm/int_tiles_sm90.cuh.
//   1. sort_expert_pairs   pairs (token, expert) sorted by expert
//   2. gather_pairs        their rows of x, in that order, so that TMA loads them as tiles
//   3. GroupedWork         tiles of pairs of one expert. gate/up: a thread has gate and up of the
//                          same column, so the activation is applied in registers
//   4. sum_expert_pairs    the weighted sum of a token's experts
#pragma once

#include "kernels/cuda/gemm/int_tiles_sm90.cuh"
#include "kernels/cuda/moe/experts.cuh"
#include "kernels/cuda/moe/experts_fragments.h"

namespace sluice::cuda {

struct GroupedArgs {
  CUtensorMap x;                                          // rows of sorted pairs
  CUtensorMap units;                                      // of all experts
  IntWeights w;                                           // of the first expert
  const std::int32_t *begin = nullptr, *order = nullptr;  // [experts + 1], [pairs]
  Bf16* hidden = nullptr;                                 // gate/up: [sorted pairs][width]
  float* down = nullptr;                                  // down: [pairs][n]
  std::int64_t hidden_stride = 0;
  int experts = 1, stages = 1;
  int n = 0;  // rows of an expert's weights
  ExpertRules rules;
};

// Experts have few columns, so most of a CTA's time are the ends of tiles: two CTAs of an SM hide
// each other's.
using GroupedShape = IntShape<2, 1>;

// Of a CTA, in shared memory.
struct GroupedTiles {
  std::int32_t begin[ops::kMaxExperts + 1];
  int count;  // tiles of rows
};

// 3.
template <int kRows, bool kGated>
class GroupedWork {
 public:
  static constexpr bool kLoadsEarly = false;
  struct Item : IntItem {
    int last = 0;  // of the tile's rows
  };

  // All threads call, after the kernels before have ended.
  __device__ GroupedWork(const GroupedArgs& args, GroupedTiles& tiles)
      : args_(args),
        tiles_(tiles),
        column_tiles_((args.n + GroupedShape::kRows - 1) / GroupedShape::kRows) {
    for (int e = static_cast<int>(threadIdx.x); e <= args.experts; e += GroupedShape::kThreads)
      tiles.begin[e] = args.begin[e];
    __syncthreads();
    if (threadIdx.x < kWarp) {
      int count = 0;
      for (int e = static_cast<int>(threadIdx.x); e < args.experts; e += kWarp)
        count += tiles_of(e);
      count = __reduce_add_sync(kAllLanes, count);
      if (threadIdx.x == 0) tiles.count = count;
    }
    __syncthreads();
  }
  __device__ const CUtensorMap& x_map() const { return args_.x; }
  __device__ const CUtensorMap& w_map() const { return args_.units; }
  __device__ const IntWeights& weights() const { return args_.w; }
  __device__ int count() const { return tiles_.count * column_tiles_; }

  // All lanes of a warp call: a lane takes an expert, a prefix sum counts their tiles.
  __device__ Item item(int index) const {
    int tile = index / column_tiles_;
    const int lane = threadIdx.x % kWarp;
    Item item;
    for (int base = 0; base < args_.experts; base += kWarp) {
      const int e = base + lane, own = e < args_.experts ? tiles_of(e) : 0;
      int upto = own;
#pragma unroll
      for (int step = 1; step < kWarp; step *= 2) {
        const int left = __shfl_up_sync(kAllLanes, upto, step);
        if (lane >= step) upto += left;
      }
      const unsigned votes = __ballot_sync(kAllLanes, tile < upto);
      if (votes != 0) {
        const int who = __ffs(static_cast<int>(votes)) - 1;
        item.expert = base + who;
        tile -= __shfl_sync(kAllLanes, upto - own, who);
        break;
      }
      tile -= __shfl_sync(kAllLanes, upto, kWarp - 1);
    }
    item.row = tiles_.begin[item.expert] + tile * kRows;
    item.last = min(tiles_.begin[item.expert + 1], item.row + kRows) - 1;
    item.tile = index % column_tiles_ * GroupedShape::kTiles;
    item.end = args_.w.units;
    return item;
  }

  template <int kCount>
  __device__ void finish(const Item& item, float (&sums)[kCount], int warp, int lane) const {
    const int first = (item.tile + warp) * kUnitRows + lane / 4;
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int row = item.row + j * 8 + lane % 4 * 2 + c;
        if (row > item.last) continue;
        const std::int64_t pair = args_.order[row];
        const float upper = sums[4 * j + c], lower = sums[4 * j + 2 + c];
        if constexpr (kGated) {
          // Eight gate rows, then the eight up rows of the same columns.
          const int n = (first - lane / 4) / 2 + lane / 4;
          if (n < args_.rules.width)
            args_.hidden[row * args_.hidden_stride + n] =
                narrow<Bf16>(args_.rules.inner(upper, lower, item.expert, pair, n));
        } else {
          float* const to = args_.down + pair * args_.n;
          if (first < args_.n) to[first] = upper;
          if (first + 8 < args_.n) to[first + 8] = lower;
        }
      }
  }

 private:
  __device__ int tiles_of(int expert) const {
    return (tiles_.begin[expert + 1] - tiles_.begin[expert] + kRows - 1) / kRows;
  }

  const GroupedArgs& args_;
  const GroupedTiles& tiles_;
  int column_tiles_;
};

template <IntKind kKind, int kRows, bool kFine, bool kGated>
__global__ void __launch_bounds__(GroupedShape::kThreads, kIntCtas<GroupedShape, kRows>)
    grouped_kernel(const __grid_constant__ GroupedArgs args) {
  __shared__ GroupedTiles tiles;
  begin_dependent();
  const GroupedWork<kRows, kGated> work(args, tiles);
  if (static_cast<int>(blockIdx.x) >= work.count()) return;
  run_int_tiles<kKind, kRows, kFine, GroupedShape>(work, args.stages);
}

template <IntKind kKind, bool kFine, bool kGated>
void launch_grouped(Context& ctx, const GroupedArgs& args, const GroupedPlan& plan) {
  const auto run = [&]<int kRows>() {
    launch_dependent(
        ctx, "grouped GEMM of experts in fragments", grouped_kernel<kKind, kRows, kFine, kGated>,
        dim3(static_cast<unsigned>(plan.blocks)), GroupedShape::kThreads, plan.shared_bytes, args);
  };
  switch (plan.rows) {
    case 16:
      return run.template operator()<16>();
    case 64:
      return run.template operator()<64>();
    default:
      return run.template operator()<128>();
  }
}

// Of GGUF's blocks (experts_blocks_sm90.cu, experts_blocks_down_sm90.cu): files compile at the same
// time.
void launch_block_gates(Context& ctx, const GroupedArgs& args, const GroupedPlan& plan);
void launch_block_downs(Context& ctx, const GroupedArgs& args, const GroupedPlan& plan);

}  // namespace sluice::cuda
