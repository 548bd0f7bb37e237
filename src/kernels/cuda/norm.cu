// Normalisation of rows: a block each, sums in a fixed order that depends on the length of the row alone.
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

// residual (where there is one) += x, and the sum is normalised.
template <class Weight>
__global__ void rms_norm_rows(RowsOf<const float> x, RowsOf<float> residual, const Weight* weight, float eps,
                              RowsOf<float> out, std::int64_t n) {
  const float* from = x.row(blockIdx.x);
  float squares = 0;
  if (residual.data != nullptr) {
    float* sum = residual.row(blockIdx.x);
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const float value = sum[i] + from[i];
      sum[i] = value;
      squares = fmaf(value, value, squares);
    }
    from = sum;   // each thread reads back what it wrote itself
  } else {
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) squares = fmaf(from[i], from[i], squares);
  }
  const float mean = block_sum(squares) / static_cast<float>(n);
  const float factor = 1.0f / sqrtf(mean + eps);
  float* to = out.row(blockIdx.x);
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) to[i] = from[i] * factor * widen(weight[i]);
}

template <class Weight, class Bias>
__global__ void layer_norm_rows(RowsOf<const float> x, const Weight* weight, const Bias* bias, float eps,
                                RowsOf<float> out, std::int64_t n) {
  const float* from = x.row(blockIdx.x);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += from[i];
  const float mean = block_sum(sum) / static_cast<float>(n);
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) squares = fmaf(from[i] - mean, from[i] - mean, squares);
  const float factor = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(n) + eps);
  float* to = out.row(blockIdx.x);
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const float value = (from[i] - mean) * factor * widen(weight[i]);
    to[i] = bias == nullptr ? value : value + widen(bias[i]);
  }
}

void launch_rms_norm(Context& ctx, const char* what, const Tensor& x, const Tensor* residual, const Tensor& weight,
                     float eps, const Tensor& out) {
  if (x.numel() == 0) return;
  const std::int64_t n = x.dim(-1);
  const RowsOf<float> sums = residual == nullptr ? RowsOf<float>{} : rows_of<float>(*residual);
  with_float_type(weight.dtype, [&](auto w) {
    using Weight = decltype(w);
    rms_norm_rows<<<static_cast<unsigned>(num_rows(x)), block_for(n), 0, stream_of(ctx)>>>(
        rows_of<const float>(x), sums, static_cast<const Weight*>(weight.data), eps, rows_of<float>(out), n);
  });
  check_launch(what);
}

}  // namespace

void rms_norm(Context& ctx, const Tensor& x, const Tensor& weight, float eps, const Tensor& out) {
  launch_rms_norm(ctx, "rms_norm", x, nullptr, weight, eps, out);
}

void add_rms_norm(Context& ctx, const Tensor& x, const Tensor& residual, const Tensor& weight, float eps,
                  const Tensor& out) {
  launch_rms_norm(ctx, "add_rms_norm", x, &residual, weight, eps, out);
}

void layer_norm(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, float eps, const Tensor& out) {
  if (x.numel() == 0) return;
  const std::int64_t n = x.dim(-1);
  with_float_type(weight.dtype, [&](auto w) {
    with_float_type(bias.dtype, [&](auto b) {
      using Weight = decltype(w);
      using Bias = decltype(b);
      layer_norm_rows<<<static_cast<unsigned>(num_rows(x)), block_for(n), 0, stream_of(ctx)>>>(
          rows_of<const float>(x), static_cast<const Weight*>(weight.data), static_cast<const Bias*>(bias.data), eps,
          rows_of<float>(out), n);
    });
  });
  check_launch("layer_norm");
}

}  // namespace sluice::cuda
