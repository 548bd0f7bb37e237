// Expert MLPs for large batches, on Hopper's wgmma: a grouped GEMM over experts.
//   1. sort_pairs     pairs (token, expert) sorted by expert
//   2. find_tile      the tile of 64 or 128 pairs of one expert that a CTA takes
//   3. issue          cp.async gathers rows of x and rows of weights, kStages - 1 steps ahead
//   4. mainloop       wgmma: a warpgroup takes 64 pairs by 64 or 128 columns
//   5. epilogue       gate and up columns share a tile, so the activation is applied in registers
//   6. sum_expert_pairs (experts_stream.cu)   the weighted sum of a token's experts
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/moe/experts.cuh"
#include "kernels/cuda/moe/experts_plan.h"

namespace sluice::cuda {
namespace {

constexpr int kSortThreads = 1024;
constexpr int kStepBytes = kSwizzleBytes;
constexpr int kStepColumns = kSwizzleColumns;
constexpr int kPieces = kStepBytes / 16;

// Pairs are numbered token * top_k + j.
struct SortArgs {
  const std::int32_t* ids = nullptr;
  std::int64_t stride = 0;
  int pairs = 0, top_k = 1, experts = 1;
  std::int32_t* begin = nullptr;  // [E + 1]
  std::int32_t* order = nullptr;  // [pairs]: pair numbers by expert, ascending within an expert
};

// 1. One CTA for each expert. It counts the pairs of the experts before it, then places its own
// pairs in ascending order. No atomics: the order, and so the sums, must not depend on timing.
__global__ void __launch_bounds__(kSortThreads) sort_pairs(const __grid_constant__ SortArgs a) {
  __shared__ int mine_in[kSortThreads / kWarp], before_in[kSortThreads / kWarp];
  begin_dependent();
  const int expert = blockIdx.x, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  // First pass: how many pairs go before this expert, and how many are its own.
  int before = 0, all = 0;
  for (int pair = threadIdx.x; pair < a.pairs; pair += kSortThreads) {
    const std::int32_t id = a.ids[pair / a.top_k * a.stride + pair % a.top_k];
    // -1: the pair has no expert on this rank.
    if (id < -1 || id >= a.experts) __trap();
    before += id >= 0 && id < expert;
    all += id == expert;
  }
  before = __reduce_add_sync(kAllLanes, before);
  all = __reduce_add_sync(kAllLanes, all);
  if (lane == 0) mine_in[warp] = all, before_in[warp] = before;
  __syncthreads();
  int place = 0, total = 0;
  for (int i = 0; i < kSortThreads / kWarp; ++i) place += before_in[i], total += mine_in[i];
  // The last expert also writes the end.
  if (threadIdx.x == 0) {
    a.begin[expert] = place;
    if (expert + 1 == a.experts) a.begin[a.experts] = place + total;
  }
  if (total == 0) return;
  // Second pass: a ballot ranks the pairs of a warp, the counts of the warps rank the warps.
  for (int base = 0; base < a.pairs; base += kSortThreads) {
    const int pair = base + threadIdx.x;
    const bool mine = pair < a.pairs && a.ids[pair / a.top_k * a.stride + pair % a.top_k] == expert;
    const unsigned votes = __ballot_sync(kAllLanes, mine);
    __syncthreads();  // all threads have read the counts of the turn before
    if (lane == 0) mine_in[warp] = __popc(votes);
    __syncthreads();
    int at = place + __popc(votes & ((1u << lane) - 1));
    for (int i = 0; i < kSortThreads / kWarp; ++i) {
      if (i < warp) at += mine_in[i];
      place += mine_in[i];
    }
    if (mine) a.order[at] = pair;
  }
}

struct TilesArgs {
  const Bf16* x = nullptr;  // rows of tokens if kGated, else rows of pairs
  const Bf16* w = nullptr;  // [E][n or 2 n][k]
  Bf16* hidden = nullptr;   // [pairs][n]
  float* down = nullptr;    // [pairs][n]
  const std::int32_t *begin = nullptr, *order = nullptr;
  std::int64_t x_stride = 0, hidden_stride = 0, n = 0, k = 0;
  int top_k = 1, experts = 1;
  ExpertRules rules;
};

// kGroups: warpgroups of a CTA. kTile: rows of weights of a CTA, all of one matrix, or one half of
// gate and one of up.
template <int kGroups, int kTile>
struct TilesShape {
  static constexpr int kCtasOfSm = expert_tiles_of_sm(kTile);
  static constexpr int kRows = 64 * kGroups, kThreads = 128 * kGroups;
  static constexpr int kStages = kGroups == 1 ? 4 : 3;
  static constexpr int kRowBytes = kRows * kStepBytes;
  static constexpr int kStageBytes = kRowBytes + kTile * kStepBytes;
  static constexpr int kBytes = kStages * kStageBytes + 1024;  // 1024 for swizzled tiles
};

// A tile of rows.
struct Place {
  int expert, first, count;  // rows order[first .. first + count) of an expert
};

// 2. Tile number `tile` of `rows` rows, counted through the experts; count 0 if there are fewer.
// The whole warp calls: a lane takes an expert, a prefix sum counts their tiles.
__device__ Place find_tile(const TilesArgs& a, int tile, int rows) {
  const int lane = threadIdx.x % kWarp;
  for (int base = 0; base < a.experts; base += kWarp) {
    const int e = base + lane;
    const int first = e < a.experts ? a.begin[e] : 0,
              count = e < a.experts ? a.begin[e + 1] - first : 0;
    // Prefix sum of the tiles of 32 experts; the first lane that reaches `tile` has it.
    const int tiles = (count + rows - 1) / rows;
    int upto = tiles;
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const int left = __shfl_up_sync(kAllLanes, upto, step);
      if (lane >= step) upto += left;
    }
    const unsigned votes = __ballot_sync(kAllLanes, tile < upto);
    if (votes != 0) {
      const int who = __ffs(static_cast<int>(votes)) - 1;
      const int skipped = (tile - (upto - tiles)) * rows;
      return {base + who, __shfl_sync(kAllLanes, first + skipped, who),
              min(__shfl_sync(kAllLanes, count - skipped, who), rows)};
    }
    tile -= __shfl_sync(kAllLanes, upto, kWarp - 1);
  }
  return {0, 0, 0};
}

__device__ inline void multiply(float (&sums)[32], std::uint64_t rows, std::uint64_t columns) {
  wgmma_m64n64(sums, rows, columns, true);
}
__device__ inline void multiply(float (&sums)[64], std::uint64_t rows, std::uint64_t columns) {
  wgmma_m64n128(sums, rows, columns);
}

// Grid: tiles of columns, tiles of rows of all experts. CTAs of an SM hide each other's prologue.
template <int kGroups, bool kGated, int kTile>
__global__ void __launch_bounds__(128 * kGroups, TilesShape<kGroups, kTile>::kCtasOfSm)
    tiles_kernel(const __grid_constant__ TilesArgs a) {
  using Shape = TilesShape<kGroups, kTile>;
  extern __shared__ unsigned char shared[];
  __shared__ std::int32_t pairs[Shape::kRows], sources[Shape::kRows];  // of outputs, of x
  begin_dependent();
  const Place place = find_tile(a, static_cast<int>(blockIdx.y), Shape::kRows);
  if (place.count == 0) return;
  for (int i = threadIdx.x; i < Shape::kRows; i += Shape::kThreads) {
    // Rows past the tile repeat its last pair.
    pairs[i] = a.order[place.first + min(i, place.count - 1)];
    sources[i] = kGated ? pairs[i] / a.top_k : pairs[i];
  }
  __syncthreads();

  // 3. Columns of gate and up alternate in memory or not (rules), but in the tile all gates go
  // first.
  constexpr int kColumns = kGated ? kTile / 2 : kTile;  // of the output
  const std::int64_t column = std::int64_t{blockIdx.x} * kColumns;
  const Bf16* w = a.w + std::int64_t{place.expert} * (kGated ? 2 : 1) * a.n * a.k;
  // Tiles on 1024 bytes for the swizzle.
  const std::uint32_t base = (shared_address(shared) + 1023) / 1024 * 1024;
  const int steps = static_cast<int>((a.k + kStepColumns - 1) / kStepColumns);
  const int piece = threadIdx.x % kPieces, row0 = threadIdx.x / kPieces;
  constexpr int kRowsAtOnce = Shape::kThreads / kPieces;
  // Rows past the tile and columns past k become zeros, which add nothing to a sum.
  const auto issue = [&](int i) {
    if (i < steps) {
      const std::uint32_t stage = base + i % Shape::kStages * Shape::kStageBytes;
      const std::int64_t at = std::int64_t{i} * kStepColumns + piece * 8;
#pragma unroll
      for (int r = row0; r < Shape::kRows; r += kRowsAtOnce) {
        const bool wanted = r < place.count && at < a.k;
        cp_async_16(stage + swizzled(r, piece), a.x + (wanted ? sources[r] * a.x_stride + at : 0),
                    wanted);
      }
#pragma unroll
      for (int r = row0; r < kTile; r += kRowsAtOnce) {
        const std::int64_t n = column + r % kColumns;
        const std::int64_t row = !kGated        ? n
                                 : r < kColumns ? a.rules.gate_row(n)
                                                : a.rules.up_row(n);
        const bool wanted = n < a.n && at < a.k;
        cp_async_16(stage + Shape::kRowBytes + swizzled(r, piece),
                    w + (wanted ? row * a.k + at : 0), wanted);
      }
    }
    cp_async_commit();
  };
#pragma unroll
  for (int i = 0; i < Shape::kStages - 1; ++i) issue(i);
  // 4. Mainloop.
  const int group = threadIdx.x / 128;
  float sums[kTile / 2];
#pragma unroll
  for (int i = 0; i < kTile / 2; ++i) sums[i] = 0;
  for (int i = 0; i < steps; ++i) {
    cp_async_wait<Shape::kStages - 2>();
    fence_async_proxy();
    // All copies of step i are visible, and all wgmma of step i - 1 has ended: its stage is free.
    __syncthreads();
    const std::uint32_t stage = base + i % Shape::kStages * Shape::kStageBytes;
    const std::uint32_t rows = stage + group * 64 * kStepBytes, columns = stage + Shape::kRowBytes;
    pin_registers(sums);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < kStepColumns / 16; ++s)
      multiply(sums, tile_descriptor(rows + s * 32, 16), tile_descriptor(columns + s * 32, 16));
    wgmma_commit();
    // Into the stage of step i - 1, while the wgmma of step i runs.
    issue(i + Shape::kStages - 1);
    // Step i must end before its accumulators are used again.
    wgmma_wait<0>();
    pin_registers(sums);
  }
  cp_async_wait<0>();

  // 5. Accumulator element 4 j + 2 half + c: row lane / 4 + 8 half, column 8 j + 2 (lane % 4) + c.
  // With gates, the first half of the elements are gate sums and the second half the up sums of the
  // same columns.
  const int lane = threadIdx.x % kWarp,
            first = group * 64 + threadIdx.x % 128 / kWarp * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = first + half * 8;
    if (r >= place.count) continue;
    const std::int64_t pair = pairs[r];
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const std::int64_t n = column + j * 8 + lane % 4 * 2 + c;
        if (n >= a.n) continue;
        const float value = sums[4 * j + 2 * half + c];
        if constexpr (kGated)
          a.hidden[pair * a.hidden_stride + n] = narrow<Bf16>(
              a.rules.inner(value, sums[kTile / 4 + 4 * j + 2 * half + c], place.expert, pair, n));
        else
          a.down[pair * a.n + n] = value;
      }
  }
}

template <int kGroups, bool kGated, int kTile>
void launch_tiles_of(Context& ctx, const TilesArgs& args, int pairs) {
  using Shape = TilesShape<kGroups, kTile>;
  // Every expert may have one partial tile. CTAs past the last tile return at once.
  const int row_tiles = std::min(pairs, pairs / Shape::kRows + args.experts);
  const dim3 grid(blocks_for(args.n, kGated ? kTile / 2 : kTile), static_cast<unsigned>(row_tiles));
  launch_dependent(ctx, "grouped expert GEMM", tiles_kernel<kGroups, kGated, kTile>, grid,
                   Shape::kThreads, Shape::kBytes, args);
}

// `here`: pairs that this rank computes in the mean. 64 or 128 rows a tile, by the average number
// of pairs an expert.
template <bool kGated>
void launch_tiles(Context& ctx, const TilesArgs& args, int pairs, std::int64_t here) {
  if (expert_row_groups(here, args.experts) == 2)
    return launch_tiles_of<2, kGated, 128>(ctx, args, pairs);
  const int columns = expert_tile_columns(here, args.experts, kGated ? 2 * args.n : args.n,
                                          ctx.cuda->info().num_sms);
  return columns == 64 ? launch_tiles_of<1, kGated, 64>(ctx, args, pairs)
                       : launch_tiles_of<1, kGated, 128>(ctx, args, pairs);
}

}  // namespace

void sort_expert_pairs(Context& ctx, const Tensor& ids, int experts, std::int32_t* begin,
                       std::int32_t* order) {
  const SortArgs sort{.ids = ids.ptr<std::int32_t>(),
                      .stride = ids.stride[0],
                      .pairs = static_cast<int>(ids.dim(0) * ids.dim(1)),
                      .top_k = static_cast<int>(ids.dim(1)),
                      .experts = experts,
                      .begin = begin,
                      .order = order};
  launch_dependent(ctx, "sorting by expert", sort_pairs, static_cast<unsigned>(experts),
                   kSortThreads, 0, sort);
}

void tile_experts(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2,
                  const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                  const MoeWorkspace& workspace, const Tensor& out) {
  const int top_k = static_cast<int>(ids.dim(1)), experts = static_cast<int>(w13.dim(0));
  const std::int64_t block = workspace.hidden.dim(0) / top_k;
  // The workspace holds the pairs of a block of tokens.
  for (std::int64_t first = 0; first < x.dim(0); first += block) {
    const std::int64_t tokens = std::min(block, x.dim(0) - first);
    const Tensor some = ids.rows(first, tokens), rows = x.rows(first, tokens);
    std::int32_t* const begin = workspace.order.ptr<std::int32_t>();
    std::int32_t* const order = begin + experts + 1;
    const int pairs = static_cast<int>(tokens * top_k);
    sort_expert_pairs(ctx, some, experts, begin, order);
    const TilesArgs up{
        .x = static_cast<const Bf16*>(rows.data),
        .w = static_cast<const Bf16*>(w13.data),
        .hidden = static_cast<Bf16*>(workspace.hidden.data),
        .begin = begin,
        .order = order,
        .x_stride = rows.stride[0],
        .hidden_stride = workspace.hidden.stride[0],
        .n = w2.dim(2),
        .k = w2.dim(1),
        .top_k = top_k,
        .experts = experts,
        .rules = rules_of(params, weights.rows(first, tokens), w2.dim(2), w2.dim(1))};
    // The down projection reads the hidden rows of the pairs.
    TilesArgs down = up;
    down.x = up.hidden;
    down.x_stride = up.hidden_stride;
    down.w = static_cast<const Bf16*>(w2.data);
    down.hidden = nullptr;
    down.down = workspace.down.ptr<float>();
    down.n = up.k;
    down.k = up.n;
    const std::int64_t here = pairs_of_rank(pairs, params.groups);
    launch_tiles<true>(ctx, up, pairs, here);
    launch_tiles<false>(ctx, down, pairs, here);
    sum_expert_pairs(ctx, down.down, weights.rows(first, tokens), some, params,
                     out.rows(first, tokens));
  }
}

}  // namespace sluice::cuda
