// Norms with their weights.
#pragma once

#include "layers/weights/weights.h"
#include "ops/fused.h"
#include "ops/norm.h"

namespace sluice {

struct RmsNorm {
  Tensor weight;  // [n] f32
  float eps = 0;

  static RmsNorm load(const Weights& weights, std::string_view name, std::int64_t n, double eps) {
    return {weights.vector(std::string(name) + ".weight", n, WeightInit::kOnes),
            static_cast<float>(eps)};
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

enum class NormKind {
  kRms,
  kLayer,  // LayerNorm, with a bias if the checkpoint has one
};

// How a family normalises.
struct NormSpec {
  NormKind kind = NormKind::kRms;
  // the file stores w and the norm multiplies by 1 + w: Gemma's norms, Nemotron's
  bool plus_one = false;
  bool has_weight = true;  // false: no weight (OLMo)
  bool bias = false;       // for random weights only; a checkpoint's tensors decide
};

// A norm of any kind.
struct Norm {
  NormKind kind = NormKind::kRms;
  Tensor weight;  // [n] f32
  Tensor bias;    // [n] f32, or undefined
  float eps = 0;

  static Norm load(const Weights& weights, std::string_view name, std::int64_t n, double eps,
                   const NormSpec& spec);
  bool defined() const { return weight.defined(); }
  // The narrowest type of `out` that loses nothing for one who reads `wanted`.
  DType output(DType wanted) const { return kind == NormKind::kRms ? wanted : DType::kF32; }

  // x and out [T, n] or [T, heads, n] f32; out may be x; of kRms it may be bf16.
  void forward(Context& ctx, const Tensor& x, const Tensor& out) const;
  // residual += x; out = norm(residual); out may be x.
  void add_forward(Context& ctx, const Tensor& x, const Tensor& residual, const Tensor& out) const;
  // The norm of a stream, whose pending branch is added first, as the first operation of a layer
  // half reads it: an RMSNorm is left to that operation, other rows are in ctx.arena. The stream
  // itself where the norm is undefined.
  ops::NormedRows of(Context& ctx, ops::Residual& stream) const;
};

}  // namespace sluice
