// What families of architectures have beyond the keys of all.
//
// Source: llama.cpp's classes of its converter for the keys, and its loaders of models for what no
// key says.
#include <algorithm>

#include "base/error.h"
#include "checkpoint/gguf/gguf_config_writer.h"

namespace sluice {
namespace {

constexpr std::int64_t kSigmoidGate = 2;  // value of expert_gating_func; 1 is softmax

// The groups of experts and their weights, as DeepSeek's configurations have them.
void write_groups(GgufConfigWriter& w) {
  const std::int64_t groups = w.integer("expert_group_count").value_or(1);
  w.out["n_group"] = groups;
  w.out["topk_group"] = w.integer("expert_group_used_count").value_or(groups);
  w.out["norm_topk_prob"] = w.flag("expert_weights_norm").value_or(false);
  w.out["routed_scaling_factor"] = w.number("expert_weights_scale").value_or(1);
  w.out["n_shared_experts"] = w.integer("expert_shared_count").value_or(0);
  w.out["first_k_dense_replace"] = w.integer("leading_dense_block_count").value_or(0);
}

// "linear_attention" or `name` for the layers that have no attention.
void write_layer_types(GgufConfigWriter& w, const std::vector<bool>& recurrent, const char* name) {
  Json types = Json::array();
  for (const bool is_recurrent : recurrent) types.push_back(is_recurrent ? name : "full_attention");
  w.out["layer_types"] = types;
}

// Layers without key heads have no attention.
std::vector<bool> layers_without_heads(const GgufConfigWriter& w) {
  std::vector<bool> none;
  for (const std::int64_t heads : w.by_layer("attention.head_count_kv")) none.push_back(heads == 0);
  require(none.size() == static_cast<std::size_t>(w.num_layers),
          "{}: the key {} is missing; it says which layers have attention", w.file.name(),
          w.key("attention.head_count_kv"));
  return none;
}

// The scale of queries is 1 / sqrt(this) if the largest model of a family, which has `layers`
// layers, takes it from the hidden size.
void write_query_scalar(GgufConfigWriter& w, std::int64_t layers) {
  w.out["query_pre_attn_scalar"] =
      w.num_layers == layers ? w.out["hidden_size"].get<std::int64_t>() /
                                   std::max<std::int64_t>(1, w.required("attention.head_count"))
                             : w.out["head_dim"].get<std::int64_t>();
}

}  // namespace

void gguf_write_windows(GgufConfigWriter& w) {
  const std::int64_t window = w.integer("attention.sliding_window").value_or(0);
  if (window == 0) return;
  w.out["sliding_window"] = window;
  const std::string pattern = w.key("attention.sliding_window_pattern");
  if (!w.file.has(pattern)) return;  // that of the family
  std::vector<std::int64_t> windowed;
  if (w.file.is_array(pattern)) {
    windowed = w.by_layer("attention.sliding_window_pattern");
  } else {
    const std::int64_t every = w.required("attention.sliding_window_pattern");
    for (std::int64_t i = 0; i < w.num_layers; ++i)
      windowed.push_back(every == 0 || (i + 1) % every != 0);
  }
  Json types = Json::array();
  for (const std::int64_t has_window : windowed)
    types.push_back(has_window != 0 ? "sliding_attention" : "full_attention");
  w.out["layer_types"] = types;
}

void gguf_narrow_experts(GgufConfigWriter& w) {
  w.out["intermediate_size"] = w.width_of_experts();
}

void gguf_parallel_residual(GgufConfigWriter& w) {
  if (const auto parallel = w.flag("use_parallel_residual"))
    w.out["use_parallel_residual"] = *parallel;
}

// mscale is stored itself, unlike DeepSeek's.
void gguf_mistral3(GgufConfigWriter& w) {
  Json& rope = w.out["rope_scaling"];
  if (rope.is_null()) return;
  if (const auto mscale = w.number("rope.scaling.yarn_log_multiplier"))
    rope["mscale"] = rope["mscale_all_dim"] = *mscale;
  if (const auto beta = w.number("attention.temperature_scale"))
    rope["llama_4_scaling_beta"] = *beta;
}

void gguf_qwen2moe(GgufConfigWriter& w) {
  w.out["norm_topk_prob"] = w.flag("expert_weights_norm").value_or(false);
  std::int64_t width = gguf_columns_of(w.file, "ffn_down_shexp");
  for (const GgufTensor& tensor : w.file.tensors())
    if (width == 0 && tensor.name.ends_with(".ffn_up_shexp.weight")) width = tensor.rows();
  w.out["shared_expert_intermediate_size"] =
      width > 0 ? width : w.required("expert_shared_feed_forward_length");
}

void gguf_qwen3moe(GgufConfigWriter& w) {
  w.out["norm_topk_prob"] = true;  // llama.cpp always divides, and files have no key
}

void gguf_deepseek2(GgufConfigWriter& w) {
  const bool has_correction = gguf_has_part(w.file, "exp_probs_b.bias");
  // Files without the key are older than the first ones with sigmoid and no correction.
  const std::int64_t gate =
      w.integer("expert_gating_func").value_or(has_correction ? kSigmoidGate : 1);
  const bool is_sigmoid = gate == kSigmoidGate;
  require(is_sigmoid == has_correction,
          "{}: {} is {}, but the experts {} correction biases (exp_probs_b); supported are sigmoid "
          "(2) with them and softmax (1) without",
          w.file.name(), w.key("expert_gating_func"), gate, has_correction ? "have" : "have no");
  write_groups(w);
  if (is_sigmoid) w.out["architectures"] = Json::array({"DeepseekV3ForCausalLM"});
  w.out["scoring_func"] = is_sigmoid ? "sigmoid" : "softmax";
  w.out["topk_method"] = is_sigmoid                                 ? "noaux_tc"
                         : w.out["n_group"].get<std::int64_t>() > 1 ? "group_limited_greedy"
                                                                    : "greedy";
}

void gguf_sparse_attention(GgufConfigWriter& w) {
  write_groups(w);
  w.out["scoring_func"] = "sigmoid";
  w.out["topk_method"] = "noaux_tc";
  w.out["index_n_heads"] = w.required("attention.indexer.head_count");
  w.out["index_head_dim"] = w.required("attention.indexer.key_length");
  w.out["index_topk"] = w.required("attention.indexer.top_k");
  const std::vector<std::int64_t> full = w.by_layer("attention.indexer.types");
  if (full.empty()) return;
  Json types = Json::array();
  for (const std::int64_t is_full : full) types.push_back(is_full != 0 ? "full" : "shared");
  w.out["indexer_types"] = types;
}

void gguf_glm4moe(GgufConfigWriter& w) {
  write_groups(w);
  w.out["use_qk_norm"] = gguf_has_part(w.file, "attn_q_norm.weight");
}

void gguf_ernie_moe(GgufConfigWriter& w) {
  w.out["moe_layer_start_index"] = w.integer("leading_dense_block_count").value_or(1);
  w.out["moe_layer_interval"] = w.integer("interleave_moe_layer_step").value_or(1);
  w.out["moe_num_shared_experts"] = w.integer("expert_shared_count").value_or(0);
}

void gguf_gemma2(GgufConfigWriter& w) {
  gguf_write_windows(w);
  if (w.out["sliding_window"].is_null()) w.out["sliding_window"] = 4096;
  write_query_scalar(w, 46);
  w.copy_number("attn_logit_softcapping", "attn_logit_softcapping");
  w.copy_number("final_logit_softcapping", "final_logit_softcapping");
}

void gguf_gemma3(GgufConfigWriter& w) {
  gguf_write_windows(w);
  if (w.out["sliding_window"].is_null())
    w.out["layer_types"] = Json::array_t(static_cast<std::size_t>(w.num_layers), "full_attention");
  write_query_scalar(w, 62);
  w.out["final_logit_softcapping"] = nullptr;
  w.copy_number("final_logit_softcapping", "final_logit_softcapping");
  w.copy_number("rope.freq_base_swa", "rope_local_base_freq");
}

void gguf_phi3(GgufConfigWriter& w) {
  gguf_write_windows(w);
  w.copy_integer("rope.scaling.original_context_length", "original_max_position_embeddings");
}

void gguf_phimoe(GgufConfigWriter& w) {
  gguf_phi3(w);
  gguf_narrow_experts(w);
}

void gguf_cohere(GgufConfigWriter& w) {
  gguf_write_windows(w);
  w.copy_number("logit_scale", "logit_scale");
  w.out["use_qk_norm"] = gguf_has_part(w.file, "attn_q_norm.weight");
}

void gguf_olmo(GgufConfigWriter& w) {
  w.copy_number("attention.clamp_kqv", "clip_qkv");
}

void gguf_olmoe(GgufConfigWriter& w) {
  gguf_narrow_experts(w);
  gguf_olmo(w);
}

void gguf_granite(GgufConfigWriter& w) {
  w.copy_number("attention.scale", "attention_multiplier");
  w.copy_number("embedding_scale", "embedding_multiplier");
  w.copy_number("residual_scale", "residual_multiplier");
  w.copy_number("logit_scale", "logits_scaling");
  if (w.architecture.has_experts) gguf_narrow_experts(w);
}

void gguf_stablelm(GgufConfigWriter& w) {
  gguf_parallel_residual(w);
  w.out["qk_layernorm"] = gguf_has_part(w.file, "attn_q_norm.weight");
}

void gguf_starcoder(GgufConfigWriter& w) {
  const std::int64_t heads = w.required("attention.head_count");
  const std::int64_t kv_heads = w.integer("attention.head_count_kv").value_or(heads);
  require(kv_heads == 1, "{}: {} is {}; supported is one key head for all queries", w.file.name(),
          w.key("attention.head_count_kv"), kv_heads);
  w.out["multi_query"] = true;
}

void gguf_falcon(GgufConfigWriter& w) {
  const bool two_norms = gguf_has_part(w.file, "attn_norm_2.weight");
  const std::int64_t kv_heads = w.integer("attention.head_count_kv").value_or(1);
  w.out["multi_query"] = true;
  w.out["new_decoder_architecture"] = two_norms || kv_heads > 1;
  w.out["num_ln_in_parallel_attn"] = two_norms ? 2 : 1;
}

// Files of models without windows have none; layers of the others rotate by the pattern.
void gguf_exaone4(GgufConfigWriter& w) {
  gguf_write_windows(w);
  if (!w.out["sliding_window"].is_null()) return;
  w.out["sliding_window"] = 0;
  w.out["layer_types"] = Json::array_t(static_cast<std::size_t>(w.num_layers), "full_attention");
}

// The model does not round the ends of YaRN's ramp, which no key says.
void gguf_gpt_oss(GgufConfigWriter& w) {
  gguf_narrow_experts(w);
  gguf_write_windows(w);
  if (!w.out["rope_scaling"].is_null()) w.out["rope_scaling"]["truncate"] = false;
}

void gguf_llama4(GgufConfigWriter& w) {
  w.out["intermediate_size_mlp"] = w.out["intermediate_size"];
  gguf_narrow_experts(w);
  w.out["interleave_moe_layer_step"] = w.integer("interleave_moe_layer_step").value_or(1);
  if (w.integer("attention.sliding_window").value_or(1) != 0) return;
  // No layer has chunks, and all rotate.
  w.out["layer_types"] = Json::array_t(static_cast<std::size_t>(w.num_layers), "full_attention");
  w.out["no_rope_layers"] = Json::array_t(static_cast<std::size_t>(w.num_layers), 1);
}

void gguf_mimo2(GgufConfigWriter& w) {
  gguf_write_windows(w);
  write_groups(w);
  w.out["norm_topk_prob"] = w.flag("expert_weights_norm").value_or(true);
  w.copy_number("rope.freq_base_swa", "swa_rope_theta");
  w.copy_number("attention.value_scale", "attention_value_scale");
  if (!w.number("attention.value_scale")) w.out["attention_value_scale"] = nullptr;
  const std::vector<std::int64_t> heads = w.by_layer("attention.head_count_kv"),
                                  windowed = w.by_layer("attention.sliding_window_pattern");
  require(windowed.size() == heads.size() && !heads.empty(),
          "{}: {} and {} must have one entry a layer", w.file.name(),
          w.key("attention.sliding_window_pattern"), w.key("attention.head_count_kv"));
  for (std::size_t i = 0; i < heads.size(); ++i)
    w.out[windowed[i] != 0 ? "swa_num_key_value_heads" : "num_key_value_heads"] = heads[i];
  bool swa_sinks = false, full_sinks = false;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const bool has = w.file.find_tensor(fmt::format("blk.{}.attn_sinks.weight", i)) != nullptr;
    (windowed[i] != 0 ? swa_sinks : full_sinks) |= has;
  }
  w.out["add_swa_attention_sink_bias"] = swa_sinks;
  w.out["add_full_attention_sink_bias"] = full_sinks;
}

void gguf_qwen_recurrent(GgufConfigWriter& w) {
  const std::int64_t values = w.required("ssm.time_step_rank");
  require(values >= 1 && w.required("ssm.inner_size") % values == 0,
          "{}: {} is {}; it must divide {}, which is {}", w.file.name(),
          w.key("ssm.time_step_rank"), values, w.key("ssm.inner_size"),
          w.required("ssm.inner_size"));
  w.out["linear_conv_kernel_dim"] = w.required("ssm.conv_kernel");
  w.out["linear_key_head_dim"] = w.required("ssm.state_size");
  w.out["linear_num_key_heads"] = w.required("ssm.group_count");
  w.out["linear_num_value_heads"] = values;
  w.out["linear_value_head_dim"] = w.required("ssm.inner_size") / values;
  std::vector<bool> recurrent;
  for (const std::int64_t is_one : w.by_layer("attention.recurrent_layers"))
    recurrent.push_back(is_one != 0);
  const std::int64_t every = w.integer("full_attention_interval").value_or(4);
  require(every >= 1, "{}: {} is {}; it must be at least 1", w.file.name(),
          w.key("full_attention_interval"), every);
  for (std::int64_t i = 0; recurrent.size() < static_cast<std::size_t>(w.num_layers); ++i)
    recurrent.push_back((i + 1) % every != 0);
  write_layer_types(w, recurrent, "linear_attention");
  if (!w.architecture.has_experts) return;
  gguf_qwen2moe(w);
  w.out["norm_topk_prob"] = w.flag("expert_weights_norm").value_or(true);
}

void gguf_kimi_linear(GgufConfigWriter& w) {
  write_groups(w);
  w.out["norm_topk_prob"] = w.flag("expert_weights_norm").value_or(true);
  w.out["linear_num_heads"] = w.required("attention.head_count");
  w.out["linear_head_dim"] = w.required("kda.head_dim");
  w.out["linear_conv_kernel_dim"] = w.required("ssm.conv_kernel");
  write_layer_types(w, layers_without_heads(w), "linear_attention");
}

void gguf_mamba2(GgufConfigWriter& w) {
  const std::int64_t heads = w.required("ssm.time_step_rank"), inner = w.required("ssm.inner_size"),
                     hidden = w.out["hidden_size"].get<std::int64_t>();
  require(heads >= 1 && inner % heads == 0 && hidden >= 1 && inner % hidden == 0,
          "{}: {} is {}; it must be a multiple of {}, which is {}, and of {}, which is {}",
          w.file.name(), w.key("ssm.inner_size"), inner, w.key("ssm.time_step_rank"), heads,
          w.key("embedding_length"), hidden);
  w.out["num_heads"] = heads;
  w.out["head_dim"] = inner / heads;
  w.out["expand"] = inner / hidden;
  w.out["n_groups"] = w.required("ssm.group_count");
  w.out["state_size"] = w.required("ssm.state_size");
  w.out["conv_kernel"] = w.required("ssm.conv_kernel");
  w.out["use_bias"] = gguf_has_part(w.file, "ssm_in.bias");
  w.out["use_conv_bias"] = gguf_has_part(w.file, "ssm_conv1d.bias");
}

void gguf_lfm2(GgufConfigWriter& w) {
  w.out["block_auto_adjust_ff_dim"] = false;
  w.out["conv_L_cache"] = w.required("shortconv.l_cache");
  w.out["conv_bias"] = gguf_has_part(w.file, "shortconv.conv.bias");
  write_layer_types(w, layers_without_heads(w), "conv");
}

}  // namespace sluice
