// Defaults of the configuration class of each architecture, for keys missing in config.json.
// Private to config/.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/model_config.h"

namespace sluice {

// Which projections have biases: by a key of the file, or fixed if the key is empty. The rule only
// serves random weights; a checkpoint's tensors decide.
struct BiasRule {
  std::string_view qkv_key = {};
  bool qkv = false;  // the default of the key
  std::string_view o_key = {};
  bool o = false;
  std::string_view mlp_key = "mlp_bias";
  bool mlp = false;

  static const BiasRule kNone;
  static const BiasRule kQkvAlways;  // q, k, v; never o
  static const BiasRule kQkvByKey;   // q, k, v by `qkv_bias`, which defaults to true; never o
  static const BiasRule kAllByKey;   // q, k, v and o by `attention_bias`, which defaults to false
  // q, k, v by `attention_bias`, which defaults to false; never o
  static const BiasRule kQkvByAttentionBias;
  static const BiasRule kEverywhere;       // the MLP's too
  static const BiasRule kEverywhereByUse;  // by `use_bias`, which defaults to true
};
inline constexpr BiasRule BiasRule::kNone{};
inline constexpr BiasRule BiasRule::kQkvAlways{.qkv = true};
inline constexpr BiasRule BiasRule::kQkvByKey{.qkv_key = "qkv_bias", .qkv = true};
inline constexpr BiasRule BiasRule::kAllByKey{.qkv_key = "attention_bias",
                                              .o_key = "attention_bias"};
inline constexpr BiasRule BiasRule::kQkvByAttentionBias{.qkv_key = "attention_bias"};
inline constexpr BiasRule BiasRule::kEverywhere{.qkv = true, .o = true, .mlp_key = "", .mlp = true};
inline constexpr BiasRule BiasRule::kEverywhereByUse{.qkv_key = "use_bias",
                                                     .qkv = true,
                                                     .o_key = "use_bias",
                                                     .o = true,
                                                     .mlp_key = "use_bias",
                                                     .mlp = true};

// Which layers have a window if the file has no `layer_types`.
enum class WindowRule {
  kNone,          // the family has no window; `sliding_window` is not read
  kEveryLayer,    // all layers, if there is a `sliding_window`
  kFromLayer,     // from layer `max_window_layers` on, if `use_sliding_window`
  kEvenLayers,    // 0, 2, 4, ...
  kPattern,       // all but every p-th, p = `sliding_window_pattern`
  kAllButSixths,  // all but 0, 5, 11, 17, ...
};

// Which layers have sinks (LayerConfig::sinks).
enum class SinkRule { kNone, kEveryLayer };

// Which layers do not rotate.
enum class NopeRule {
  kNone,
  kFullLayers,  // layers without a window, in a model that also has layers with one
  kByList,      // layers with a 0 in `no_rope_layers`; without that key every
                // `no_rope_layer_interval`-th
};

// How the halves of a layer are combined.
enum class ResidualRule {
  kSequential,
  kParallel,       // both read one norm
  kParallelByKey,  // parallel if `use_parallel_residual`, which defaults to false
  kTwoNormsByKey,  // parallel with a norm each if `use_parallel_residual`, which defaults to true
  kFalcon,         // by `new_decoder_architecture`, `parallel_attn` and `num_ln_in_parallel_attn`
};

// Which layers are MoE if the file has no `mlp_layer_types`.
enum class MoeRule {
  kNone,
  kEveryLayer,
  kSparseStep,  // (i + 1) % decoder_sparse_step == 0 and i not in mlp_only_layers
  kFirstDense,  // i >= first_k_dense_replace and i % moe_layer_freq == 0
  kInterval,    // (i + 1) % moe_layer_interval == 0 and moe_layer_start_index <= i <=
                // moe_layer_end_index (-1: the last)
  kListed,  // the layers in moe_layers, or step - 1, 2 step - 1, ... with interleave_moe_layer_step
};

enum class IndexerRule { kNone, kIfIndexTopk, kAlways };

// The key names of a family with recurrent layers (config_recurrent.cpp).
enum class RecurrentRule { kNone, kGatedDelta, kKeyDelta, kMamba2, kShortConv };

struct FamilyDefaults {
  std::string_view architecture;
  std::string_view model_type;
  double rope_theta = 10000;
  double rms_norm_eps = 1e-6;
  int head_dim = 0;  // 0: hidden_size / num_attention_heads
  double partial_rotary_factor = 1;
  bool tie_word_embeddings = false;
  int max_position_embeddings = 0;  // default of a missing key; 0: the key is required
  BiasRule bias = {};
  bool qk_norm = false;
  bool qk_norm_by_key = false;  // by `qk_norm_key`, which defaults to qk_norm
  std::string_view qk_norm_key = "use_qk_norm";
  // adjacent elements rotate as pairs; MLA reads rope_interleave instead
  bool rope_interleaved = false;
  Activation hidden_act = Activation::kSilu;
  bool gelu_means_tanh = false;  // files say gelu but mean the tanh approximation
  bool head_bias = false;
  bool head_bias_by_key = false;  // by `lm_head_bias`, which defaults to head_bias
  // Sizes that published files leave to the class; 0: the key is required.
  int vocab_size = 0;
  int num_heads = 0;
  int num_kv_heads = 0;             // 0: num_heads
  int intermediate_per_hidden = 0;  // intermediate_size is this multiple of hidden_size
  std::string_view dense_width_key = "intermediate_size";  // width of dense MLPs
  // one KV head if `multi_query`, which defaults to true; Falcon's older form
  bool multi_query = false;
  // Positions.
  PositionKind positions = PositionKind::kRope;
  NopeRule nope = NopeRule::kNone;
  int nope_interval = 4;    // default for kByList
  bool local_rope = false;  // layers with a window have their own rotation, never scaled
  // default of `rope_local_base_freq`; 0: theta of the other layers
  double local_rope_theta = 0;
  ResidualRule residual = ResidualRule::kSequential;
  // Factors; 0: the family does not read the key.
  bool scaled_embedding = false;  // by sqrt(hidden_size)
  bool multipliers = false;       // Granite's four
  double logit_scale = 0;
  int query_pre_attn_scalar = 0;
  bool softcaps = false;  // attn_logit_softcapping, final_logit_softcapping
  double attention_softcap = 0, logit_softcap = 0;  // defaults of those keys
  bool clip_qkv = false;
  // a rotation of type "dynamic" with an `alpha` is a constant scaling of the base
  bool rope_alpha = false;
  bool query_scaling = false;  // llama_4_scaling_beta beside the rope's keys
  int window_pattern = 0;      // for kPattern: default of the key
  // query scaling in layers without rotation: attn_temperature_tuning, attn_scale, floor_scale
  bool temperature_tuning = false;
  int chunk = 0;  // default of `attention_chunk_size` in layers that rotate; 0: no chunks
  // Attention whose values have another width than its keys, and whose windowed layers differ from
  // the others.
  int v_head_dim = 0;       // default of the key; 0: width of the keys
  double value_scale = 0;   // default of `attention_value_scale`; 0: the key is not read
  int window_kv_heads = 1;  // KV heads of a layer with a window, as a multiple of the others
  SinkRule sinks = SinkRule::kNone;
  // Published files have keys for what the class of transformers fixes: `hybrid_layer_pattern`,
  // `swa_num_key_value_heads` and `add_*_attention_sink_bias`.
  bool swa_keys = false;
  WindowRule window = WindowRule::kNone;
  int sliding_window = 0;      // default of the key; 0: none
  int max_window_layers = 28;  // default of the key
  bool mla = false;
  IndexerRule indexer = IndexerRule::kNone;
  bool indexer_rope_interleaved = false;
  // MoE.
  MoeRule moe = MoeRule::kNone;
  std::string_view expert_count_key =
      "num_experts";  // the class's name of the key; other spellings are read as well
  std::string_view expert_width_key = "moe_intermediate_size";
  bool gated_shared_expert = false;
  bool norm_topk_prob = false;
  bool reads_norm_topk_prob = true;
  double routed_scaling_factor = 1;
  RouterScoring scoring = RouterScoring::kSoftmax;
  TopkMethod topk_method = TopkMethod::kGreedy;
  int first_k_dense_replace = 0;
  int num_shared_experts = 0;       // each has the width of a routed expert
  bool weigh_expert_input = false;  // MoeConfig::weigh_input
  double swiglu_limit = 0;          // for experts with clamped gates; 0: no clamp
  int n_group = 1;
  int topk_group = 1;
  RecurrentRule recurrent = RecurrentRule::kNone;
};

std::span<const FamilyDefaults> family_table();

// The row of a class, with its head in the name or without; of a model type where no class is
// named. Null: there is none.
const FamilyDefaults* native_family(std::string_view architecture, std::string_view model_type);

// The row of `architecture`, or, if that is empty, of `model_type`. Error{kBadInput} with the
// reason and the nearest supported architecture if there is none. `what` names the file,
// `is_encoder_decoder` is the file's flag, `has_code` says whether the file names its own code.
const FamilyDefaults& find_family(std::string_view architecture, std::string_view model_type,
                                  bool is_encoder_decoder, bool has_code, std::string_view what);

}  // namespace sluice
