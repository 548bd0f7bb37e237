// Activations and gates of one element.
#pragma once

#include <type_traits>

#include "kernels/cuda/common/mma.cuh"
#include "kernels/types/op_params.h"

namespace sluice::cuda {

// With the exact exponential and division.
__device__ inline float sigmoid_of(float x) {
  return 1.0f / (1.0f + expf(-x));
}

// GELU by tanh is a sigmoid too: 0.5 x (1 + tanh(u)) = x sigmoid(2u). The other cases are exact
// GELU, ReLU and squared ReLU.
template <Activation kFn>
__device__ inline float activated(float x) {
  if constexpr (kFn == Activation::kSilu) {
    return x / (1.0f + expf(-x));
  } else if constexpr (kFn == Activation::kGeluTanh) {
    return x / (1.0f + expf(-1.5957691216f * fmaf(x * x * x, 0.044715f, x)));
  } else if constexpr (kFn == Activation::kGelu) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  } else {
    const float positive = x < 0 ? 0 : x;  // a NaN stays a NaN
    return kFn == Activation::kRelu ? positive : positive * positive;
  }
}

// For results that are rounded to bfloat16: reciprocal and exponential of the special function
// units, with an error of a few ulp of float32.
__device__ inline float sigmoid_roughly(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0f + exp2_fast(-1.4426950409f * x)));
  return y;
}
// Only SiLU and GELU by tanh have an approximate form.
template <Activation kFn>
__device__ inline float activated_roughly(float x) {
  if constexpr (kFn == Activation::kSilu)
    return x * sigmoid_roughly(x);
  else if constexpr (kFn == Activation::kGeluTanh)
    return x * sigmoid_roughly(1.5957691216f * fmaf(x * x * x, 0.044715f, x));
  else
    return activated<kFn>(x);
}

// The same for a function that is known at run time only. It must be the same for all threads of a
// warp, or the warp would diverge.
__device__ inline float activated(Activation fn, float x) {
  switch (fn) {
    case Activation::kGeluTanh:
      return activated<Activation::kGeluTanh>(x);
    case Activation::kGelu:
      return activated<Activation::kGelu>(x);
    case Activation::kRelu:
      return activated<Activation::kRelu>(x);
    case Activation::kRelu2:
      return activated<Activation::kRelu2>(x);
    default:
      return activated<Activation::kSilu>(x);
  }
}

// On the host: calls body with the function as a constant, for a template argument.
template <class Body>
void with_activation(Activation fn, Body&& body) {
  using Fn = Activation;
  switch (fn) {
    case Fn::kGeluTanh:
      return body(std::integral_constant<Fn, Fn::kGeluTanh>{});
    case Fn::kGelu:
      return body(std::integral_constant<Fn, Fn::kGelu>{});
    case Fn::kRelu:
      return body(std::integral_constant<Fn, Fn::kRelu>{});
    case Fn::kRelu2:
      return body(std::integral_constant<Fn, Fn::kRelu2>{});
    default:
      return body(std::integral_constant<Fn, Fn::kSilu>{});
  }
}

}  // namespace sluice::cuda
