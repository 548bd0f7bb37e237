// The parts of an expert MLP besides its two GEMMs, for all kernels of fused_experts(); see
// ops::ExpertParams.
#pragma once

#include "kernels/cuda/common/activations.cuh"
#include "kernels/cuda/moe/experts.h"

namespace sluice::cuda {

struct ExpertRules {
  Activation activation = Activation::kSilu;
  bool is_plain = true;  // activation(gate) * up and nothing else
  bool interleaved = false, weigh_input = false;
  float clamp = 0, alpha = 1;
  const float *up_bias = nullptr, *down_bias = nullptr;  // [E][2 width], [E][hidden]
  const float* weights = nullptr;                        // of the pairs
  std::int64_t weights_stride = 0, width = 0, hidden = 0;
  int top_k = 1;

  // The rows of w13 that are gate and up of column n: interleaved, or all gates first.
  __host__ __device__ std::int64_t gate_row(std::int64_t n) const {
    return interleaved ? 2 * n : n;
  }
  __host__ __device__ std::int64_t up_row(std::int64_t n) const {
    return interleaved ? 2 * n + 1 : width + n;
  }

  // The router weight of a pair.
  __device__ float weight(std::int64_t pair) const {
    return weights[pair / top_k * weights_stride + pair % top_k];
  }

  // Column n of the hidden row, from its gate and up sums.
  __device__ float inner(float gate, float up, std::int64_t expert, std::int64_t pair,
                         std::int64_t n) const {
    if (is_plain) return activated(activation, gate) * up;
    // Some models weight the input of an expert instead of its output.
    if (weigh_input) {
      const float factor = weight(pair);
      gate *= factor;
      up *= factor;
    }
    if (up_bias != nullptr) {
      const float* bias = up_bias + expert * 2 * width;
      gate += bias[gate_row(n)];
      up += bias[up_row(n)];
    }
    // The clamped form of GPT-OSS: (up + 1) * gate * sigmoid(alpha * gate).
    if (clamp == 0) return activated(activation, gate) * up;
    gate = gate > clamp ? clamp : gate;  // a NaN stays a NaN
    up = up > clamp ? clamp : up < -clamp ? -clamp : up;
    return gate * sigmoid_of(alpha * gate) * (up + 1);
  }

  // sum + weight * (down + bias): what a pair adds to column n of its token.
  __device__ float add_weighted(float sum, float down, std::int64_t expert, std::int64_t pair,
                                std::int64_t n) const {
    if (down_bias != nullptr) down += down_bias[expert * hidden + n];
    return fmaf(weigh_input ? 1.0f : weight(pair), down, sum);
  }
};

// `weights`: of the tokens of this launch only.
inline ExpertRules rules_of(const ExpertParams& params, const Tensor& weights, std::int64_t width,
                            std::int64_t hidden) {
  return {.activation = params.activation,
          .is_plain = params.activation_only(),
          .interleaved = params.interleaved,
          .weigh_input = params.weigh_input,
          .clamp = params.clamp,
          .alpha = params.alpha,
          .up_bias = params.up_bias.defined() ? params.up_bias.ptr<float>() : nullptr,
          .down_bias = params.down_bias.defined() ? params.down_bias.ptr<float>() : nullptr,
          .weights = weights.ptr<float>(),
          .weights_stride = weights.stride[0],
          .width = width,
          .hidden = hidden,
          .top_k = static_cast<int>(weights.dim(1))};
}

}  // namespace sluice::cuda
