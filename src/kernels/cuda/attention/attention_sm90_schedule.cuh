// Tile shapes, barriers and work order of attention_tiles_sm90.cu. A tile is divided into runs:
// rows of one sequence with the keys that they see.
#pragma once

#include <cuda.h>

#include "kernels/cuda/attention/attention_fast.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/common/wgmma.cuh"

namespace sluice::cuda::tiles {

inline constexpr int kGroupThreads = 4 * kWarp;
inline constexpr int kFetchingWarps = 3;  // of queries
inline constexpr int kPage = kPageSize;
inline constexpr int kBoxBytes = kPage * kSwizzleBytes;  // 64 columns of a page
inline constexpr int kBlockBytes = 64 * kSwizzleBytes;   // 64 rows of 64 columns
static_assert(kPage == 64);

struct TilesArgs {
  CUtensorMap keys, values;  // boxes of a page
  PagedArgs a;
  int tile_tokens = 1, tiles = 0, kv_heads = 1;  // `tiles` of tokens for each KV head
  bool skip_single_rows = false;
  // Norm and RoPE of queries. Null cos_sin: neither.
  const float *q_weight = nullptr, *cos_sin = nullptr;
  std::int64_t cos_sin_stride = 0;
  float eps = 0;
};

// kGroups: consumer warpgroups. kPages: pages of a step. kStages: steps of a pipeline. kTurns:
// warpgroups take turns at issuing wgmma.
template <int kDim_, int kGroups_, int kPages_, int kStages_, bool kTurns_>
struct TilesShape {
  static constexpr int kDim = kDim_, kGroups = kGroups_, kPages = kPages_, kStages = kStages_;
  static constexpr bool kTurns = kTurns_;
  static constexpr int kThreads = (kGroups + 1) * kGroupThreads;
  static constexpr int kRows = kGroups * 64;
  static constexpr int kKeys = kPages * kPage;
  static constexpr int kParts = kDim / kSwizzleColumns;  // of 64 columns, side by side
  static constexpr int kPartBytes = kKeys * kSwizzleBytes;
  static constexpr int kStageBytes = kParts * kPartBytes;
  static constexpr int kQueryBytes = kGroups * kParts * kBlockBytes;
  static constexpr int kRawBytes = kRows * kDim * 4;
  // 1024 more, because the 128-byte swizzle needs tiles on 1024 bytes.
  static constexpr int kBytes = kQueryBytes + 2 * kStages * kStageBytes + kRawBytes + 1024;
  // setmaxnreg: the sum over the warpgroups must not exceed the registers of an SM.
  static constexpr int kConsumerRegisters = kGroups == 2 ? 224 : 152, kCopyRegisters = 56;
  static_assert(kCopyRegisters + kGroups * kConsumerRegisters <=
                65536 / kThreads / 8 * 8 * (kGroups + 1));
  static_assert(kGroups == 2 || !kTurns);
  static_assert(kMaxTiledGroup <= kRows);
};

// The description of a run for the consumers. Zero steps: there is no more work.
struct Job {
  std::int64_t begin;  // the tile's first token
  std::int32_t steps, first_key;
  std::int32_t unmasked_begin, unmasked_end;  // keys that every row sees
  std::int32_t kv;
};

template <class Shape>
struct Control {
  // mbarriers: "filled" by the producer, "emptied" by the consumers.
  std::uint64_t keys_filled[Shape::kStages], keys_emptied[Shape::kStages];
  std::uint64_t values_filled[Shape::kStages], values_emptied[Shape::kStages];
  std::uint64_t job_filled, job_emptied, page_came, queries_came;
  Job job;
  std::int32_t row_end[Shape::kRows];  // end of the keys that a row sees; 0: not a row of the run
  // For each producer warp, a bit for each token: the next token is of another sequence.
  std::uint32_t ends[kFetchingWarps + 1][Shape::kRows / kWarp];
};

// Addresses in dynamic shared memory.
template <class Shape>
struct Places {
  std::uint32_t queries, keys, values, raw;  // raw: queries in float32
  __device__ explicit Places(std::uint32_t at)
      : queries(at),
        keys(at + Shape::kQueryBytes),
        values(keys + Shape::kStages * Shape::kStageBytes),
        raw(values + Shape::kStages * Shape::kStageBytes) {}
};

// The stage of a pipeline and the parity of its mbarrier phase, for one of the two sides.
template <int kStages>
struct PipelinePlace {
  int stage = 0, parity = 0;
  __device__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Rows of a tile that are of one sequence, and the keys that any of them sees.
struct Run {
  std::int64_t begin;    // the tile's first token
  int kv, first, count;  // tokens of the tile
  int lowest, highest;   // positions
  int key_begin, key_end;
  int written_end;  // keys before this one are in the pool, whether the run sees them or not
  int first_page, steps;
  const std::int32_t* table;

  // A page with at least one visible key.
  __device__ bool wants(int page) const {
    return page * kPage < key_end && (page + 1) * kPage > key_begin;
  }
};

template <class Shape>
__device__ Run run_of(const PagedArgs& a, std::int64_t begin, int kv, int first, int count) {
  Run r{.begin = begin, .kv = kv, .first = first, .count = count};
  const std::int32_t seq = a.row_seq[begin + first];
  expect_below(seq, a.num_seqs);
  // Positions of the run; the rows may be in any order.
  std::int32_t lowest = INT32_MAX, highest = 0;
  for (int i = threadIdx.x % kWarp; i < count; i += kWarp) {
    const std::int32_t position = a.positions[begin + first + i];
    lowest = min(lowest, position);
    highest = max(highest, position);
  }
  r.lowest = __reduce_min_sync(kAllLanes, lowest);
  r.highest = __reduce_max_sync(kAllLanes, highest);
  r.key_end = r.highest + 1;
  r.key_begin = a.window > 0 ? static_cast<int>(max(r.lowest - a.window + 1, std::int64_t{0})) : 0;
  // Steps begin at multiples of kKeys, whatever the window: one order of summation for each row.
  r.first_page = r.key_begin / Shape::kKeys * Shape::kPages;
  const int pages = (r.key_end + kPage - 1) / kPage;
  expect_below(pages - 1, a.max_pages);
  r.steps = (pages - r.first_page + Shape::kPages - 1) / Shape::kPages;
  // Later rows of the sequence may have filled its last page.
  r.written_end = r.key_end;
  const std::int64_t last = begin + first + count - 1 + (pages * kPage - r.key_end);
  if (last < a.tokens && a.row_seq[last] == seq && a.positions[last] == pages * kPage - 1)
    r.written_end = pages * kPage;
  r.table = a.page_table + seq * a.table_stride;
  return r;
}

// Calls body(run) for the runs of this CTA's tiles; all lanes of a warp call. Longest tiles first,
// dealt to CTAs in boustrophedon order to balance the load.
template <class Shape, class Body>
__device__ void for_each_run(const TilesArgs& args, std::uint32_t (&ends)[Shape::kRows / kWarp],
                             Body&& body) {
  const PagedArgs& a = args.a;
  const int lane = threadIdx.x % kWarp, total = args.tiles * args.kv_heads;
  const int block = blockIdx.x, blocks = gridDim.x;
  for (int turn = 0; turn * blocks < total; ++turn) {
    const int work = turn * blocks + (turn % 2 == 0 ? block : blocks - 1 - block);
    if (work >= total) continue;
    const std::int64_t begin =
        std::int64_t{args.tiles - 1 - work / args.kv_heads} * args.tile_tokens;
    const int count = static_cast<int>(min(std::int64_t{args.tile_tokens}, a.tokens - begin));
    __syncwarp();
    // Bit i: token i is the last one of a run.
    for (int i = lane; i - lane < count; i += kWarp) {
      const bool ends_run =
          i < count && (i + 1 == count || a.row_seq[begin + i + 1] != a.row_seq[begin + i]);
      const std::uint32_t bits = __ballot_sync(kAllLanes, ends_run);
      if (lane == 0) ends[i / kWarp] = bits;
    }
    __syncwarp();
    const auto same = [&](std::int64_t t) {
      return t > 0 && t < a.tokens && a.row_seq[t] == a.row_seq[t - 1];
    };
    const bool continues_before = same(begin), is_continued = same(begin + count);
    for (int first = 0; first < count;) {
      int next = first;
      // The end of the run: the next set bit.
      for (std::uint32_t bits = ends[first / kWarp] & ~0u << first % kWarp;;
           bits = ends[next / kWarp]) {
        next = next / kWarp * kWarp + (bits != 0 ? __ffs(static_cast<int>(bits)) : kWarp);
        if (bits != 0) break;
      }
      // A row alone in this tile may have its neighbours in the next one.
      const bool is_single = next - first == 1 && !(first == 0 && continues_before) &&
                             !(next == count && is_continued);
      if (!(is_single && args.skip_single_rows))
        body(run_of<Shape>(a, begin, work % args.kv_heads, first, next - first));
      first = next;
    }
  }
}

}  // namespace sluice::cuda::tiles
