#include "layers/linear.h"

#include "base/error.h"
#include "ops/fused.h"
#include "ops/gemm.h"

namespace sluice {
namespace {

// A scale beside the weight means a quantised form that nothing here reads.
bool has_scale(const Weights& weights, const WeightParts& parts) {
  const std::string name(parts.begin()->name);
  return weights.has(name + ".weight_scale_inv", false) ||
         weights.has(name + ".weight_scale", false);
}

}  // namespace

Linear Linear::load(const Weights& weights, const WeightParts& parts, std::int64_t columns,
                    Shard shard, bool bias) {
  Linear linear;
  linear.weight = weights.packed(parts, columns, shard);
  require(ops::is_quantised(linear.weight.format) || !has_scale(weights, parts),
          "{} has a scale beside it, but config.json does not say in quantization_config how it is "
          "quantised",
          weights.path(parts.begin()->name));
  if (bias) linear.bias = weights.bias(parts, shard);
  linear.reduce = shard == Shard::kRow && weights.tp_size() > 1;
  return linear;
}

void Linear::forward(Context& ctx, const ops::NormedRows& x, const Tensor& out) const {
  ops::norm_linear(ctx, x, weight, bias, out);
  if (reduce) ops::sum_over_ranks(ctx, out);
}

void Linear::add(Context& ctx, const Tensor& x, ops::Residual& stream) const {
  Arena::Scope scope(*ctx.arena);
  ops::linear_add(ctx, ops::prepared(ctx, x, weight), weight, bias, reduce, stream);
}

SplitProduct split_forward(Context& ctx, const Linear& linear, const ops::NormedRows& x,
                           std::int64_t num_first, const OutputRows& wanted) {
  const std::int64_t tokens = x.count(), num_others = linear.rows() - num_first;
  const bool any = num_first > 0 && wanted.count(tokens) > 0;
  if (wanted.all() || num_first == 0 || !linear.weight.is_row_major()) {
    const Tensor fused = ctx.arena->take(DType::kF32, {tokens, linear.rows()});
    linear.forward(ctx, x, fused);
    return {.first = any ? wanted.of(ctx, fused.slice(1, 0, num_first)) : Tensor{},
            .others = fused.slice(1, num_first, num_others)};
  }
  const Tensor rows = ops::rows_of(ctx, x, linear.input());
  const auto part = [&](std::int64_t begin, std::int64_t count, const Tensor& input) {
    Linear some = linear;
    some.weight.data = linear.weight.data.rows(begin, count);
    some.weight.rows = count;
    if (linear.bias.defined()) some.bias = linear.bias.rows(begin, count);
    const Tensor out = ctx.arena->take(DType::kF32, {input.dim(0), count});
    some.forward(ctx, input, out);
    return out;
  };
  return {.first = any ? part(0, num_first, wanted.of(ctx, rows)) : Tensor{},
          .others = part(num_first, num_others, rows)};
}

}  // namespace sluice
