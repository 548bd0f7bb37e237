#include "layers/linear.h"

#include <array>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/gemm.h"

namespace sluice {
namespace {

constexpr std::array kMethods = {
    LinearMethod{
        .name = "unquantized",
        .accepts =
            [](const Weights& weights, const WeightPart& part) {
              // A scale beside the weight means a quantised form.
              const std::string name(part.name);
              return !weights.has(name + ".weight_scale_inv", false) &&
                     !weights.has(name + ".weight_scale", false);
            },
        .load = [](const Weights& weights, std::initializer_list<WeightPart> parts, std::int64_t columns,
                   Shard shard, Linear& linear) { linear.weight = weights.packed(parts, columns, shard); },
        .apply = [](Context& ctx, const Linear& linear, const Tensor& x,
                    const Tensor& out) { ops::linear(ctx, x, linear.weight, linear.bias, out); }},
};

}  // namespace

void sum_over_ranks(Context& ctx, const Tensor& x) {
  if (!ctx.dry_run) ctx.communicator->all_reduce(x);
}

Tensor rounded_to(Context& ctx, const Tensor& x, DType dtype) {
  if (x.dtype == dtype) return x;
  const Tensor rounded = ctx.arena->take(dtype, {x.dim(0), x.dim(1)});
  ops::convert(ctx, x, rounded);
  return rounded;
}

Linear Linear::load(const Weights& weights, std::initializer_list<WeightPart> parts, std::int64_t columns,
                    Shard shard, bool bias) {
  Linear linear;
  for (const LinearMethod& method : kMethods)
    if (method.accepts(weights, *parts.begin())) {
      linear.method = &method;
      break;
    }
  require(linear.method != nullptr, "{} is stored in a quantised form that is not supported",
          weights.path(parts.begin()->name));
  linear.method->load(weights, parts, columns, shard, linear);
  if (bias) linear.bias = weights.bias(parts, shard);
  linear.input = weights.numerics().gemm();
  linear.reduce = shard == Shard::kRow && weights.tp_size() > 1;
  return linear;
}

void Linear::forward(Context& ctx, const Tensor& x, const Tensor& out) const {
  Arena::Scope scope(*ctx.arena);
  method->apply(ctx, *this, rounded_to(ctx, x, input), out);
  if (reduce) sum_over_ranks(ctx, out);
}

}  // namespace sluice
