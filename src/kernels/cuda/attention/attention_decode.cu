// Attention of single rows over bfloat16 pages: each (row, key head) is split over blocks, so that
// a batch of one row keeps every multiprocessor reading.
//
// A warp goes through 16 keys of every page. Scores are computed as K Q^T, a tile of 16 keys by 8
// query heads, and the output as V^T P^T, so heads that share keys fill the narrow side of the
// products and nothing is padded to 16 rows. Each warp keeps its own maximum, sum and output; a
// block's four are joined at the end. The splits are joined in ascending order: by the block that
// ends last, or, of few rows, whose splits are one cluster, by all of its blocks, each a share of
// the output. So a result depends on the length of the row and the number of splits alone.
#include "kernels/cuda/attention/attention_heads.cuh"
#include "kernels/cuda/attention/attention_out.cuh"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/common/cluster.cuh"

namespace sluice::cuda {
namespace {

constexpr int kDecodeWarps = kHeadWarps;
constexpr int kDecodeThreads = kDecodeWarps * kWarp;
constexpr int kShareBits = 20;  // of DecodeArgs::share_inverse
constexpr int kSlab = 16;       // keys of a warp at a time: a quarter of a page
static_assert(kSlab * kDecodeWarps == kPageSize);

struct DecodeArgs {
  PagedArgs a;
  NewHeads heads;
  int splits = 1, head_blocks = 1, heads_each = 1;
  bool together = false;  // the splits are a cluster
  int share = 0,
      // elements of the output that each of its blocks joins; 2^20 / share, rounded up
      share_inverse = 0;
  bool single_rows_only = false;
  // [units][splits][heads][dim], then [units][splits][heads] of log2 sums
  float* partial = nullptr;
  float* partial_lse = nullptr;
  std::uint32_t* counters = nullptr;  // [units]
};

template <int kDim, int kHeads, int kStages>
struct DecodeShape {
  static constexpr int kRowBytes = kDim * 2 + 16;  // 16 more, so that 8 rows lie in different banks
  static constexpr int kSlabBytes = kSlab * kRowBytes;
  static constexpr int kStageBytes = 2 * kSlabBytes;  // keys, values
  static constexpr int kWarpBytes = kStages * kStageBytes;
  static constexpr int kPipeline = kDecodeWarps * kWarpBytes;
  static constexpr int kOutputRow = kDim + 4;  // against bank conflicts
  // the warps' outputs, in the place of the pipeline
  static constexpr int kOutput = kDecodeWarps * kOutputRow * kHeads * 4;
  static constexpr int kBytes = kPipeline > kOutput ? kPipeline : kOutput;
};

// Copies 16 rows of keys and values; rows outside [begin, end) become zeros, so that 0 x what lies
// there is 0.
template <class Shape, int kDim>
__device__ void copy_slab(const PagedArgs& a, std::uint32_t stage, std::int64_t page,
                          std::int64_t position, std::int64_t begin, std::int64_t end,
                          const Bf16* k, const Bf16* v, int warp, int lane) {
  constexpr int kChunks = kDim / 8;
#pragma unroll
  for (int i = lane; i < kSlab * kChunks; i += kWarp) {
    const int row = i / kChunks, chunk = i % kChunks;
    const std::int64_t slot = page * kPageSize + warp * kSlab + row;
    const bool wanted = position + row >= begin && position + row < end;
    const std::uint32_t to = stage + row * Shape::kRowBytes + chunk * 16;
    cp_async_16(to, k + (wanted ? slot * a.k_slot + chunk * 8 : 0), wanted);
    cp_async_16(to + Shape::kSlabBytes, v + (wanted ? slot * a.v_slot + chunk * 8 : 0), wanted);
  }
}

// Grid: rows, key heads x head blocks, splits.
template <int kDim, int kHeadTiles, int kStages>
__global__ void __launch_bounds__(kDecodeThreads)
    decode_kernel(const __grid_constant__ DecodeArgs args) {
  constexpr int kHeads = 8 * kHeadTiles, kSteps = kDim / 16;
  using Shape = DecodeShape<kDim, kHeads, kStages>;
  constexpr int kOutputRow = Shape::kOutputRow;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ bool is_last;
  __shared__ MadeHeads<kDim, kHeads> made;
  // Of a cluster: from each split its share of this block's part of the output, and its log2 sums
  // of all heads.
  __shared__ __align__(8) float received[kHeads * kDim + 2 * kMaxCluster];
  __shared__ float received_lse[kMaxCluster][kHeads];
  static_assert(2 * kHeads <= kDim);
  float(&warp_top)[kDecodeWarps][kDim] = made.row;
  const auto warp_total = [&](int warp, int head) -> float& {
    return made.row[warp][kHeads + head];
  };
  const PagedArgs& a = args.a;
  const bool makes = args.heads.k != nullptr;
  if (!makes) wait_for_earlier_kernels();
  start_next_kernel();
  // New heads come with cosines, whose kernel waits for all before it: the step's inputs are there.
  const std::int64_t t = blockIdx.x;
  const int kv = blockIdx.y / args.head_blocks,
            h0 = blockIdx.y % args.head_blocks * args.heads_each, split = blockIdx.z;
  const int heads = static_cast<int>(min(std::int64_t{args.heads_each}, a.group - h0));
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, quad = lane % 4;
  const std::int64_t seq = a.row_seq[t];
  expect_below(seq, a.num_seqs);
  if (args.single_rows_only &&
      ((t > 0 && a.row_seq[t - 1] == seq) || (t + 1 < a.tokens && a.row_seq[t + 1] == seq)))
    return;
  if (args.together) arrive_in_cluster();

  const std::int64_t position = a.positions[t], end = position + 1;
  const std::int64_t begin = a.window > 0 ? max(position - a.window + 1, std::int64_t{0}) : 0;
  const std::int64_t first_page = begin / kPageSize,
                     pages = (end + kPageSize - 1) / kPageSize - first_page;
  expect_below(first_page + pages - 1, a.max_pages);
  // Parts of a short row may be empty and still wait with the others: a block that ended at once
  // would leave its multiprocessor to two blocks of the next kernel, and those after that would be
  // placed as unevenly.
  const int parts = args.splits;
  const std::int64_t page_begin = first_page + pages * split / parts;
  const int count = static_cast<int>(first_page + pages * (split + 1) / parts - page_begin);
  const std::int32_t* table = a.page_table + seq * a.table_stride + page_begin;
  const Bf16* k = static_cast<const Bf16*>(a.k) + kv * kDim;
  const Bf16* v = static_cast<const Bf16*>(a.v) + kv * kDim;
  const std::uint32_t mine = shared_address(shared) + warp * Shape::kWarpBytes;

  const std::int64_t copied = makes ? position : end;  // keys that lie in the pool

  std::int32_t known = 0;  // lane i knows page i of each 32
  const auto issue = [&](int i) {
    if (i < count) {
      if (i % kWarp == 0) {
        known = i + lane < count ? table[i + lane] : 0;
        if (i + lane < count) expect_below(known, a.num_slots / kPageSize);
      }
      const std::int64_t page = __shfl_sync(kAllLanes, known, i % kWarp);
      const std::int64_t at = (page_begin + i) * kPageSize + warp * kSlab;
      copy_slab<Shape, kDim>(a, mine + i % kStages * Shape::kStageBytes, page, at, begin, copied, k,
                             v, warp, lane);
    }
    commit_copies();
  };
#pragma unroll
  for (int i = 0; i < kStages; ++i) issue(i);

  if (makes) {
    HeadMaker<kDim, kHeads> maker;
    maker.load_weights(args.heads);
    wait_for_earlier_kernels();
    const std::int64_t newest_page = position / kPageSize;
    maker.make(a, args.heads, t, kv, std::int64_t{kv} * a.group + h0, heads,
               newest_page >= page_begin && newest_page < page_begin + count, h0 == 0, made);
    __syncthreads();
  }

  // Queries as the right factor: (2 quad + .., head g).
  std::uint32_t query[kHeadTiles][kSteps][2];
#pragma unroll
  for (int n = 0; n < kHeadTiles; ++n) {
    const int head = n * 8 + g;
    const float* q =
        makes ? nullptr
              : a.q + t * a.q_token + (kv * a.group + h0 + min(head, heads - 1)) * a.q_head;
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = s * 16 + half * 8 + quad * 2;
        query[n][s][half] = head >= heads ? 0u
                            : makes ? *reinterpret_cast<const std::uint32_t*>(&made.query[head][at])
                                    : pack_bf16(q[at] * a.scale_log2, q[at + 1] * a.scale_log2);
      }
  }

  float top[kHeadTiles][2], total[kHeadTiles][2], out[kSteps][kHeadTiles][4];
#pragma unroll
  for (int n = 0; n < kHeadTiles; ++n)
#pragma unroll
    for (int j = 0; j < 2; ++j) top[n][j] = -INFINITY, total[n][j] = 0;
#pragma unroll
  for (int s = 0; s < kSteps; ++s)
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) out[s][n][j] = 0;

  // Rows of a fragment: of keys lane % 16 from column 8 (lane / 16); of values, which are
  // transposed, the other way.
  const std::uint32_t k_lane = lane % 16 * Shape::kRowBytes + lane / 16 * 16;
  const std::uint32_t v_lane =
      Shape::kSlabBytes + (lane / 16 * 8 + lane % 8) * Shape::kRowBytes + lane / 8 % 2 * 16;
  for (int i = 0; i < count; ++i) {
    if (i > 0) {
      __syncwarp();  // the page before is done with
      issue(i + kStages - 1);
    }
    wait_for_copies<kStages - 1>();
    __syncwarp();
    const std::uint32_t stage = mine + i % kStages * Shape::kStageBytes;
    const std::int64_t at = (page_begin + i) * kPageSize + warp * kSlab;
    if (at >= end || at + kSlab <= begin) continue;
    if (makes && position >= at && position < at + kSlab) {
      unsigned char* row =
          shared + (stage - shared_address(shared)) + (position - at) * Shape::kRowBytes;
      for (int piece = lane; piece < 2 * (kDim / 8); piece += kWarp)
        *reinterpret_cast<uint4*>(row + piece / (kDim / 8) * Shape::kSlabBytes +
                                  piece % (kDim / 8) * 16) =
            *reinterpret_cast<const uint4*>(
                &made.newest[piece / (kDim / 8)][piece % (kDim / 8) * 8]);
      __syncwarp();
    }
    float score[kHeadTiles][4] = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      std::uint32_t keys[4];
      load_matrices(keys, stage + k_lane + s * 32);
#pragma unroll
      for (int n = 0; n < kHeadTiles; ++n)
        mma_m16n8k16(score[n], keys, query[n][s][0], query[n][s][1]);
    }
    const bool low = at + g >= begin && at + g < end,
               high = at + g + 8 >= begin && at + g + 8 < end;
    std::uint32_t weight[kHeadTiles][2];
    float keep[kHeadTiles][2];
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n) {
      float p[4];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float a0 = low ? score[n][j] : -INFINITY, a1 = high ? score[n][j + 2] : -INFINITY;
        float most = fmaxf(a0, a1);
#pragma unroll
        for (int step = 4; step < kWarp; step *= 2)
          most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, step));
        // At least one key of the slab is visible.
        const float joined = fmaxf(top[n][j], most);
        keep[n][j] = exp2_fast(top[n][j] - joined);
        top[n][j] = joined;
        p[j] = exp2_fast(a0 - joined);
        p[j + 2] = exp2_fast(a1 - joined);
        total[n][j] = fmaf(total[n][j], keep[n][j], p[j] + p[j + 2]);
      }
      weight[n][0] = transpose8(pack_bf16(p[0], p[1]));
      weight[n][1] = transpose8(pack_bf16(p[2], p[3]));
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      std::uint32_t values[4];
      load_matrices_transposed(values, stage + v_lane + s * 32);
#pragma unroll
      for (int n = 0; n < kHeadTiles; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) out[s][n][j] *= keep[n][j % 2];
        mma_m16n8k16(out[s][n], values, weight[n][0], weight[n][1]);
      }
    }
  }
  wait_for_copies<0>();

  // The four warps. A warp without a visible key has the top -inf and weighs 0.
#pragma unroll
  for (int n = 0; n < kHeadTiles; ++n)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int step = 4; step < kWarp; step *= 2)
        total[n][j] += __shfl_xor_sync(kAllLanes, total[n][j], step);
      if (g == 0) {
        warp_top[warp][n * 8 + quad * 2 + j] = top[n][j];
        warp_total(warp, n * 8 + quad * 2 + j) = total[n][j];
      }
    }
  __syncthreads();  // the pipelines of all warps are done with: their place is used again
  float* outputs = reinterpret_cast<float*>(shared);  // [warp][head][dim]
#pragma unroll
  for (int s = 0; s < kSteps; ++s)
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        outputs[(warp * kHeads + n * 8 + quad * 2 + j % 2) * kOutputRow + s * 16 + g + j / 2 * 8] =
            out[s][n][j];
  __syncthreads();
  const std::int64_t unit = t * gridDim.y + blockIdx.y;
  const bool whole = parts == 1;
  const int share = args.share;        // of the output, for each block of a cluster
  if (args.together) await_cluster();  // all have begun
  for (int i = threadIdx.x * 2; i < heads * kDim; i += kDecodeThreads * 2) {
    const int head = i / kDim, column = i % kDim;
    float most = -INFINITY, sum = 0;
    float2 value{};
#pragma unroll
    for (int w = 0; w < kDecodeWarps; ++w) most = fmaxf(most, warp_top[w][head]);
#pragma unroll
    for (int w = 0; w < kDecodeWarps; ++w) {
      const float weigh =
          warp_top[w][head] == -INFINITY ? 0.0f : exp2_fast(warp_top[w][head] - most);
      const float2 mine =
          *reinterpret_cast<const float2*>(outputs + (w * kHeads + head) * kOutputRow + column);
      sum = fmaf(warp_total(w, head), weigh, sum);
      value.x = fmaf(mine.x, weigh, value.x), value.y = fmaf(mine.y, weigh, value.y);
    }
    const float inverse = sum == 0 ? 0.0f : __fdividef(1.0f, sum);
    const float2 result{value.x * inverse, value.y * inverse};
    if (whole) {
      store_two(a, t * a.out_token + (kv * a.group + h0 + head) * a.out_head + column, result.x,
                result.y);
    } else if (args.together) {
      const int rank = i * args.share_inverse >> kShareBits;  // i / share
      store_in_cluster(received + split * share + i - rank * share, rank, result);
      // The heads' log2 sums go to all.
      if (column < 2 * parts)
        store_in_cluster(&received_lse[split][head], column / 2,
                         sum == 0 ? -INFINITY : most + __log2f(sum));
    } else {
      const std::int64_t part = (unit * args.splits + split) * kHeads + head;
      __stcg(reinterpret_cast<float2*>(args.partial + part * kDim + column), result);
      if (column == 0) __stcg(args.partial_lse + part, sum == 0 ? -INFINITY : most + log2f(sum));
    }
  }
  if (whole) return;
  if (args.together) {
    arrive_in_cluster();
    await_cluster();
    const int i = threadIdx.x * 2, at = split * share + i;
    if (i >= share || at >= heads * kDim) return;
    const int head = at / kDim;
    float most = -INFINITY, total = 0, lse[kMaxCluster];
    float2 sum{}, value[kMaxCluster];
#pragma unroll
    for (int s = 0; s < kMaxCluster; ++s) {
      lse[s] = s < parts ? received_lse[s][head] : -INFINITY;
      value[s] = s < parts ? *reinterpret_cast<const float2*>(received + s * share + i) : float2{};
    }
#pragma unroll
    for (int s = 0; s < kMaxCluster; ++s) most = fmaxf(most, lse[s]);
#pragma unroll
    for (int s = 0; s < kMaxCluster; ++s) {
      const float w = most == -INFINITY ? 0.0f : exp2_fast(lse[s] - most);
      total += w;
      sum.x = fmaf(w, value[s].x, sum.x), sum.y = fmaf(w, value[s].y, sum.y);
    }
    const float inverse = total == 0 ? 0.0f : __fdividef(1.0f, total);
    store_two(a, t * a.out_token + (kv * a.group + h0 + head) * a.out_head + at % kDim,
              sum.x * inverse, sum.y * inverse);
    return;
  }

  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)  // counts to parts - 1 and goes back to 0
    is_last = atomicInc(args.counters + unit, static_cast<unsigned>(parts - 1)) ==
              static_cast<unsigned>(parts - 1);
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  // All that is to be joined is asked for at once, as nothing else hides the way it has to come.
  constexpr int kAtOnce = 16;
  for (int i = threadIdx.x * 4; i < heads * kDim; i += kDecodeThreads * 4) {
    const int head = i / kDim, column = i % kDim;
    const std::int64_t from = unit * args.splits * kHeads + head;
    float most = -INFINITY, total = 0;
    float4 sum{};
    for (int s0 = 0; s0 < parts; s0 += kAtOnce) {
      float lse[kAtOnce];
      float4 value[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const std::int64_t part = from + std::int64_t{min(s0 + j, parts - 1)} * kHeads;
        value[j] = __ldcg(reinterpret_cast<const float4*>(args.partial + part * kDim + column));
        lse[j] = __ldcg(args.partial_lse + part);
      }
      float highest = most;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (s0 + j >= parts) lse[j] = -INFINITY;
        highest = fmaxf(highest, lse[j]);
      }
      if (highest == -INFINITY) continue;
      const float keep = exp2_fast(most - highest);
      most = highest;
      total *= keep;
      sum = {sum.x * keep, sum.y * keep, sum.z * keep, sum.w * keep};
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const float w = exp2_fast(lse[j] - most);
        total += w;
        sum.x = fmaf(w, value[j].x, sum.x), sum.y = fmaf(w, value[j].y, sum.y);
        sum.z = fmaf(w, value[j].z, sum.z), sum.w = fmaf(w, value[j].w, sum.w);
      }
    }
    const float inverse = total == 0 ? 0.0f : 1.0f / total;
    const std::int64_t to = t * a.out_token + (kv * a.group + h0 + head) * a.out_head + column;
    store_two(a, to, sum.x * inverse, sum.y * inverse);
    store_two(a, to + 2, sum.z * inverse, sum.w * inverse);
  }
}

// False when the splits cannot be clusters as they are wanted to; nothing was launched then.
template <int kDim, int kHeadTiles, int kStages>
bool launch(Context& ctx, DecodeArgs& args, std::int64_t kv_heads, const DecodePlan& plan) {
  using Shape = DecodeShape<kDim, 8 * kHeadTiles, kStages>;
  constexpr const char* kWhat = "attention of single rows";
  const std::int64_t units = args.a.tokens * kv_heads * plan.head_blocks;
  const dim3 grid(static_cast<unsigned>(args.a.tokens),
                  static_cast<unsigned>(kv_heads * plan.head_blocks),
                  static_cast<unsigned>(plan.splits));
  const auto kernel = decode_kernel<kDim, kHeadTiles, kStages>;
  if (plan.together) {
    static_assert(kDim * 8 * kHeadTiles <= 1 << (kShareBits - 9));
    args.share = ((plan.heads_each * kDim + plan.splits - 1) / plan.splits + 1) / 2 * 2;
    args.share_inverse = ((1 << kShareBits) + args.share - 1) / args.share;
    const ClusterLaunch clusters(ctx, grid, kDecodeThreads, Shape::kBytes, dim3(1, 1, grid.z));
    if (!clusters.fits(kernel)) return false;
    clusters.run(kWhat, kernel, args);
    return true;
  }
  args.partial = static_cast<float*>(ctx.cuda->scratch());
  args.partial_lse = args.partial + units * plan.splits * 8 * kHeadTiles * kDim;
  args.counters = ctx.cuda->counters();
  launch_dependent(ctx, kWhat, kernel, grid, kDecodeThreads, Shape::kBytes, args);
  return true;
}

bool launch_plan(Context& ctx, DecodeArgs& args, std::int64_t kv_heads, const DecodePlan& plan) {
  args.splits = plan.splits, args.head_blocks = plan.head_blocks, args.heads_each = plan.heads_each,
  args.together = plan.together;
  const bool wide = plan.head_tiles == 2;
  switch (args.a.dim) {
    case 64:
      return wide ? launch<64, 2, 4>(ctx, args, kv_heads, plan)
                  : launch<64, 1, 4>(ctx, args, kv_heads, plan);
    case 96:
      return wide ? launch<96, 2, 3>(ctx, args, kv_heads, plan)
                  : launch<96, 1, 3>(ctx, args, kv_heads, plan);
    case 128:
      return wide ? launch<128, 2, 3>(ctx, args, kv_heads, plan)
                  : launch<128, 1, 3>(ctx, args, kv_heads, plan);
    default:
      return launch<256, 1, 2>(ctx, args, kv_heads, plan);
  }
}

}  // namespace

void attend_single_rows(Context& ctx, const PagedArgs& a, std::int64_t kv_heads,
                        bool single_rows_only, const NewHeads& heads) {
  DecodeInputs inputs{.rows = a.tokens,
                      .kv_heads = kv_heads,
                      .group = a.group,
                      .dim = a.dim,
                      .max_pages = a.max_pages,
                      .num_sms = ctx.cuda->info().num_sms,
                      .clusters = ctx.cuda->info().sm >= 90};
  DecodeArgs args{.a = a, .heads = heads, .single_rows_only = single_rows_only};
  if (launch_plan(ctx, args, kv_heads, plan_decode(inputs))) return;
  inputs.clusters = false;
  launch_plan(ctx, args, kv_heads, plan_decode(inputs));
}

}  // namespace sluice::cuda
