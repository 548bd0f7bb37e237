// Scores of the sparse-attention indexer over keys of 128 columns, on Hopper's wgmma:
// score = sum over heads of weight * relu(q . k).
//
// A CTA is one warpgroup. It takes one row, or a few neighbours of one sequence that share each
// page they read. The phases of score_kernel:
//   1. find the run   rows of one sequence, and this CTA's share of their pages
//   2. issue_page     cp.async of a page of keys, kStages - 1 ahead
//   3. load_queries   bfloat16 tiles of 64 heads in shared memory, and the heads' weights
//   for each page:
//   4. widen_page     keys of eight bits become bfloat16, which holds them exactly
//   5. scores         S = K Q^T for each tile of 64 heads
//   6. epilogue       relu, weights and the sum over heads; the key's scale multiplies the sum
//
// Keys are the M side of the MMA. Hence the sum over heads stays in the four lanes of a quad.
#include "kernels/cuda/attention/index_fast.h"
#include "kernels/cuda/attention/index_plan.h"
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/wgmma.cuh"

namespace sluice::cuda {
namespace {

constexpr int kDim = 128;
constexpr int kPage = kPageSize;
constexpr int kThreads = 4 * kWarp;
constexpr int kTileHeads = 64;
constexpr int kHalfBytes = 64 * kSwizzleBytes;       // 64 rows of 64 columns
constexpr int kTileBytes = 2 * kHalfBytes;           // 64 rows of 128
constexpr int kChunks = kDim / 8;                    // of 16 bytes
constexpr int kBytePage = kPage * kDim + kPage * 4;  // keys of eight bits, then scales
static_assert(kPage == 64);

// Strides of q and weights are in elements, of keys in bytes. `scores` is [rows, scores_stride].
struct ScoreArgs {
  const float* q;
  std::int64_t q_token, q_head;
  const float* weights;
  std::int64_t weights_stride, count;
  const unsigned char* k;
  std::int64_t row_bytes, num_pages;
  const std::int32_t *page_table, *row_seq, *positions;
  std::int64_t table_stride, num_seqs, max_pages;
  float* scores;
  std::int64_t scores_stride, topk;
};

// Dynamic shared memory: queries, the widened page, stages of keys, weights of the heads.
template <int kTiles, int kHeads, bool kBytes>
struct Layout {
  // With 32 heads a single row leaves half of its tile empty.
  static constexpr int kRows = kTiles == 1 ? 1 : kTiles * kTileHeads / kHeads;
  static constexpr int kStages = kTiles > 1 ? 2 : kBytes ? 4 : 3;
  static constexpr int kStageBytes = kBytes ? kBytePage : kTileBytes;
  static constexpr int kWidenedAt = kTiles * kTileBytes;  // tiles begin on 1024 bytes
  static constexpr int kStageAt = kWidenedAt + (kBytes ? kTileBytes : 0);
  static constexpr int kWeightsAt = kStageAt + kStages * kStageBytes;
  static constexpr int kSharedBytes = kWeightsAt + kTiles * kTileHeads * 4 + 1024;
  // index_plan.cpp counts with the same numbers.
  static constexpr int kCtasPerSm = kTiles > 1 ? 2 : 3;
  static_assert(kCtasPerSm * (kSharedBytes + 1024 + 64) <= 228 << 10);
};

// Two e4m3 numbers, in bytes 1 and 3 of x, as bfloat16. Their bits move to the place that bfloat16
// has for them; the factor 2^120 is the difference of the exponent biases (127 - 7).
__device__ std::uint32_t widen_e4m3(std::uint32_t x) {
  const std::uint32_t moved = (x & 0x80008000u) | (x & 0x7FFF7FFFu) >> 4;
  const __nv_bfloat162 factor = __floats2bfloat162_rn(0x1p120f, 0x1p120f);
  const __nv_bfloat162 both = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&moved), factor);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}

// 4. A page of bytes into a tile of bfloat16, 16 numbers at a time.
__device__ void widen_page(const unsigned char* page, unsigned char* tile) {
#pragma unroll
  for (int j = 0; j < kPage * kDim / 16 / kThreads; ++j) {
    const int c = threadIdx.x + j * kThreads, key = c / 8, piece = c % 8;
    const uint4 x = *reinterpret_cast<const uint4*>(page + c * 16);
    const uint4 low{
        widen_e4m3(__byte_perm(x.x, 0, 0x1404)), widen_e4m3(__byte_perm(x.x, 0, 0x3424)),
        widen_e4m3(__byte_perm(x.y, 0, 0x1404)), widen_e4m3(__byte_perm(x.y, 0, 0x3424))};
    const uint4 high{
        widen_e4m3(__byte_perm(x.z, 0, 0x1404)), widen_e4m3(__byte_perm(x.z, 0, 0x3424)),
        widen_e4m3(__byte_perm(x.w, 0, 0x1404)), widen_e4m3(__byte_perm(x.w, 0, 0x3424))};
    unsigned char* half = tile + piece / 4 * kHalfBytes;
    // Eight threads write at once; the swap puts their writes into different banks.
    const bool swap = piece >= 4;
    *reinterpret_cast<uint4*>(half + swizzled(key, piece % 4 * 2 + swap)) = swap ? high : low;
    *reinterpret_cast<uint4*>(half + swizzled(key, piece % 4 * 2 + !swap)) = swap ? low : high;
  }
}

// 5. score[64 keys, 64 heads] := keys * queries^T, wgmma with both operands in shared memory.
__device__ __forceinline__ void scores(float (&score)[32], std::uint32_t keys,
                                       std::uint32_t queries) {
  pin_registers(score);
  wgmma_fence();
#pragma unroll
  for (int s = 0; s < kDim / 16; ++s) {
    const std::uint32_t at = s / 4 * kHalfBytes + s % 4 * 32;
    wgmma_m64n64(score, tile_descriptor(keys + at, 16), tile_descriptor(queries + at, 16), s > 0);
  }
  wgmma_commit();
  wgmma_wait<0>();
  pin_registers(score);
}

// Rows [begin, end) of a CTA, which are of one sequence, and the CTA's pages [first, last) of it.
struct ScoreRun {
  int begin, end, longest;  // `longest`: keys of the longest row
  int first, last;
  const std::int32_t* table;
};

// The work of a CTA: `rows` rows from `first_row`.
template <int kTiles, int kHeads, bool kBytes>
struct ScoreCta {
  using L = Layout<kTiles, kHeads, kBytes>;
  static constexpr int kStages = L::kStages;
  static constexpr int kRowsOfTile = kTileHeads / kHeads;  // 1 or 2

  const ScoreArgs& a;
  unsigned char* shared;
  float* weight;          // [tile, head of a tile]
  std::uint32_t queries;  // address of `shared`, where the queries begin
  std::int64_t first_row;
  int rows, warp, lane;

  // 2. Every call commits one cp.async group, also past the last page. Hence cp_async_wait() can
  // count groups. Keys past the longest row become zeros.
  __device__ __forceinline__ void issue_page(const ScoreRun& run, int i) const {
    if (i < run.last) {
      const std::int64_t page = run.table[i];
      expect_below(page, a.num_pages);
      const std::uint32_t stage =
          queries + L::kStageAt + (i - run.first) % kStages * L::kStageBytes;
      const unsigned char* from = a.k + page * kPage * a.row_bytes;
      if constexpr (kBytes) {
        for (int c = threadIdx.x; c < kBytePage / 16; c += kThreads)
          cp_async_16(stage + c * 16, from + c * 16, true);
      } else {
#pragma unroll
        for (int c = threadIdx.x; c < kPage * kChunks; c += kThreads) {
          const int key = c / kChunks, chunk = c % kChunks;
          const bool is_visible = i * kPage + key < run.longest;
          cp_async_16(stage + chunk / 8 * kHalfBytes + swizzled(key, chunk % 8),
                      from + (is_visible ? key * a.row_bytes + chunk * 16 : 0), is_visible);
        }
      }
    }
    cp_async_commit();
  }

  // 3. Once for all runs of the CTA: queries as bfloat16 tiles, and the weight of each head. Rows
  // past the last one are zeros.
  __device__ __forceinline__ void load_queries() const {
    for (int c = threadIdx.x; c < kTiles * kTileHeads * kChunks; c += kThreads) {
      const int tile_row = c / kChunks, chunk = c % kChunks, row = tile_row / kHeads,
                head = tile_row % kHeads;
      uint4 values{};
      if (row < rows) {
        const auto* q = reinterpret_cast<const float4*>(a.q + (first_row + row) * a.q_token +
                                                        head * a.q_head + chunk * 8);
        const float4 x = q[0], y = q[1];
        values = {pack_bf16(x.x, x.y), pack_bf16(x.z, x.w), pack_bf16(y.x, y.y),
                  pack_bf16(y.z, y.w)};
      }
      *reinterpret_cast<uint4*>(shared + tile_row / kTileHeads * kTileBytes +
                                chunk / 8 * kHalfBytes +
                                swizzled(tile_row % kTileHeads, chunk % 8)) = values;
    }
    for (int r = threadIdx.x; r < kTiles * kTileHeads; r += kThreads)
      weight[r] = r / kHeads < rows
                      ? a.weights[(first_row + r / kHeads) * a.weights_stride + r % kHeads]
                      : 0.0f;
  }

  // 6. Row `row` is part `s` of tile `n`. A quad of lanes holds all heads of keys lane / 4 and
  // lane / 4 + 8, so two shuffles finish the sum.
  __device__ __forceinline__ void epilogue(const ScoreRun& run, const float (&score)[32],
                                           const float (&scale)[2], const int* lengths, int i,
                                           int n, int s) const {
    const int row = n * kRowsOfTile + s;
    float sum[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < kHeads / 8; ++j) {
      const float2 w = *reinterpret_cast<const float2*>(weight + n * kTileHeads + s * kHeads +
                                                        j * 8 + lane % 4 * 2);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float x = score[(s * kHeads / 8 + j) * 4 + r * 2],
                    y = score[(s * kHeads / 8 + j) * 4 + r * 2 + 1];
        // x < 0 ? 0 : x keeps a NaN; fmaxf(x, 0) would drop it.
        sum[r] = fmaf(w.x, x < 0 ? 0.0f : x, sum[r]);
        sum[r] = fmaf(w.y, y < 0 ? 0.0f : y, sum[r]);
      }
    }
    if (row < run.begin || row >= run.end) return;
    const int length = lengths[row];
    float* to = a.scores + (first_row + row) * a.scores_stride;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 1);
      sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 2);
      const int key = i * kPage + warp * 16 + lane / 4 + r * 8;
      if (lane % 4 == 0 && key < length) to[key] = kBytes ? sum[r] * scale[r] : sum[r];
    }
  }
};

// Grid: parts of the keys, groups of rows.
template <int kTiles, int kHeads, bool kBytes>
__global__ void __launch_bounds__(kThreads, Layout<kTiles, kHeads, kBytes>::kCtasPerSm)
    score_kernel(const __grid_constant__ ScoreArgs a) {
  using L = Layout<kTiles, kHeads, kBytes>;
  extern __shared__ unsigned char shared_memory[];
  __shared__ int lengths[L::kRows];
  wait_for_earlier_kernels();
  start_next_kernel();
  // The 128-byte swizzle needs tiles on 1024 bytes.
  unsigned char* shared = shared_memory + (1024 - shared_address(shared_memory) % 1024) % 1024;
  const std::int64_t first_row = std::int64_t{blockIdx.y} * L::kRows;
  const ScoreCta<kTiles, kHeads, kBytes> cta{
      .a = a,
      .shared = shared,
      .weight = reinterpret_cast<float*>(shared + L::kWeightsAt),
      .queries = shared_address(shared),
      .first_row = first_row,
      .rows = static_cast<int>(min(std::int64_t{L::kRows}, a.count - first_row)),
      .warp = static_cast<int>(threadIdx.x / kWarp),
      .lane = static_cast<int>(threadIdx.x % kWarp)};

  if (static_cast<int>(threadIdx.x) < cta.rows)
    lengths[threadIdx.x] = a.positions[first_row + threadIdx.x] + 1;
  bool is_loaded = false;
  for (int begin = 0, end = 0; begin < cta.rows; begin = end) {
    // 1. The run that begins at row `begin`, and this CTA's share of its pages. Rows with at most
    // topk keys select all of them and need no scores.
    const std::int64_t seq = a.row_seq[first_row + begin];
    int longest = 0;
    for (end = begin; end < cta.rows && a.row_seq[first_row + end] == seq; ++end)
      longest = max(longest, a.positions[first_row + end] + 1);
    if (longest <= a.topk) continue;
    if (longest > a.scores_stride) __trap();
    expect_below(seq, a.num_seqs);
    const std::int64_t pages = (longest + kPage - 1) / kPage;
    expect_below(pages - 1, a.max_pages);
    const ScoreRun run{.begin = begin,
                       .end = end,
                       .longest = longest,
                       .first = static_cast<int>(pages * blockIdx.x / gridDim.x),
                       .last = static_cast<int>(pages * (blockIdx.x + 1) / gridDim.x),
                       .table = a.page_table + seq * a.table_stride};
    if (run.first == run.last) continue;
#pragma unroll
    for (int i = 0; i < L::kStages - 1; ++i) cta.issue_page(run, run.first + i);
    // Hazard: the queries must be visible before the first MMA. The barrier of the first page
    // orders them. The first pages are under way while the queries load.
    if (!is_loaded) {
      is_loaded = true;
      cta.load_queries();
    }
    // 2. and 4. to 6. for all pages of the run.
    for (int i = run.first; i < run.last; ++i) {
      cp_async_wait<L::kStages - 2>();
      fence_async_proxy();
      __syncthreads();  // all copies of the page are visible; all warps have read the page before
      cta.issue_page(run, i + L::kStages - 1);
      const std::uint32_t at = L::kStageAt + (i - run.first) % L::kStages * L::kStageBytes;
      std::uint32_t keys = cta.queries + at;
      float scale[2] = {1, 1};
      // A key's scale belongs to the lane that finishes the key's sum.
      if constexpr (kBytes) {
        widen_page(cta.shared + at, cta.shared + L::kWidenedAt);
        keys = cta.queries + L::kWidenedAt;
#pragma unroll
        for (int r = 0; r < 2; ++r)
          scale[r] = *reinterpret_cast<const float*>(cta.shared + at + kPage * kDim +
                                                     (cta.warp * 16 + cta.lane / 4 + r * 8) * 4);
        fence_async_proxy();
        __syncthreads();  // the widened page is visible to wgmma
      }
      // Not unrolled: the other CTA of the SM multiplies while this one sums.
#pragma unroll 1
      for (int n = 0; n < kTiles; ++n) {
        // 64 keys by 64 heads, in 32 registers a lane.
        float score[32];
        scores(score, keys, cta.queries + n * kTileBytes);
#pragma unroll
        for (int s = 0; s < (kTiles == 1 ? 1 : cta.kRowsOfTile); ++s)
          cta.epilogue(run, score, scale, lengths, i, n, s);
      }
    }
    cp_async_wait<0>();
    __syncthreads();  // all warps have read all pages: the next run may overwrite them
  }
}

// kTiles 1: one row a CTA; otherwise as many rows as fill kTiles tiles of heads.
template <int kTiles, int kHeads, bool kBytes>
void launch_scores(Context& ctx, const ScoreArgs& args, const IndexScoresPlan& plan) {
  using L = Layout<kTiles, kHeads, kBytes>;
  const dim3 grid(static_cast<unsigned>(plan.parts), blocks_for(args.count, L::kRows));
  launch_dependent(ctx, "index scores", score_kernel<kTiles, kHeads, kBytes>, grid, kThreads,
                   L::kSharedBytes, args);
}

}  // namespace

bool index_scores_fast(Context& ctx, const Tensor& q, const Tensor& weights, const Tensor& plane,
                       const ops::PagedRows& rows, std::int64_t first, std::int64_t count,
                       std::int64_t topk, const Tensor& scores) {
  const std::int64_t heads = q.dim(1);
  if (ctx.cuda == nullptr ||
      !index_is_fast({.heads = heads,
                      .dim = q.dim(2),
                      .plane = plane.dtype,
                      .aligned = rows_aligned(q) && q.stride[1] % 4 == 0 &&
                                 (plane.dtype == DType::kU8 ? rows_aligned(plane.data, 0, 1)
                                                            : rows_aligned(plane)),
                      .deterministic = ctx.deterministic,
                      .sm = ctx.cuda->info().sm}))
    return false;
  // The rows [first, first + count) of the step.
  const ScoreArgs args{.q = q.ptr<float>() + first * q.stride[0],
                       .q_token = q.stride[0],
                       .q_head = q.stride[1],
                       .weights = weights.ptr<float>() + first * weights.stride[0],
                       .weights_stride = weights.stride[0],
                       .count = count,
                       .k = static_cast<const unsigned char*>(plane.data),
                       .row_bytes = plane.stride[0] * dtype_size(plane.dtype),
                       .num_pages = plane.dim(0) / kPage,
                       .page_table = rows.page_table.ptr<std::int32_t>(),
                       .row_seq = rows.row_seq.ptr<std::int32_t>() + first,
                       .positions = rows.positions.ptr<std::int32_t>() + first,
                       .table_stride = rows.page_table.stride[0],
                       .num_seqs = rows.page_table.dim(0),
                       .max_pages = rows.page_table.dim(1),
                       .scores = scores.ptr<float>(),
                       .scores_stride = scores.stride[0],
                       .topk = topk};
  const IndexScoresPlan plan = plan_index_scores({.rows = count,
                                                  .seqs = rows.page_table.dim(0),
                                                  .heads = heads,
                                                  .max_keys = scores.dim(1),
                                                  .num_sms = ctx.cuda->info().num_sms});
  const auto launch = [&]<int kHeads, bool kBytes>() {
    plan.many_rows ? launch_scores<kIndexTiles, kHeads, kBytes>(ctx, args, plan)
                   : launch_scores<1, kHeads, kBytes>(ctx, args, plan);
  };
  if (plane.dtype == DType::kU8)
    heads == 64 ? launch.template operator()<64, true>() : launch.template operator()<32, true>();
  else
    heads == 64 ? launch.template operator()<64, false>() : launch.template operator()<32, false>();
  return true;
}

}  // namespace sluice::cuda
