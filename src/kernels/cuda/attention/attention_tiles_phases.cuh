// The phases of attend_run() in attention_tiles_kernel.cuh, over the state of one run of rows:
//   1. locate, locate_keys   2. load_queries   3. issue_keys   4. start_rows   5. scores
//   6. edit_scores           7. online_softmax 8. accumulate   9. epilogue
//
// Fragments (PTX ISA, m16n8k16; lane = 4 lane_row + quad): a score or output tile holds rows
// lane_row (elements 0 and 1) and lane_row + 8 (elements 2 and 3) at columns 2 quad and 2 quad + 1.
// Hence index j / 2 of a fragment selects one of the lane's two rows.
//
// A stage holds kStep rows of keys, then kStep rows of values. Two stages alternate.
#pragma once

#include "kernels/cuda/attention/attention_fast.h"
#include "kernels/cuda/attention/attention_pages.cuh"
#include "kernels/cuda/common/launch.cuh"

namespace sluice::cuda::general {

inline constexpr int kTileWarps = 4;
inline constexpr int kTileThreads = kTileWarps * kWarp;
inline constexpr int kRows = 16 * kTileWarps;

// Strides are in elements. A window keeps the last keys of a row, a chunk those of its own chunk.
struct TileArgs {
  const float* q = nullptr;
  const void *k = nullptr, *v = nullptr;
  const float *k_scales = nullptr, *v_scales = nullptr;  // of e4m3: [kv heads], or null: 1
  float* out = nullptr;
  const float *sinks = nullptr, *slopes = nullptr;
  const std::int32_t *page_table = nullptr, *row_seq = nullptr, *positions = nullptr;
  // strides
  std::int64_t q_token = 0, q_head = 0, k_slot = 0, v_slot = 0, out_token = 0, out_head = 0;
  std::int64_t table_stride = 0, num_seqs = 0, max_pages = 0, num_slots = 0, tokens = 0, group = 1;
  std::int64_t window = 0, chunk = 0;
  // Query rows of a tile, and tiles that the heads of a GQA group take.
  int tile_heads = 1, tile_tokens = 1, head_blocks = 1;
  // A single row has neighbours of other sequences.
  bool skip_single_rows = false, single_rows_only = false;
  int splits = 1;                              // CTAs that share the keys of a run
  float *part = nullptr, *part_lse = nullptr;  // as in MergeArgs
  float scale = 1, softcap = 0;

  // The first key that the row at `position` sees.
  __device__ std::int64_t first_key(std::int64_t position) const {
    if (window > 0) return max(position - window + 1, std::int64_t{0});
    return chunk > 0 ? position / chunk * chunk : 0;
  }
};

template <int kKeyDim_, int kValueDim_, int kStep_, class Pages_>
struct TileShape {
  // Queries come first, then the two stages; a step never crosses a page.
  using Pages = Pages_;
  static constexpr int kKeyDim = kKeyDim_, kValueDim = kValueDim_;
  static constexpr int kStep = kStep_;  // keys of a stage
  // Bytes of a row. 16 bytes of padding put the 8 rows of an ldmatrix into different banks.
  static constexpr int kQueryRow = kKeyDim * 2 + 16, kKeyRow = kKeyDim * Pages::kBytes + 16,
                       kValueRow = kValueDim * Pages::kBytes + 16;
  static constexpr int kQueryBytes = kRows * kQueryRow;
  static constexpr int kStageBytes = kStep * (kKeyRow + kValueRow);
  static constexpr int kBytes = kQueryBytes + 2 * kStageBytes;
  static_assert(kStep % 16 == 0 && kPageSize % kStep == 0);
  static_assert(kKeyDim % (16 * Pages::kStepsEach) == 0 &&
                kValueDim % (16 * Pages::kStepsEach) == 0);
};

// One of the two rows of the tile that a lane holds: lane / 4 and lane / 4 + 8 of the warp's 16.
struct LaneRow {
  std::int64_t begin = 0, end = 0;         // the row sees keys [begin, end)
  float scale = 1, slope = 0;              // `scale` multiplies q k
  float row_sum = 0, row_max = -INFINITY;  // of scores times log2(e); row_sum of this lane's keys
};

// Gemma's soft cap: cap * tanh(x / cap), with one exponential and one approximate division.
__device__ inline float softcapped(float x, float cap) {
  // tanh(y) = 1 - 2 / (1 + e^2y). The absolute error is a few ulp of 1.
  return cap * (1.0f - __fdividef(2.0f, 1.0f + exp2_fast(x / cap * (2 * kLog2E))));
}

// Fragments of a warp that live for the whole run.
template <class Shape>
struct TileFragments {
  float acc[Shape::kValueDim / 8][4];
  LaneRow row[2];
};

// Rows [0, num_rows) of a run: row r is (token first_token + r / heads, head first_head + r %
// heads). All threads of the CTA call every phase. Fragments are no members: an array indexed by a
// loop would keep the compiler from holding the scalars in registers before it unrolls.
template <class Shape>
struct TileRun {
  static constexpr int kSteps = Shape::kKeyDim / 16, kKeyTiles = Shape::kStep / 8,
                       kValueTiles = Shape::kValueDim / 8;
  using Fragments = TileFragments<Shape>;
  using Pages = typename Shape::Pages;
  using Element = typename Pages::Element;
  static constexpr int kEach = Pages::kStepsEach, kChunk = 16 / Pages::kBytes;

  const TileArgs& a;
  std::int64_t first_token, first_head;
  int heads, split;
  std::uint32_t shared;   // address of `memory`
  unsigned char* memory;  // queries, then two stages of keys and values
  int num_rows, warp, lane, lane_row, quad;
  std::int64_t first, last;         // some row of the run sees a key in [first, last)
  std::int64_t all_begin, all_end;  // every row sees keys [all_begin, all_end)
  std::int64_t start, stop;         // keys of this split
  const std::int32_t* table;
  const Element *k, *v;
  float k_scale = 1, v_scale = 1;
  float power[2] = {1, 1};               // of the queries of the lane's two rows, to undo
  std::uint32_t q_lane, k_lane, v_lane;  // the lane's row of an ldmatrix

  // 1. Positions ascend, so the first token has the first key and the last token has the last key.
  __device__ __forceinline__ void locate(int num_tokens, std::int64_t kv_head) {
    num_rows = num_tokens * heads, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp,
    lane_row = lane / 4, quad = lane % 4;
    const std::int64_t seq = a.row_seq[first_token];
    last = a.positions[first_token + num_tokens - 1] + 1;
    first = a.first_key(a.positions[first_token]);
    expect_below((last - 1) / kPageSize, a.max_pages);
    table = a.page_table + seq * a.table_stride;
    k = static_cast<const Element*>(a.k) + kv_head * Shape::kKeyDim;
    v = static_cast<const Element*>(a.v) + kv_head * Shape::kValueDim;
    if constexpr (Pages::kHasScales) {
      if (a.k_scales != nullptr) k_scale = a.k_scales[kv_head];
      if (a.v_scales != nullptr) v_scale = a.v_scales[kv_head];
    }
  }

  // 2. Queries stay in shared memory: with 256 columns they would take too many registers.
  __device__ __forceinline__ void load_queries() {
    __syncthreads();  // a warp may still read the queries of the run before
    if constexpr (Pages::kHasScales)
      load_scaled_queries();
    else
      load_plain_queries();
  }
  __device__ __forceinline__ void load_plain_queries() {
    auto* queries = reinterpret_cast<Bf16*>(memory);
    for (int i = threadIdx.x; i < kRows * Shape::kKeyDim / 2; i += kTileThreads) {
      const int row = i / (Shape::kKeyDim / 2), at = i % (Shape::kKeyDim / 2) * 2;
      std::uint32_t both = 0;
      if (row < num_rows) {
        const float* q = a.q + (first_token + row / heads) * a.q_token +
                         (first_head + row % heads) * a.q_head + at;
        both = pack_bf16(q[0], q[1]);
      }
      *reinterpret_cast<std::uint32_t*>(queries + row * (Shape::kQueryRow / 2) + at) = both;
    }
  }
  // 2. The same in float16, times a power of two for each row. A warp takes the rows that it also
  // multiplies. Columns are in the order of E4m3Pages.
  __device__ __forceinline__ void load_scaled_queries() {
    constexpr int kPairs = Shape::kKeyDim / 2;
#pragma unroll 1
    for (int i = 0; i < 16; ++i) {
      const int row = warp * 16 + i;
      const float* q =
          a.q + (first_token + row / heads) * a.q_token + (first_head + row % heads) * a.q_head;
      float largest = 0;
      for (int j = lane; j < kPairs && row < num_rows; j += kWarp)
        largest = fmaxf(largest, fmaxf(fabsf(q[2 * j]), fabsf(q[2 * j + 1])));
      const RowPower of_row = RowPower::of(warp_max(largest));
      if (i == lane_row) power[0] = of_row.inverse;
      if (i == lane_row + 8) power[1] = of_row.inverse;
      unsigned char* to = memory + row * Shape::kQueryRow;
      for (int j = lane; j < kPairs; j += kWarp) {
        // Pair j % 8 of 16 columns is register j % 2 of quad j % 8 / 2.
        const int at = j / 8 * 16 + j % 2 * 8 + j % 8 / 2 * 2;
        *reinterpret_cast<std::uint32_t*>(to + at * 2) =
            row < num_rows ? Pages::pack(q[2 * j] * of_row.factor, q[2 * j + 1] * of_row.factor)
                           : 0u;
      }
    }
  }

  // 1. The share of the keys that this split takes, in whole steps from a multiple of a step.
  __device__ __forceinline__ void locate_keys() {
    const std::int64_t aligned = first / Shape::kStep * Shape::kStep,
                       steps = (last - aligned + Shape::kStep - 1) / Shape::kStep;
    const std::int64_t share = (steps + a.splits - 1) / a.splits;
    start = aligned + split * share * Shape::kStep;
    stop = min(last, start + share * Shape::kStep);
  }

  // 3. Every call commits one cp.async group, also past the last key. Hence cp_async_wait() can
  // count groups. Keys that no row sees become zeros, because 0 * NaN would be NaN.
  __device__ __forceinline__ void issue_keys(std::int64_t key, int stage) {
    if (key < stop) {
      const std::int64_t page = table[key / kPageSize];
      expect_below(page, a.num_slots / kPageSize);
      const std::int64_t slot = page * kPageSize + key % kPageSize;
      const std::uint32_t to = shared + Shape::kQueryBytes + stage * Shape::kStageBytes;
      const auto copy = [&](std::uint32_t at, const Element* from, std::int64_t stride, int dim,
                            int row_bytes) {
        const int chunks = dim / kChunk;
        for (int i = threadIdx.x; i < Shape::kStep * chunks; i += kTileThreads) {
          const int row = i / chunks, chunk = i % chunks;
          const bool is_visible = key + row >= first && key + row < last;
          cp_async_16(at + row * row_bytes + chunk * 16,
                      from + (is_visible ? (slot + row) * stride + chunk * kChunk : 0), is_visible);
        }
      };
      copy(to, k, a.k_slot, Shape::kKeyDim, Shape::kKeyRow);
      copy(to + Shape::kStep * Shape::kKeyRow, v, a.v_slot, Shape::kValueDim, Shape::kValueRow);
    }
    cp_async_commit();
  }

  // 4. The keys that the lane's two rows see. Rows past the run see no key.
  __device__ __forceinline__ void start_rows(Fragments& frag) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = warp * 16 + lane_row + 8 * i;
      frag.row[i].scale = Pages::kHasScales ? a.scale * k_scale * power[i] : a.scale;
      if (row >= num_rows) continue;
      const std::int64_t position = a.positions[first_token + row / heads];
      frag.row[i].begin = a.first_key(position);
      frag.row[i].end = position + 1;
      if (a.slopes != nullptr) frag.row[i].slope = a.slopes[first_head + row % heads];
    }
#pragma unroll
    for (int n = 0; n < kValueTiles; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) frag.acc[n][j] = 0;
    q_lane = shared + (warp * 16 + lane % 16) * Shape::kQueryRow + lane / 16 * 16;
    k_lane = (lane / 16 * 8 + lane % 8) * Shape::kKeyRow + lane / 8 % 2 * 16;
    v_lane = Shape::kStep * Shape::kKeyRow + lane % 16 * Shape::kValueRow + lane / 16 * 16;
    all_begin = a.first_key(last - 1), all_end = a.positions[first_token] + 1;
  }

  // 5. S = Q K^T: one ldmatrix of keys feeds two key tiles.
  __device__ __forceinline__ void scores(float (&score)[kKeyTiles][4], std::uint32_t keys) {
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) score[n][j] = 0;
#pragma unroll
    for (int s = 0; s < kSteps; s += kEach) {
      std::uint32_t q_frag[kEach][4];
#pragma unroll
      for (int e = 0; e < kEach; ++e) ldmatrix_x4(q_frag[e], q_lane + (s + e) * 32);
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        std::uint32_t raw[4], k_frag[2];
        ldmatrix_x4(raw, keys + k_lane + n * 8 * Shape::kKeyRow + s / kEach * 32);
#pragma unroll
        for (int tile = 0; tile < 2; ++tile)
#pragma unroll
          for (int e = 0; e < kEach; ++e) {
            Pages::keys_as_b(raw, tile, e, k_frag);
            Pages::mma(score[n + tile], q_frag[e], k_frag[0], k_frag[1]);
          }
      }
    }
  }

  // 6. Scale, soft cap, ALiBi and mask, and the maximum of the lane's keys. Steps that every row
  // sees whole skip the mask.
  __device__ __forceinline__ void edit_scores(float (&score)[kKeyTiles][4], float (&step_max)[2],
                                              const Fragments& frag, std::int64_t key) {
    // Only the first steps of a window and the last steps of a run need the mask.
    const bool needs_no_mask = key >= all_begin && key + Shape::kStep <= all_end;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const LaneRow& row = frag.row[j / 2];
        const std::int64_t number = key + n * 8 + quad * 2 + j % 2;
        float x = score[n][j] * row.scale;
        if (a.softcap > 0) x = softcapped(x, a.softcap);
        if (a.slopes != nullptr) x = fmaf(static_cast<float>(number + 1 - row.end), row.slope, x);
        x *= kLog2E;
        if (!needs_no_mask && (number < row.begin || number >= row.end)) x = -INFINITY;
        score[n][j] = x;
        step_max[j / 2] = fmaxf(step_max[j / 2], x);
      }
  }

  // 7. The four lanes of a quad share a row. A row without a visible key so far keeps the maximum
  // -inf. Its rescale is 1 and its weights are 0, because exp2(-inf + inf) would be NaN.
  __device__ __forceinline__ void online_softmax(float (&score)[kKeyTiles][4], float (&step_max)[2],
                                                 float (&rescale)[2], Fragments& frag) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int step = 1; step < 4; step *= 2)
        step_max[i] = fmaxf(step_max[i], __shfl_xor_sync(kAllLanes, step_max[i], step));
      const float new_max = fmaxf(frag.row[i].row_max, step_max[i]);
      rescale[i] = new_max == -INFINITY ? 1.0f : exp2_fast(frag.row[i].row_max - new_max);
      frag.row[i].row_max = new_max;
      frag.row[i].row_sum *= rescale[i];
    }
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const LaneRow& row = frag.row[j / 2];
        score[n][j] = row.row_max == -INFINITY ? 0.0f : exp2_fast(score[n][j] - row.row_max);
        frag.row[j / 2].row_sum += score[n][j];
      }
  }

  // 8. O = rescale * O + P V. Two score tiles in bfloat16 are one A fragment, with no shuffle.
  __device__ __forceinline__ void accumulate(const float (&score)[kKeyTiles][4],
                                             const float (&rescale)[2], Fragments& frag,
                                             std::uint32_t keys) {
#pragma unroll
    for (int n = 0; n < kValueTiles; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) frag.acc[n][j] *= rescale[j / 2];
#pragma unroll
    for (int n = 0; n < kKeyTiles; n += 2) {
      const std::uint32_t p_frag[4] = {Pages::pack(score[n][0], score[n][1]),
                                       Pages::pack(score[n][2], score[n][3]),
                                       Pages::pack(score[n + 1][0], score[n + 1][1]),
                                       Pages::pack(score[n + 1][2], score[n + 1][3])};
#pragma unroll
      for (int c = 0; c < kValueTiles; c += 2 * kEach) {
        std::uint32_t raw[4], v_frag[2];
        ldmatrix_x4_trans(raw, keys + v_lane + n * 8 * Shape::kValueRow + c * 8 * Pages::kBytes);
#pragma unroll
        for (int tile = 0; tile < 2 * kEach; ++tile) {
          Pages::values_as_b(raw, tile, v_frag);
          Pages::mma(frag.acc[c + tile], p_frag, v_frag[0], v_frag[1]);
        }
      }
    }
  }

  // 9. With splits: normalised partial results and their log sums, for merge_splits(). Without: the
  // output. The head's sink then adds to the sum as one more key without a value.
  __device__ __forceinline__ void epilogue(Fragments& frag) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float row_sum = frag.row[i].row_sum;
#pragma unroll
      for (int step = 1; step < 4; step *= 2) row_sum += __shfl_xor_sync(kAllLanes, row_sum, step);
      const int row = warp * 16 + lane_row + 8 * i;
      if (row >= num_rows) continue;
      const std::int64_t head = first_head + row % heads;
      float inverse = row_sum == 0 ? 0 : 1.0f / row_sum;
      if constexpr (Pages::kHasScales) inverse *= v_scale;
      if (a.splits > 1) {
        const std::int64_t at =
            ((first_token + row / heads) * (gridDim.y / a.head_blocks) * a.group + head) *
                a.splits +
            split;
        store_row(a.part + at * Shape::kValueDim, frag, i, inverse);
        if (quad == 0)
          a.part_lse[at] =
              row_sum == 0 ? -INFINITY : (frag.row[i].row_max + log2f(row_sum)) / kLog2E;
        continue;
      }
      if (a.sinks != nullptr && row_sum != 0) {
        const float sink = a.sinks[head] * kLog2E, new_max = fmaxf(frag.row[i].row_max, sink),
                    rescale = exp2_fast(frag.row[i].row_max - new_max);
        inverse = rescale / (row_sum * rescale + exp2_fast(sink - new_max));
        if constexpr (Pages::kHasScales) inverse *= v_scale;
      }
      store_row(a.out + (first_token + row / heads) * a.out_token + head * a.out_head, frag, i,
                inverse);
    }
  }
  // The lane's elements of its row i.
  __device__ __forceinline__ void store_row(float* to, const Fragments& frag, int i,
                                            float inverse) const {
#pragma unroll
    for (int n = 0; n < kValueTiles; ++n)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd)
        to[Pages::tile_column(n, quad, odd)] = frag.acc[n][2 * i + odd] * inverse;
  }
};

}  // namespace sluice::cuda::general
