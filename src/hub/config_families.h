// What the configuration class of each architecture says where config.json is silent. Private to hub.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "hub/model_config.h"

namespace sluice {

enum class BiasRule {
  kNone,
  kQkvAlways,  // q, k, v; never o
  kQkvByKey,   // q, k, v by `qkv_bias`, which defaults to true; never o
  kAllByKey,   // q, k, v and o by `attention_bias`, which defaults to false
  kQkvByAttentionBias,  // q, k, v by `attention_bias`, which defaults to false; never o
};

// Which layers slide where the file has no `layer_types`.
enum class WindowRule {
  kNone,        // the family has no window; `sliding_window` is not read
  kEveryLayer,  // all, if there is a `sliding_window`
  kFromLayer,   // from layer `max_window_layers` on, if `use_sliding_window`
};

// Which layers are MoE where the file has no `mlp_layer_types`.
enum class MoeRule {
  kNone,
  kEveryLayer,
  kSparseStep,  // (i + 1) % decoder_sparse_step == 0 and i not in mlp_only_layers
  kFirstDense,  // i >= first_k_dense_replace and i % moe_layer_freq == 0
  kInterval,    // (i + 1) % moe_layer_interval == 0 and moe_layer_start_index <= i <= moe_layer_end_index (-1: the last)
  kListed,      // the layers in moe_layers, or step - 1, 2 step - 1, ... with interleave_moe_layer_step
};

enum class IndexerRule { kNone, kIfIndexTopk, kAlways };

// How a family with recurrent layers spells them (config_recurrent.cpp).
enum class RecurrentRule { kNone, kGatedDelta, kKeyDelta, kMamba2, kShortConv };

struct FamilyDefaults {
  std::string_view architecture;
  std::string_view model_type;
  double rope_theta = 10000;
  double rms_norm_eps = 1e-6;
  int head_dim = 0;  // 0: hidden_size / num_attention_heads
  double partial_rotary_factor = 1;
  bool tie_word_embeddings = false;
  int max_position_embeddings = 0;  // where the file has no such key; 0: it must have it
  BiasRule bias = BiasRule::kNone;
  bool qk_norm = false;
  bool qk_norm_by_key = false;    // by `use_qk_norm`, which defaults to qk_norm
  bool rope_interleaved = false;  // pairs of neighbours rotate; MLA reads rope_interleave instead
  WindowRule window = WindowRule::kNone;
  int sliding_window = 0;      // where the key is absent; 0: none
  int max_window_layers = 28;  // where the key is absent
  bool mla = false;
  IndexerRule indexer = IndexerRule::kNone;
  bool indexer_rope_interleaved = false;
  // MoE.
  MoeRule moe = MoeRule::kNone;
  std::string_view expert_count_key = "num_experts";  // what the class calls it; the other spellings are read as well
  std::string_view expert_width_key = "moe_intermediate_size";
  bool gated_shared_expert = false;
  bool norm_topk_prob = false;
  bool reads_norm_topk_prob = true;
  double routed_scaling_factor = 1;
  MoeScoring scoring = MoeScoring::kSoftmax;
  TopkMethod topk_method = TopkMethod::kGreedy;
  int first_k_dense_replace = 0;
  int num_shared_experts = 0;       // each as wide as a routed one
  bool weigh_expert_input = false;  // MoeConfig::weigh_input
  double swiglu_limit = 0;          // of experts whose gates are clamped; 0: they are not
  int n_group = 1;
  int topk_group = 1;
  RecurrentRule recurrent = RecurrentRule::kNone;
};

std::span<const FamilyDefaults> family_table();

// The row of `architecture`, or, where that is empty, of `model_type`. Error{kBadInput} with the reason and
// the nearest supported architecture where there is none; `what` names the file, `is_encoder_decoder` is the
// file's flag.
const FamilyDefaults& find_family(std::string_view architecture, std::string_view model_type,
                                  bool is_encoder_decoder, std::string_view what);

}  // namespace sluice
