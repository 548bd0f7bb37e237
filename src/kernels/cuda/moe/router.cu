// The MoE router: scores, groups, top-k and weights of the experts, a warp for each token.
//   1. fill_scores   softmax or sigmoid of the logits
//   2. drop_groups   group-limited routing: only the best groups stay
//   3. take_best     top-k
//   4. route_token   ids in ascending order, and their weights
//   norm_route_kernel fuses the RMSNorm before the router and the router's GEMM with these steps.
#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

using ops::kMaxExperts;
using ops::kMaxGroups;

// Strides in elements.
struct RouteArgs {
  const float* logits;
  const float* bias;  // null: none
  float* weights;
  std::int32_t* ids;
  std::int64_t logits_stride, weights_stride, ids_stride;
  int experts;
  RouterParams params;
};

// Unsigned integers in the order of the floats. NaN becomes 1, below all numbers; 0 means "none".
__device__ std::uint32_t order_of(float x) {
  if (isnan(x)) return 1;
  const std::uint32_t bits = __float_as_uint(x + 0.0f);  // -0 is 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The index of the largest entry of values[0, n) that is not taken; the first of equals, -1 if none
// is left. In all lanes.
__device__ int best(const float* values, const bool* taken, int n) {
  std::uint32_t lane_max = 0;
  int index = INT32_MAX;
  for (int i = threadIdx.x % kWarp; i < n; i += kWarp) {
    const std::uint32_t order = taken[i] ? 0 : order_of(values[i]);
    if (order > lane_max) lane_max = order, index = i;
  }
  const std::uint32_t top = __reduce_max_sync(kAllLanes, lane_max);
  index = __reduce_min_sync(kAllLanes, lane_max == top ? index : INT32_MAX);
  return top == 0 ? -1 : index;
}

// 3. taken[i] := entry i is one of the `count` largest. `count` rounds of a maximum over the warp,
// with the entries in registers if they fit.
__device__ void take_best(const float* values, bool* taken, int n, int count) {
  constexpr int kHeld = 8;  // entries of a lane in registers
  const int lane = threadIdx.x % kWarp;
  for (int i = lane; i < n; i += kWarp) taken[i] = false;
  __syncwarp();
  // Too many entries for registers.
  if (n > kHeld * kWarp) {
    for (int j = 0; j < count; ++j) {
      const int i = best(values, taken, n);
      if (lane == 0) taken[i] = true;
      __syncwarp();
    }
    return;
  }
  std::uint32_t order[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j)
    order[j] = lane + j * kWarp < n ? order_of(values[lane + j * kWarp]) : 0;
  for (int round = 0; round < count; ++round) {
    std::uint32_t lane_max = order[0];
#pragma unroll
    for (int j = 1; j < kHeld; ++j) lane_max = max(lane_max, order[j]);
    const std::uint32_t top = __reduce_max_sync(kAllLanes, lane_max);
    // The loop descends, so the lowest index of a lane wins; then the lowest of the warp.
    int index = INT32_MAX;
#pragma unroll
    for (int j = kHeld - 1; j >= 0; --j) index = order[j] == top ? lane + j * kWarp : index;
    index = __reduce_min_sync(kAllLanes, index);
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
      if (index == lane + j * kWarp) order[j] = 0, taken[index] = true;
  }
  __syncwarp();
}

// 1. In double, as on the CPU, so that both choose the same experts.
__device__ void fill_scores(const RouteArgs& a, const float* logits, double* exps, float* scores) {
  const int lane = threadIdx.x % kWarp;
  if (a.params.scoring == RouterScoring::kSigmoid) {
    for (int i = lane; i < a.experts; i += kWarp)
      scores[i] = static_cast<float>(1.0 / (1.0 + exp(-static_cast<double>(logits[i]))));
    return;
  }
  float row_max = -INFINITY;
  for (int i = lane; i < a.experts; i += kWarp) row_max = fmaxf(row_max, logits[i]);
  row_max = warp_max(row_max);
  double sum = 0;
  for (int i = lane; i < a.experts; i += kWarp)
    sum += exps[i] = exp(static_cast<double>(logits[i]) - row_max);
  sum = warp_sum(sum);
  for (int i = lane; i < a.experts; i += kWarp) scores[i] = static_cast<float>(exps[i] / sum);
}

// 2. Sets the choice values of dropped groups to -inf. A group scores as its best expert, or as the
// sum of its two best (noaux_tc).
__device__ void drop_groups(const RouteArgs& a, float* choice, float* group_score, bool* kept) {
  // A lane takes a group.
  const int lane = threadIdx.x % kWarp, size = a.experts / a.params.n_group;
  for (int g = lane; g < a.params.n_group; g += kWarp) {
    float first = -INFINITY, second = -INFINITY;
    for (int i = g * size; i < (g + 1) * size; ++i) {
      // The two largest values of the group.
      second = fmaxf(second, fminf(first, choice[i]));
      first = fmaxf(first, choice[i]);
    }
    group_score[g] = a.params.method == TopkMethod::kNoauxTc && size > 1 ? first + second : first;
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

// The sparse mixer of Phi-MoE (kernels/cpu/moe/router.cpp, mix_row): two rounds of masked softmax.
// `left` and `taken` have room for a row of experts each.
__device__ void mix_row(const RouteArgs& a, const float* logits, float* left, bool* taken,
                        float* weights, std::int32_t* ids) {
  const int lane = threadIdx.x % kWarp;
  for (int i = lane; i < a.experts; i += kWarp) {
    left[i] = logits[i];
    taken[i] = false;
  }
  __syncwarp();
  // Exactly two experts.
  int chosen[2];
  float weight[2];
  for (int j = 0; j < 2; ++j) {
    const int top = best(left, taken, a.experts);
    const float highest = left[top];
    double sum = 0;
    for (int i = lane; i < a.experts; i += kWarp) {
      // Experts far below the best one are masked, relative to its size.
      const float size = fabsf(logits[i]),
                  distance = (highest - logits[i]) / (size < highest ? highest : size);
      const float near = distance > 2 * a.params.mixer_eps ? -INFINITY : left[i];
      sum += exp(static_cast<double>(near) - highest);
    }
    chosen[j] = top;
    weight[j] = static_cast<float>(1.0 / warp_sum(sum)) *
                a.params.scaling;  // near[top] is `highest` itself
    __syncwarp();
    if (lane == 0) left[top] = -INFINITY;
    __syncwarp();
  }
  // Ids go out in ascending order.
  const int lower = chosen[0] < chosen[1] ? 0 : 1;
  if (lane < 2) {
    ids[lane] = chosen[lane == 0 ? lower : 1 - lower];
    weights[lane] = weight[lane == 0 ? lower : 1 - lower];
  }
}

// Shared memory of one token.
struct RouteMemory {
  double exps[kMaxExperts];
  float scores[kMaxExperts], choice[kMaxExperts], group_score[kMaxGroups];
  bool taken[kMaxExperts], kept[kMaxGroups];
};

// 1. to 4. for token t, by one warp.
__device__ void route_token(const RouteArgs& a, std::int64_t t, const float* logits,
                            RouteMemory& memory) {
  float *scores = memory.scores, *choice = memory.choice, *group_score = memory.group_score;
  bool *taken = memory.taken, *kept = memory.kept;
  const int lane = threadIdx.x % kWarp;
  if (a.params.method == TopkMethod::kSparseMixer)
    return mix_row(a, logits, choice, taken, a.weights + t * a.weights_stride,
                   a.ids + t * a.ids_stride);
  fill_scores(a, logits, memory.exps, scores);
  // Large logits have equal sigmoids in float32, so greedy choice compares the logits.
  const bool by_logits =
      a.params.method == TopkMethod::kGreedy && a.params.scoring == RouterScoring::kSigmoid;
  for (int i = lane; i < a.experts; i += kWarp)
    choice[i] = a.bias != nullptr ? scores[i] + a.bias[i] : by_logits ? logits[i] : scores[i];
  __syncwarp();
  if (a.params.method != TopkMethod::kGreedy && a.params.n_group > 1)
    drop_groups(a, choice, group_score, kept);
  take_best(choice, taken, a.experts, a.params.top_k);
  // 4. Ascending ids, and a sum in the same order: a ballot ranks the experts of 32 lanes at a
  // time.
  float* weights = a.weights + t * a.weights_stride;
  std::int32_t* ids = a.ids + t * a.ids_stride;
  int found = 0;
  for (int base = 0; base < a.experts; base += kWarp) {
    const int i = base + lane;
    // A ballot gives each selected expert its place.
    const bool mine = i < a.experts && taken[i];
    const unsigned votes = __ballot_sync(kAllLanes, mine);
    const int place = found + __popc(votes & ((1u << lane) - 1));
    if (mine) {
      ids[place] = i;
      choice[place] = scores[i];  // the choice values are not needed any more
    }
    found += __popc(votes);
  }
  __syncwarp();
  float sum = 0;
  for (int j = 0; j < found; ++j) sum += choice[j];
  // Renormalised over the selected experts, if the model does so.
  for (int j = lane; j < found; j += kWarp) {
    float weight = choice[j];
    if (a.params.renormalise)
      weight /= fmaxf(sum + a.params.renormalise_eps, a.params.renormalise_min);
    weights[j] = weight * a.params.scaling;
  }
}

// A CTA of one warp for each token: the work of a token is too small for more.
__global__ void __launch_bounds__(kWarp) route_kernel(RouteArgs a) {
  __shared__ RouteMemory memory;
  begin_dependent();
  const std::int64_t t = blockIdx.x;
  route_token(a, t, a.logits + t * a.logits_stride, memory);
}

constexpr int kLogitWarps = 4;         // of a CTA
constexpr int kClusterLogitWarps = 8;  // of a CTA in a cluster
// Columns of a router row in the registers of a warp.
constexpr int kFewColumns = 2048, kManyColumns = 3072;

struct NormRouteArgs {
  RouteArgs route;
  const float* x;       // [tokens][k]
  const float* norm;    // [k]
  const float* router;  // [experts][k]
  const float* router_bias;
  float* logits;  // [tokens][experts], that of `route`
  Bf16* rounded;  // [tokens][k]
  std::int64_t x_stride, router_stride, rounded_stride, k;
  float eps;
  std::uint32_t* counters;  // [tokens]
};

__device__ float4 times(float4 a, float4 b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
__device__ float dot(float4 a, float4 b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// RMSNorm, router GEMM and routing of a few tokens. A warp computes the logit of one expert:
//   a. load      router row times norm weight into registers, before x is complete
//   b. dot       x . row and the mean square of x in one pass; the norm factor is applied to the
//                logit
//   c. logits    to the first CTA of the cluster, or to global memory
//   d. rounded   the CTAs share the work of writing the normalised row in bfloat16
//   e. route     by the first CTA of the cluster, or by the CTA that ends last
// Grid: experts / warps of a CTA, tokens.
template <int kWarps, bool kCluster, int kHeldColumns>
__global__ void __launch_bounds__(kWarps* kWarp)
    norm_route_kernel(const __grid_constant__ NormRouteArgs a) {
  __shared__ RouteMemory memory;
  __shared__ float logits[kMaxExperts];
  __shared__ bool is_last;
  // First cluster barrier: all CTAs run.
  if (kCluster) cluster_arrive();
  // float4 of a row in the registers of a lane.
  constexpr int kHeld = kHeldColumns / (4 * kWarp);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp,
            expert = blockIdx.x * kWarps + warp;
  const bool has_expert = expert < a.route.experts;
  const std::int64_t t = blockIdx.y;
  const float* router = a.router + (has_expert ? expert : 0) * a.router_stride;
  const float* x = a.x + t * a.x_stride;
  // a. Router and norm weights are written by no kernel.
  float4 held[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = (j * kWarp + lane) * 4;
    held[j] = i < a.k ? times(*reinterpret_cast<const float4*>(router + i),
                              *reinterpret_cast<const float4*>(a.norm + i))
                      : float4{};
  }
  start_next_kernel();
  wait_for_earlier_kernels();
  // b.
  float sum = 0, squares = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = (j * kWarp + lane) * 4;
    const float4 v = i < a.k ? *reinterpret_cast<const float4*>(x + i) : float4{};
    sum = dot(v, held[j], sum);
    squares = dot(v, v, squares);
  }
  // Columns past the registers are read twice.
  for (std::int64_t i = kHeldColumns + lane * 4; i < a.k; i += kWarp * 4) {
    const float4 v = *reinterpret_cast<const float4*>(x + i);
    sum = dot(v,
              times(*reinterpret_cast<const float4*>(router + i),
                    *reinterpret_cast<const float4*>(a.norm + i)),
              sum);
    squares = dot(v, v, squares);
  }
  sum = warp_sum(sum);
  const float factor = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(a.k) + a.eps);
  const float logit =
      sum * factor + (has_expert && a.router_bias != nullptr ? a.router_bias[expert] : 0.0f);
  if (kCluster) {
    cluster_wait();  // the first CTA runs, so its shared memory may be written
    if (has_expert && lane == 0) store_to_cta(&logits[expert], 0, logit);
    cluster_arrive();
  } else if (has_expert && lane == 0) {
    __stcg(a.logits + t * a.route.logits_stride + expert, logit);
  }
  // d. This also hides the latency of the cluster barrier.
  for (std::int64_t i = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 4; i < a.k;
       i += std::int64_t{gridDim.x} * blockDim.x * 4) {
    const float4 v = times(*reinterpret_cast<const float4*>(x + i),
                           *reinterpret_cast<const float4*>(a.norm + i));
    *reinterpret_cast<uint2*>(a.rounded + t * a.rounded_stride + i) = {
        pack_bf16(v.x * factor, v.y * factor), pack_bf16(v.z * factor, v.w * factor)};
  }
  if (kCluster) {
    cluster_wait();
    if (blockIdx.x == 0 && warp == 0) route_token(a.route, t, logits, memory);
    return;
  }
  // e. The counter wraps to 0 at the last CTA, ready for the next launch. The fences order the
  // logits of all CTAs before the read.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicInc(a.counters + t, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  for (int i = threadIdx.x; i < a.route.experts; i += blockDim.x)
    logits[i] = __ldcg(a.logits + t * a.route.logits_stride + i);
  __syncthreads();
  if (warp == 0) route_token(a.route, t, logits, memory);
}

RouteArgs route_args(const Tensor& logits, const Tensor& correction_bias,
                     const RouterParams& params, const Tensor& weights, const Tensor& ids) {
  return {.logits = logits.ptr<float>(),
          .bias = correction_bias.defined() ? correction_bias.ptr<float>() : nullptr,
          .weights = weights.ptr<float>(),
          .ids = ids.ptr<std::int32_t>(),
          .logits_stride = logits.stride[0],
          .weights_stride = weights.stride[0],
          .ids_stride = ids.stride[0],
          .experts = static_cast<int>(logits.dim(1)),
          .params = params};
}

// All rows begin on 16 bytes.
bool on_sixteen_bytes(const Tensor& t) {
  return reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 &&
         (t.rank == 1 || t.stride[0] * dtype_size(t.dtype) % 16 == 0);
}

}  // namespace

void route(Context& ctx, const Tensor& logits, const Tensor& correction_bias,
           const RouterParams& params, const Tensor& weights, const Tensor& ids) {
  if (logits.dim(0) == 0) return;
  launch_dependent(ctx, "route", route_kernel, static_cast<unsigned>(logits.dim(0)), kWarp, 0,
                   route_args(logits, correction_bias, params, weights, ids));
}

void norm_route(Context& ctx, const Tensor& x, const RowNorm& norm, const Tensor& router,
                const Tensor& router_bias, const Tensor& correction_bias,
                const RouterParams& params, const Tensor& normed, const Tensor& logits,
                const Tensor& rounded, const Tensor& weights, const Tensor& ids) {
  const std::int64_t tokens = x.dim(0), k = x.dim(1);
  if (tokens == 0) return;
  const bool is_fused = ctx.cuda != nullptr && !ctx.deterministic && tokens <= ops::kMaxFusedRows &&
                        k % 4 == 0 && router.dtype == DType::kF32 &&
                        norm.weight.dtype == DType::kF32 && rounded.dtype == DType::kBF16 &&
                        (!router_bias.defined() || router_bias.dtype == DType::kF32) &&
                        on_sixteen_bytes(x) && on_sixteen_bytes(router) &&
                        on_sixteen_bytes(norm.weight) && on_sixteen_bytes(rounded);
  if (!is_fused) {
    // Not fused: four launches.
    rms_norm(ctx, x, norm.weight, norm.eps, normed);
    linear(ctx, normed, router, router_bias, logits);
    route(ctx, logits, correction_bias, params, weights, ids);
    return convert(ctx, normed, rounded);
  }
  const NormRouteArgs args{
      .route = route_args(logits, correction_bias, params, weights, ids),
      .x = x.ptr<float>(),
      .norm = norm.weight.ptr<float>(),
      .router = router.ptr<float>(),
      .router_bias = router_bias.defined() ? router_bias.ptr<float>() : nullptr,
      .logits = logits.ptr<float>(),
      .rounded = static_cast<Bf16*>(rounded.data),
      .x_stride = x.stride[0],
      .router_stride = router.stride[0],
      .rounded_stride = rounded.stride[0],
      .k = k,
      .eps = norm.eps,
      .counters = ctx.cuda->counters()};
  // A cluster keeps the logits in shared memory; it needs Hopper and few experts.
  constexpr const char* kWhat = "norm and route";
  const dim3 cluster(blocks_for(router.dim(0), kClusterLogitWarps));
  const bool is_wide = k > kFewColumns;
  if (ctx.cuda->info().sm >= 90 && cluster.x <= kMaxCluster) {
    const auto kernel = is_wide ? norm_route_kernel<kClusterLogitWarps, true, kManyColumns>
                                : norm_route_kernel<kClusterLogitWarps, true, kFewColumns>;
    const ClusterLaunch clusters(ctx, dim3(cluster.x, static_cast<unsigned>(tokens)),
                                 kClusterLogitWarps * kWarp, 0, cluster);
    if (clusters.fits(kernel)) return clusters.run(kWhat, kernel, args);
  }
  launch_dependent(ctx, kWhat,
                   is_wide ? norm_route_kernel<kLogitWarps, false, kManyColumns>
                           : norm_route_kernel<kLogitWarps, false, kFewColumns>,
                   dim3(blocks_for(router.dim(0), kLogitWarps), static_cast<unsigned>(tokens)),
                   kLogitWarps * kWarp, 0, args);
}

}  // namespace sluice::cuda
