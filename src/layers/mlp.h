// The gated MLP: down(act(gate x) * up x).
#pragma once

#include "hub/model_config.h"
#include "kernels/cpu/types.h"
#include "layers/linear.h"

namespace sluice {

// Error{kBadInput} for an activation without a gated form here.
ops::Activation gate_activation(Activation activation);

// Names of the three matrices below the MLP's own name.
struct MlpNames {
  std::string_view gate = "gate_proj";
  std::string_view up = "up_proj";
  std::string_view down = "down_proj";
};

struct Mlp {
  Linear gate_up;  // rows gate | up
  Linear down;
  ops::Activation activation = ops::Activation::kSilu;

  static Mlp load(const Weights& weights, const ModelConfig& config, std::int64_t intermediate,
                  bool bias_by_config);
  // x [T, hidden] f32 or the product's input type; out [T, hidden] f32. x and out do not overlap.
  void forward(Context& ctx, const Tensor& x, const Tensor& out) const;
};

}  // namespace sluice
