// Samples tokens from rows of logits: kernels/cpu/sampling/sample.h on a GPU, with the same bits.
// Compiled without contraction.
//   1. find_best     the largest logit of each part of a row
//   2. choose_rows   for each row: greedy, or
//      2a. select    top-k and top-p by histograms of the weights' bits
//      2b. locate    the token at which the running sum of the kept weights exceeds a random target
//
// Sums are of integers ("mass", sample_math.h). So they have the same bits in any order.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/cuda.h"
#include "kernels/types/sample_math.h"

namespace sluice::cuda {
namespace {

using ops::SampleRow;
using Mass = unsigned long long;  // in units of sample_math.h; a type that atomicAdd() takes

constexpr int kThreads = 1024, kWarps = kThreads / kWarp;
// Weights are at most 1, so their bits are three digits of 10 bits.
constexpr int kBinBits = 10, kBins = 1 << kBinBits;
constexpr int kMaxParts = kWarp;  // of a row
constexpr int kCopies = 4;        // of the histogram, against atomics on one address
static_assert(kBins == kThreads);

// Dynamic shared memory of choose_rows.
struct Histogram {
  Mass mass[kCopies][kBins];
  unsigned count[kCopies][kBins];
};

struct Best {
  float value;
  std::int32_t at;  // INT_MAX: no entry yet
};

// The larger value; the lower index of equals.
__device__ Best better(Best a, Best b) {
  if (b.value > a.value) return b;
  if (b.value == a.value && b.at < a.at) return b;
  return a;
}

__device__ Best warp_best(Best best) {
  // A butterfly: all lanes end with the same entry.
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const Best other{__shfl_xor_sync(kAllLanes, best.value, step),
                     __shfl_xor_sync(kAllLanes, best.at, step)};
    best = better(best, other);
  }
  return best;
}

// Calls body(x, i) for every entry of part `part` of `parts` of the row. Aligned rows are read as
// float4.
template <class Body>
__device__ void each_logit(const float* row, std::int32_t n, Body&& body, int part = 0,
                           int parts = 1) {
  const std::int32_t whole = reinterpret_cast<std::uintptr_t>(row) % 16 == 0 ? n / 4 : 0;
  const std::int32_t first = part * kThreads + static_cast<std::int32_t>(threadIdx.x),
                     step = parts * kThreads;
#pragma unroll 4
  for (std::int32_t i = first; i < whole; i += step) {
    const float4 four = reinterpret_cast<const float4*>(row)[i];
    body(four.x, 4 * i);
    body(four.y, 4 * i + 1);
    body(four.z, 4 * i + 2);
    body(four.w, 4 * i + 3);
  }
  // The entries after the last float4, or all of an unaligned row.
  for (std::int32_t i = 4 * whole + first; i < n; i += step) body(row[i], i);
}

// The largest entry of a part of the row and its lowest index, in all threads; `at` is -1 if the
// part has a NaN. The maximum has a total order, so the order of the search does not matter.
__device__ Best block_best(const float* row, std::int32_t n, int part, int parts) {
  Best best{-INFINITY, 0x7fffffff};
  int nan = 0;
  each_logit(
      row, n,
      [&](float x, std::int32_t i) {
        nan |= x != x;
        if (x > best.value)
          best = {x, i};  // the indices of a thread ascend, so the first of equals stays
      },
      part, parts);
  nan = __syncthreads_or(nan);
  __shared__ Best of_warp[kWarps];
  best = warp_best(best);
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = best;
  __syncthreads();
  best = warp_best(of_warp[threadIdx.x % kWarp]);
  return {best.value, nan ? -1 : best.at};
}

// The best of the parts of a row, in all threads; lane i of each warp passes part i. `at` is -1 if
// the row has a NaN or +infinity, or nothing above -infinity.
__device__ Best reduce_best(Best mine) {
  const bool nan = __any_sync(kAllLanes, mine.at < 0);
  const Best best = warp_best(mine);
  return {best.value, nan || !isfinite(best.value) ? -1 : best.at};
}

// Inclusive prefix sum over the threads of the CTA. `total` gets the sum over all threads.
__device__ Mass scan_block(Mass x, Mass& total) {
  __shared__ Mass of_warp[kWarps];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const auto scan_warp = [lane](Mass v) {
    for (int step = 1; step < kWarp; step *= 2) {
      const Mass below = __shfl_up_sync(kAllLanes, v, step);
      if (lane >= step) v += below;
    }
    return v;
  };
  x = scan_warp(x);
  __syncthreads();  // all warps have read the sums of the call before
  if (lane == kWarp - 1) of_warp[warp] = x;
  __syncthreads();
  // Every warp scans the sums of all warps.
  const Mass sums = scan_warp(of_warp[lane]);
  total = __shfl_sync(kAllLanes, sums, kWarps - 1);
  const Mass before = __shfl_sync(kAllLanes, sums, warp == 0 ? 0 : warp - 1);
  return warp == 0 ? x : x + before;
}

// 2b. The first index at which the running sum of value(i) exceeds target(total), or -1. In all
// threads. First the sums of 32 segments, then a prefix sum inside the segment that crosses the
// target.
template <class Value, class Target>
__device__ std::int32_t locate(std::int32_t n, Value&& value, Target&& target) {
  __shared__ Mass of_warp[kWarps];
  __shared__ std::int32_t found;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const std::int32_t segment = (n + kWarps - 1) / kWarps;  // contiguous, one for each warp
  Mass sum = 0;
  for (std::int32_t i = warp * segment + lane; i < min(n, (warp + 1) * segment); i += kWarp)
    sum += value(i);
  sum = warp_sum(sum);
  __syncthreads();
  if (lane == 0) of_warp[warp] = sum;
  if (threadIdx.x == 0) found = -1;
  __syncthreads();
  Mass total = 0;
  for (int w = 0; w < kWarps; ++w) total += of_warp[w];
  const Mass wanted = target(total);
  Mass before = 0;
  // The segment that crosses the target.
  int w = 0;
  while (w < kWarps && before + of_warp[w] <= wanted) before += of_warp[w++];
  const std::int32_t end = min(n, (w + 1) * segment);
  for (std::int32_t begin = w * segment; begin < end; begin += kThreads) {
    const std::int32_t i = begin + static_cast<std::int32_t>(threadIdx.x);
    const Mass mine = i < end ? value(i) : 0;
    Mass piece;
    const Mass upto = before + scan_block(mine, piece);
    if (upto > wanted && upto - mine <= wanted) found = i;
    before += piece;
    if (before > wanted) break;
  }
  __syncthreads();
  return found;
}

// A place in the order (weight descending, index ascending). Entries up to the place are kept.
struct Cut {
  unsigned bits = 0;  // of the weight
  std::int32_t index = 0x7fffffff;
  Mass reached = 0;  // the sum of what is kept
};

// 2a. Where the sorted weights reach `count` entries or the share top_p of `base` (0: of all
// weights), whichever is first. A radix search without a sort: each of three histograms gives ten
// more bits of the weight at that place. weight(x): the weight of a logit.
template <class Weight>
__device__ Cut select(const float* row, std::int32_t n, Histogram& bins, Weight&& weight,
                      Mass count, float top_p, Mass base) {
  __shared__ int crossing;
  __shared__ Mass kept_above, mass_above;
  __shared__ unsigned equals;
  Cut cut;
  // Entries and mass above the digits found so far.
  unsigned digits = 0;
  Mass kept = 0, mass = 0, wanted = ~Mass{0};
  const int bin = kBins - 1 - static_cast<int>(threadIdx.x);  // the largest weights come first
  for (int shift = 2 * kBinBits; shift >= 0; shift -= kBinBits) {
    __syncthreads();
    for (int c = 0; c < kCopies; ++c) {
      bins.mass[c][threadIdx.x] = 0;
      bins.count[c][threadIdx.x] = 0;
    }
    if (threadIdx.x == 0) crossing = -1;
    __syncthreads();
    const int copy = threadIdx.x % kCopies;
    each_logit(row, n, [&](float x, std::int32_t) {
      const float w = weight(x);
      const unsigned bits = __float_as_uint(w);
      if (bits == 0 || bits >> shift >> kBinBits != digits) return;
      const unsigned at = bits >> shift & (kBins - 1);
      atomicAdd(&bins.mass[copy][at], Mass{draw::mass_of(w)});
      atomicAdd(&bins.count[copy][at], 1u);
    });
    __syncthreads();
    Mass bin_mass = 0, bin_count = 0;
    for (int c = 0; c < kCopies; ++c) {
      bin_mass += bins.mass[c][bin];
      bin_count += bins.count[c][bin];
    }
    // Prefix sums over the bins, from the largest weight down.
    Mass all, none;
    const Mass mass_upto = mass + scan_block(bin_mass, all);
    const Mass count_upto = kept + scan_block(bin_count, none);
    if (shift == 2 * kBinBits && top_p < 1)
      wanted = draw::mass_wanted(top_p, base == 0 ? all : base);
    const bool before = count_upto - bin_count < count && mass_upto - bin_mass < wanted;
    if (before && (count_upto >= count || mass_upto >= wanted)) {
      crossing = bin;
      kept_above = count_upto - bin_count;
      mass_above = mass_upto - bin_mass;
      equals = static_cast<unsigned>(bin_count);
    }
    __syncthreads();
    if (crossing < 0) {  // no bin reaches the limit: all entries are kept
      cut.reached = all;
      return cut;
    }
    digits = digits << kBinBits | static_cast<unsigned>(crossing);
    kept = kept_above;
    mass = mass_above;
  }
  // Entries with exactly this weight: as many as the limits still allow, lowest indices first.
  const Mass each = draw::mass_of(__uint_as_float(digits));
  Mass members = count - kept;
  if (each > 0 && wanted != ~Mass{0}) members = min(members, (wanted - mass + each - 1) / each);
  cut.bits = digits;
  cut.reached = mass + members * each;
  if (members < equals)
    cut.index = locate(
        n, [&](std::int32_t i) { return Mass{__float_as_uint(weight(row[i])) == digits}; },
        [&](Mass) { return members - 1; });
  return cut;
}

// 1. Grid: parts of a row, rows. best: [rows][parts].
__global__ void __launch_bounds__(kThreads)
    find_best(const float* logits, std::int64_t stride, std::int32_t n,
              const SampleRow* sample_rows, Best* best) {
  begin_dependent();
  if (sample_rows[blockIdx.y].temperature == SampleRow::kLeftOut) return;
  const Best found = block_best(logits + blockIdx.y * stride, n, static_cast<int>(blockIdx.x),
                                static_cast<int>(gridDim.x));
  if (threadIdx.x == 0) best[blockIdx.y * gridDim.x + blockIdx.x] = found;
}

// 2. A CTA for each row.
__global__ void __launch_bounds__(kThreads)
    choose_rows(const float* logits, std::int64_t stride, std::int32_t n, const Best* best_of_parts,
                int parts, const SampleRow* sample_rows, std::int32_t* tokens) {
  extern __shared__ unsigned char memory[];
  begin_dependent();
  auto& bins = *reinterpret_cast<Histogram*>(memory);
  const float* row = logits + blockIdx.x * stride;
  const int lane = threadIdx.x % kWarp;
  const Best of_lane = lane < parts ? best_of_parts[std::int64_t{blockIdx.x} * parts + lane]
                                    : Best{-INFINITY, 0x7fffffff};
  const SampleRow row_params = sample_rows[blockIdx.x];
  const auto store = [&](std::int32_t token) {
    if (threadIdx.x == 0) tokens[blockIdx.x] = token;
  };
  if (row_params.temperature == SampleRow::kLeftOut) return store(0);
  const Best best = reduce_best(of_lane);
  if (best.at < 0 || row_params.temperature == 0 || row_params.top_k == 1) return store(best.at);

  const float inverse = draw::inverse_temperature(row_params.temperature);
  const auto weight = [&](float x) { return draw::exp_nonpositive((x - best.value) * inverse); };
  Cut cut;
  const bool has_top_k = row_params.top_k > 0 && row_params.top_k < n;
  const Mass count = has_top_k ? static_cast<Mass>(row_params.top_k) : ~Mass{0};
  if (has_top_k && row_params.top_p < 1 &&
      row_params.min_p > 0) {  // top-p is a share of what top-k keeps
    const Cut best_k = select(row, n, bins, weight, count, 1.0f, 0);
    cut = select(row, n, bins, weight, count, row_params.top_p, best_k.reached);
  } else if (has_top_k || row_params.top_p < 1) {
    cut = select(row, n, bins, weight, count, row_params.top_p, 0);
  }
  const auto mass = [&](std::int32_t i) -> Mass {
    const float w = weight(row[i]);
    // Weights are not negative, so their bits compare like the weights.
    const unsigned bits = __float_as_uint(w);
    const bool is_kept = bits > cut.bits || (bits == cut.bits && i <= cut.index);
    return is_kept && w >= row_params.min_p ? draw::mass_of(w) : 0;
  };
  store(locate(n, mass,
               [&](Mass total) { return Mass{draw::sampled_mass(row_params.uniform, total)}; }));
}

}  // namespace

void sample_tokens(Context& ctx, const Tensor& logits, const Tensor& sample_rows,
                   const Tensor& tokens) {
  if (logits.numel() == 0) return;
  // With few rows several CTAs search each row, so that most SMs read.
  const std::int64_t rows = logits.dim(0),
                     max_parts = std::max<std::int64_t>(ctx.cuda->info().num_sms / rows, 1);
  const auto n = static_cast<std::int32_t>(logits.dim(1));
  const auto parts = static_cast<unsigned>(
      std::min<std::int64_t>({max_parts, kMaxParts, blocks_for(n, 4 * kThreads)}));
  auto* best = static_cast<Best*>(ctx.cuda->scratch());
  launch_dependent(ctx, "the largest logits", find_best, dim3(parts, static_cast<unsigned>(rows)),
                   kThreads, 0, logits.ptr<float>(), logits.stride[0], n,
                   ops::as_sample_rows(sample_rows), best);
  // With the static shared memory this is over 48 KiB, which CUDA gives only on request.
  cudaFuncSetAttribute(choose_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Histogram));
  launch_dependent(ctx, "sample_tokens", choose_rows, static_cast<unsigned>(rows), kThreads,
                   std::int64_t{sizeof(Histogram)}, logits.ptr<float>(), logits.stride[0], n, best,
                   static_cast<int>(parts), ops::as_sample_rows(sample_rows),
                   tokens.ptr<std::int32_t>());
}

}  // namespace sluice::cuda
