// Scores of the indexer over bfloat16 keys of 128, on tensor cores: sum over heads of weight * relu(q . k).
//
// A block has one row and goes through pages of its keys, in three buffers of shared memory. Each of its four warps has 16
// keys of a page and all heads, whose products it holds as fragments: keys are the rows of a product, so the sum over the
// heads stays in a thread and its three neighbours.
#include "kernels/cuda/alignment.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/mla_fast.h"
#include "kernels/cuda/mla_plan.h"

namespace sluice::cuda {
namespace {

constexpr int kDim = 128;
constexpr int kPage = ops::kPageTokens;
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kStages = 3;
constexpr int kPieces = kDim / 8;
constexpr int kStageBytes = kPage * kDim * 2;
constexpr int kPagesOfABlock = 8;
constexpr int kMaxHeads = 64;
constexpr int kSharedBytes = kStages * kStageBytes + kMaxHeads * static_cast<int>(sizeof(float));
static_assert(kPage == 16 * kWarps);

struct ScoreArgs {
  const float* q;
  std::int64_t q_token, q_head;
  const float* weights;
  std::int64_t weights_stride;
  int heads;
  const Bf16* k;
  std::int64_t k_stride, num_slots;
  const std::int32_t *page_table, *row_seq, *positions;
  std::int64_t table_stride, num_seqs, max_pages;
  float* scores;
  std::int64_t scores_stride, topk;
};

// 16-byte piece c of row r, permuted so that eight rows of a column lie in different banks.
__device__ std::uint32_t place(int row, int piece) { return row * (kDim * 2) + (((piece & 8) | ((piece ^ row) & 7)) << 4); }

// Grid: runs of pages, rows.
template <int kHeadTiles>
__global__ void __launch_bounds__(kThreads) score_kernel(const __grid_constant__ ScoreArgs a) {
  extern __shared__ __align__(128) unsigned char shared[];
  float* weight = reinterpret_cast<float*>(shared + kStages * kStageBytes);   // [kMaxHeads]
  wait_for_earlier_kernels();
  start_next_kernel();
  const std::int64_t t = blockIdx.y;
  const int length = a.positions[t] + 1, first_page = blockIdx.x * kPagesOfABlock;
  if (length <= a.topk || first_page * kPage >= length) return;
  if (length > a.scores_stride) __trap();
  const std::int64_t seq = a.row_seq[t];
  expect_below(seq, a.num_seqs);
  const int pages = min(kPagesOfABlock, (length + kPage - 1) / kPage - first_page);
  expect_below(first_page + pages - 1, a.max_pages);
  const std::int32_t* table = a.page_table + seq * a.table_stride + first_page;
  const std::uint32_t stages = shared_address(shared);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;

  const auto issue = [&](int i) {
    if (i < pages) {
      const std::int64_t page = table[i];
      expect_below(page, a.num_slots / kPage);
      const std::uint32_t stage = stages + i % kStages * kStageBytes;
#pragma unroll
      for (int c = threadIdx.x; c < kPage * kPieces; c += kThreads) {
        const int key = c / kPieces, piece = c % kPieces;
        const bool wanted = (first_page + i) * kPage + key < length;
        copy_async16(stage + place(key, piece), a.k + (wanted ? (page * kPage + key) * a.k_stride + piece * 8 : 0), wanted);
      }
    }
    commit_copies();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) issue(i);
  if (threadIdx.x < kMaxHeads) weight[threadIdx.x] = static_cast<int>(threadIdx.x) < a.heads ? a.weights[t * a.weights_stride + threadIdx.x] : 0.0f;

  // Fragments of the queries: head 8 n + lane / 4, elements 16 s + 2 (lane % 4) and 8 further.
  std::uint32_t query[kHeadTiles][kDim / 16][2];
#pragma unroll
  for (int n = 0; n < kHeadTiles; ++n) {
    const float* q = a.q + t * a.q_token + (n * 8 + lane / 4) * a.q_head + lane % 4 * 2;
#pragma unroll
    for (int s = 0; s < kDim / 16; ++s)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        query[n][s][half] = pack_bf16(q[s * 16 + half * 8], q[s * 16 + half * 8 + 1]);
  }

  for (int i = 0; i < pages; ++i) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    issue(i + kStages - 1);
    const std::uint32_t stage = stages + i % kStages * kStageBytes;
    float product[kHeadTiles][4] = {};
#pragma unroll
    for (int s = 0; s < kDim / 16; ++s) {
      std::uint32_t keys[4];
      load_matrices(keys, stage + place(warp * 16 + lane % 16, s * 2 + lane / 16));
#pragma unroll
      for (int n = 0; n < kHeadTiles; ++n) multiply16(product[n], keys, query[n][s][0], query[n][s][1]);
    }
    float sum[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float x = product[n][j];
        sum[j / 2] = fmaf(weight[n * 8 + lane % 4 * 2 + j % 2], x < 0 ? 0.0f : x, sum[j / 2]);   // a NaN comes through
      }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 1);
      sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 2);
      const int key = (first_page + i) * kPage + warp * 16 + lane / 4 + r * 8;
      if (lane % 4 == 0 && key < length) a.scores[t * a.scores_stride + key] = sum[r];
    }
  }
  wait_for_copies<0>();
}

}  // namespace

bool index_scores_fast(Context& ctx, const Tensor& q, const Tensor& weights, const Tensor& plane, const ops::PagedRows& rows,
                       std::int64_t first, std::int64_t count, std::int64_t topk, const Tensor& scores) {
  const std::int64_t heads = q.dim(1);
  if (ctx.cuda == nullptr || !index_is_fast({.heads = heads,
                                             .dim = q.dim(2),
                                             .plane = plane.dtype,
                                             .aligned = rows_aligned(plane),
                                             .deterministic = ctx.deterministic,
                                             .sm = ctx.cuda->facts().sm}))
    return false;
  const ScoreArgs args{.q = q.ptr<float>() + first * q.stride[0],
                       .q_token = q.stride[0],
                       .q_head = q.stride[1],
                       .weights = weights.ptr<float>() + first * weights.stride[0],
                       .weights_stride = weights.stride[0],
                       .heads = static_cast<int>(heads),
                       .k = static_cast<const Bf16*>(plane.data),
                       .k_stride = plane.stride[0],
                       .num_slots = plane.dim(0),
                       .page_table = rows.page_table.ptr<std::int32_t>(),
                       .row_seq = rows.row_seq.ptr<std::int32_t>() + first,
                       .positions = rows.positions.ptr<std::int32_t>() + first,
                       .table_stride = rows.page_table.stride[0],
                       .num_seqs = rows.page_table.dim(0),
                       .max_pages = rows.page_table.dim(1),
                       .scores = scores.ptr<float>(),
                       .scores_stride = scores.stride[0],
                       .topk = topk};
  const dim3 grid(blocks_for(scores.dim(1), kPage * kPagesOfABlock), static_cast<unsigned>(count));
  launch_dependent(ctx, "index scores", heads == 64 ? score_kernel<8> : score_kernel<4>, grid, kThreads, kSharedBytes, args);
  return true;
}

}  // namespace sluice::cuda
