// Mixture of experts: router, routed experts, shared experts.
//
// Sources: transformers Qwen2MoeSparseMoeBlock, Qwen3MoeSparseMoeBlock, MixtralSparseMoeBlock,
// DeepseekV2MoE, DeepseekV3MoE, Glm4MoeMoE, Ernie4_5_MoeSparseMoeBlock, GraniteMoeMoE, GptOssMLP,
// HunYuanMoEV1Moe, Llama4TextMoe, MiniMaxM2SparseMoeBlock, MiMoV2FlashMoE, OlmoeSparseMoeBlock,
// PhimoeSparseMoeBlock.
#pragma once

#include <optional>

#include "attention/dp_groups.h"
#include "kernels/types/op_params.h"
#include "layers/mlp.h"

namespace sluice {

// All experts in two tensors, below the block's name: gate_up [E, 2 I, hidden] and down [E, hidden,
// I].
struct ExpertStack {
  std::string_view gate_up = "experts.gate_up_proj";
  std::string_view down = "experts.down_proj";
  bool transposed = false;  // stored [E, hidden, 2 I] and [E, I, hidden]
  // gate and up of a column are neighbours; else all gate columns, then all up columns
  bool interleaved = false;
  bool always = false;  // the family's files have no other form
};

// Where a family keeps the parts of a MoE layer, below the decoder layer's name.
struct MoeNames {
  std::string_view block = "mlp";
  MlpNames expert = {};                  // below block.experts.<e>
  std::string_view shared_experts = {};  // empty: none
  std::string_view shared_gate = {};     // for Qwen2-MoE; empty: none
  std::string_view router =
      "gate";  // ROUTER.weight [E, hidden], and ROUTER.bias [E] if the file has one
  std::string_view correction_bias = "gate.e_score_correction_bias";
  bool correction_is_row = false;  // stored [1, E]
  ExpertStack stack = {};  // for files with stacked instead of single experts; biases: NAME_bias
};
inline constexpr MoeNames kQwenMoeNames{.shared_experts = "shared_expert",
                                        .shared_gate = "shared_expert_gate"};
inline constexpr MoeNames kDeepseekMoeNames{.shared_experts = "shared_experts"};
inline constexpr MoeNames kMixtralMoeNames{.block = "block_sparse_moe",
                                           .expert = {"w1", "w3", "w2"}};
inline constexpr MoeNames kErnieMoeNames{.shared_experts = "shared_experts",
                                         .correction_bias = "moe_statics.e_score_correction_bias",
                                         .correction_is_row = true};
inline constexpr MoeNames kMinimaxMoeNames{.block = "block_sparse_moe",
                                           .expert = {"w1", "w3", "w2"},
                                           .correction_bias = "e_score_correction_bias"};
inline constexpr MoeNames kHunyuanMoeNames{.shared_experts = "shared_mlp", .router = "gate.wg"};
inline constexpr MoeNames kGraniteMoeNames{
    .block = "block_sparse_moe",
    .router = "router.layer",
    .stack = {.gate_up = "input_linear.weight", .down = "output_linear.weight", .always = true}};
inline constexpr MoeNames kGptOssMoeNames{
    .router = "router", .stack = {.transposed = true, .interleaved = true, .always = true}};
inline constexpr MoeNames kLlama4MoeNames{.block = "feed_forward",
                                          .shared_experts = "shared_expert",
                                          .router = "router",
                                          .stack = {.transposed = true, .always = true}};

// The settings of ops::route for a configuration.
ops::RouterParams router_params(const MoeConfig& moe);

struct Moe {
  Tensor router;           // [E, hidden] f32: router logits are float32 in every compute type
  Tensor router_bias;      // [E] f32, or undefined
  Tensor correction_bias;  // [E] f32, or undefined
  // [E] int32: where an expert is among those of this rank, -1: at another rank; undefined: all
  // experts are here
  Tensor places;
  // Where experts have places by a map: what ops::place_replicas reads and counts (ExpertLayer).
  Tensor replicas, choices, group_choices;
  std::int64_t num_places = 0, first_place = 0;  // of all ranks; of this one
  // `choices` are counted without a map: experts of lost ranks are dealt by them (SharedExperts).
  bool counts_choices = false;
  // Places change while the model serves, so pairs (token, expert) are summed over the ranks one by
  // one: the sum has the same bits wherever experts are.
  bool sums_pairs = false;
  // Every rank has the shared experts whole, and computes its group's rows with them alone.
  bool has_whole_shared = false;
  ops::Weight w13;  // [experts of this rank, 2 I, hidden]: gate rows, up rows
  ops::Weight w2;   // [experts of this rank, hidden, I]
  std::optional<Mlp> shared;
  Tensor shared_gate;  // [1, hidden] f32, or undefined
  ops::RouterParams params;
  ops::ExpertParams experts;
  bool reduce = false;

  // `layer` is the decoder layer. Experts may be stored one by one or stacked.
  static Moe load(const Weights& layer, const ModelConfig& config, const MoeNames& names);
  // stream += the mixture of x [T, hidden].
  void forward(Context& ctx, const ops::NormedRows& x, ops::Residual& stream) const;
  // sum += what the shared experts make of x [T, hidden], where they are whole.
  void add_shared(Context& ctx, const Tensor& x, const Tensor& sum) const;
};

// The second half of a decoder layer: dense or a mixture.
struct FeedForward {
  std::optional<Mlp> dense;
  std::optional<Moe> moe;
  bool is_alone = false;  // a dense MLP that this rank's group has whole

  // `mlp` is the name of the MLP of dense layers, below the decoder layer.
  static FeedForward load(const Weights& layer, const ModelConfig& config,
                          const LayerConfig& layer_config, const MoeNames& names,
                          std::string_view mlp = "mlp", const MlpNames& dense_names = {});
  // The type of x that loses nothing: a router reads float32, a dense MLP what its first product
  // reads.
  DType input() const { return moe ? DType::kF32 : dense->gate_up.input(); }
  // stream += what x [T, hidden] gives. With data-parallel attention all ranks share the layer: it
  // computes the rows of all groups (`dp`; null: there is one).
  void forward(Context& ctx, const ops::NormedRows& x, ops::Residual& stream,
               const DpGroups* dp = nullptr) const;

 private:
  void of_rows(Context& ctx, const ops::NormedRows& x, ops::Residual& stream) const {
    if (moe)
      moe->forward(ctx, x, stream);
    else
      dense->forward(ctx, x, stream);
  }
};

}  // namespace sluice
