// Exact top-k of the indexer's scores of a row, by a cluster of CTAs with a slice of the row each.
//   1. bound_of_sample   a sample of the scores gives a bound that somewhat more than k scores
//   reach
//   2. count             each CTA counts the candidates of its slice: scores that reach the bound
//   3. compact           each CTA writes its candidates to the first CTA's shared memory, in the
//   order
//                        of positions
//   4. choose            the first CTA finds the k-th largest by a radix search, and writes
//   positions
//
// If the bound was wrong (too few candidates, or too many for shared memory), step 4 takes all
// scores of the row instead. The result is the same, only slower.
#include <cooperative_groups.h>

#include "kernels/cuda/attention/index_fast.h"
#include "kernels/cuda/attention/index_plan.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/order.cuh"

namespace sluice::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kDigitBits = 11;
constexpr int kBins = 1 << kDigitBits;
constexpr int kBinsOfThread = kBins / kThreads;
constexpr int kAtOnce = 8;  // loads of a lane in flight
constexpr int kCandidates = kSelectCandidates;
constexpr int kSampleRun = 8;  // contiguous scores of a sample

struct SelectArgs {
  const float* scores;
  std::int64_t scores_stride;
  const std::int32_t* positions;
  std::int32_t* out;
  std::int64_t out_stride;
  int topk;
};

// Keys and positions are used in the first CTA of the cluster only.
struct Shared {
  std::uint32_t key[kCandidates];
  std::int32_t position[kCandidates];
  int count[kBins];
  int of_warp[2][kWarps];
  int num_candidates;  // of this CTA's slice
  int digit, rest;
};
static_assert(sizeof(Shared) <= 74 << 10);  // three CTAs an SM

template <int kCluster>
__device__ void sync_cluster() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if constexpr (kCluster > 1) return cg::this_cluster().sync();
#endif
  __syncthreads();
}
// The same place in the shared memory of CTA `rank` of the cluster.
template <int kCluster, class T>
__device__ T* in_cta(T* place, int rank) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if constexpr (kCluster > 1) return cg::this_cluster().map_shared_rank(place, rank);
#endif
  return place;
}

// The sum of `mine` over the warps before this one, and over all warps; in all threads.
__device__ int sum_before(int* of_warp, int mine, int& all) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  mine = __reduce_add_sync(kAllLanes, mine);
  if (lane == 0) of_warp[warp] = mine;
  __syncthreads();
  const int theirs = lane < kWarps ? of_warp[lane] : 0;
  all = __reduce_add_sync(kAllLanes, theirs);
  return __reduce_add_sync(kAllLanes, lane < warp ? theirs : 0);
}

__device__ void clear_counts(Shared& s) {
  for (int i = threadIdx.x; i < kBins; i += kThreads) s.count[i] = 0;
  __syncthreads();
}

// The largest digit such that at least `rest` entries have this digit or a larger one. `rest`
// becomes the number of entries still wanted among those with this digit. In all threads; clears
// the counts.
__device__ void find_digit(Shared& s, int& digit, int& rest) {
  __syncthreads();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  // A thread has four neighbouring bins, from the largest digit down.
  const int highest = kBins - 1 - kBinsOfThread * static_cast<int>(threadIdx.x);
  static_assert(kBinsOfThread == 4);
  int4* place = reinterpret_cast<int4*>(&s.count[highest - 3]);
  const int4 four = *place;
  *place = {};
  const int counted[kBinsOfThread] = {four.w, four.z, four.y, four.x};
  const int all = four.x + four.y + four.z + four.w;
  // Prefix sum over the threads.
  int upto = all;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, upto, step);
    if (lane >= step) upto += other;
  }
  if (lane == kWarp - 1) s.of_warp[0][warp] = upto;
  __syncthreads();
  int before = __reduce_add_sync(kAllLanes, lane < warp ? s.of_warp[0][lane] : 0) + upto - all;
#pragma unroll
  for (int j = 0; j < kBinsOfThread; ++j) {
    if (before < rest && before + counted[j] >= rest) {
      s.digit = highest - j;
      s.rest = rest - before;
    }
    before += counted[j];
  }
  __syncthreads();
  digit = s.digit;
  rest = s.rest;
}

// 1. A score that somewhat more than a.topk scores of the row should reach; -inf if all may be
// candidates. Every CTA of the cluster computes the same.
__device__ float bound_of_sample(Shared& s, const SelectArgs& a, const float* scores, int length) {
  const SelectSample sample = sample_of(length, a.topk);
  if (sample.wanted == 0) return -INFINITY;
  const int runs = length / (kSampleRun * sample.share), step = kSampleRun * sample.share;
  const auto key_at = [&](int i) {
    // The place within a step is pseudo-random, so that periodic scores do not bias the sample.
    const auto run = static_cast<std::uint32_t>(i / kSampleRun);
    const auto place =
        static_cast<int>(__umulhi(run * 0x9E3779B9u, static_cast<std::uint32_t>(sample.share)));
    return order_key(scores[static_cast<int>(run) * step + place * kSampleRun + i % kSampleRun]);
  };
  const int size = runs * kSampleRun;
  if (size < sample.wanted) return -INFINITY;
  // Two digits of 11 bits are precise enough for a bound.
  int high, low, rest = sample.wanted;
  for (int i = threadIdx.x; i < size; i += kThreads) atomicAdd(&s.count[key_at(i) >> 21], 1);
  find_digit(s, high, rest);
  for (int i = threadIdx.x; i < size; i += kThreads)
    if (const std::uint32_t key = key_at(i); key >> 21 == static_cast<std::uint32_t>(high))
      atomicAdd(&s.count[key >> 10 & (kBins - 1)], 1);
  find_digit(s, low, rest);
  return score_of_key(static_cast<std::uint32_t>(high) << 21 | static_cast<std::uint32_t>(low)
                                                                   << 10);
}

// Calls body(i, score) for scores [from, to) of a warp, 32 lanes at a time. Lanes past the end get
// -inf and i >= to: body() may use warp votes.
template <class Body>
__device__ void for_each_score(const float* scores, int from, int to, const Body& body) {
  const int lane = threadIdx.x % kWarp;
  for (int i0 = from; i0 < to; i0 += kAtOnce * kWarp) {
    float score[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = i0 + j * kWarp + lane;
      score[j] = i < to ? scores[i] : -INFINITY;
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) body(i0 + j * kWarp + lane, score[j]);
  }
}

// 4. Writes the positions of the a.topk largest of n keys. Keys ascend by position; among equal
// keys the lower positions win.
template <class KeyAt, class PositionAt>
__device__ void choose(Shared& s, const SelectArgs& a, int n, const KeyAt& key_at,
                       const PositionAt& position_at, std::int32_t* out) {
  unsigned max_key = 0, min_key = 0xFFFFFFFFu;
  for (int i = threadIdx.x; i < n; i += kThreads)
    max_key = max(max_key, key_at(i)), min_key = min(min_key, key_at(i));
  max_key = __reduce_max_sync(kAllLanes, max_key);
  min_key = __reduce_min_sync(kAllLanes, min_key);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (lane == 0)
    s.of_warp[0][warp] = static_cast<int>(max_key), s.of_warp[1][warp] = static_cast<int>(min_key);
  __syncthreads();
  max_key =
      __reduce_max_sync(kAllLanes, lane < kWarps ? static_cast<unsigned>(s.of_warp[0][lane]) : 0u);
  min_key = __reduce_min_sync(
      kAllLanes, lane < kWarps ? static_cast<unsigned>(s.of_warp[1][lane]) : 0xFFFFFFFFu);

  // 4a. Radix search. The k-th largest key is in [base, base + 2^width); every pass narrows the
  // range by up to kDigitBits bits.
  std::uint32_t base = min_key;
  int width = kWarp - __clz(static_cast<int>(max_key - min_key)), rest = a.topk;
  // A narrow range of keys needs fewer passes.
  while (width > 0) {
    const int shift = max(width - kDigitBits, 0);
    const std::uint32_t last = width == kWarp ? 0xFFFFFFFFu : (1u << width) - 1u;
    for (int i = threadIdx.x; i < n; i += kThreads) {
      const std::uint32_t offset = key_at(i) - base;  // of a smaller key: wraps, large
      if (key_at(i) >= base && offset <= last) atomicAdd(&s.count[offset >> shift], 1);
    }
    int digit;
    find_digit(s, digit, rest);
    base += static_cast<std::uint32_t>(digit) << shift;
    width = shift;
  }

  // 4b. Each warp has a contiguous run of the keys, so positions come out in ascending order.
  const int run = (n + kThreads - 1) / kThreads * kWarp, from = min(warp * run, n),
            to = min(from + run, n);
  int above = 0, ties = 0, all;
  for (int i = from + lane; i < to; i += kWarp) {
    const std::uint32_t key = key_at(i);
    above += key > base;
    ties += key == base;
  }
  __syncthreads();  // all warps have read of_warp
  above = sum_before(s.of_warp[0], above, all);
  ties = sum_before(s.of_warp[1], ties, all);
  const unsigned before_lane = (1u << lane) - 1u;
  for (int i0 = from; i0 < to; i0 += kWarp) {
    const int i = i0 + lane;
    const std::uint32_t key = i < to ? key_at(i) : 0;  // order_key() is never 0
    const unsigned more = __ballot_sync(kAllLanes, key > base),
                   equal = __ballot_sync(kAllLanes, key == base);
    // Of the keys equal to the k-th largest only the first `rest` are taken.
    const int tie = ties + __popc(equal & before_lane);
    if (key > base || (key == base && tie < rest))
      out[above + __popc(more & before_lane) + min(tie, rest)] = position_at(i);
    above += __popc(more);
    ties += __popc(equal);
  }
}

// Grid: CTAs of a cluster, rows.
template <int kCluster>
__global__ void __launch_bounds__(kThreads, 2) select_kernel(const __grid_constant__ SelectArgs a) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  Shared& s = *reinterpret_cast<Shared*>(shared_memory);
  clear_counts(s);
  wait_for_earlier_kernels();
  start_next_kernel();
  const std::int64_t t = blockIdx.y;
  const int rank = blockIdx.x, length = a.positions[t] + 1;
  std::int32_t* out = a.out + t * a.out_stride;
  // A short row selects all keys. All CTAs of the cluster return, so no barrier is missed.
  if (length <= a.topk) {
    for (int i = rank * kThreads + threadIdx.x; i < a.topk; i += kCluster * kThreads)
      out[i] = i < length ? i : -1;
    return;
  }
  if (length > a.scores_stride) __trap();
  const float* scores = a.scores + t * a.scores_stride;
  const float bound = bound_of_sample(s, a, scores, length);
  const bool takes_all = bound == -INFINITY;  // NaN scores are candidates then

  // 2. Each warp has a contiguous run of the slice.
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  // A contiguous slice for each CTA of the cluster.
  const int slice = (length + kCluster - 1) / kCluster, begin = min(rank * slice, length),
            end = min(begin + slice, length);
  const int run = ((end - begin) / kWarps + kWarp) / kWarp * kWarp,
            from = min(begin + warp * run, end), to = min(from + run, end);
  const auto is_candidate = [&](int i, float score) {
    return i < to && (takes_all || score >= bound);
  };
  int count = 0, all;
  for_each_score(scores, from, to, [&](int i, float score) { count += is_candidate(i, score); });
  int at = sum_before(s.of_warp[1], count, all);  // place of this warp's first candidate
  if (threadIdx.x == 0) s.num_candidates = all;
  // All counts of the cluster are visible.
  sync_cluster<kCluster>();
  const int candidates_of_lane = lane < kCluster ? *in_cta<kCluster>(&s.num_candidates, lane) : 0;
  at += __reduce_add_sync(kAllLanes, lane < rank ? candidates_of_lane : 0);
  const int n = __reduce_add_sync(kAllLanes, candidates_of_lane);
  // 3. `fits` is the same in all CTAs of the cluster.
  const bool fits = n >= a.topk && n <= kCandidates;
  if (fits) {
    std::uint32_t* keys = in_cta<kCluster>(s.key, 0);
    std::int32_t* places = in_cta<kCluster>(s.position, 0);
    for_each_score(scores, from, to, [&](int i, float score) {
      const bool is_wanted = is_candidate(i, score);
      const unsigned votes = __ballot_sync(kAllLanes, is_wanted);
      const int place = at + __popc(votes & ((1u << lane) - 1u));
      if (is_wanted) keys[place] = order_key(score), places[place] = i;
      at += __popc(votes);
    });
  }
  sync_cluster<kCluster>();
  // Hazard: after this barrier no CTA writes into the shared memory of the first one.
  if (rank != 0) return;
  if (fits)
    choose(s, a, n, [&](int i) { return s.key[i]; }, [&](int i) { return s.position[i]; }, out);
  else
    choose(s, a, length, [&](int i) { return order_key(scores[i]); }, [](int i) { return i; }, out);
}

template <int kCluster>
// A cluster of 1 is launched without the cluster attribute.
void launch_select(Context& ctx, const SelectArgs& args, unsigned rows) {
  const auto kernel = select_kernel<kCluster>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                       cudaSharedmemCarveoutMaxShared);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(sizeof(Shared)));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kCluster, rows);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = sizeof(Shared);
  config.stream = stream_of(ctx);
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = kCluster;
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  config.attrs = attributes;
  config.numAttrs = kCluster > 1 ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, args);
  check_launch("index selection");
}

}  // namespace

bool index_select_fast(Context& ctx, const Tensor& scores, const Tensor& positions,
                       const Tensor& out_indices) {
  if (ctx.cuda == nullptr || ctx.cuda->info().sm < 90 || ctx.deterministic) return false;
  const std::int64_t rows = positions.dim(0), topk = out_indices.dim(1);
  // The cluster size is a template argument.
  const SelectPlan plan = plan_select(rows, scores.dim(1), ctx.cuda->info().num_sms);
  const SelectArgs args{.scores = scores.ptr<float>(),
                        .scores_stride = scores.stride[0],
                        .positions = positions.ptr<std::int32_t>(),
                        .out = out_indices.ptr<std::int32_t>(),
                        .out_stride = out_indices.stride[0],
                        .topk = static_cast<int>(topk)};
  const auto count = static_cast<unsigned>(rows);
  switch (plan.cluster) {
    case 1:
      launch_select<1>(ctx, args, count);
      break;
    case 2:
      launch_select<2>(ctx, args, count);
      break;
    case 4:
      launch_select<4>(ctx, args, count);
      break;
    default:
      launch_select<8>(ctx, args, count);
  }
  return true;
}

}  // namespace sluice::cuda
