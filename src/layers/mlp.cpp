#include "layers/mlp.h"

#include "base/error.h"
#include "ops/activation.h"

namespace sluice {

ops::Activation gate_activation(Activation activation) {
  require(activation == Activation::kSilu || activation == Activation::kGeluTanh,
          "hidden_act: gated MLPs with this activation are not supported; silu and gelu_pytorch_tanh are");
  return activation == Activation::kSilu ? ops::Activation::kSilu : ops::Activation::kGeluTanh;
}

Mlp Mlp::load(const Weights& weights, const ModelConfig& config, std::int64_t intermediate,
              bool bias_by_config) {
  const MlpNames names;
  const bool bias = weights.has(std::string(names.gate) + ".bias", bias_by_config);
  return {.gate_up = Linear::load(weights, {{names.gate, intermediate}, {names.up, intermediate}},
                                  config.hidden_size, Shard::kColumn, bias),
          .down = Linear::load(weights, {{names.down, config.hidden_size}}, intermediate, Shard::kRow,
                               weights.has(std::string(names.down) + ".bias", bias_by_config)),
          .activation = gate_activation(config.hidden_act)};
}

void Mlp::forward(Context& ctx, const Tensor& x, const Tensor& out) const {
  Arena::Scope scope(*ctx.arena);
  const Tensor both = ctx.arena->take(DType::kF32, {x.dim(0), gate_up.rows()});
  const Tensor hidden = ctx.arena->take(down.input, {x.dim(0), gate_up.rows() / 2});
  gate_up.forward(ctx, x, both);
  ops::act_and_mul(ctx, activation, both, hidden);
  down.forward(ctx, hidden, out);
}

}  // namespace sluice
