// The choice of experts: a warp for each token.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

using ops::kMaxExperts;
using ops::kMaxGroups;

struct RouteArgs {
  const float* logits;
  const float* bias;   // null: none
  float* weights;
  std::int32_t* ids;
  std::int64_t logits_stride, weights_stride, ids_stride;
  int experts;
  RouterParams params;
};

// Whether a at index i comes before b at index j: the larger, a number before a NaN, of equals the first.
__device__ bool before(float a, int i, float b, int j) {
  if (isnan(a) != isnan(b)) return isnan(b);
  if (!isnan(a) && a != b) return a > b;
  return i < j;
}

// The best entry of values[0, n) that is not taken, in all lanes; -1 when none is left.
__device__ int best(const float* values, const bool* taken, int n) {
  const int lane = threadIdx.x % kWarp;
  float value = -INFINITY;
  int index = -1;
  for (int i = lane; i < n; i += kWarp)
    if (!taken[i] && (index < 0 || before(values[i], i, value, index))) {
      value = values[i];
      index = i;
    }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, step);
    const int at = __shfl_xor_sync(kAllLanes, index, step);
    if (at >= 0 && (index < 0 || before(other, at, value, index))) {
      value = other;
      index = at;
    }
  }
  return index;
}

__device__ void fill_scores(const RouteArgs& a, const float* logits, float* scores) {
  const int lane = threadIdx.x % kWarp;
  if (a.params.scoring == ops::RouterScoring::kSigmoid) {
    for (int i = lane; i < a.experts; i += kWarp)
      scores[i] = static_cast<float>(1.0 / (1.0 + exp(-static_cast<double>(logits[i]))));
    return;
  }
  float top = -INFINITY;
  for (int i = lane; i < a.experts; i += kWarp) top = fmaxf(top, logits[i]);
  top = warp_max(top);
  double sum = 0;
  for (int i = lane; i < a.experts; i += kWarp) sum += exp(static_cast<double>(logits[i]) - top);
  sum = warp_sum(sum);
  for (int i = lane; i < a.experts; i += kWarp)
    scores[i] = static_cast<float>(exp(static_cast<double>(logits[i]) - top) / sum);
}

// Sets the choice values of the groups that are not kept to -inf.
__device__ void drop_groups(const RouteArgs& a, float* choice, float* group_score, bool* kept) {
  const int lane = threadIdx.x % kWarp, size = a.experts / a.params.n_group;
  for (int g = lane; g < a.params.n_group; g += kWarp) {
    float first = -INFINITY, second = -INFINITY;
    for (int i = g * size; i < (g + 1) * size; ++i) {
      second = fmaxf(second, fminf(first, choice[i]));
      first = fmaxf(first, choice[i]);
    }
    group_score[g] = a.params.method == ops::RouterMethod::kNoauxTc && size > 1 ? first + second : first;
    kept[g] = false;
  }
  __syncwarp();
  for (int i = 0; i < a.params.topk_group; ++i) {
    const int g = best(group_score, kept, a.params.n_group);
    if (lane == 0) kept[g] = true;
    __syncwarp();
  }
  for (int i = lane; i < a.experts; i += kWarp)
    if (!kept[i / size]) choice[i] = -INFINITY;
  __syncwarp();
}

// The sparse mixer (kernels/cpu/router.cpp, mix_row): `left` and `taken` hold a row of experts each.
__device__ void mix_row(const RouteArgs& a, const float* logits, float* left, bool* taken, float* weights,
                        std::int32_t* ids) {
  const int lane = threadIdx.x;
  for (int i = lane; i < a.experts; i += kWarp) {
    left[i] = logits[i];
    taken[i] = false;
  }
  __syncwarp();
  int chosen[2];
  float weight[2];
  for (int j = 0; j < 2; ++j) {
    const int top = best(left, taken, a.experts);
    const float highest = left[top];
    double sum = 0;
    for (int i = lane; i < a.experts; i += kWarp) {
      const float size = fabsf(logits[i]), distance = (highest - logits[i]) / (size < highest ? highest : size);
      const float near = distance > 2 * a.params.mixer_eps ? -INFINITY : left[i];
      sum += exp(static_cast<double>(near) - highest);
    }
    chosen[j] = top;
    weight[j] = static_cast<float>(1.0 / warp_sum(sum)) * a.params.scaling;   // near[top] is highest itself
    __syncwarp();
    if (lane == 0) left[top] = -INFINITY;
    __syncwarp();
  }
  const int lower = chosen[0] < chosen[1] ? 0 : 1;
  if (lane < 2) {
    ids[lane] = chosen[lane == 0 ? lower : 1 - lower];
    weights[lane] = weight[lane == 0 ? lower : 1 - lower];
  }
}

__global__ void __launch_bounds__(kWarp) route_kernel(RouteArgs a) {
  __shared__ float scores[kMaxExperts], choice[kMaxExperts], group_score[kMaxGroups];
  __shared__ bool taken[kMaxExperts], kept[kMaxGroups];
  begin_dependent();
  const int lane = threadIdx.x;
  const std::int64_t t = blockIdx.x;
  if (a.params.method == ops::RouterMethod::kSparseMixer)
    return mix_row(a, a.logits + t * a.logits_stride, choice, taken, a.weights + t * a.weights_stride,
                   a.ids + t * a.ids_stride);
  fill_scores(a, a.logits + t * a.logits_stride, scores);
  // Sigmoids of large logits are equal, the logits are not.
  const bool by_logits = a.params.method == ops::RouterMethod::kGreedy && a.params.scoring == ops::RouterScoring::kSigmoid;
  for (int i = lane; i < a.experts; i += kWarp) {
    choice[i] = a.bias != nullptr ? scores[i] + a.bias[i] : by_logits ? a.logits[t * a.logits_stride + i] : scores[i];
    taken[i] = false;
  }
  __syncwarp();
  if (a.params.method != ops::RouterMethod::kGreedy && a.params.n_group > 1) drop_groups(a, choice, group_score, kept);
  for (int j = 0; j < a.params.top_k; ++j) {
    const int i = best(choice, taken, a.experts);
    if (lane == 0) taken[i] = true;
    __syncwarp();
  }
  // Ascending ids, and a sum in that order.
  float* weights = a.weights + t * a.weights_stride;
  std::int32_t* ids = a.ids + t * a.ids_stride;
  int found = 0;
  for (int base = 0; base < a.experts; base += kWarp) {
    const int i = base + lane;
    const bool mine = i < a.experts && taken[i];
    const unsigned votes = __ballot_sync(kAllLanes, mine);
    const int place = found + __popc(votes & ((1u << lane) - 1));
    if (mine) {
      ids[place] = i;
      choice[place] = scores[i];   // the scores that were compared are needed no more
    }
    found += __popc(votes);
  }
  __syncwarp();
  float sum = 0;
  for (int j = 0; j < found; ++j) sum += choice[j];
  for (int j = lane; j < found; j += kWarp) {
    float weight = choice[j];
    if (a.params.renormalise) weight /= fmaxf(sum + a.params.renormalise_eps, a.params.renormalise_min);
    weights[j] = weight * a.params.scaling;
  }
}

}  // namespace

void route(Context& ctx, const Tensor& logits, const Tensor& correction_bias, const RouterParams& params,
           const Tensor& weights, const Tensor& ids) {
  if (logits.dim(0) == 0) return;
  const RouteArgs args = {.logits = logits.ptr<float>(),
                          .bias = correction_bias.defined() ? correction_bias.ptr<float>() : nullptr,
                          .weights = weights.ptr<float>(),
                          .ids = ids.ptr<std::int32_t>(),
                          .logits_stride = logits.stride[0],
                          .weights_stride = weights.stride[0],
                          .ids_stride = ids.stride[0],
                          .experts = static_cast<int>(logits.dim(1)),
                          .params = params};
  launch_dependent(ctx, "route", route_kernel, static_cast<unsigned>(logits.dim(0)), kWarp, 0, args);
}

}  // namespace sluice::cuda
