// Merges partial attention results over different keys of one row, by their log sums.
#include "kernels/cuda/attention/attention_general.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

// Two results (merge_state), in double as on the CPU. A result without keys has the log sum -inf:
// the other result is then copied bit by bit, because 0 * NaN would be NaN. Grid: tokens times
// heads.
__global__ void merge_rows(RowsOf<const float> out_a, RowsOf<const float> lse_a,
                           RowsOf<const float> out_b, RowsOf<const float> lse_b, RowsOf<float> out,
                           RowsOf<float> lse, int heads, std::int64_t n) {
  const std::int64_t t = blockIdx.x / heads, h = blockIdx.x % heads;
  const double sa = lse_a.row(t)[h], sb = lse_b.row(t)[h];
  const float *a = out_a.row(blockIdx.x), *b = out_b.row(blockIdx.x);
  float* to = out.row(blockIdx.x);
  __syncthreads();  // all threads have read lse: an output may be an input
  const bool no_a = sa == -INFINITY, no_b = sb == -INFINITY;
  const double new_max = fmax(sa, sb);
  const double ea = no_a ? 0 : exp(sa - new_max), eb = no_b ? 0 : exp(sb - new_max);
  const bool is_copy = no_a || no_b;
  // Weights of the two results, in float32 as on the CPU.
  const float wa = is_copy ? (no_a ? 0.0f : 1.0f) : static_cast<float>(ea / (ea + eb));
  const float wb = is_copy ? (no_b ? 0.0f : 1.0f) : static_cast<float>(eb / (ea + eb));
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x)
    to[i] = is_copy ? (no_a ? (no_b ? 0.0f : b[i]) : a[i]) : a[i] * wa + b[i] * wb;
  if (threadIdx.x == 0)
    lse.row(t)[h] =
        is_copy ? static_cast<float>(no_a ? sb : sa) : static_cast<float>(new_max + log(ea + eb));
}

// The splits of a row (merge_splits). Warp 0 turns log sums into weights, with the head's sink as
// one more term of the sum. Then each thread adds its columns over the splits in ascending
// order. Grid: tokens, heads.
__global__ void merge_parts(const __grid_constant__ MergeArgs a) {
  __shared__ float weights[kMaxKeySplits];
  begin_dependent();
  const std::int64_t row = std::int64_t{blockIdx.x} * gridDim.y + blockIdx.y;
  const float *lse = a.lse + row * a.splits, *part = a.part + row * a.splits * a.dim;
  if (threadIdx.x < kWarp) {
    const int lane = threadIdx.x;
    const float sink = a.sinks == nullptr ? -INFINITY : a.sinks[blockIdx.y];
    const float low = lane < a.splits ? lse[lane] : -INFINITY;
    const float high = lane + kWarp < a.splits ? lse[lane + kWarp] : -INFINITY;
    const float new_max = warp_max(fmaxf(fmaxf(low, high), sink));
    const float first = low == -INFINITY ? 0 : expf(low - new_max),
                second = high == -INFINITY ? 0 : expf(high - new_max);
    const float sum = warp_sum(first + second) + (sink == -INFINITY ? 0 : expf(sink - new_max));
    // A row without any key becomes zeros.
    const float inverse = sum == 0 ? 0 : 1.0f / sum;
    weights[lane] = first * inverse;
    weights[lane + kWarp] = second * inverse;
  }
  __syncthreads();
  // Splits without keys have the weight 0.
  float* out = a.out + blockIdx.x * a.out_token + blockIdx.y * a.out_head;
  for (std::int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) {
    float value = 0;
#pragma unroll 8
    for (int s = 0; s < a.splits; ++s) value = fmaf(weights[s], part[s * a.dim + i], value);
    out[i] = value;
  }
}
static_assert(kMaxKeySplits == 2 * kWarp);  // a lane has two splits

}  // namespace

void merge_splits(Context& ctx, const MergeArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.tokens), static_cast<unsigned>(args.heads));
  launch_dependent(ctx, "merging attention splits", merge_parts, grid, block_for(args.dim), 0,
                   args);
}

void merge_state(Context& ctx, const Tensor& out_a, const Tensor& lse_a, const Tensor& out_b,
                 const Tensor& lse_b, const Tensor& out, const Tensor& lse) {
  if (lse.numel() == 0) return;
  merge_rows<<<static_cast<unsigned>(lse.numel()), block_for(out.dim(2)), 0, stream_of(ctx)>>>(
      rows_of<const float>(out_a), rows_of<const float>(lse_a), rows_of<const float>(out_b),
      rows_of<const float>(lse_b), rows_of<float>(out), rows_of<float>(lse),
      static_cast<int>(out.dim(1)), out.dim(2));
  check_launch("merge_state");
}

}  // namespace sluice::cuda
