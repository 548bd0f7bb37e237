// The MLP of a decoder layer: down(act(gate x) * up x), or down(act(up x)).
#pragma once

#include "config/model_config.h"
#include "kernels/types/op_params.h"
#include "layers/linear.h"
#include "layers/norm.h"

namespace sluice {

// Error{kBadInput} for an activation without a gated form here.
Activation gate_activation(Activation activation);

// Names of the matrices below the MLP's own name, and their form.
struct MlpNames {
  std::string_view gate = "gate_proj";
  std::string_view up = "up_proj";
  std::string_view down = "down_proj";
  std::string_view gate_up = {};  // if one tensor holds the rows of both, gate first
  bool gated = true;              // false: there is no `gate`
  bool transposed = false;        // weights are stored [in, out]
};

struct Mlp {
  Linear gate_up;  // rows gate | up, or up alone
  Linear down;
  bool gated = true;
  Activation activation = Activation::kSilu;
  Tensor xielu;  // [4] f32, the numbers of ops::xielu if that is the activation; else undefined

  static Mlp load(const Weights& weights, const ModelConfig& config, std::int64_t intermediate,
                  bool bias_by_config, const MlpNames& names = {});
  // stream += the MLP of x [T, hidden].
  void forward(Context& ctx, const ops::NormedRows& x, ops::Residual& stream) const;
};

}  // namespace sluice
