// The MLPs of experts for small batches: each chosen expert's weights are read once, by blocks that find the expert's pairs
// (token, expert) themselves. Pairs keep their number token * top_k + j, so nothing is sorted.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/gemm_stream.cuh"
#include "kernels/cuda/launch_plan.h"

namespace sluice::cuda {
namespace {

struct StreamArgs {
  const Bf16* x = nullptr;             // rows of tokens, or of pairs
  const Bf16* w = nullptr;             // [E][kParts * n][k]
  Bf16* hidden = nullptr;              // [pairs][n], of two parts: act(first) * second
  float* down = nullptr;               // [pairs][n], of one part
  const std::int32_t* ids = nullptr;
  std::int64_t ids_stride = 0, x_stride = 0, hidden_stride = 0, n = 0, k = 0;
  int pairs = 0, top_k = 1, experts = 1;
  bool by_pair = false;                // blockIdx.y is a pair and its expert's first; else an expert
  ExpertRules rules;
};

__device__ std::int32_t id_of(const StreamArgs& a, int pair) { return a.ids[pair / a.top_k * a.ids_stride + pair % a.top_k]; }

// The pairs of `expert` in ascending order, or none when this block is not the one for it; the same in all threads.
__device__ int find_pairs(const StreamArgs& a, std::int32_t expert, std::int32_t* list) {
  __shared__ int in_warp[kStreamWarps];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  int found = 0;
  for (int base = 0; base < a.pairs; base += kStreamThreads) {
    const int pair = base + threadIdx.x;
    const bool mine = pair < a.pairs && id_of(a, pair) == expert;
    const unsigned votes = __ballot_sync(kAllLanes, mine);
    if (lane == 0) in_warp[warp] = __popc(votes);
    if (__syncthreads_or(mine && a.by_pair && pair < static_cast<int>(blockIdx.y))) return 0;
    int place = found + __popc(votes & ((1u << lane) - 1));
    for (int i = 0; i < kStreamWarps; ++i) {
      if (i < warp) place += in_warp[i];
      found += in_warp[i];
    }
    if (mine) list[place] = pair;
    __syncthreads();
  }
  return found;
}

// Grid: blocks that take tiles of 16 columns in turn; pairs or experts. The first weights of the next tile are asked for
// before this one's sums are joined.
template <int kParts, int kTiles>
__global__ void __launch_bounds__(kStreamThreads, 2) stream_kernel(const __grid_constant__ StreamArgs a) {
  __shared__ StreamedParts<kParts, kTiles> parts;
  __shared__ std::int32_t list[kMaxStreamedPairs];
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, quad = threadIdx.x % 4;
  constexpr std::int64_t kChunk = kChunkSteps<kParts> * kStepColumns, kTurn = kStreamWarps * kChunk;
  wait_for_earlier_kernels();
  start_next_kernel();
  const std::int32_t expert = a.by_pair ? id_of(a, static_cast<int>(blockIdx.y)) : static_cast<std::int32_t>(blockIdx.y);
  if (expert < -1 || expert >= a.experts) __trap();
  if (expert < 0) return;
  const std::int64_t first = warp * kChunk + quad * 8, tiles = (a.n + kStreamRows - 1) / kStreamRows;
  const Bf16* w = a.w + std::int64_t{expert} * kParts * a.n * a.k;
  const Bf16* rows[kParts][2];
  const auto choose = [&](std::int64_t tile) {
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const std::int64_t n = min(tile * kStreamRows + g + 8 * h, a.n - 1);
        rows[p][h] = w + (kParts == 1 ? n : p == 0 ? a.rules.gate_row(n) : a.rules.up_row(n)) * a.k;
      }
  };
  StreamedWeights<kParts> now, next;
  choose(blockIdx.x);
  next.load(rows, first, a.k);
  const int count = find_pairs(a, expert, list);
  if (count == 0) return;
  // All rows of x past one tile of weights, then the next tile.
  std::int64_t tile = blockIdx.x;
  for (int from = 0; tile < tiles;) {
    const Bf16* x[kTiles];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int i = from + n * 8 + g;
      x[n] = i < count ? a.x + std::int64_t{kParts == 2 ? list[i] / a.top_k : list[i]} * a.x_stride : nullptr;
    }
    const bool same = from + 8 * kTiles < count;
    const std::int64_t following = same ? tile : tile + gridDim.x;
    StreamedSums<kParts, kTiles> sums;
    sums.clear();
    for (std::int64_t column = first; column < a.k + quad * 8; column += kTurn) {
      now = next;
      if (column + kTurn < a.k + quad * 8) {
        next.load(rows, column + kTurn, a.k);
      } else if (following < tiles) {
        choose(following);
        next.load(rows, first, a.k);
      }
      sums.add(now, x, column, a.k);
    }
    __syncthreads();   // the sums before were read
    parts.put(sums);
    __syncthreads();
    for (int i = threadIdx.x; i < 8 * kTiles * kStreamRows; i += kStreamThreads) {
      const int row = i / kStreamRows, column = i % kStreamRows;
      const std::int64_t n = tile * kStreamRows + column;
      if (from + row >= count || n >= a.n) continue;
      const std::int64_t pair = list[from + row];
      if constexpr (kParts == 2)
        a.hidden[pair * a.hidden_stride + n] =
            narrow<Bf16>(a.rules.inner(parts.sum(0, row, column), parts.sum(1, row, column), expert, pair, n));
      else
        a.down[pair * a.n + n] = parts.sum(0, row, column);
    }
    from = same ? from + 8 * kTiles : 0;
    tile = following;
  }
}

struct JoinArgs {
  const float* down = nullptr;   // [pairs][n]
  const std::int32_t* ids = nullptr;
  float* out = nullptr;
  std::int64_t ids_stride = 0, out_stride = 0, n = 0;
  int top_k = 1;
  ExpertRules rules;
};

// Grid: tokens, parts of the columns. Experts are added in ascending order.
__global__ void join_pairs(const __grid_constant__ JoinArgs a) {
  wait_for_earlier_kernels();
  start_next_kernel();
  const std::int64_t t = blockIdx.x;
  for (std::int64_t i = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x; i < a.n; i += std::int64_t{gridDim.y} * blockDim.x) {
    float sum = 0;
    for (int j = 0; j < a.top_k; ++j) {
      const std::int32_t expert = a.ids[t * a.ids_stride + j];
      const std::int64_t pair = t * a.top_k + j;
      if (expert >= 0) sum = a.rules.joined(sum, a.down[pair * a.n + i], expert, pair, i);
    }
    a.out[t * a.out_stride + i] = sum;
  }
}

template <int kParts>
void launch_stream(Context& ctx, StreamArgs args) {
  args.by_pair = args.pairs < args.experts;
  // About three blocks a multiprocessor, each with the same number of tiles.
  const std::int64_t slots = std::min(args.pairs, args.experts), tiles = blocks_for(args.n, kStreamRows);
  const std::int64_t wanted = 3 * std::int64_t{ctx.cuda->facts().num_multiprocessors};
  const std::int64_t turns = std::clamp<std::int64_t>((tiles * slots + wanted - 1) / wanted, 1, tiles);
  const dim3 grid(static_cast<unsigned>((tiles + turns - 1) / turns), static_cast<unsigned>(slots));
  const auto kernel = args.pairs <= 4 * args.experts ? stream_kernel<kParts, 1> : stream_kernel<kParts, 2>;
  launch_dependent(ctx, "the products of experts", kernel, grid, kStreamThreads, 0, args);
}

}  // namespace

void join_expert_pairs(Context& ctx, const float* down, const Tensor& weights, const Tensor& ids,
                       const ExpertParams& params, const Tensor& out) {
  const JoinArgs args{.down = down,
                      .ids = ids.ptr<std::int32_t>(),
                      .out = out.ptr<float>(),
                      .ids_stride = ids.stride[0],
                      .out_stride = out.stride[0],
                      .n = out.dim(1),
                      .top_k = static_cast<int>(ids.dim(1)),
                      .rules = rules_of(params, weights, 0, out.dim(1))};
  const int threads = block_for(args.n);
  const dim3 grid(static_cast<unsigned>(out.dim(0)), std::min(blocks_for(args.n, threads), 16u));
  launch_dependent(ctx, "adding the experts", join_pairs, grid, threads, 0, args);
}

void stream_experts(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2, const Tensor& weights,
                    const Tensor& ids, const ExpertParams& params, const MoeWorkspace& workspace, const Tensor& out) {
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
  StreamArgs down = up;
  down.x = up.hidden;
  down.x_stride = up.hidden_stride;
  down.w = static_cast<const Bf16*>(w2.data);
  down.hidden = nullptr;
  down.down = workspace.down.ptr<float>();
  down.n = hidden;
  down.k = width;
  launch_stream<2>(ctx, up);
  launch_stream<1>(ctx, down);
  join_expert_pairs(ctx, down.down, weights, ids, params, out);
}

}  // namespace sluice::cuda
