// The bias of a linear layer.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace sluice::cpu {

// Element n of a bias in float32, bfloat16 or float16; 0 where there is none.
inline float bias_at(const Tensor& bias, std::int64_t n) {
  if (!bias.defined()) return 0;
  if (bias.dtype == DType::kBF16) return static_cast<float>(bias.ptr<BF16>()[n]);
  if (bias.dtype == DType::kF16) return static_cast<float>(bias.ptr<F16>()[n]);
  return bias.ptr<float>()[n];
}

// Adds elements [begin, end) of a bias, if there is one, to `rows` rows of `out`.
inline void add_bias(const Tensor& bias, std::int64_t begin, std::int64_t end, std::int64_t rows,
                     float* out, std::int64_t stride) {
  if (!bias.defined()) return;
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t n = begin; n < end; ++n) out[m * stride + n] += bias_at(bias, n);
}

}  // namespace sluice::cpu
