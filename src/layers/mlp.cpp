#include "layers/mlp.h"

#include "base/error.h"
#include "ops/activation.h"
#include "ops/fused.h"

namespace sluice {
namespace {

std::vector<WeightPart> first_parts(const MlpNames& names, std::int64_t width) {
  if (!names.gated) return {{.name = names.up, .rows = width, .transposed = names.transposed}};
  if (names.gate_up.empty())
    return {{.name = names.gate, .rows = width}, {.name = names.up, .rows = width}};
  return {{names.gate_up, width, 0, 2 * width}, {names.gate_up, width, width, 2 * width}};
}

// transformers stores the numbers of xIELU as four tensors: two with one element, two without
// dimensions.
Tensor load_xielu(const Weights& weights) {
  const Weights act = weights.sub("act_fn");
  const Tensor params = weights.take(DType::kF32, {4});
  act.fill(params.rows(0, 1), "alpha_p", {1});
  act.fill(params.rows(1, 1), "alpha_n", {1});
  act.fill(params.rows(2, 1), "beta", {});
  act.fill(params.rows(3, 1), "eps", {});
  return params;
}

}  // namespace

Activation gate_activation(Activation activation) {
  require(activation != Activation::kXielu, "hidden_act: xielu has no gated form");
  return activation;
}

Mlp Mlp::load(const Weights& weights, const ModelConfig& config, std::int64_t intermediate,
              bool bias_by_config, const MlpNames& names) {
  const std::vector<WeightPart> parts = first_parts(names, intermediate);
  const bool bias = weights.has(std::string(parts.front().name) + ".bias", bias_by_config);
  const WeightPart down{
      .name = names.down, .rows = config.hidden_size, .transposed = names.transposed};
  Mlp mlp{.gate_up = Linear::load(weights, parts, config.hidden_size, Shard::kColumn, bias),
          .down = Linear::load(weights, {down}, intermediate, Shard::kRow,
                               weights.has(std::string(names.down) + ".bias", bias_by_config)),
          .gated = names.gated,
          .activation = {},
          .xielu = {}};
  if (config.hidden_act == Activation::kXielu && !names.gated)
    mlp.xielu = load_xielu(weights);
  else
    mlp.activation = gate_activation(config.hidden_act);
  return mlp;
}

void Mlp::forward(Context& ctx, const ops::NormedRows& x, ops::Residual& stream) const {
  Arena::Scope scope(*ctx.arena);
  if (gated && !gate_up.pieces.empty()) {
    // Gate and up have different forms.
    const Tensor both = ctx.arena->take(DType::kF32, {x.count(), gate_up.rows()});
    const Tensor inner = ctx.arena->take(DType::kF32, {x.count(), gate_up.rows() / 2});
    gate_up.forward(ctx, x, both);
    ops::act_and_mul(ctx, activation, both, inner);
    return down.add(ctx, inner, stream);
  }
  if (gated) {
    const ops::PreparedRows shape = ops::prepared_shape(ctx, down.weight, x.count());
    const Tensor inner = ctx.arena->take(shape.dtype, {x.count(), shape.elements});
    ops::norm_gate_up(ctx, x, gate_up.weight, gate_up.bias, activation, down.weight, inner);
    return down.add(ctx, inner, stream);
  }
  const Tensor up = ctx.arena->take(DType::kF32, {x.count(), gate_up.rows()});
  const Tensor inner = ctx.arena->take(down.input(), {x.count(), gate_up.rows()});
  gate_up.forward(ctx, x, up);
  if (xielu.defined())
    ops::xielu(ctx, up, xielu, inner);
  else
    ops::activate(ctx, activation, up, inner);
  down.add(ctx, inner, stream);
}

}  // namespace sluice
