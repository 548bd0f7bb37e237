#include "layers/norm.h"

#include "ops/elementwise.h"

namespace sluice {

Norm Norm::load(const Weights& weights, std::string_view name, std::int64_t n, double eps,
                const NormSpec& spec) {
  const std::string weight = std::string(name) + ".weight", bias = std::string(name) + ".bias";
  Norm norm{.kind = spec.kind, .weight = {}, .bias = {}, .eps = static_cast<float>(eps)};
  if (!spec.has_weight)
    norm.weight = weights.constant(std::vector<float>(static_cast<std::size_t>(n), 1.0f));
  else if (spec.plus_one)
    norm.weight = weights.shifted_vector(weight, n, 1);
  else
    norm.weight = weights.vector(weight, n, WeightInit::kOnes);
  if (spec.kind == NormKind::kLayer && spec.has_weight && weights.has(bias, spec.bias))
    norm.bias = weights.vector(bias, n, WeightInit::kZeros);
  return norm;
}

void Norm::forward(Context& ctx, const Tensor& x, const Tensor& out) const {
  if (kind == NormKind::kRms)
    ops::rms_norm(ctx, x, weight, eps, out);
  else
    ops::layer_norm(ctx, x, weight, bias, eps, out);
}

void Norm::add_forward(Context& ctx, const Tensor& x, const Tensor& residual,
                       const Tensor& out) const {
  if (kind == NormKind::kRms) return ops::add_rms_norm(ctx, x, residual, weight, eps, out);
  ops::add(ctx, residual, x, residual);
  ops::layer_norm(ctx, residual, weight, bias, eps, out);
}

ops::NormedRows Norm::of(Context& ctx, ops::Residual& stream) const {
  if (kind == NormKind::kRms && defined()) return {stream, {.weight = weight, .eps = eps}};
  if (!defined()) {
    ops::add_branch(ctx, stream);
    return stream.hidden;
  }
  const Tensor rows = ctx.arena->take(DType::kF32, {stream.hidden.dim(0), stream.hidden.dim(1)});
  if (stream.pending)
    add_forward(ctx, stream.branch, stream.hidden, rows);
  else
    forward(ctx, stream.hidden, rows);
  stream.pending = false;
  return rows;
}

}  // namespace sluice
