#include "layers/head_norm.h"

#include <fmt/format.h>

#include "base/error.h"
#include "layers/view.h"
#include "ops/elementwise.h"
#include "ops/ranks.h"

namespace sluice {

AxisRange share_heads(const Weights& weights, std::int64_t heads, std::string_view what) {
  const std::int64_t size = weights.tp_size();
  if (heads >= size || heads == 0 || size % heads != 0) return weights.share(heads, what);
  const std::int64_t rank = weights.share(size, "ranks").begin;
  return {rank / (size / heads), 1};
}

HeadNorm HeadNorm::load(const Weights& weights, std::string_view name, const HeadNormSpec& spec,
                        std::int64_t heads, std::int64_t head_dim, double eps) {
  const AxisRange own = share_heads(weights, heads, name);
  const std::string weight = std::string(name) + ".weight";
  HeadNorm norm{.kind = spec.kind, .weight = {}, .eps = static_cast<float>(eps)};
  switch (spec.kind) {
    case HeadNormKind::kRms:
      norm.weight = spec.plus_one ? weights.shifted_vector(weight, head_dim, 1)
                                  : weights.vector(weight, head_dim, WeightInit::kOnes);
      break;
    case HeadNormKind::kUnit:
      norm.weight = weights.constant(std::vector<float>(static_cast<std::size_t>(head_dim), 1.0f));
      break;
    case HeadNormKind::kRow:
      require(own.count * weights.tp_size() == heads,
              "{} normalises {} heads of a token together, which {} ranks cannot share",
              weights.path(name), heads, weights.tp_size());
      norm.first_column = own.begin * head_dim;
      norm.weight = weights.vector(weight, heads * head_dim, WeightInit::kOnes);
      break;
    case HeadNormKind::kLayer:
      norm.weight = weights.take(DType::kF32, {own.count, head_dim});
      weights.fill(norm.weight, weight, {heads, head_dim}, {own}, WeightInit::kOnes);
      break;
    case HeadNormKind::kLayerList:
      norm.weight = weights.take(DType::kF32, {own.count, head_dim});
      for (std::int64_t h = 0; h < own.count; ++h)
        weights.fill(norm.weight.at(h), fmt::format("{}.norms.{}.weight", name, own.begin + h),
                     {head_dim}, {}, WeightInit::kOnes);
      break;
  }
  return norm;
}

void HeadNorm::forward(Context& ctx, const Tensor& x) const {
  switch (kind) {
    case HeadNormKind::kRms:
    case HeadNormKind::kUnit:
      return ops::rms_norm(ctx, x, weight, eps, x);
    case HeadNormKind::kRow: {
      const Tensor row = merge_heads(x);
      const std::int64_t own = row.dim(1), all = weight.dim(0);
      if (own == all) return ops::rms_norm(ctx, row, weight, eps, row);
      Arena::Scope scope(*ctx.arena);
      const Tensor part = ctx.arena->take(DType::kF32, {row.dim(0), own});
      const Tensor whole = ctx.arena->take(DType::kF32, {row.dim(0), all});
      ops::convert(ctx, row, part);
      ops::gather_columns(ctx, part, whole);
      ops::rms_norm(ctx, whole, weight, eps, whole);
      return ops::convert(ctx, whole.slice(1, first_column, own), row);
    }
    case HeadNormKind::kLayer:
    case HeadNormKind::kLayerList:
      for (std::int64_t h = 0; h < x.dim(1); ++h) {
        const Tensor head = x.slice(1, h, 1);
        ops::layer_norm(ctx, head, weight.at(h), {}, eps, head);
      }
  }
}

}  // namespace sluice
