// Mixture of experts: router, routed experts, shared experts.
//
// Sources: transformers Qwen2MoeSparseMoeBlock, Qwen3MoeSparseMoeBlock, MixtralSparseMoeBlock, DeepseekV2MoE,
// DeepseekV3MoE.
#pragma once

#include <optional>

#include "kernels/cpu/types.h"
#include "layers/mlp.h"

namespace sluice {

// Where a family keeps the parts of a MoE layer, below the decoder layer's name.
struct MoeNames {
  std::string_view block;           // "mlp"
  MlpNames expert;                  // below block.experts.<e>
  std::string_view shared_experts;  // empty: none
  std::string_view shared_gate;     // of Qwen2-MoE; empty: none
};
inline constexpr MoeNames kQwenMoeNames{"mlp", {}, "shared_expert", "shared_expert_gate"};
inline constexpr MoeNames kDeepseekMoeNames{"mlp", {}, "shared_experts", ""};
inline constexpr MoeNames kMixtralMoeNames{"block_sparse_moe", {"w1", "w3", "w2"}, "", ""};

// The settings of ops::route for a configuration.
ops::RouterParams router_params(const MoeConfig& moe);

struct Moe {
  Tensor router;           // [E, hidden] f32: logits are float32 whatever the compute type
  Tensor correction_bias;  // [E] f32, or undefined
  ops::WeightMatrix w13;   // [E, 2 I, hidden]: gate rows, up rows
  ops::WeightMatrix w2;    // [E, hidden, I]
  std::optional<Mlp> shared;
  Tensor shared_gate;  // [1, hidden] f32, or undefined
  ops::RouterParams params;
  ops::Activation activation = ops::Activation::kSilu;
  DType input = DType::kF32;
  bool reduce = false;

  // `layer` is the decoder layer. Experts may be stored one by one or stacked (experts.gate_up_proj, as
  // transformers 5 saves them).
  static Moe load(const Weights& layer, const ModelConfig& config, const MoeNames& names);
  // x and out [T, hidden] f32; they do not overlap.
  void forward(Context& ctx, const Tensor& x, const Tensor& out) const;
};

// The second half of a decoder layer: dense or a mixture.
struct FeedForward {
  std::optional<Mlp> dense;
  std::optional<Moe> moe;

  static FeedForward load(const Weights& layer, const ModelConfig& config, const LayerConfig& facts,
                          const MoeNames& names);
  // The type of x that loses nothing: a router reads float32, a dense MLP what its first product reads.
  DType input() const { return moe ? DType::kF32 : dense->gate_up.input; }
  void forward(Context& ctx, const Tensor& x, const Tensor& out) const {
    if (moe)
      moe->forward(ctx, x, out);
    else
      dense->forward(ctx, x, out);
  }
};

}  // namespace sluice
