// The lightning indexer of sparse attention (DeepSeek V3.2), for any type and shape: scores of all
// keys of a row, and the exact top-k. Hopper has faster kernels (index_scores_sm90.cu,
// index_select_sm90.cu).
#include <cuda_fp8.h>

#include <type_traits>

#include "kernels/cuda/attention/index_fast.h"
#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/common/order.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

constexpr int kPage = kPageSize;
constexpr int kHeadParts = 4;  // threads that share the heads of one key
constexpr int kScoreThreads = kPage * kHeadParts;
constexpr int kHadamardThreads = 256;

// Hadamard transform of rows: the additions of the CPU in the same order. Every step of the
// butterfly needs a barrier, because partners are in different threads.
__global__ void hadamard_rows(RowsOf<float> x, int n) {
  __shared__ float v[4096];
  float* row = x.row(blockIdx.x);
  for (int i = threadIdx.x; i < n; i += blockDim.x) v[i] = row[i];
  __syncthreads();
  for (int half = 1; half < n; half *= 2) {
    for (int p = threadIdx.x; p < n / 2; p += blockDim.x) {
      const int i = p / half * 2 * half + p % half;
      const float a = v[i], b = v[i + half];
      v[i] = a + b;
      v[i + half] = a - b;
    }
    __syncthreads();
  }
  // Orthonormal: the transform is its own inverse.
  const float factor = 1.0f / sqrtf(static_cast<float>(n));
  for (int i = threadIdx.x; i < n; i += blockDim.x) row[i] = v[i] * factor;
}

// Strides are in elements. The workspace holds the scores of a block of rows.
struct IndexArgs {
  const float* q;
  std::int64_t q_token, q_head;
  const float* weights;
  std::int64_t weights_stride;
  int heads, dim;
  const void* k;
  std::int64_t k_stride, num_slots;
  const std::int32_t *page_table, *row_seq, *positions;
  std::int64_t table_stride, num_seqs, max_pages;
  float* scores;  // [rows of the block, stride]
  std::int64_t scores_stride;
  std::int32_t* out;
  std::int64_t out_stride;
  int topk;
  std::int64_t first;  // token of row 0 of the block
};

// score = sum over heads of weight * relu(q . k). Grid: pages, rows. A key has four threads, each
// with a quarter of the heads; the quarters are added in ascending order. T = unsigned char: e4m3
// keys in scaled pages (kernels/types/kv_plane.h).
template <class T>
__global__ void __launch_bounds__(kScoreThreads) score_kernel(IndexArgs a) {
  extern __shared__ float shared[];
  __shared__ float part[kHeadParts][kPage];
  // Pages past the row and rows that select all keys need no scores.
  const std::int64_t t = a.first + blockIdx.y, length = std::int64_t{a.positions[t]} + 1;
  const std::int64_t page = blockIdx.x;
  if (length <= a.topk || page * kPage >= length) return;
  if (length > a.scores_stride) __trap();
  const std::int64_t seq = a.row_seq[t];
  expect_below(seq, a.num_seqs);
  expect_below(page, a.max_pages);
  // The first slot of the page.
  const std::int64_t slot = std::int64_t{a.page_table[seq * a.table_stride + page]} * kPage;
  expect_below(slot, a.num_slots);
  const int count = static_cast<int>(min(std::int64_t{kPage}, length - page * kPage));
  const int pitch = a.dim + 1;  // keys start in different banks
  const T* k = static_cast<const T*>(a.k) + slot * a.k_stride;
  constexpr bool kBytes = std::is_same_v<T, unsigned char>;
  // The keys of the page as float32.
  for (int i = threadIdx.x; i < count * a.dim; i += kScoreThreads)
    if constexpr (kBytes)
      shared[i / a.dim * pitch + i % a.dim] =
          __half2float(__half(__nv_cvt_fp8_to_halfraw(k[i], __NV_E4M3)));
    else
      shared[i / a.dim * pitch + i % a.dim] = widen(k[i / a.dim * a.k_stride + i % a.dim]);
  __syncthreads();
  // Neighbouring threads have neighbouring keys: the padded pitch avoids bank conflicts.
  const int key = threadIdx.x % kPage, quarter = threadIdx.x / kPage;
  const int h0 = a.heads * quarter / kHeadParts, h1 = a.heads * (quarter + 1) / kHeadParts;
  float total = 0;
  if (key < count)
    for (int h = h0; h < h1; ++h) {
      const float* q = a.q + t * a.q_token + h * a.q_head;
      float dot = 0;
      for (int i = 0; i < a.dim; ++i) dot = fmaf(q[i], shared[key * pitch + i], dot);
      // dot < 0 ? 0 : dot keeps a NaN; fmaxf(dot, 0) would drop it.
      const float positive = dot < 0 ? 0 : dot;
      total = fmaf(a.weights[t * a.weights_stride + h], positive, total);
    }
  // The quarters meet in shared memory.
  part[quarter][key] = total;
  __syncthreads();
  if (quarter != 0 || key >= count) return;
  float sum = part[0][key] + part[1][key] + part[2][key] + part[3][key];
  if constexpr (kBytes) sum *= reinterpret_cast<const float*>(k + kPage * a.dim)[key];
  a.scores[blockIdx.y * a.scores_stride + page * kPage + key] = sum;
}

// Top-k: 2048 bins of 11 bits fit in shared memory.
constexpr int kSelectThreads = 512;
constexpr int kSelectWarps = kSelectThreads / kWarp;
constexpr int kBins = 2048;

// The number of threads before this one with the flag; `all`: of the whole CTA.
__device__ int rank_in_block(bool flag, int* warp_counts, int& all) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  // Ranks within the warp by a ballot, across warps by their counts.
  const unsigned votes = __ballot_sync(kAllLanes, flag);
  __syncthreads();
  if (lane == 0) warp_counts[warp] = __popc(votes);
  __syncthreads();
  int before = 0;
  all = 0;
  for (int w = 0; w < kSelectWarps; ++w) {
    if (w < warp) before += warp_counts[w];
    all += warp_counts[w];
  }
  return before + __popc(votes & ((1u << lane) - 1u));
}

// A CTA for each row: a radix search for the k-th largest key in three digits, then the selected
// positions in ascending order. Among equal keys the lower positions win.
__global__ void __launch_bounds__(kSelectThreads) select_kernel(IndexArgs a) {
  __shared__ int count[kBins];
  __shared__ int warp_counts[kSelectWarps];
  __shared__ int found_digit, found_rest;
  const std::int64_t t = a.first + blockIdx.x, length = std::int64_t{a.positions[t]} + 1;
  std::int32_t* out = a.out + t * a.out_stride;
  // A short row selects all of its keys.
  if (length <= a.topk) {
    for (int i = threadIdx.x; i < a.topk; i += kSelectThreads) out[i] = i < length ? i : -1;
    return;
  }
  const float* scores = a.scores + blockIdx.x * a.scores_stride;
  constexpr int kShift[3] = {21, 10, 0}, kBits[3] = {11, 11, 10};
  // First part: the digits of the k-th largest key, most significant first.
  std::uint32_t prefix = 0, known = 0;
  int rest = a.topk;  // entries still wanted among keys with this prefix
  for (int pass = 0; pass < 3; ++pass) {
    const std::uint32_t digits = (1u << kBits[pass]) - 1u;
    for (int i = threadIdx.x; i < kBins; i += kSelectThreads) count[i] = 0;
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < length; i += kSelectThreads) {
      const std::uint32_t key = order_key(scores[i]);
      // Only keys that share all digits found so far.
      if ((key & known) == prefix) atomicAdd(&count[key >> kShift[pass] & digits], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      // The k-th largest key is in the first bin, from above, at which `rest` entries are reached.
      int digit = static_cast<int>(digits), left = rest;
      while (count[digit] < left) left -= count[digit--];
      found_digit = digit;
      found_rest = left;
    }
    __syncthreads();
    prefix |= static_cast<std::uint32_t>(found_digit) << kShift[pass];
    known |= digits << kShift[pass];
    rest = found_rest;
    __syncthreads();
  }
  // Second part: compaction. Of the keys equal to the k-th largest only the first `rest` are taken.
  int chosen = 0, ties = 0;
  // Both ranks are in order of positions, so the output ascends.
  for (std::int64_t i0 = 0; i0 < length; i0 += kSelectThreads) {
    const std::int64_t i = i0 + threadIdx.x;
    const std::uint32_t key = i < length ? order_key(scores[i]) : 0;
    int all_ties = 0, all_chosen = 0;
    const bool is_tie = i < length && key == prefix;
    const int tie_rank = rank_in_block(is_tie, warp_counts, all_ties);
    const bool is_chosen = i < length && (key > prefix || (is_tie && ties + tie_rank < rest));
    const int rank = rank_in_block(is_chosen, warp_counts, all_chosen);
    if (is_chosen) out[chosen + rank] = static_cast<std::int32_t>(i);
    ties += all_ties;
    chosen += all_chosen;
  }
}

}  // namespace

void hadamard(Context& ctx, const Tensor& x) {
  if (x.numel() == 0) return;
  hadamard_rows<<<static_cast<unsigned>(num_rows(x)), kHadamardThreads, 0, stream_of(ctx)>>>(
      rows_of<float>(x), static_cast<int>(x.dim(-1)));
  check_launch("hadamard");
}

void index_topk(Context& ctx, const Tensor& q, const Tensor& weights, const Tensor& index_k_plane,
                const PagedRows& rows, const Tensor& workspace, const Tensor& out_indices) {
  IndexArgs args = {.q = q.ptr<float>(),
                    .q_token = q.stride[0],
                    .q_head = q.stride[1],
                    .weights = weights.ptr<float>(),
                    .weights_stride = weights.stride[0],
                    .heads = static_cast<int>(q.dim(1)),
                    .dim = static_cast<int>(q.dim(2)),
                    .k = index_k_plane.data,
                    .k_stride = index_k_plane.stride[0],
                    .num_slots = index_k_plane.dim(0),
                    .page_table = rows.page_table.ptr<std::int32_t>(),
                    .row_seq = rows.row_seq.ptr<std::int32_t>(),
                    .positions = rows.positions.ptr<std::int32_t>(),
                    .table_stride = rows.page_table.stride[0],
                    .num_seqs = rows.page_table.dim(0),
                    .max_pages = rows.page_table.dim(1),
                    .scores = workspace.ptr<float>(),
                    .scores_stride = workspace.stride[0],
                    .out = out_indices.ptr<std::int32_t>(),
                    .out_stride = out_indices.stride[0],
                    .topk = static_cast<int>(out_indices.dim(1)),
                    .first = 0};
  const auto shared = static_cast<std::size_t>(kPage * (args.dim + 1)) * sizeof(float);
  const unsigned pages = blocks_for(workspace.dim(1), kPage);
  // The workspace holds the scores of a block of rows: one block after the other.
  for (args.first = 0; args.first < q.dim(0); args.first += workspace.dim(0)) {
    const auto count = static_cast<unsigned>(std::min(workspace.dim(0), q.dim(0) - args.first));
    // Without more keys than topk no row needs scores.
    if (workspace.dim(1) > args.topk &&
        !index_scores_fast(ctx, q, weights, index_k_plane, rows, args.first, count, args.topk,
                           workspace)) {
      // More than 48 KiB of shared memory needs an attribute of the kernel.
      const auto launch = [&](auto type) {
        const auto kernel = score_kernel<decltype(type)>;
        if (shared > 48 << 10)
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared));
        kernel<<<dim3(pages, count), kScoreThreads, shared, stream_of(ctx)>>>(args);
      };
      if (index_k_plane.dtype == DType::kU8)
        launch(static_cast<unsigned char>(0));
      else
        with_plane_type(index_k_plane.dtype, launch);
      check_launch("index scores");
    }
    // The select kernel for Hopper, otherwise the portable one.
    if (index_select_fast(ctx, workspace.rows(0, count), rows.positions.rows(args.first, count),
                          out_indices.rows(args.first, count)))
      continue;
    select_kernel<<<count, kSelectThreads, 0, stream_of(ctx)>>>(args);
    check_launch("index selection");
  }
}

}  // namespace sluice::cuda
