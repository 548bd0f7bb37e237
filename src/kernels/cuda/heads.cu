// Norm and rotation of heads in one pass: a warp for each head of q and k.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxDim = 512;   // of a head, in shared memory; larger heads take the plain kernels

struct HeadsOf {
  float* data;
  std::int64_t token_stride, head_stride;
  int count;
  const void* weight;   // null: not normalised
  DType weight_type;
};

struct HeadsArgs {
  HeadsOf q, k;
  const float* cos_sin;
  std::int64_t cos_sin_stride;
  int dim, half;
  float eps;
  bool interleaved;
};

__device__ float weight_at(const HeadsOf& heads, int i) {
  switch (heads.weight_type) {
    case DType::kBF16: return widen(static_cast<const Bf16*>(heads.weight)[i]);
    case DType::kF16: return widen(static_cast<const F16*>(heads.weight)[i]);
    default: return static_cast<const float*>(heads.weight)[i];
  }
}

// Grid: heads of q and k, four a block; tokens.
__global__ void __launch_bounds__(kWarps* kWarp) heads_kernel(const __grid_constant__ HeadsArgs a) {
  __shared__ float values[kWarps][kMaxDim];
  wait_for_earlier_kernels();
  start_next_kernel();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int head = blockIdx.x * kWarps + warp;
  if (head >= a.q.count + a.k.count) return;
  const std::int64_t t = blockIdx.y;
  const HeadsOf& heads = head < a.q.count ? a.q : a.k;
  float* row = heads.data + t * heads.token_stride + (head < a.q.count ? head : head - a.q.count) * heads.head_stride;
  float* value = values[warp];
  float squares = 0;
  for (int i = lane; i < a.dim; i += kWarp) {
    value[i] = row[i];
    squares = fmaf(value[i], value[i], squares);
  }
  if (heads.weight != nullptr) {
    const float factor = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(a.dim) + a.eps);
    for (int i = lane; i < a.dim; i += kWarp) value[i] = value[i] * factor * weight_at(heads, i);
  }
  __syncwarp();
  const float* cosine = a.cos_sin + t * a.cos_sin_stride;
  for (int i = lane; i < a.half; i += kWarp) {
    const int first = a.interleaved ? 2 * i : i, second = a.interleaved ? 2 * i + 1 : a.half + i;
    const float x = value[first], y = value[second], c = cosine[i], s = cosine[a.half + i];
    row[first] = x * c - y * s;
    row[second] = y * c + x * s;
  }
  if (heads.weight != nullptr)
    for (int i = 2 * a.half + lane; i < a.dim; i += kWarp) row[i] = value[i];
}

HeadsOf heads_of(const Tensor& x, const Tensor& weight) {
  return {.data = x.ptr<float>(),
          .token_stride = x.stride[0],
          .head_stride = x.stride[1],
          .count = static_cast<int>(x.dim(1)),
          .weight = weight.defined() ? weight.data : nullptr,
          .weight_type = weight.dtype};
}

}  // namespace

void norm_and_rotate_heads(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& q_weight, const Tensor& k_weight,
                           float eps, const Tensor& cos_sin, bool interleaved) {
  if (q.dim(0) == 0) return;
  if (q.dim(2) > kMaxDim) {
    if (q_weight.defined()) rms_norm(ctx, q, q_weight, eps, q);
    if (k_weight.defined()) rms_norm(ctx, k, k_weight, eps, k);
    rope(ctx, cos_sin, q.slice(2, 0, cos_sin.dim(1)), interleaved);
    rope(ctx, cos_sin, k.slice(2, 0, cos_sin.dim(1)), interleaved);
    return;
  }
  HeadsArgs args{.q = heads_of(q, q_weight),
                 .k = heads_of(k, k_weight),
                 .cos_sin = cos_sin.ptr<float>(),
                 .cos_sin_stride = cos_sin.stride[0],
                 .dim = static_cast<int>(q.dim(2)),
                 .half = static_cast<int>(cos_sin.dim(1) / 2),
                 .eps = eps,
                 .interleaved = interleaved};
  constexpr std::int64_t kTokensAtOnce = 32768;   // of a grid's second dimension
  for (std::int64_t first = 0; first < q.dim(0); first += kTokensAtOnce) {
    const auto count = static_cast<unsigned>(std::min(kTokensAtOnce, q.dim(0) - first));
    HeadsArgs part = args;
    part.q.data += first * part.q.token_stride;
    part.k.data += first * part.k.token_stride;
    part.cos_sin += first * part.cos_sin_stride;
    launch_dependent(ctx, "heads", heads_kernel, dim3(blocks_for(part.q.count + part.k.count, kWarps), count),
                     kWarps * kWarp, 0, part);
  }
}

}  // namespace sluice::cuda
