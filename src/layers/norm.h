// RMSNorm with its weight.
#pragma once

#include "layers/weights.h"
#include "ops/norm.h"

namespace sluice {

struct RmsNorm {
  Tensor weight;  // [n] f32
  float eps = 0;

  static RmsNorm load(const Weights& weights, std::string_view name, std::int64_t n, double eps) {
    return {weights.vector(std::string(name) + ".weight", n, WeightInit::kOnes), static_cast<float>(eps)};
  }
  bool defined() const { return weight.defined(); }

  // x and out [T, n] or [T, heads, n] f32; out may be x, or bf16.
  void forward(Context& ctx, const Tensor& x, const Tensor& out) const {
    ops::rms_norm(ctx, x, weight, eps, out);
  }
  // residual += x; out = norm(residual); out may be x.
  void add_forward(Context& ctx, const Tensor& x, const Tensor& residual, const Tensor& out) const {
    ops::add_rms_norm(ctx, x, residual, weight, eps, out);
  }
};

}  // namespace sluice
