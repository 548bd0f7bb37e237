// The short causal convolution of recurrent layers, their decay gates and output gates.
#include "kernels/cuda/recurrent/recurrent.cuh"

#include <iterator>

#include "kernels/cuda/common/activations.cuh"
#include "kernels/cuda/common/map.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

constexpr int kConvThreads = 64;
constexpr int kTokensAhead = 16;  // loads in flight while as many tokens are computed

// Strides are in elements.
struct ConvArgs {
  const float* x = nullptr;
  const float *weight = nullptr, *bias = nullptr;
  float *state = nullptr, *out = nullptr;
  std::int64_t x_stride = 0, state_stride = 0, out_stride = 0, channels = 0;
  bool silu = false;
  SequenceArgs sequences;
};

// Grid: channels, sequences. A thread has one channel and takes the tokens in ascending order. It
// reads a token before it writes that token, so x may be out. The last kTaps - 1 inputs are the
// state.
template <int kTaps>
__global__ void __launch_bounds__(kConvThreads) conv_kernel(const __grid_constant__ ConvArgs a) {
  begin_dependent();
  const std::int64_t c = std::int64_t{blockIdx.x} * kConvThreads + threadIdx.x;
  const int sequence = static_cast<int>(blockIdx.y);
  const Part part = part_of(a.sequences, sequence);
  if (c >= a.channels || part.tokens == 0) return;
  // past[j]: the input kTaps - 1 - j tokens before.
  float weight[kTaps], past[kTaps - 1];
  const float* state = a.state + part.slot * a.state_stride + c;
  for (int j = 0; j < kTaps; ++j) weight[j] = a.weight[j * a.channels + c];
  for (int j = 0; j < kTaps - 1; ++j) past[j] = part.is_fresh ? 0 : state[j * a.channels];
  // Inputs and outputs of this channel.
  const float bias = a.bias == nullptr ? 0 : a.bias[c];
  // Rows of this sequence, at this channel.
  const float* x = a.x + part.first * a.x_stride + c;
  float* out = a.out + part.first * a.out_stride + c;
  // The inputs of the next tokens load while these are computed: the loop has no other parallelism.
  float ahead[kTokensAhead];
  const auto issue = [&](std::int64_t begin) {
#pragma unroll
    for (int i = 0; i < kTokensAhead; ++i)
      ahead[i] = begin + i < part.tokens ? x[(begin + i) * a.x_stride] : 0;
  };
  issue(0);
  for (std::int64_t begin = 0; begin < part.tokens; begin += kTokensAhead) {
    // Double buffer in registers.
    float now[kTokensAhead];
#pragma unroll
    for (int i = 0; i < kTokensAhead; ++i) now[i] = ahead[i];
    // Issued before the tokens are computed.
    issue(begin + kTokensAhead);
    const int count = static_cast<int>(min(part.tokens - begin, std::int64_t{kTokensAhead}));
#pragma unroll
    for (int i = 0; i < kTokensAhead; ++i) {
      if (i >= count) break;
      // Taps in ascending order, whatever the step size: a prompt cut into steps has the same bits.
      float y = bias;
#pragma unroll
      for (int j = 0; j < kTaps - 1; ++j) y = fmaf(weight[j], past[j], y);
      y = fmaf(weight[kTaps - 1], now[i], y);
#pragma unroll
      for (int j = 0; j < kTaps - 2; ++j) past[j] = past[j + 1];
      past[kTaps - 2] = now[i];
      out[(begin + i) * a.out_stride] = a.silu ? y * sigmoid_of(y) : y;
      if (begin + i < part.first_saved) continue;
      // The state for a next step of the sequence.
      float* saved =
          a.state + slot_behind(a.sequences, part, sequence, begin + i) * a.state_stride + c;
      for (int j = 0; j < kTaps - 1; ++j) saved[j * a.channels] = past[j];
    }
  }
}

// decay = exp(rate * dt) with dt = softplus(x + bias), clamped. Grid: rows, parts of a row.
__global__ void decay_rows(const float* x, std::int64_t x_stride, const float* bias,
                           const float* rate, float min_step, float max_step, float* step,
                           std::int64_t step_stride, float* decay, std::int64_t decay_stride,
                           std::int64_t n) {
  begin_dependent();
  // A row for each token.
  const std::int64_t t = blockIdx.x;
  for (std::int64_t i = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x; i < n;
       i += std::int64_t{gridDim.y} * blockDim.x) {
    const float v = x[t * x_stride + i] + bias[i];
    float dt = (v > 0 ? v : 0) + log1pf(expf(-fabsf(v)));  // softplus without overflow
    if (dt < min_step) dt = min_step;
    if (max_step > 0 && dt > max_step) dt = max_step;
    if (step != nullptr) step[t * step_stride + i] = dt;
    decay[t * decay_stride + i] = expf(rate[i] * dt);
  }
}

// Element-wise functions of map_elements() and map_pairs().
struct Sigmoid {
  __device__ float operator()(float x) const { return sigmoid_of(x); }
};
// x * gate, x * silu(gate) or x * sigmoid(gate).
struct Gated {
  ops::Gate fn;
  __device__ float operator()(float x, float gate) const {
    if (fn == ops::Gate::kLinear) return x * gate;
    return x * (fn == ops::Gate::kSilu ? gate * sigmoid_of(gate) : sigmoid_of(gate));
  }
};

}  // namespace

void causal_conv(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, bool silu,
                 const ops::SequenceRows& rows, const Tensor& state, const Tensor& out) {
  if (x.numel() == 0 || rows.state_slots.dim(0) == 0) return;
  const ConvArgs args{.x = x.ptr<float>(),
                      .weight = weight.ptr<float>(),
                      .bias = bias.defined() ? bias.ptr<float>() : nullptr,
                      .state = state.ptr<float>(),
                      .out = out.ptr<float>(),
                      .x_stride = x.stride[0],
                      .state_stride = state.stride[0],
                      .out_stride = out.stride[0],
                      .channels = x.dim(1),
                      .silu = silu,
                      .sequences = sequences_of(rows, x, state)};
  // The number of taps is a template argument, so weights and past inputs stay in registers.
  using Kernel = void (*)(ConvArgs);
  static constexpr Kernel kKernels[] = {conv_kernel<2>, conv_kernel<3>, conv_kernel<4>,
                                        conv_kernel<5>, conv_kernel<6>, conv_kernel<7>,
                                        conv_kernel<8>};
  static_assert(std::size(kKernels) == ops::kMaxConvTaps - ops::kMinConvTaps + 1);
  const dim3 grid(blocks_for(args.channels, kConvThreads),
                  static_cast<unsigned>(rows.state_slots.dim(0)));
  launch_dependent(ctx, "causal_conv", kKernels[weight.dim(0) - ops::kMinConvTaps], grid,
                   kConvThreads, 0, args);
}

void decay_gates(Context& ctx, const Tensor& x, const Tensor& bias, const Tensor& rate,
                 float min_step, float max_step, const Tensor& step, const Tensor& decay) {
  if (x.numel() == 0) return;
  const RowShape shape = shape_of(x.dim(1), 1);
  launch_dependent(
      ctx, "decay_gates", decay_rows, dim3(static_cast<unsigned>(x.dim(0)), shape.blocks),
      shape.threads, 0, x.ptr<float>(), x.stride[0], bias.ptr<float>(), rate.ptr<float>(), min_step,
      max_step, step.defined() ? step.ptr<float>() : nullptr, step.defined() ? step.stride[0] : 0,
      decay.ptr<float>(), decay.stride[0], x.dim(1));
}

void sigmoid(Context& ctx, const Tensor& x, const Tensor& out) {
  map_elements(ctx, "sigmoid", x, out, Sigmoid{});
}

void gated_mul(Context& ctx, ops::Gate fn, const Tensor& x, const Tensor& gate, const Tensor& out) {
  map_pairs(ctx, "gated_mul", x, gate, out, Gated{fn});
}

}  // namespace sluice::cuda
