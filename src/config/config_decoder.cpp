// Keys of the dense decoder families beyond sizes: how a layer's halves are combined, factors, and
// options with only one supported value.
#include <cmath>

#include "config/config_parts.h"

namespace sluice {
namespace {

// Options whose other value would be another model.
struct FixedOption {
  std::string_view architecture;
  std::string_view key;
  bool value;  // the supported value, and the class's default
};
constexpr FixedOption kFixedOptions[] = {
    {"GPT2LMHeadModel", "scale_attn_weights", true},
    {"GPT2LMHeadModel", "scale_attn_by_inverse_layer_idx", false},
    {"GPT2LMHeadModel", "add_cross_attention", false},
    {"GPTBigCodeForCausalLM", "scale_attn_weights", true},
    {"GPTBigCodeForCausalLM", "add_cross_attention", false},
    {"OPTForCausalLM", "do_layer_norm_before", true},
    {"OPTForCausalLM", "layer_norm_elementwise_affine", true},
    {"OPTForCausalLM", "_remove_final_layer_norm", false},
    {"BloomForCausalLM", "apply_residual_connection_post_layernorm", false},
    {"FalconForCausalLM", "alibi", false},
    {"PhiForCausalLM", "qk_layernorm", false},
};

ResidualForm falcon_residual(const ConfigReader& config) {
  if (!config.bool_or("parallel_attn", true)) return ResidualForm::kSequential;
  const bool is_new = config.bool_or("new_decoder_architecture", false);
  const int norms = config.int_or("num_ln_in_parallel_attn", is_new ? 2 : 1);
  return is_new && norms == 2 ? ResidualForm::kParallelTwoNorms : ResidualForm::kParallelOneNorm;
}

ResidualForm read_residual(const ConfigReader& config, ResidualRule rule) {
  switch (rule) {
    case ResidualRule::kSequential:
      break;
    case ResidualRule::kParallel:
      return ResidualForm::kParallelOneNorm;
    case ResidualRule::kParallelByKey:
      return config.bool_or("use_parallel_residual", false) ? ResidualForm::kParallelOneNorm
                                                            : ResidualForm::kSequential;
    case ResidualRule::kTwoNormsByKey:
      return config.bool_or("use_parallel_residual", true) ? ResidualForm::kParallelTwoNorms
                                                           : ResidualForm::kSequential;
    case ResidualRule::kFalcon:
      return falcon_residual(config);
  }
  return ResidualForm::kSequential;
}

}  // namespace

void read_block_form(const ConfigReader& config, const FamilyDefaults& family, ModelConfig& model) {
  for (const FixedOption& option : kFixedOptions)
    if (option.architecture == family.architecture &&
        config.bool_or(option.key, option.value) != option.value)
      config.reject(option.key,
                    fmt::format("{} is built for {} alone", family.architecture, option.value));
  if (const auto width = config.find_int("word_embed_proj_dim");
      width && *width != model.hidden_size)
    config.reject("word_embed_proj_dim",
                  fmt::format("it must be hidden_size, which is {}", model.hidden_size));

  model.residual = read_residual(config, family.residual);
  model.positions = family.positions;
  model.head_bias =
      family.head_bias_by_key ? config.bool_or("lm_head_bias", family.head_bias) : family.head_bias;
  if (family.scaled_embedding) {
    model.embedding_multiplier = std::sqrt(static_cast<double>(model.hidden_size));
    model.embedding_multiplier_rounds = true;
  }
  if (family.multipliers) {
    model.embedding_multiplier = config.number_or("embedding_multiplier", 1);
    model.residual_multiplier = config.number_or("residual_multiplier", 1);
    model.attention_scale = config.number_or("attention_multiplier", 1);
    model.logit_scale = 1 / config.number_or("logits_scaling", 1);
  }
  if (family.logit_scale > 0)
    model.logit_scale = config.number_or("logit_scale", family.logit_scale);
  if (family.query_pre_attn_scalar > 0)
    model.attention_scale =
        1 / std::sqrt(config.number_or("query_pre_attn_scalar",
                                       static_cast<double>(family.query_pre_attn_scalar)));
  if (family.softcaps) {
    // null switches a cap off; a missing key means the class's default.
    const auto cap = [&](std::string_view key, double fallback) {
      return config.number_or(key, config.has_key(key) ? 0 : fallback);
    };
    model.attention_softcap = cap("attn_logit_softcapping", family.attention_softcap);
    model.logit_softcap = cap("final_logit_softcapping", family.logit_softcap);
  }
  if (family.temperature_tuning && config.bool_or("attn_temperature_tuning", true))
    model.query_scaling = {.beta = config.number_or("attn_scale", 0.1),
                           .length = config.int_or("floor_scale", 8192),
                           .offset = 1,
                           .unrotated_only = true};
  if (family.v_head_dim > 0) model.v_head_dim = config.int_or("v_head_dim", family.v_head_dim);
  if (family.value_scale > 0)
    model.value_scale = config.number_or(
        "attention_value_scale", config.has_key("attention_value_scale") ? 1 : family.value_scale);
  if (family.clip_qkv) model.clip_qkv = config.number_or("clip_qkv", 0);
}

}  // namespace sluice
