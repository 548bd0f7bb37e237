// Expert MLPs for small batches, bound by memory: the weights of each selected expert are streamed
// once past the rows of its tokens (src/kernels/cuda/gemm/weight_pipeline.cuh).
//   1. find_slots      every CTA sorts all pairs (token, expert) by expert, into slots of up to 8
//   or
//                      16 rows: what one MMA takes
//   2. stream_kernel   launched for gate/up, then for down. The column tiles of all slots are one
//                      sequence, and each CTA takes an equal run of the sequence. So a CTA meets
//                      few experts, and the weights of the next tile are always in flight.
//   3. sum_pairs       the weighted sum of a token's experts
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/shared_memory.h"
#include "kernels/cuda/gemm/weight_pipeline.cuh"
#include "kernels/cuda/moe/experts.cuh"
#include "kernels/cuda/moe/experts_plan.h"

namespace sluice::cuda {
namespace {

constexpr int kPairsOfThread = kMaxStreamedPairs / kPipelineThreads;
constexpr int kExpertsOfThread = ops::kMaxExperts / kPipelineThreads;
constexpr std::int64_t kDeclaredBytes = 17 << 10;  // upper bound of the static shared memory
static_assert(kMaxStreamedPairs % kPipelineThreads == 0 &&
              ops::kMaxExperts % kPipelineThreads == 0);

// Strides in elements. `x`: rows of tokens for gate/up, rows of pairs for down.
struct StreamArgs {
  const Bf16* x = nullptr;  // rows of tokens, or of pairs
  const Bf16* w = nullptr;  // down: [E][n][k]; gate/up: [E][2 * n][k]
  Bf16* hidden = nullptr;   // output of gate/up: [pairs][n], act(gate) * up
  float* down = nullptr;    // output of down: [pairs][n]
  const std::int32_t* ids = nullptr;
  std::int64_t ids_stride = 0, x_stride = 0, hidden_stride = 0, n = 0, k = 0;
  int pairs = 0, top_k = 1, experts = 1;
  bool x_in_shared = false;
  ExpertRules rules;
};

// Rows of one expert for one MMA.
struct Slot {
  std::int16_t expert, first, rows;  // pair[first .. first + rows)
};
struct Slots {
  std::int16_t pair[kMaxStreamedPairs];  // by expert, ascending within an expert
  Slot slot[kMaxStreamedPairs];
  int count;
};
// Scratch of find_slots(): for each warp and expert the pairs of the warp, then the place of the
// warp's first pair.
struct SortMemory {
  // At most kMaxStreamedPairs pairs, so 16 bits are enough.
  std::uint16_t place[kPipelineWarps][ops::kMaxExperts];
  std::uint32_t sum[kPipelineWarps];  // of experts: pairs << 16 | slots
};
static_assert(sizeof(Slots) < kDeclaredBytes && sizeof(SortMemory) <= PipelineShape<2>::kBytes);

// 1. A counting sort, the same in every CTA. A slot has up to `max_rows` rows. All threads call.
__device__ void find_slots(const StreamArgs& a, int max_rows, Slots& slots, SortMemory& memory) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  // 1a. A warp has a contiguous segment of the pairs, so that order is kept; a lane has every 32nd.
  const int segment = (a.pairs + kPipelineThreads - 1) / kPipelineThreads * kWarp;
  std::int32_t id[kPairsOfThread];
  int local[kPairsOfThread];
#pragma unroll
  for (int i = 0; i < kPairsOfThread; ++i) {
    const int p = warp * segment + i * kWarp + lane;
    id[i] = -1, local[i] = 0;
    if (i * kWarp < segment && p < a.pairs) {
      id[i] = __ldcg(a.ids + p / a.top_k * a.ids_stride + p % a.top_k);
      if (id[i] < -1 || id[i] >= a.experts) __trap();
    }
  }
  // 1b. Count for each warp and expert. __match_any_sync groups the lanes with the same expert.
  for (int e = lane; e < a.experts; e += kWarp) memory.place[warp][e] = 0;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kPairsOfThread; ++i) {
    if (i * kWarp >= segment) break;
    const unsigned same = __match_any_sync(kAllLanes, id[i]);
    // Only the first lane of a group updates the count; the barriers order read and write.
    const int rank = __popc(same & ((1u << lane) - 1));
    std::uint16_t* const mine = &memory.place[warp][max(id[i], 0)];
    local[i] = *mine + rank;
    __syncwarp();
    if (id[i] >= 0 && rank == 0) *mine = static_cast<std::uint16_t>(*mine + __popc(same));
    __syncwarp();
  }
  __syncthreads();
  // 1c. A thread has neighbouring experts: a prefix sum of pairs and slots over all experts.
  const int each = (a.experts + kPipelineThreads - 1) / kPipelineThreads,
            first = static_cast<int>(threadIdx.x) * each;
  int count[kExpertsOfThread];
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kExpertsOfThread; ++i) {
    count[i] = 0;
    if (i >= each || first + i >= a.experts) continue;
#pragma unroll
    for (int w = 0; w < kPipelineWarps; ++w) count[i] += memory.place[w][first + i];
    sum += static_cast<std::uint32_t>(count[i]) << 16 |
           static_cast<std::uint32_t>((count[i] + max_rows - 1) / max_rows);
  }
  // Pairs in the high half and slots in the low half: one prefix sum does both.
  std::uint32_t upto = sum;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const std::uint32_t left = __shfl_up_sync(kAllLanes, upto, step);
    if (lane >= step) upto += left;
  }
  if (lane == kWarp - 1) memory.sum[warp] = upto;
  __syncthreads();
  std::uint32_t before = upto - sum, all = 0;
#pragma unroll
  for (int w = 0; w < kPipelineWarps; ++w) {
    if (w < warp) before += memory.sum[w];
    all += memory.sum[w];
  }
  // 1d. Slots of the experts, and the first place of each warp.
  int at = static_cast<int>(before >> 16), slot = static_cast<int>(before & 0xffff);
#pragma unroll
  for (int i = 0; i < kExpertsOfThread; ++i) {
    if (i >= each || first + i >= a.experts) continue;
    // An expert with more rows than a slot has several slots.
    for (int done = 0; done < count[i]; done += max_rows)
      slots.slot[slot++] = {static_cast<std::int16_t>(first + i),
                            static_cast<std::int16_t>(at + done),
                            static_cast<std::int16_t>(min(max_rows, count[i] - done))};
#pragma unroll
    for (int w = 0; w < kPipelineWarps; ++w) {
      const int here = memory.place[w][first + i];
      memory.place[w][first + i] = static_cast<std::uint16_t>(at);
      at += here;
    }
  }
  // 1e. Every pair to its place.
  if (threadIdx.x == 0) slots.count = static_cast<int>(all & 0xffff);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kPairsOfThread; ++i)
    if (id[i] >= 0)
      slots.pair[memory.place[warp][id[i]] + local[i]] =
          static_cast<std::int16_t>(warp * segment + i * kWarp + lane);
  __syncthreads();
}

// 2. Grid: CTAs that share the tiles. The two parts of a tile are 16 gate rows and 16 up rows, or
// 32 neighbouring rows of the down projection.
template <bool kGated, int kTiles>
__global__ void __launch_bounds__(kPipelineThreads, 2)
    stream_kernel(const __grid_constant__ StreamArgs a) {
  extern __shared__ __align__(128) unsigned char shared[];
  using Shape = PipelineShape<2>;
  constexpr int kMaxRows = 8 * kTiles, kColumns = kGated ? kPipelineRows : 2 * kPipelineRows;
  __shared__ Slots slots;
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4;
  const PipelineReduction<2> reduction{.part = reinterpret_cast<float*>(shared + Shape::kBytes),
                                       .rows = kMaxRows};
  Bf16* staged =
      reinterpret_cast<Bf16*>(shared + Shape::kBytes + PipelineReduction<2>::bytes(kMaxRows));
  if (kGated) {
    wait_for_earlier_kernels();
    // Hazard: the next kernel reads the ids without waiting, so it must not start before this wait.
    start_next_kernel();
  }
  find_slots(a, kMaxRows, slots, *reinterpret_cast<SortMemory*>(shared));

  // All tiles of a slot are neighbours in the sequence.
  const int each = static_cast<int>((a.n + kColumns - 1) / kColumns);
  const std::int64_t units = std::int64_t{slots.count} * each;
  const int begin = static_cast<int>(units * blockIdx.x / gridDim.x),
            end = static_cast<int>(units * (blockIdx.x + 1) / gridDim.x);
  const std::int64_t first = warp * kUnitColumns;
  const int steps =
      first < a.k ? static_cast<int>((a.k - first + kTurnColumns - 1) / kTurnColumns) : 0;
  // Interleaved gate and up rows alternate in w13.
  const std::int64_t stride = kGated && a.rules.interleaved ? 2 * a.k : a.k;
  // The second part of the last tile overlaps its first part if there are too few rows: both parts
  // then store the same values.
  const auto second_row = [&](std::int64_t n) {
    return max(min(n + kPipelineRows, a.n - kPipelineRows), std::int64_t{0});
  };
  WeightPipeline<2> pipeline(shared);
  int issued = begin, issued_step = 0;
  const auto issue = [&] {
    if (steps > 0 && issued < end) {
      // The tile that is issued may belong to the next slot.
      const std::int64_t n = std::int64_t{issued % each} * kColumns;
      const Bf16* w =
          a.w + std::int64_t{slots.slot[issued / each].expert} * (kGated ? 2 : 1) * a.n * a.k;
      const Bf16* const from[2] = {w + (kGated ? a.rules.gate_row(n) : n) * a.k,
                                   w + (kGated ? a.rules.up_row(n) : second_row(n)) * a.k};
      pipeline.issue(from, stride, static_cast<int>(min(a.n - n, std::int64_t{kPipelineRows})),
                     first + issued_step * std::int64_t{kTurnColumns}, a.k);
      if (++issued_step == steps) issued_step = 0, ++issued;
    }
    pipeline.commit();
  };
#pragma unroll
  for (int i = 0; i < Shape::kStages - 1; ++i) issue();
  if (!kGated) {
    start_next_kernel();
    wait_for_earlier_kernels();
  }

  const Bf16* x[kTiles];
  XUnit<kTiles> x_next;
  const auto load_x = [&](int step) {
    const std::int64_t column = step * std::int64_t{kTurnColumns};
    const Bf16* here[kTiles];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) here[n] = x[n] + column;
    x_next.load(here, a.k - first - column);
  };
  // The row of x of a pair: its token for gate/up, the pair itself for down.
  const auto row_of = [&](const Slot& slot, int row) {
    const std::int64_t pair = slots.pair[slot.first + row];
    return a.x + (kGated ? pair / a.top_k : pair) * a.x_stride;
  };

  Slot slot{-1, 0, 0};
  int turn = 0;
  for (int unit = begin; unit < end; ++unit, turn ^= 1) {
    // A new slot: its rows of x.
    if (unit == begin || unit % each == 0) {
      slot = slots.slot[unit / each];
      // All warps have ended the tile before (barrier below), so the rows may be overwritten.
      if (a.x_in_shared) {
        // Fewer loads in flight with two tiles, because registers are scarce.
        stage_rows<kTiles == 1 ? 8 : 4>([&](int i) { return row_of(slot, i); }, slot.rows, a.k,
                                        staged);
        __syncthreads();
      }
      // Rows past the last one repeat the last row: their sums are never stored.
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const int row = min(n * 8 + g, slot.rows - 1);
        x[n] = (a.x_in_shared ? staged + row * (a.k + kXPadding) : row_of(slot, row)) + first;
      }
      if (steps > 0) load_x(0);
    }
    PipelineSums<2, kTiles> sums;
    multiply_tile(pipeline, steps, issue, load_x, x_next, sums);
    reduction.put(turn, sums);
    __syncthreads();  // turns alternate between two buffers, so one barrier a tile is enough
    // Epilogue: a thread has one element of each part.
    const int m = threadIdx.x / kPipelineRows, column = threadIdx.x % kPipelineRows;
    const std::int64_t first_row = std::int64_t{unit % each} * kColumns, n = first_row + column;
    if (m >= slot.rows || n >= a.n) continue;
    const std::int64_t pair = slots.pair[slot.first + m];
    const float sum = reduction.sum(turn, 0, m, column), second = reduction.sum(turn, 1, m, column);
    if constexpr (kGated) {
      a.hidden[pair * a.hidden_stride + n] =
          narrow<Bf16>(a.rules.inner(sum, second, slot.expert, pair, n));
    } else {
      a.down[pair * a.n + n] = sum;
      a.down[pair * a.n + second_row(first_row) + column] = second;
    }
  }
}
static_assert(16 * kPipelineRows <= kPipelineThreads);  // a thread for each element of a tile

struct SumArgs {
  const float* down = nullptr;  // [pairs][n]
  const std::int32_t* ids = nullptr;
  float* out = nullptr;
  std::int64_t ids_stride = 0, out_stride = 0, n = 0;
  int top_k = 1;
  ExpertRules rules;
};

// 3. Grid: tokens, parts of the columns. Experts are added in ascending order.
__global__ void sum_pairs(const __grid_constant__ SumArgs a) {
  wait_for_earlier_kernels();
  start_next_kernel();
  const std::int64_t t = blockIdx.x;
  for (std::int64_t i = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x; i < a.n;
       i += std::int64_t{gridDim.y} * blockDim.x) {
    float sum = 0;
    // Ids ascend within a token, so this is the order of experts.
    for (int j = 0; j < a.top_k; ++j) {
      const std::int32_t expert = a.ids[t * a.ids_stride + j];
      const std::int64_t pair = t * a.top_k + j;
      if (expert >= 0) sum = a.rules.add_weighted(sum, a.down[pair * a.n + i], expert, pair, i);
    }
    a.out[t * a.out_stride + i] = sum;
  }
}

template <bool kGated, int kTiles>
void launch_stream(Context& ctx, StreamArgs args) {
  const std::int64_t fixed = PipelineShape<2>::kBytes + PipelineReduction<2>::bytes(8 * kTiles);
  const std::int64_t rows = 8 * kTiles * (args.k + kXPadding) * 2;
  // Rows of x are read by every warp, so they go to shared memory if they fit.
  args.x_in_shared = fixed + rows <= max_shared_bytes(ctx.cuda->info().sm) - kDeclaredBytes;
  // A CTA for each SM; they share the tiles evenly.
  launch_dependent(ctx, "streamed expert GEMM", stream_kernel<kGated, kTiles>,
                   static_cast<unsigned>(ctx.cuda->info().num_sms), kPipelineThreads,
                   fixed + (args.x_in_shared ? rows : 0), args);
}

}  // namespace

void sum_expert_pairs(Context& ctx, const float* down, const Tensor& weights, const Tensor& ids,
                      const ExpertParams& params, const Tensor& out) {
  const SumArgs args{.down = down,
                     .ids = ids.ptr<std::int32_t>(),
                     .out = out.ptr<float>(),
                     .ids_stride = ids.stride[0],
                     .out_stride = out.stride[0],
                     .n = out.dim(1),
                     .top_k = static_cast<int>(ids.dim(1)),
                     .rules = rules_of(params, weights, 0, out.dim(1))};
  const int threads = block_for(args.n);
  const dim3 grid(static_cast<unsigned>(out.dim(0)), std::min(blocks_for(args.n, threads), 16u));
  launch_dependent(ctx, "adding the experts", sum_pairs, grid, threads, 0, args);
}

void stream_experts(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2,
                    const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                    const MoeWorkspace& workspace, const Tensor& out) {
  const std::int64_t width = w2.dim(2), hidden = w2.dim(1);
  StreamArgs up{.x = static_cast<const Bf16*>(x.data),
                .w = static_cast<const Bf16*>(w13.data),
                .hidden = static_cast<Bf16*>(workspace.hidden.data),
                .ids = ids.ptr<std::int32_t>(),
                .ids_stride = ids.stride[0],
                .x_stride = x.stride[0],
                .hidden_stride = workspace.hidden.stride[0],
                .n = width,
                .k = hidden,
                .pairs = static_cast<int>(x.dim(0) * ids.dim(1)),
                .top_k = static_cast<int>(ids.dim(1)),
                .experts = static_cast<int>(w13.dim(0)),
                .rules = rules_of(params, weights, width, hidden)};
  // The down projection reads the hidden rows of the pairs.
  StreamArgs down = up;
  down.x = up.hidden;
  down.x_stride = up.hidden_stride;
  down.w = static_cast<const Bf16*>(w2.data);
  down.hidden = nullptr;
  down.down = workspace.down.ptr<float>();
  down.n = hidden;
  down.k = width;
  // 8 or 16 rows of x, by the average number of pairs an expert.
  if (streamed_rows(pairs_of_rank(up.pairs, params.groups), up.experts) == 8) {
    launch_stream<true, 1>(ctx, up);
    launch_stream<false, 1>(ctx, down);
  } else {
    launch_stream<true, 2>(ctx, up);
    launch_stream<false, 2>(ctx, down);
  }
  sum_expert_pairs(ctx, down.down, weights, ids, params, out);
}

}  // namespace sluice::cuda
