#include "layers/linear.h"

#include <array>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/gemm.h"
#include "ops/packing.h"

namespace sluice {
namespace {

// Whether GEMMs with w read quantised rows of x.
bool quantised(const ops::WeightMatrix& w) {
  return w.layout != ops::WeightLayout::kRows && w.layout != ops::WeightLayout::kBf16Tiles;
}

void load_packed(const Weights& weights, const WeightParts& parts, std::int64_t columns,
                 Shard shard, Linear& linear) {
  linear.weight = weights.packed(parts, columns, shard);
  linear.input = quantised(linear.weight) ? DType::kF32 : weights.numerics().gemm();
}

constexpr std::array kMethods = {
    // Q8_0, Q4_0, Q4_1, or quantised from any checkpoint by --quantization:
    // kernels/cpu/gemm/quant_layout.h.
    LinearMethod{.name = "groups of integers",
                 .accepts =
                     [](const Weights& weights, const WeightParts& parts) {
                       std::vector<std::string> names;
                       for (const WeightPart& part : parts)
                         names.push_back(std::string(part.name) + ".weight");
                       return quantised(weights.form(names, weights.numerics().compute));
                     },
                 .load = load_packed,
                 .apply =
                     [](Context& ctx, const Linear& linear, const Tensor& x, const Tensor& out) {
                       ops::linear(ctx, input_for(ctx, x, linear.weight, linear.input),
                                   linear.weight, linear.bias, out);
                     }},
    LinearMethod{.name = "unquantized",
                 .accepts =
                     [](const Weights& weights, const WeightParts& parts) {
                       // A scale beside the weight means a quantised form.
                       const std::string name(parts.begin()->name);
                       return !weights.has(name + ".weight_scale_inv", false) &&
                              !weights.has(name + ".weight_scale", false);
                     },
                 .load = load_packed,
                 .apply =
                     [](Context& ctx, const Linear& linear, const Tensor& x, const Tensor& out) {
                       ops::linear(ctx, rounded_to(ctx, x, linear.input), linear.weight,
                                   linear.bias, out);
                     }},
};

}  // namespace

void sum_over_ranks(Context& ctx, const Tensor& x) {
  if (!ctx.dry_run) ctx.communicator->all_reduce(x);
}

Tensor input_for(Context& ctx, const Tensor& x, const ops::WeightMatrix& w, DType plain) {
  if (!quantised(w)) return rounded_to(ctx, x, plain);
  const ops::PreparedRows shape = ops::prepared_shape(ctx, w);
  const Tensor prepared = ctx.arena->take(shape.dtype, {x.dim(0), shape.elements});
  ops::prepare_rows(ctx, rounded_to(ctx, x, DType::kF32), w, prepared);
  return prepared;
}

Tensor rounded_to(Context& ctx, const Tensor& x, DType dtype) {
  if (x.dtype == dtype) return x;
  const Tensor rounded = ctx.arena->take(dtype, {x.dim(0), x.dim(1)});
  ops::convert(ctx, x, rounded);
  return rounded;
}

Linear Linear::load(const Weights& weights, const WeightParts& parts, std::int64_t columns,
                    Shard shard, bool bias) {
  Linear linear;
  for (const LinearMethod& method : kMethods)
    if (method.accepts(weights, parts)) {
      linear.method = &method;
      break;
    }
  require(linear.method != nullptr,
          "{} has a scale beside it, but config.json does not say in quantization_config how it is "
          "quantised",
          weights.path(parts.begin()->name));
  linear.method->load(weights, parts, columns, shard, linear);
  if (bias) linear.bias = weights.bias(parts, shard);
  linear.reduce = shard == Shard::kRow && weights.tp_size() > 1;
  return linear;
}

void Linear::forward(Context& ctx, const Tensor& x, const Tensor& out) const {
  Arena::Scope scope(*ctx.arena);
  method->apply(ctx, *this, x, out);
  if (reduce) sum_over_ranks(ctx, out);
}

void Linear::add_forward(Context& ctx, const Tensor& x, const Tensor& sum) const {
  Arena::Scope scope(*ctx.arena);
  const Tensor product = ctx.arena->take(DType::kF32, {x.dim(0), rows()});
  ops::linear_add(ctx, rounded_to(ctx, x, input), weight.data, bias, product, sum);
}

SplitProduct split_forward(Context& ctx, const Linear& linear, const Tensor& x,
                           std::int64_t num_first, const OutputRows& wanted) {
  const std::int64_t tokens = x.dim(0), num_others = linear.rows() - num_first;
  const bool any = num_first > 0 && !wanted.none();
  if (wanted.all() || num_first == 0 || !linear.weight.plain()) {
    const Tensor fused = ctx.arena->take(DType::kF32, {tokens, linear.rows()});
    linear.forward(ctx, x, fused);
    return {.first = any ? wanted.of(ctx, fused.slice(1, 0, num_first)) : Tensor{},
            .others = fused.slice(1, num_first, num_others)};
  }
  const auto part = [&](std::int64_t begin, std::int64_t count, const Tensor& input) {
    Linear some = linear;
    some.weight = linear.weight.data.rows(begin, count);
    if (linear.bias.defined()) some.bias = linear.bias.rows(begin, count);
    const Tensor out = ctx.arena->take(DType::kF32, {input.dim(0), count});
    some.forward(ctx, input, out);
    return out;
  };
  return {.first = any ? part(0, num_first, wanted.of(ctx, x)) : Tensor{},
          .others = part(num_first, num_others, x)};
}

void Linear::forward_prepared(Context& ctx, const Tensor& x, const Tensor& out) const {
  ops::linear(ctx, x, weight, bias, out);
  if (reduce) sum_over_ranks(ctx, out);
}

}  // namespace sluice
