// The phases of decode attention, over the state of one CTA. attention_decode_kernel.cuh lists them
// by number:
//   1. locate, locate_pages   2. issue_page       3. start, prepare_heads  4. load_queries
//   5. insert_newest          6. scores           7. online_softmax  8. accumulate
//   9. store_warps, merge_warps                  10. merge_splits_in_cluster
//  11. is_last_split, merge_splits_of_last
//
// The operands are transposed because a GQA group is small. 16 keys fill the M side of the MMA and
// 8 query heads its N side, so no query row is padding.
//
// Fragments (PTX ISA, m16n8k16; lane = 4 lane_row + quad): a score tile holds keys lane_row and
// lane_row + 8 of heads 2 quad and 2 quad + 1. An output tile holds columns lane_row and
// lane_row + 8 of the same heads, or those of E4m3Pages. Hence index j % 2 of a fragment selects
// the head.
#pragma once

#include "kernels/cuda/attention/attention_decode_shape.cuh"
#include "kernels/cuda/attention/attention_out.cuh"

namespace sluice::cuda::decode {

// The work of a CTA, as its threads see it, and the phases. Fragments are no members: an array
// indexed by a loop would keep the compiler from holding the scalars in registers before it
// unrolls.
template <int kDim, int kHeadTiles, int kStages, class Pages, bool kRuns>
struct DecodeCta {
  static constexpr int kHeads = 8 * kHeadTiles, kSteps = kDim / 16, kEach = Pages::kStepsEach;
  static constexpr int kChunk = 16 / Pages::kBytes;  // elements of a copy
  using Element = typename Pages::Element;
  using Shape = DecodeShape<kDim, kHeads, kStages, Pages>;
  using Shared = DecodeShared<kDim, kHeads, Pages>;
  using Fragments = DecodeFragments<kDim, kHeadTiles>;
  using Page = PageFragments<kHeadTiles>;

  const DecodeArgs& args;
  const PagedArgs& a;
  const Shared& shared;
  unsigned char* memory;  // dynamic shared memory: the pipeline, then the outputs of the warps
  const bool has_new_heads;

  std::int64_t token;
  int kv_head, first_head, split, num_heads;  // first_head counts within the GQA group
  int warp, lane, lane_row, quad;
  std::int64_t seq;

  std::int64_t position, end, begin;  // the row sees keys [begin, end)
  std::int64_t page_begin;
  int num_pages;              // of this split
  const std::int32_t* table;  // entries of those pages
  const Element *k, *v;
  std::uint32_t stages;      // address of the warp's pipeline
  std::int64_t copied_end;   // keys from here on are not in the pool yet
  std::int64_t new_begin;    // of a run: the first of them that the row sees in this split
  std::int32_t page_id = 0;  // lane i holds page i of each 32

  std::uint32_t k_lane, v_lane;  // the lane's row of an ldmatrix, as an offset into a stage

  // 1. False: the row belongs to attend_tiles(), because a neighbour is of the same sequence.
  __device__ __forceinline__ bool locate() {
    token = blockIdx.x;
    kv_head = blockIdx.y / args.head_blocks;
    first_head = blockIdx.y % args.head_blocks * args.heads_each;
    split = blockIdx.z;
    num_heads = static_cast<int>(min(std::int64_t{args.heads_each}, a.group - first_head));
    warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, lane_row = lane / 4, quad = lane % 4;
    seq = a.row_seq[token];
    expect_below(seq, a.num_seqs);
    return !(args.single_rows_only && ((token > 0 && a.row_seq[token - 1] == seq) ||
                                       (token + 1 < a.tokens && a.row_seq[token + 1] == seq)));
  }

  // 1. The share of the row's pages that this split reads; short rows leave some splits empty.
  __device__ __forceinline__ void locate_pages() {
    position = a.positions[token], end = position + 1;
    begin = a.window > 0 ? max(position - a.window + 1, std::int64_t{0}) : 0;
    const std::int64_t first_page = begin / kPageSize,
                       pages = (end + kPageSize - 1) / kPageSize - first_page;
    expect_below(first_page + pages - 1, a.max_pages);
    page_begin = first_page + pages * split / args.splits;
    num_pages = static_cast<int>(first_page + pages * (split + 1) / args.splits - page_begin);
    table = a.page_table + seq * a.table_stride + page_begin;
    k = static_cast<const Element*>(a.k) + kv_head * kDim;
    v = static_cast<const Element*>(a.v) + kv_head * kDim;
    stages = shared_address(memory) + warp * Shape::kWarpBytes;
    copied_end = has_new_heads ? position : end;
    if constexpr (kRuns) {
      const int place = args.heads.places[token];
      expect_below(place, min(min(token, position) + 1, std::int64_t{kMaxNewRows}));
      copied_end -= place;
      new_begin = max(max(copied_end, begin), page_begin * kPageSize);
    }
  }

  // 2. Every call commits one cp.async group, also past the last page. Hence cp_async_wait() can
  // count groups. Keys that the row does not see become zeros, because 0 * NaN would be NaN.
  __device__ __forceinline__ void issue_page(int i) {
    constexpr int kChunks = kDim / kChunk;
    if (i < num_pages) {
      if (i % kWarp == 0) {
        page_id = i + lane < num_pages ? table[i + lane] : 0;
        if (i + lane < num_pages) expect_below(page_id, a.num_slots / kPageSize);
      }
      const std::int64_t page = __shfl_sync(kAllLanes, page_id, i % kWarp);
      const std::int64_t first_key = (page_begin + i) * kPageSize + warp * kWarpKeys;
      const std::uint32_t stage = stages + i % kStages * Shape::kStageBytes;
#pragma unroll
      for (int c = lane; c < kWarpKeys * kChunks; c += kWarp) {
        const int row = c / kChunks, chunk = c % kChunks;
        const std::int64_t slot = page * kPageSize + warp * kWarpKeys + row;
        const bool is_visible = first_key + row >= begin && first_key + row < copied_end;
        const std::uint32_t to = stage + row * Shape::kRowBytes + chunk * 16;
        cp_async_16(to, k + (is_visible ? slot * a.k_slot + chunk * kChunk : 0), is_visible);
        cp_async_16(to + Shape::kTileBytes, v + (is_visible ? slot * a.v_slot + chunk * kChunk : 0),
                    is_visible);
      }
    }
    cp_async_commit();
  }

  // 3. The pages' copies are under way already; they do not depend on the kernel before. Every
  // split needs the queries, only a split with new keys in its pages needs those and their values.
  __device__ __forceinline__ void prepare_heads() {
    HeadPrologue<kDim, kHeads, Pages> prologue;
    const std::int64_t first = std::int64_t{kv_head} * a.group + first_head;
    if constexpr (kRuns) {
      const std::int64_t new_end = min(end, (page_begin + num_pages) * kPageSize);
      prologue.prepare_run(a, args.heads, token, kv_head, first, num_heads,
                           token - (position - new_begin), static_cast<int>(new_end - new_begin),
                           first_head == 0, shared.prepared, shared.newest);
    } else {
      const std::int64_t newest_page = position / kPageSize;
      prologue.prepare(a, args.heads, token, kv_head, first, num_heads,
                       newest_page >= page_begin && newest_page < page_begin + num_pages,
                       first_head == 0, shared.prepared, *shared.newest);
    }
    __syncthreads();
  }

  // 4. B fragments: (k = 2 quad + .., n = head lane_row). Lanes of heads past the group repeat the
  // last head. Their results are not read.
  __device__ __forceinline__ void load_queries(Fragments& frag) {
    if constexpr (Pages::kHasScales)
      load_scaled_queries(frag);
    else
      load_plain_queries(frag);
  }
  __device__ __forceinline__ void load_plain_queries(Fragments& frag) {
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n) {
      if (has_new_heads) {
        // One ldmatrix loads the B fragments of two steps.
        const int head = min(n * 8 + lane % 8, num_heads - 1);
        const std::uint32_t row = shared_address(&shared.prepared.query[head][lane / 8 * 8]);
#pragma unroll
        for (int s = 0; s < kSteps; s += 2) {
          std::uint32_t four[4];
          ldmatrix_x4(four, row + s * 32);
          frag.q_frag[n][s][0] = four[0], frag.q_frag[n][s][1] = four[1];
          frag.q_frag[n][s + 1][0] = four[2], frag.q_frag[n][s + 1][1] = four[3];
        }
        continue;
      }
      const int head = min(n * 8 + lane_row, num_heads - 1);
      const float* q = a.q + token * a.q_token + (kv_head * a.group + first_head + head) * a.q_head;
#pragma unroll
      for (int s = 0; s < kSteps; ++s)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = s * 16 + Pages::query_column(quad, half);
          frag.q_frag[n][s][half] = pack_bf16(q[at] * a.scale_log2, q[at + 1] * a.scale_log2);
        }
    }
  }

  // 4. The same in float16, times a power of two for each head. `score_scale` is its inverse times
  // the scale of the keys. Queries are read twice: once for the largest element.
  __device__ __forceinline__ void load_scaled_queries(Fragments& frag) {
    const float k_scale = a.k_scales == nullptr ? 1.0f : a.k_scales[kv_head];
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n) {
      const int head = min(n * 8 + lane_row, num_heads - 1);
      const float* q = a.q + token * a.q_token + (kv_head * a.group + first_head + head) * a.q_head;
      const auto pair_at = [&](int at) {
        if (has_new_heads)
          return __bfloat1622float2(
              *reinterpret_cast<const __nv_bfloat162*>(&shared.prepared.query[head][at]));
        return float2{q[at] * a.scale_log2, q[at + 1] * a.scale_log2};
      };
      float largest = 0;
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        const float2 pair = pair_at(i * 8 + quad * 2);
        largest = fmaxf(largest, fmaxf(fabsf(pair.x), fabsf(pair.y)));
      }
#pragma unroll
      for (int step = 1; step < 4; step *= 2)
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
      const RowPower power = RowPower::of(largest);
#pragma unroll
      for (int s = 0; s < kSteps; ++s)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float2 pair = pair_at(s * 16 + Pages::query_column(quad, half));
          frag.q_frag[n][s][half] = Pages::pack(pair.x * power.factor, pair.y * power.factor);
        }
      // Scores are of heads 2 quad and 2 quad + 1.
#pragma unroll
      for (int j = 0; j < 2; ++j)
        frag.score_scale[n][j] =
            __shfl_sync(kAllLanes, power.inverse * k_scale, (quad * 2 + j) * 4);
    }
  }

  // 3. An attention sink is a key of the first warp of the first split, with the weight 1 and no
  // value. No kernel writes sinks, so they load before the wait.
  __device__ __forceinline__ void start(Fragments& frag) {
    const bool has_sinks = a.sinks != nullptr && split == 0 && warp == 0;
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        frag.row_max[n][j] = -INFINITY, frag.row_sum[n][j] = 0;
        const int head = n * 8 + quad * 2 + j;
        if (!has_sinks || head >= num_heads) continue;
        frag.row_max[n][j] = a.sinks[kv_head * a.group + first_head + head] * kLog2E;
        frag.row_sum[n][j] = lane_row == 0 ? 1.0f : 0.0f;  // a part of each lane
      }
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
#pragma unroll
      for (int n = 0; n < kHeadTiles; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j) frag.acc[s][n][j] = 0;
    // An ldmatrix of keys: row lane % 16, columns from 8 (lane / 16). An ldmatrix of values is
    // transposed, so its two middle 8 x 8 matrices change places.
    k_lane = lane % 16 * Shape::kRowBytes + lane / 16 * 16;
    v_lane = Shape::kTileBytes + (lane / 16 * 8 + lane % 8) * Shape::kRowBytes + lane / 8 % 2 * 16;
  }

  // 5. Only the warp that has a new key among its 16 keys writes it, and only that warp reads it.
  __device__ __forceinline__ void insert_newest(std::uint32_t stage, std::int64_t first_key) {
    constexpr int kChunks = kDim / kChunk;
    unsigned char* rows = memory + (stage - shared_address(memory));
    if constexpr (kRuns) {
      const int from = static_cast<int>(max(new_begin - first_key, std::int64_t{0})),
                to = static_cast<int>(min(end - first_key, std::int64_t{kWarpKeys}));
      if (from >= to) return;
      const int before = static_cast<int>(first_key - new_begin);
      for (int c = from * 2 * kChunks + lane; c < to * 2 * kChunks; c += kWarp) {
        const int key = c / (2 * kChunks), half = c / kChunks % 2, chunk = c % kChunks;
        *reinterpret_cast<uint4*>(rows + half * Shape::kTileBytes + key * Shape::kRowBytes +
                                  chunk * 16) =
            *reinterpret_cast<const uint4*>(&shared.newest[before + key][half][chunk * kChunk]);
      }
    } else {
      if (position < first_key || position >= first_key + kWarpKeys) return;
      unsigned char* row = rows + (position - first_key) * Shape::kRowBytes;
      for (int c = lane; c < 2 * kChunks; c += kWarp)
        *reinterpret_cast<uint4*>(row + c / kChunks * Shape::kTileBytes + c % kChunks * 16) =
            *reinterpret_cast<const uint4*>(&(*shared.newest)[c / kChunks][c % kChunks * kChunk]);
    }
    __syncwarp();
  }

  // 6. S^T = K Q^T: 16 keys by 8 heads for each head tile, in units of log2.
  __device__ __forceinline__ void scores(Page& page, const Fragments& frag, std::uint32_t stage) {
#pragma unroll
    for (int s = 0; s < kSteps; s += kEach) {
      std::uint32_t raw[4], k_frag[kEach][4];
      ldmatrix_x4(raw, stage + k_lane + s / kEach * 32);
      Pages::keys_as_a(raw, k_frag);
#pragma unroll
      for (int e = 0; e < kEach; ++e)
#pragma unroll
        for (int n = 0; n < kHeadTiles; ++n)
          Pages::mma(page.score[n], k_frag[e], frag.q_frag[n][s + e][0], frag.q_frag[n][s + e][1]);
    }
  }

  // 7. The 8 lanes of one quad hold the 16 keys of a head, so the maximum takes three shuffles.
  // row_sum stays a partial sum of the lane until merge_warps().
  __device__ __forceinline__ void online_softmax(Page& page, Fragments& frag,
                                                 std::int64_t first_key) {
    const std::int64_t key = first_key + lane_row;
    const bool is_low_visible = key >= begin && key < end,
               is_high_visible = key + 8 >= begin && key + 8 < end;
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n) {
      float p[4];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float scale = Pages::kHasScales ? frag.score_scale[n][j] : 1.0f;
        const float low = is_low_visible ? page.score[n][j] * scale : -INFINITY,
                    high = is_high_visible ? page.score[n][j + 2] * scale : -INFINITY;
        float page_max = fmaxf(low, high);
#pragma unroll
        for (int step = 4; step < kWarp; step *= 2)
          page_max = fmaxf(page_max, __shfl_xor_sync(kAllLanes, page_max, step));
        // The mainloop skips warps without a visible key, so new_max is finite here.
        const float new_max = fmaxf(frag.row_max[n][j], page_max);
        page.rescale[n][j] = exp2_fast(frag.row_max[n][j] - new_max);
        frag.row_max[n][j] = new_max;
        p[j] = exp2_fast(low - new_max);
        p[j + 2] = exp2_fast(high - new_max);
        frag.row_sum[n][j] = fmaf(frag.row_sum[n][j], page.rescale[n][j], p[j] + p[j + 2]);
      }
      // An accumulator (key by head) becomes a B fragment (key along k) by a transpose.
      page.p_frag[n][0] = movmatrix_trans(Pages::pack(p[0], p[1]));
      page.p_frag[n][1] = movmatrix_trans(Pages::pack(p[2], p[3]));
    }
  }

  // 8. O^T = rescale * O^T + V^T P^T: 16 columns by 8 heads for each step and head tile.
  __device__ __forceinline__ void accumulate(const Page& page, Fragments& frag,
                                             std::uint32_t stage) {
#pragma unroll
    for (int s = 0; s < kSteps; s += kEach) {
      std::uint32_t raw[4], v_frag[kEach][4];
      ldmatrix_x4_trans(raw, stage + v_lane + s / kEach * 32);
      Pages::values_as_a(raw, v_frag);
#pragma unroll
      for (int e = 0; e < kEach; ++e)
#pragma unroll
        for (int n = 0; n < kHeadTiles; ++n) {
#pragma unroll
          for (int j = 0; j < 4; ++j) frag.acc[s + e][n][j] *= page.rescale[n][j % 2];
          Pages::mma(frag.acc[s + e][n], v_frag[e], page.p_frag[n][0], page.p_frag[n][1]);
        }
    }
  }

  // 9. Maxima and sums go to shared memory first. The barrier after them ends all pipelines, whose
  // memory then takes the outputs.
  __device__ __forceinline__ float* store_warps(Fragments& frag) {
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int step = 4; step < kWarp; step *= 2)
          frag.row_sum[n][j] += __shfl_xor_sync(kAllLanes, frag.row_sum[n][j], step);
        if (lane_row == 0) {
          shared.warp_max[warp][n * 8 + quad * 2 + j] = frag.row_max[n][j];
          shared.warp_sum[warp][n * 8 + quad * 2 + j] = frag.row_sum[n][j];
        }
      }
    __syncthreads();
    float* outputs = reinterpret_cast<float*>(memory);  // [warp][head][dim]
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
#pragma unroll
      for (int n = 0; n < kHeadTiles; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          outputs[(warp * kHeads + n * 8 + quad * 2 + j % 2) * Shape::kOutputRow + s * 16 +
                  Pages::row_column(lane_row, j / 2)] = frag.acc[s][n][j];
    __syncthreads();
    return outputs;
  }

  // Where element i of the merged heads goes.
  __device__ __forceinline__ std::int64_t out_at(int head, int column) const {
    return token * a.out_token + (kv_head * a.group + first_head + head) * a.out_head + column;
  }

  // 9. The normalised sum of the four warps, two elements a thread. With one split it is the
  // output; with several it goes to the CTAs of the cluster or to global memory.
  __device__ __forceinline__ void merge_warps(const float* outputs, std::int64_t unit) {
    const float v_scale = Pages::kHasScales && a.v_scales != nullptr ? a.v_scales[kv_head] : 1.0f;
    for (int i = threadIdx.x * 2; i < num_heads * kDim; i += kDecodeThreads * 2) {
      const int head = i / kDim, column = i % kDim;
      float new_max = -INFINITY, sum = 0;
      float2 value{};
#pragma unroll
      for (int w = 0; w < kDecodeWarps; ++w) new_max = fmaxf(new_max, shared.warp_max[w][head]);
#pragma unroll
      for (int w = 0; w < kDecodeWarps; ++w) {
        // A warp without a visible key or a sink has the maximum -inf. exp2(-inf + inf) would be
        // NaN.
        const float rescale = shared.warp_max[w][head] == -INFINITY
                                  ? 0.0f
                                  : exp2_fast(shared.warp_max[w][head] - new_max);
        const float2 output = *reinterpret_cast<const float2*>(
            outputs + (w * kHeads + head) * Shape::kOutputRow + column);
        sum = fmaf(shared.warp_sum[w][head], rescale, sum);
        value.x = fmaf(output.x, rescale, value.x), value.y = fmaf(output.y, rescale, value.y);
      }
      const float inverse = sum == 0 ? 0.0f : __fdividef(1.0f, sum) * v_scale;
      const float2 result{value.x * inverse, value.y * inverse};
      if (args.splits == 1) {
        store_two(a, out_at(head, column), result.x, result.y);
      } else if (args.is_cluster) {
        const int rank = i * args.share_inverse >> kShareBits;  // i / share
        store_to_cta(shared.received + split * args.share + i - rank * args.share, rank, result);
        // Every CTA of the cluster needs the log2 sums of all heads.
        if (column < 2 * args.splits)
          store_to_cta(&shared.received_lse[split][head], column / 2,
                       sum == 0 ? -INFINITY : new_max + __log2f(sum));
      } else {
        const std::int64_t part = (unit * args.splits + split) * kHeads + head;
        __stcg(reinterpret_cast<float2*>(args.partial + part * kDim + column), result);
        if (column == 0)
          __stcg(args.partial_lse + part, sum == 0 ? -INFINITY : new_max + log2f(sum));
      }
    }
  }

  // 10. Each CTA merges its share of the output. All loads come before the first use, because
  // nothing else hides their latency.
  __device__ __forceinline__ void merge_splits_in_cluster() {
    // The second cluster barrier: every CTA has stored its results into the others.
    cluster_arrive();
    cluster_wait();
    const int i = threadIdx.x * 2, at = split * args.share + i;
    if (i >= args.share || at >= num_heads * kDim) return;
    const int head = at / kDim;
    float new_max = -INFINITY, total = 0, lse[kMaxCluster];
    float2 sum{}, value[kMaxCluster];
#pragma unroll
    for (int s = 0; s < kMaxCluster; ++s) {
      lse[s] = s < args.splits ? shared.received_lse[s][head] : -INFINITY;
      value[s] = s < args.splits
                     ? *reinterpret_cast<const float2*>(shared.received + s * args.share + i)
                     : float2{};
    }
#pragma unroll
    for (int s = 0; s < kMaxCluster; ++s) new_max = fmaxf(new_max, lse[s]);
#pragma unroll
    for (int s = 0; s < kMaxCluster; ++s) {
      const float w = new_max == -INFINITY ? 0.0f : exp2_fast(lse[s] - new_max);
      total += w;
      sum.x = fmaf(w, value[s].x, sum.x), sum.y = fmaf(w, value[s].y, sum.y);
    }
    const float inverse = total == 0 ? 0.0f : __fdividef(1.0f, total);
    store_two(a, out_at(head, at % kDim), sum.x * inverse, sum.y * inverse);
  }

  // 11. The counter wraps to 0 at the last split, ready for the next launch. The fence before it
  // publishes this CTA's results, the fence after it orders the reads of the others' results.
  __device__ __forceinline__ bool is_last_split(std::int64_t unit) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
      shared.is_last = atomicInc(args.counters + unit, static_cast<unsigned>(args.splits - 1)) ==
                       static_cast<unsigned>(args.splits - 1);
    __syncthreads();
    if (!shared.is_last) return false;
    __threadfence();
    return true;
  }

  // 11. Four elements a thread, over all splits in ascending order. The loads of 16 splits are in
  // flight at once.
  __device__ __forceinline__ void merge_splits_of_last(std::int64_t unit) {
    constexpr int kAtOnce = 16;
    for (int i = threadIdx.x * 4; i < num_heads * kDim; i += kDecodeThreads * 4) {
      const int head = i / kDim, column = i % kDim;
      const std::int64_t first_part = unit * args.splits * kHeads + head;
      float row_max = -INFINITY, total = 0;
      float4 sum{};
      for (int s0 = 0; s0 < args.splits; s0 += kAtOnce) {
        float lse[kAtOnce];
        float4 value[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const std::int64_t part =
              first_part + std::int64_t{min(s0 + j, args.splits - 1)} * kHeads;
          value[j] = __ldcg(reinterpret_cast<const float4*>(args.partial + part * kDim + column));
          lse[j] = __ldcg(args.partial_lse + part);
        }
        float new_max = row_max;
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          if (s0 + j >= args.splits) lse[j] = -INFINITY;
          new_max = fmaxf(new_max, lse[j]);
        }
        if (new_max == -INFINITY) continue;
        const float rescale = exp2_fast(row_max - new_max);
        row_max = new_max;
        total *= rescale;
        sum = {sum.x * rescale, sum.y * rescale, sum.z * rescale, sum.w * rescale};
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const float w = exp2_fast(lse[j] - row_max);
          total += w;
          sum.x = fmaf(w, value[j].x, sum.x), sum.y = fmaf(w, value[j].y, sum.y);
          sum.z = fmaf(w, value[j].z, sum.z), sum.w = fmaf(w, value[j].w, sum.w);
        }
      }
      const float inverse = total == 0 ? 0.0f : 1.0f / total;
      const std::int64_t to = out_at(head, column);
      store_two(a, to, sum.x * inverse, sum.y * inverse);
      store_two(a, to + 2, sum.z * inverse, sum.w * inverse);
    }
  }
};

}  // namespace sluice::cuda::decode
