// The exact choice of the best of a row's scores, by a cluster of blocks, each with a slice of them.
//
// A sample of the scores tells a bound that somewhat more than k of them reach; a pass over all notes those, the candidates,
// in shared memory. Among them the k-th largest is found by counting them by the bits of their order, most significant
// first, and adding up what all blocks of the cluster counted; then positions are written in ascending order, each block's
// behind those of the blocks before it. Where the bound was wrong (too few reach it, or more than there is room for), all
// scores are counted instead: slower, and the same.
#include <cooperative_groups.h>

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/order.cuh"
#include "kernels/cuda/index_fast.h"
#include "kernels/cuda/index_plan.h"

namespace sluice::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kBins = 2048;              // of 11 bits
constexpr int kBinsOfThread = kBins / kThreads;
constexpr int kPasses = 3;
constexpr int kAtOnce = 8;               // scores that a thread asks for before it looks at the first
constexpr int kCandidates = kSelectCandidates;
// Of every kSampleStep scores the sample has kSampleRun neighbours.
constexpr int kSampleRun = 8, kSampleStep = kSampleRun * kSelectSampleShare;

struct SelectArgs {
  const float* scores;
  std::int64_t scores_stride;
  const std::int32_t* positions;
  std::int32_t* out;
  std::int64_t out_stride;
  int topk;
  int sampled;                           // so many of the sample should reach the bound; 0: there is no sample
};

struct Shared {
  std::uint32_t key[kCandidates];
  std::int32_t position[kCandidates];
  int count[kPasses][kBins];
  int count_of_sample[2][kBins];
  int of_warp[kAtOnce][kWarps];
  int of_block[2];                       // scores above the k-th largest, and equal to it
  int noted;                             // candidates of the block, however many there is room for
  int digit, rest;
};

static_assert(sizeof(Shared) <= 110 << 10);   // two blocks on a multiprocessor

template <int kCluster>
__device__ void join_cluster() {
  if constexpr (kCluster > 1)
    cg::this_cluster().sync();
  else
    __syncthreads();
}

// The sum over the blocks of a cluster of what stands at `place` in each.
template <int kCluster>
__device__ int sum_over_cluster(int* place) {
  int sum = 0;
  if constexpr (kCluster == 1) {
    sum = *place;
  } else {
#pragma unroll
    for (int r = 0; r < kCluster; ++r) sum += *cg::this_cluster().map_shared_rank(place, r);
  }
  return sum;
}

// The largest digit such that at least `rest` are counted from it on, and how many of it are wanted; in all threads.
template <int kCluster>
__device__ void find_digit(Shared& s, int* count, int& digit, int& rest) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int highest = kBins - 1 - kBinsOfThread * static_cast<int>(threadIdx.x);
  int counted[kBinsOfThread], all = 0;
#pragma unroll
  for (int j = 0; j < kBinsOfThread; ++j) {
    counted[j] = sum_over_cluster<kCluster>(&count[highest - j]);
    all += counted[j];
  }
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

// A number that `a.sampled` of the sample reach, to 22 bits of their order; 0 where the sample is not so large.
template <int kCluster>
__device__ std::uint32_t bound_of_sample(Shared& s, const SelectArgs& a, const float* scores, int length, int slice, int n) {
  int all = 0;
  for (int r = 0; r < kCluster; ++r) all += max(min(slice, length - r * slice), 0) / kSampleStep * kSampleRun;
  if (all < a.sampled) return 0;
  const int size = n / kSampleStep * kSampleRun;
  const auto key_at = [&](int i) {
    const int run = i / kSampleRun;   // its place within a step differs, lest scores of a period be missed
    return order_key(scores[run * kSampleStep + run * 13 % kSelectSampleShare * kSampleRun + i % kSampleRun]);
  };
  for (int i = threadIdx.x; i < size; i += kThreads) atomicAdd(&s.count_of_sample[0][key_at(i) >> 21], 1);
  join_cluster<kCluster>();
  int high, low, rest = a.sampled;
  find_digit<kCluster>(s, s.count_of_sample[0], high, rest);
  for (int i = threadIdx.x; i < size; i += kThreads)
    if (const std::uint32_t key = key_at(i); key >> 21 == static_cast<std::uint32_t>(high))
      atomicAdd(&s.count_of_sample[1][key >> 10 & 2047], 1);
  join_cluster<kCluster>();
  find_digit<kCluster>(s, s.count_of_sample[1], low, rest);
  return static_cast<std::uint32_t>(high) << 21 | static_cast<std::uint32_t>(low) << 10;
}

// Notes the scores that reach `bound`, in order.
__device__ void note_candidates(Shared& s, const float* scores, int n, std::uint32_t bound) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const unsigned before_lane = (1u << lane) - 1u;
  int noted = 0;
  for (int i0 = 0; i0 < n; i0 += kAtOnce * kThreads) {
    std::uint32_t key[kAtOnce];
    unsigned votes[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = i0 + j * kThreads + static_cast<int>(threadIdx.x);
      key[j] = i < n ? __float_as_uint(scores[i]) : 0xFF800000u;
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = i0 + j * kThreads + static_cast<int>(threadIdx.x);
      key[j] = order_key(__uint_as_float(key[j]));
      votes[j] = __ballot_sync(kAllLanes, i < n && key[j] >= bound);
      if (lane == 0) s.of_warp[j][warp] = __popc(votes[j]);
    }
    __syncthreads();
    // Lane l has the counts 4 l to 4 l + 3 of kAtOnce * kWarps, in the order of positions.
    static_assert(kAtOnce * kWarps == 4 * kWarp);
    const int4 four = reinterpret_cast<const int4*>(&s.of_warp[0][0])[lane];
    const int sum = four.x + four.y + four.z + four.w;
    int upto = sum;
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = __shfl_up_sync(kAllLanes, upto, step);
      if (lane >= step) upto += other;
    }
    const int first = upto - sum;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int entry = j * kWarps + warp, source = entry / 4;
      const int a = __shfl_sync(kAllLanes, first, source), x = __shfl_sync(kAllLanes, four.x, source),
                y = __shfl_sync(kAllLanes, four.y, source), z = __shfl_sync(kAllLanes, four.z, source);
      const int within = entry % 4;
      const int at = noted + a + (within > 0 ? x : 0) + (within > 1 ? y : 0) + (within > 2 ? z : 0) + __popc(votes[j] & before_lane);
      if ((votes[j] >> lane & 1u) != 0 && at < kCandidates) {
        s.key[at] = key[j];
        s.position[at] = i0 + j * kThreads + static_cast<int>(threadIdx.x);
      }
    }
    noted += __shfl_sync(kAllLanes, upto, kWarp - 1);
    __syncthreads();   // the counts have been read
  }
  if (threadIdx.x == 0) s.noted = noted;
}

// Grid: blocks of a cluster, rows.
template <int kCluster>
__global__ void __launch_bounds__(kThreads, 2) select_kernel(const __grid_constant__ SelectArgs a) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  Shared& s = *reinterpret_cast<Shared*>(shared_memory);
  for (int i = threadIdx.x; i < kBins; i += kThreads) {
    for (auto& count : s.count) count[i] = 0;
    for (auto& count : s.count_of_sample) count[i] = 0;
  }
  wait_for_earlier_kernels();
  start_next_kernel();
  const std::int64_t t = blockIdx.y;
  const int rank = blockIdx.x, length = a.positions[t] + 1;
  std::int32_t* out = a.out + t * a.out_stride;
  if (length <= a.topk) {   // the same for the whole cluster
    for (int i = rank * kThreads + threadIdx.x; i < a.topk; i += kCluster * kThreads) out[i] = i < length ? i : -1;
    return;
  }
  if (length > a.scores_stride) __trap();
  const int slice = (length + kCluster - 1) / kCluster, begin = min(rank * slice, length), all = min(slice, length - begin);
  const float* scores = a.scores + t * a.scores_stride + begin;
  __syncthreads();

  bool noted = false;   // whether the candidates are all that matter; the same for the whole cluster
  if (a.sampled > 0) {
    note_candidates(s, scores, all, bound_of_sample<kCluster>(s, a, scores, length, slice, all));
    join_cluster<kCluster>();
    int sum = 0, most = 0;
    for (int r = 0; r < kCluster; ++r) {
      int candidates = 0;
      if constexpr (kCluster == 1)
        candidates = s.noted;
      else
        candidates = *cg::this_cluster().map_shared_rank(&s.noted, r);
      sum += candidates;
      most = max(most, candidates);
    }
    noted = sum >= a.topk && most <= kCandidates;
  }
  const int n = noted ? s.noted : all;
  const auto key_at = [&](int i) { return noted ? s.key[i] : order_key(scores[i]); };

  constexpr int kShift[kPasses] = {21, 10, 0}, kDigits[kPasses] = {2047, 2047, 1023};
  std::uint32_t prefix = 0, known = 0;
  int rest = a.topk;   // entries still wanted among those that share the prefix
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    for (int i = threadIdx.x; i < n; i += kThreads) {
      const std::uint32_t key = key_at(i);
      if ((key & known) == prefix) atomicAdd(&s.count[pass][key >> kShift[pass] & kDigits[pass]], 1);
    }
    join_cluster<kCluster>();
    int digit;
    find_digit<kCluster>(s, s.count[pass], digit, rest);
    prefix |= static_cast<std::uint32_t>(digit) << kShift[pass];
    known |= static_cast<std::uint32_t>(kDigits[pass]) << kShift[pass];
  }

  // Each warp has a run of the slice.
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int run = (n + kThreads - 1) / kThreads * kWarp, from = min(warp * run, n), to = min(from + run, n);
  int above = 0, ties = 0;
  for (int i = from + lane; i < to; i += kWarp) {
    const std::uint32_t key = key_at(i);
    above += key > prefix;
    ties += key == prefix;
  }
  above = __reduce_add_sync(kAllLanes, above);
  ties = __reduce_add_sync(kAllLanes, ties);
  if (lane == 0) {
    s.of_warp[0][warp] = above;
    s.of_warp[1][warp] = ties;
  }
  __syncthreads();
  const int above_of = lane < kWarps ? s.of_warp[0][lane] : 0, ties_of = lane < kWarps ? s.of_warp[1][lane] : 0;
  above = __reduce_add_sync(kAllLanes, lane < warp ? above_of : 0);
  ties = __reduce_add_sync(kAllLanes, lane < warp ? ties_of : 0);
  if constexpr (kCluster > 1) {
    if (warp == 0) {
      const int all_above = __reduce_add_sync(kAllLanes, above_of), all_ties = __reduce_add_sync(kAllLanes, ties_of);
      if (lane == 0) s.of_block[0] = all_above, s.of_block[1] = all_ties;
    }
    cg::this_cluster().sync();
    int above_before = 0, ties_before = 0;
    if (lane < rank) {
      const int* other = cg::this_cluster().map_shared_rank(s.of_block, lane);
      above_before = other[0];
      ties_before = other[1];
    }
    above += __reduce_add_sync(kAllLanes, above_before);
    ties += __reduce_add_sync(kAllLanes, ties_before);
    cg::this_cluster().barrier_arrive();
  }
  const unsigned before_lane = (1u << lane) - 1u;
  for (int i0 = from; i0 < to; i0 += kWarp) {
    const int i = i0 + lane;
    const std::uint32_t key = i < to ? key_at(i) : 0;   // less than every key of a score
    const unsigned more = __ballot_sync(kAllLanes, key > prefix), equal = __ballot_sync(kAllLanes, key == prefix);
    if ((more | equal) == 0) continue;
    const int tie = ties + __popc(equal & before_lane);
    if (key > prefix || (key == prefix && tie < rest))
      out[above + __popc(more & before_lane) + min(tie, rest)] = begin + (noted ? s.position[i] : i);
    above += __popc(more);
    ties += __popc(equal);
  }
  if constexpr (kCluster > 1) cg::this_cluster().barrier_wait();   // nobody reads this block's counts any more
}

template <int kCluster>
void launch_select(Context& ctx, const SelectArgs& args, unsigned rows) {
  const auto kernel = select_kernel<kCluster>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sizeof(Shared)));
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

bool index_select_fast(Context& ctx, const Tensor& scores, const Tensor& positions, const Tensor& out_indices) {
  if (ctx.cuda == nullptr || ctx.cuda->facts().sm < 90 || ctx.deterministic) return false;
  const std::int64_t rows = positions.dim(0), topk = out_indices.dim(1);
  const SelectPlan plan = plan_select(rows, scores.dim(1), topk, ctx.cuda->facts().num_multiprocessors);
  const SelectArgs args{.scores = scores.ptr<float>(),
                        .scores_stride = scores.stride[0],
                        .positions = positions.ptr<std::int32_t>(),
                        .out = out_indices.ptr<std::int32_t>(),
                        .out_stride = out_indices.stride[0],
                        .topk = static_cast<int>(topk),
                        .sampled = plan.sampled};
  const auto count = static_cast<unsigned>(rows);
  switch (plan.cluster) {
    case 1: launch_select<1>(ctx, args, count); break;
    case 2: launch_select<2>(ctx, args, count); break;
    case 4: launch_select<4>(ctx, args, count); break;
    default: launch_select<8>(ctx, args, count);
  }
  return true;
}

}  // namespace sluice::cuda
