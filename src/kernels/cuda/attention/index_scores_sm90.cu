// Scores of the indexer over keys of 128, on Hopper's warpgroup products: sum over heads of weight
// * relu(q . k).
//
// A block, one warpgroup, has the queries of one row, or of a few neighbours, as tiles of 64 heads
// in shared memory, and goes through a part of the pages of their keys: keys are the rows of a
// product, so the sum over the heads stays in a thread and its three neighbours. Neighbours of one
// sequence share each page that is read. Keys of eight bits become bfloat16, which holds them
// exactly, before they are multiplied; their scales multiply the sums.
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
constexpr int kPieces = kDim / 8;                    // of 16 bytes
constexpr int kBytePage = kPage * kDim + kPage * 4;  // keys of eight bits, then scales
static_assert(kPage == 64);

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

template <int kTiles, int kHeads, bool kBytes>
struct Layout {
  static constexpr int kRows =
      kTiles == 1 ? 1 : kTiles * kTileHeads / kHeads;  // a single row may leave half a tile empty
  static constexpr int kStages = kTiles > 1 ? 2 : kBytes ? 4 : 3;
  static constexpr int kStageBytes = kBytes ? kBytePage : kTileBytes;
  static constexpr int kWidenedAt = kTiles * kTileBytes;  // tiles begin on 1024 bytes
  static constexpr int kStageAt = kWidenedAt + (kBytes ? kTileBytes : 0);
  static constexpr int kWeightsAt = kStageAt + kStages * kStageBytes;
  static constexpr int kSharedBytes = kWeightsAt + kTiles * kTileHeads * 4 + 1024;
  // of a multiprocessor, as index_plan.cpp counts them
  static constexpr int kBlocks = kTiles > 1 ? 2 : 3;
  static_assert(kBlocks * (kSharedBytes + 1024 + 64) <= 228 << 10);
};

// Two e4m3 numbers, in bytes 1 and 3 of x, as bfloat16: their bits moved to where those of bfloat16
// are, times the difference of the exponents' biases.
__device__ std::uint32_t widen_e4m3(std::uint32_t x) {
  const std::uint32_t moved = (x & 0x80008000u) | (x & 0x7FFF7FFFu) >> 4;
  const __nv_bfloat162 factor = __floats2bfloat162_rn(0x1p120f, 0x1p120f);
  const __nv_bfloat162 both = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&moved), factor);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}

// A page of bytes into a tile of bfloat16.
__device__ void widen_page(const unsigned char* page, unsigned char* tile) {
#pragma unroll
  for (int j = 0; j < kPage * kDim / 16 / kThreads; ++j) {
    const int c = threadIdx.x + j * kThreads, key = c / 8, piece = c % 8;  // of 16 numbers
    const uint4 x = *reinterpret_cast<const uint4*>(page + c * 16);
    const uint4 low{
        widen_e4m3(__byte_perm(x.x, 0, 0x1404)), widen_e4m3(__byte_perm(x.x, 0, 0x3424)),
        widen_e4m3(__byte_perm(x.y, 0, 0x1404)), widen_e4m3(__byte_perm(x.y, 0, 0x3424))};
    const uint4 high{
        widen_e4m3(__byte_perm(x.z, 0, 0x1404)), widen_e4m3(__byte_perm(x.z, 0, 0x3424)),
        widen_e4m3(__byte_perm(x.w, 0, 0x1404)), widen_e4m3(__byte_perm(x.w, 0, 0x3424))};
    unsigned char* half = tile + piece / 4 * kHalfBytes;
    const bool swap = piece >= 4;  // so that eight threads write to different banks
    *reinterpret_cast<uint4*>(half + swizzled(key, piece % 4 * 2 + swap)) = swap ? high : low;
    *reinterpret_cast<uint4*>(half + swizzled(key, piece % 4 * 2 + !swap)) = swap ? low : high;
  }
}

// product[64 keys, 64 heads] of the keys at `keys` and the queries at `queries`.
__device__ void multiply(float (&product)[32], std::uint32_t keys, std::uint32_t queries) {
  hold(product);
  begin_products();
#pragma unroll
  for (int s = 0; s < kDim / 16; ++s) {
    const std::uint32_t at = s / 4 * kHalfBytes + s % 4 * 32;
    multiply_64x64(product, tile_descriptor(keys + at, 16), tile_descriptor(queries + at, 16),
                   s > 0);
  }
  commit_products();
  wait_for_products<0>();
  hold(product);
}

// Grid: parts of the keys, groups of rows.
template <int kTiles, int kHeads, bool kBytes>
__global__ void __launch_bounds__(kThreads, Layout<kTiles, kHeads, kBytes>::kBlocks)
    score_kernel(const __grid_constant__ ScoreArgs a) {
  using L = Layout<kTiles, kHeads, kBytes>;
  constexpr int kStages = L::kStages;
  extern __shared__ unsigned char shared_memory[];
  __shared__ int lengths[L::kRows];
  wait_for_earlier_kernels();
  start_next_kernel();
  unsigned char* shared = shared_memory + (1024 - shared_address(shared_memory) % 1024) % 1024;
  float* weight = reinterpret_cast<float*>(shared + L::kWeightsAt);  // [tile, head of a tile]
  const std::uint32_t queries = shared_address(shared);
  const std::int64_t t0 = std::int64_t{blockIdx.y} * L::kRows;
  const int rows = static_cast<int>(min(std::int64_t{L::kRows}, a.count - t0));
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;

  if (static_cast<int>(threadIdx.x) < rows)
    lengths[threadIdx.x] = a.positions[t0 + threadIdx.x] + 1;
  bool loaded = false;
  for (int begin = 0, end = 0; begin < rows; begin = end) {
    const std::int64_t seq = a.row_seq[t0 + begin];
    int longest = 0;
    for (end = begin; end < rows && a.row_seq[t0 + end] == seq; ++end)
      longest = max(longest, a.positions[t0 + end] + 1);
    if (longest <= a.topk) continue;
    if (longest > a.scores_stride) __trap();
    expect_below(seq, a.num_seqs);
    const std::int64_t pages = (longest + kPage - 1) / kPage;
    expect_below(pages - 1, a.max_pages);
    const int first = static_cast<int>(pages * blockIdx.x / gridDim.x),
              last = static_cast<int>(pages * (blockIdx.x + 1) / gridDim.x);
    if (first == last) continue;
    const std::int32_t* table = a.page_table + seq * a.table_stride;

    const auto issue = [&](int i) {
      if (i < last) {
        const std::int64_t page = table[i];
        expect_below(page, a.num_pages);
        const std::uint32_t stage = queries + L::kStageAt + (i - first) % kStages * L::kStageBytes;
        const unsigned char* from = a.k + page * kPage * a.row_bytes;
        if constexpr (kBytes) {
          for (int c = threadIdx.x; c < kBytePage / 16; c += kThreads)
            cp_async_16(stage + c * 16, from + c * 16, true);
        } else {
#pragma unroll
          for (int c = threadIdx.x; c < kPage * kPieces; c += kThreads) {
            const int key = c / kPieces, piece = c % kPieces;
            const bool wanted = i * kPage + key < longest;
            cp_async_16(stage + piece / 8 * kHalfBytes + swizzled(key, piece % 8),
                        from + (wanted ? key * a.row_bytes + piece * 16 : 0), wanted);
          }
        }
      }
      commit_copies();
    };
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) issue(first + i);

    if (!loaded) {
      loaded = true;
      for (int c = threadIdx.x; c < kTiles * kTileHeads * kPieces; c += kThreads) {
        const int r = c / kPieces, piece = c % kPieces, row = r / kHeads, head = r % kHeads;
        uint4 values{};
        if (row < rows) {
          const auto* q = reinterpret_cast<const float4*>(a.q + (t0 + row) * a.q_token +
                                                          head * a.q_head + piece * 8);
          const float4 x = q[0], y = q[1];
          values = {pack_bf16(x.x, x.y), pack_bf16(x.z, x.w), pack_bf16(y.x, y.y),
                    pack_bf16(y.z, y.w)};
        }
        *reinterpret_cast<uint4*>(shared + r / kTileHeads * kTileBytes + piece / 8 * kHalfBytes +
                                  swizzled(r % kTileHeads, piece % 8)) = values;
      }
      for (int r = threadIdx.x; r < kTiles * kTileHeads; r += kThreads)
        weight[r] =
            r / kHeads < rows ? a.weights[(t0 + r / kHeads) * a.weights_stride + r % kHeads] : 0.0f;
    }

    for (int i = first; i < last; ++i) {
      wait_for_copies<kStages - 2>();
      publish_shared();
      __syncthreads();  // the page is there, and the one before has been read
      issue(i + kStages - 1);
      const std::uint32_t at = L::kStageAt + (i - first) % kStages * L::kStageBytes;
      std::uint32_t keys = queries + at;
      float scale[2] = {1, 1};
      if constexpr (kBytes) {
        widen_page(shared + at, shared + L::kWidenedAt);
        keys = queries + L::kWidenedAt;
#pragma unroll
        for (int r = 0; r < 2; ++r)
          scale[r] = *reinterpret_cast<const float*>(shared + at + kPage * kDim +
                                                     (warp * 16 + lane / 4 + r * 8) * 4);
        publish_shared();
        __syncthreads();
      }
#pragma unroll 1
      for (int n = 0; n < kTiles;
           ++n) {  // the other block of the multiprocessor multiplies while this one adds up
        float product[32];
        multiply(product, keys, queries + n * kTileBytes);
        // Heads of one row, or of two side by side.
        constexpr int kRowsOfTile = kTileHeads / kHeads;
#pragma unroll
        for (int s = 0; s < (kTiles == 1 ? 1 : kRowsOfTile); ++s) {
          const int row = n * kRowsOfTile + s;
          float sum[2] = {0, 0};
#pragma unroll
          for (int j = 0; j < kHeads / 8; ++j) {
            const float2 w = *reinterpret_cast<const float2*>(weight + n * kTileHeads + s * kHeads +
                                                              j * 8 + lane % 4 * 2);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
              const float x = product[(s * kHeads / 8 + j) * 4 + r * 2],
                          y = product[(s * kHeads / 8 + j) * 4 + r * 2 + 1];
              sum[r] = fmaf(w.x, x < 0 ? 0.0f : x, sum[r]);  // a NaN comes through
              sum[r] = fmaf(w.y, y < 0 ? 0.0f : y, sum[r]);
            }
          }
          if (row < begin || row >= end) continue;
          const int length = lengths[row];
          float* to = a.scores + (t0 + row) * a.scores_stride;
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 1);
            sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 2);
            const int key = i * kPage + warp * 16 + lane / 4 + r * 8;
            if (lane % 4 == 0 && key < length) to[key] = kBytes ? sum[r] * scale[r] : sum[r];
          }
        }
      }
    }
    wait_for_copies<0>();
    __syncthreads();  // all pages have been read
  }
}

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
