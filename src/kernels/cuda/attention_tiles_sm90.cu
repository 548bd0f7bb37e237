// Attention of many rows over bfloat16 pages, on Hopper's warpgroup products.
//
// A tile has 192 query rows, the heads of a group times neighbouring tokens of one sequence, 64 for each of three
// warpgroups. A fourth one copies keys, a page at a time, into a ring in shared memory. The three meet it at the barriers
// of the ring's places only, never one another, so each goes its own pace: while one takes exponentials the others
// multiply. Running maxima and sums as in FlashAttention-2 (arXiv 2307.08691), roles of warpgroups as in FlashAttention-3
// (arXiv 2407.08608); the order of summation of a row depends on its position alone.
#include "kernels/cuda/attention_out.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/launch_plan.h"

namespace sluice::cuda {
namespace {

constexpr int kGroups = 3;                        // warpgroups that multiply; one more copies
constexpr int kGroupThreads = 4 * kWarp;
constexpr int kThreads = (kGroups + 1) * kGroupThreads;
constexpr int kCopyRegisters = 32, kMultiplyRegisters = 160;
static_assert(kCopyRegisters + kGroups * kMultiplyRegisters <= 65536 / kGroupThreads);
constexpr int kTileRows = kGroups * 64;
constexpr int kKeys = ops::kPageTokens;           // of a step
constexpr int kStages = 4;
constexpr int kBlockBytes = 64 * kSwizzleBytes;   // 64 rows of 64 elements
static_assert(kMaxTiledGroup <= kTileRows && kKeys == 64);

struct TilesArgs {
  PagedArgs a;
  int tile_tokens = 1;
  bool skip_single_rows = false;
};

template <int kDim>
struct TilesShape {
  static constexpr int kBlocks = kDim / kSwizzleColumns;      // side by side
  static constexpr int kQueryBytes = kGroups * kBlocks * kBlockBytes;
  static constexpr int kStageBytes = 2 * kBlocks * kBlockBytes;
  static constexpr int kBytes = kQueryBytes + kStages * kStageBytes + 1024;   // tiles begin on 1024 bytes
};

struct Tile {
  std::uint64_t filled[kStages], emptied[kStages];   // barriers
  std::int32_t position[kTileRows];
  std::uint32_t breaks[kTileRows / kWarp];   // bit i: the next token is of another sequence
};

// The first token after `from` that is of another sequence than it, at most `count`.
__device__ int run_end(const Tile& tile, int from, int count) {
  for (int word = from / kWarp; word * kWarp < count; ++word) {
    const std::uint32_t bits = tile.breaks[word] & (word == from / kWarp ? ~0u << from % kWarp : ~0u);
    if (bits != 0) return min(word * kWarp + __ffs(static_cast<int>(bits)), count);
  }
  return count;
}

template <int kDim>
struct RowState {
  float out[kDim / 2];
  float top[2], total[2];
};

// Begins score = Q K^T for a page of keys.
template <int kDim>
__device__ void begin_scores(float (&score)[32], std::uint32_t queries, std::uint32_t stage) {
#pragma unroll
  for (int s = 0; s < kDim / 16; ++s) {
    const std::uint32_t at = s / 4 * kBlockBytes + s % 4 * 32;
    multiply_64x64(score, tile_descriptor(queries + at, 16), tile_descriptor(stage + at, 16), s > 0);
  }
  commit_products();
}

// Begins out += P V for a page of values.
template <int kDim>
__device__ void begin_values(float (&out)[kDim / 2], const std::uint32_t (&weight)[4][4], std::uint32_t stage) {
  constexpr int kBlocks = kDim / kSwizzleColumns;
#pragma unroll
  for (int s = 0; s < kKeys / 16; ++s)
    multiply_rows(out, weight[s], tile_descriptor(stage + kBlocks * kBlockBytes + s * 16 * kSwizzleBytes, kBlockBytes));
  commit_products();
}

// Scores become weights against the new maxima, and what was summed before is scaled by `keep`. Scores outside of a row's
// keys are left out when `masked`; `key` is the position of the thread's first column.
template <int kDim>
__device__ void weigh(RowState<kDim>& row, float (&score)[32], float (&keep)[2], bool masked, std::int64_t key,
                      const std::int64_t (&row_begin)[2], const std::int64_t (&row_end)[2]) {
  if (masked) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const std::int64_t at = key + i / 4 * 8 + i % 2;
      if (at < row_begin[i / 2 % 2] || at >= row_end[i / 2 % 2]) score[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = row.top[r];
#pragma unroll
    for (int j = 0; j < 8; ++j) most = fmaxf(most, fmaxf(score[4 * j + 2 * r], score[4 * j + 2 * r + 1]));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
    const float base = most == -INFINITY ? 0.0f : most;   // no visible key yet
    keep[r] = exp2_fast(row.top[r] - base);
    row.top[r] = most;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) sum += score[4 * j + 2 * r + c] = exp2_fast(score[4 * j + 2 * r + c] - base);
    row.total[r] = fmaf(row.total[r], keep[r], sum);
  }
}

__device__ inline void pack_weights(const float (&score)[32], std::uint32_t (&weight)[4][4]) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      weight[j / 2][j % 2 * 2 + r] = pack_bf16(score[4 * j + 2 * r], score[4 * j + 2 * r + 1]);
}

// The place in the ring and how often it was gone round, for one of the two sides.
struct RingPlace {
  int stage = 0, parity = 0;
  __device__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Rows [first, first + count) of a tile, all of one sequence, and the pages of the keys that any of them sees.
struct RunRange {
  std::int64_t key_begin, key_end, first_page, lowest, highest;
  int pages;
  const std::int32_t* table;
};
__device__ RunRange range_of(const PagedArgs& a, const Tile& tile, std::int64_t tile_begin, int first, int count) {
  const std::int64_t seq = a.row_seq[tile_begin + first];
  expect_below(seq, a.num_seqs);
  std::int32_t lowest = INT32_MAX, highest = 0;
  for (int i = threadIdx.x % kWarp; i < count; i += kWarp) {
    lowest = min(lowest, tile.position[first + i]);
    highest = max(highest, tile.position[first + i]);
  }
  RunRange r;
  r.lowest = __reduce_min_sync(kAllLanes, lowest);
  r.highest = __reduce_max_sync(kAllLanes, highest);
  r.key_end = r.highest + 1;
  r.key_begin = a.window > 0 ? max(r.lowest - a.window + 1, std::int64_t{0}) : 0;
  r.first_page = r.key_begin / kKeys;
  r.pages = static_cast<int>((r.key_end + kKeys - 1) / kKeys - r.first_page);
  expect_below(r.first_page + r.pages - 1, a.max_pages);
  r.table = a.page_table + seq * a.table_stride + r.first_page;
  return r;
}

// The copying warpgroup's part of a run. Keys outside of the range become zeros.
template <int kDim>
__device__ void copy_run(const PagedArgs& a, Tile& tile, const RunRange& range, std::uint32_t ring, RingPlace& place) {
  using Shape = TilesShape<kDim>;
  constexpr int kChunks = kDim / 8, kRowsAtOnce = kGroupThreads / kChunks, kTurns = kKeys / kRowsAtOnce;
  constexpr int kBehind = 2;   // pages that are under way when one is handed over
  const int thread = threadIdx.x % kGroupThreads, piece = thread % kChunks, row = thread / kChunks;
  const Bf16* k = static_cast<const Bf16*>(a.k) + blockIdx.x * kDim + piece * 8;
  const Bf16* v = static_cast<const Bf16*>(a.v) + blockIdx.x * kDim + piece * 8;
  RingPlace handed = place;
  std::int32_t next_page = range.table[0];
  for (int i = 0; i < range.pages + kBehind; ++i) {
    if (i < range.pages) {
      const std::int64_t slot = std::int64_t{next_page} * kKeys + row;
      expect_below(next_page, a.num_slots / kKeys);
      next_page = i + 1 < range.pages ? range.table[i + 1] : 0;
      wait_for_arrivals(shared_address(&tile.emptied[place.stage]), place.parity ^ 1);
      const std::uint32_t stage = ring + place.stage * Shape::kStageBytes + piece / 8 * kBlockBytes;
      const std::int64_t at = (range.first_page + i) * kKeys + row;
      const Bf16 *key = k + slot * a.k_slot, *value = v + slot * a.v_slot;
#pragma unroll 4
      for (int j = 0; j < kTurns; ++j) {
        const bool wanted = at + j * kRowsAtOnce >= range.key_begin && at + j * kRowsAtOnce < range.key_end;
        const std::uint32_t to = stage + swizzled(row + j * kRowsAtOnce, piece % 8);
        copy_async16(to, wanted ? key : k, wanted);
        copy_async16(to + Shape::kBlocks * kBlockBytes, wanted ? value : v, wanted);
        key += kRowsAtOnce * a.k_slot;
        value += kRowsAtOnce * a.v_slot;
      }
      place.advance();
    }
    commit_copies();
    if (i < kBehind) continue;
    wait_for_copies<kBehind>();
    publish_shared();
    arrive(shared_address(&tile.filled[handed.stage]));
    handed.advance();
  }
}

// A multiplying warpgroup's part of a run.
template <int kDim>
__device__ void attend_run(const TilesArgs& args, Tile& tile, const RunRange& range, std::int64_t tile_begin, int first, int count,
                           std::uint32_t shared, unsigned char* shared_bytes, RingPlace& place) {
  using Shape = TilesShape<kDim>;
  constexpr int kChunks = kDim / 8;
  const PagedArgs& a = args.a;
  const int group = static_cast<int>(a.group), kv = blockIdx.x;
  const int warpgroup = threadIdx.x / kGroupThreads, lane = threadIdx.x % kWarp;
  const std::uint32_t ring = shared + Shape::kQueryBytes;

  join_warpgroup(warpgroup);   // the run before has read its queries
  for (int c = threadIdx.x % kGroupThreads; c < 64 * kChunks; c += kGroupThreads) {
    const int r = warpgroup * 64 + c / kChunks, piece = c % kChunks, token = r / group;
    uint4 values{};
    if (token >= first && token < first + count) {
      const float* q = a.q + (tile_begin + token) * a.q_token + (std::int64_t{kv} * group + r % group) * a.q_head + piece * 8;
      values = {pack_bf16(q[0] * a.scale_log2, q[1] * a.scale_log2), pack_bf16(q[2] * a.scale_log2, q[3] * a.scale_log2),
                pack_bf16(q[4] * a.scale_log2, q[5] * a.scale_log2), pack_bf16(q[6] * a.scale_log2, q[7] * a.scale_log2)};
    }
    *reinterpret_cast<uint4*>(shared_bytes + (r / 64 * Shape::kBlocks + piece / 8) * kBlockBytes + swizzled(r % 64, piece % 8)) =
        values;
  }
  publish_shared();
  join_warpgroup(warpgroup);

  // The two rows of this thread.
  const int row0 = warpgroup * 64 + threadIdx.x % kGroupThreads / kWarp * 16 + lane / 4;
  std::int64_t row_begin[2], row_end[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int token = (row0 + 8 * r) / group;
    const bool mine = token >= first && token < first + count;
    row_end[r] = mine ? std::int64_t{tile.position[token]} + 1 : 0;
    row_begin[r] = mine && a.window > 0 ? max(row_end[r] - a.window, std::int64_t{0}) : 0;
  }
  RowState<kDim> row;
#pragma unroll
  for (int i = 0; i < kDim / 2; ++i) row.out[i] = 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) row.top[r] = -INFINITY, row.total[r] = 0;

  // Keys that every row sees need no mask.
  const std::int64_t all_begin = a.window > 0 ? max(range.highest - a.window + 1, std::int64_t{0}) : 0;
  const std::uint32_t queries = shared + warpgroup * Shape::kBlocks * kBlockBytes;
  const auto stage_at = [&](int stage) { return ring + stage * Shape::kStageBytes; };
  const auto await_page = [&] { wait_for_arrivals(shared_address(&tile.filled[place.stage]), place.parity); };
  const auto give_back = [&](int stage) {
    if (lane == 0) arrive(shared_address(&tile.emptied[stage]));
  };
  float score[32], keep[2];
  std::uint32_t weight[4][4];
  const auto weigh_page = [&](int i) {
    const std::int64_t at = (range.first_page + i) * kKeys;
    weigh<kDim>(row, score, keep, at < all_begin || at + kKeys > range.lowest + 1, at + lane % 4 * 2, row_begin, row_end);
  };
  await_page();
  hold(score);
  begin_products();
  begin_scores<kDim>(score, queries, stage_at(place.stage));
  wait_for_products<0>();
  hold(score);
  weigh_page(0);
  pack_weights(score, weight);
  // The scores of the next page and the values of this one are multiplied together; the exponentials of the next page are
  // taken while its predecessor's values still are.
  for (int i = 0; i + 1 < range.pages; ++i) {
    const int now = place.stage;
    place.advance();
    await_page();
    hold(score);
    hold(row.out);
    begin_products();
    begin_scores<kDim>(score, queries, stage_at(place.stage));
    begin_values<kDim>(row.out, weight, stage_at(now));
    wait_for_products<1>();
    hold(score);
    weigh_page(i + 1);
    wait_for_products<0>();
    hold(row.out);
    give_back(now);
    // Maxima seldom change after the first pages.
    if (__any_sync(kAllLanes, keep[0] != 1.0f || keep[1] != 1.0f)) {
#pragma unroll
      for (int j = 0; j < kDim / 2; ++j) row.out[j] *= keep[j / 2 % 2];
    }
    pack_weights(score, weight);
  }
  hold(row.out);
  begin_products();
  begin_values<kDim>(row.out, weight, stage_at(place.stage));
  wait_for_products<0>();
  hold(row.out);
  give_back(place.stage);
  place.advance();

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    row.total[r] += __shfl_xor_sync(kAllLanes, row.total[r], 1);
    row.total[r] += __shfl_xor_sync(kAllLanes, row.total[r], 2);
    if (row_end[r] == 0) continue;
    const int at = row0 + 8 * r;
    const float inverse = row.total[r] == 0 ? 0.0f : 1.0f / row.total[r];
    const std::int64_t to = (tile_begin + at / group) * a.out_token + (std::int64_t{kv} * group + at % group) * a.out_head + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j)
      store_two(a, to + j * 8, row.out[4 * j + 2 * r] * inverse, row.out[4 * j + 2 * r + 1] * inverse);
  }
}

// Calls body(first, count) for the runs of a tile.
template <class Body>
__device__ void for_each_run(const TilesArgs& args, const Tile& tile, std::int64_t begin, int count, Body&& body) {
  const PagedArgs& a = args.a;
  for (int first = 0; first < count;) {
    const int next = run_end(tile, first, count);
    // A row alone in this tile may have its neighbours in the next one.
    const std::int64_t t = begin + first;
    const bool alone = next - first == 1 && (t == 0 || a.row_seq[t - 1] != a.row_seq[t]) &&
                       (t + 1 >= a.tokens || a.row_seq[t + 1] != a.row_seq[t]);
    if (!(alone && args.skip_single_rows)) body(first, next - first);
    first = next;
  }
}

// Grid: key heads, tiles of tokens from the last to the first: later rows see more keys, so the long tiles start first.
template <int kDim>
__global__ void __launch_bounds__(kThreads, 1) tiles_kernel(const __grid_constant__ TilesArgs args) {
  extern __shared__ unsigned char shared[];
  __shared__ Tile tile;
  const PagedArgs& a = args.a;
  wait_for_earlier_kernels();
  start_next_kernel();
  unsigned char* aligned = shared + (1024 - shared_address(shared) % 1024) % 1024;
  const std::int64_t begin = (std::int64_t{gridDim.y} - 1 - blockIdx.y) * args.tile_tokens;
  const int count = static_cast<int>(min(std::int64_t{args.tile_tokens}, a.tokens - begin));
  if (threadIdx.x < kTileRows) {
    const int i = threadIdx.x;
    const bool here = i < count;
    if (here) tile.position[i] = a.positions[begin + i];
    const bool ends = here && (i + 1 == count || a.row_seq[begin + i + 1] != a.row_seq[begin + i]);
    const std::uint32_t bits = __ballot_sync(kAllLanes, ends);
    if (i % kWarp == 0) tile.breaks[i / kWarp] = bits;
  }
  if (threadIdx.x == 0)
    for (int i = 0; i < kStages; ++i) {
      make_barrier(shared_address(&tile.filled[i]), kGroupThreads);
      make_barrier(shared_address(&tile.emptied[i]), kGroups * kGroupThreads / kWarp);
    }
  __syncthreads();
  RingPlace place;
  if (threadIdx.x >= kGroups * kGroupThreads) {
    keep_registers<kCopyRegisters>();
    for_each_run(args, tile, begin, count, [&](int first, int rows) {
      copy_run<kDim>(a, tile, range_of(a, tile, begin, first, rows), shared_address(aligned) + TilesShape<kDim>::kQueryBytes, place);
    });
  } else {
    take_registers<kMultiplyRegisters>();
    for_each_run(args, tile, begin, count, [&](int first, int rows) {
      attend_run<kDim>(args, tile, range_of(a, tile, begin, first, rows), begin, first, rows, shared_address(aligned), aligned, place);
    });
  }
}

template <int kDim>
void launch(Context& ctx, const TilesArgs& args, std::int64_t kv_heads) {
  const dim3 grid(static_cast<unsigned>(kv_heads), blocks_for(args.a.tokens, args.tile_tokens));
  launch_dependent(ctx, "attention of tiles", tiles_kernel<kDim>, grid, kThreads, TilesShape<kDim>::kBytes, args);
}

}  // namespace

void attend_tiles(Context& ctx, const PagedArgs& a, std::int64_t kv_heads, bool skip_single_rows) {
  const TilesArgs args{.a = a, .tile_tokens = static_cast<int>(kTileRows / a.group), .skip_single_rows = skip_single_rows};
  if (a.dim == 64)
    launch<64>(ctx, args, kv_heads);
  else
    launch<128>(ctx, args, kv_heads);
}

}  // namespace sluice::cuda
