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
  // x [T, hidden] f32 or the GEMM's input type; out [T, hidden] f32. x and out do not overlap.
  void forward(Context& ctx, const Tensor& x, const Tensor& out) const;

  bool can_fuse() const { return gated && gate_up.can_fuse() && down.can_fuse(); }
  // hidden [T, hidden] f32 += the MLP of its normed rows. Only if can_fuse(), for few rows
  // (ops/fused.h).
  void add_forward(Context& ctx, const Norm& norm, const Tensor& hidden) const;
};

}  // namespace sluice
