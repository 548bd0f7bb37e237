#include "config/model_config.h"

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "config/config_parts.h"
#include "config/config_wrapper.h"
#include "config/hf_quant_config.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 16 << 20;

template <class T>
struct Named {
  std::string_view name;
  T value;
};
constexpr Named<Activation> kActivations[] = {
    {"silu", Activation::kSilu},         {"swish", Activation::kSilu},
    {"gelu", Activation::kGelu},         {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_new", Activation::kGeluTanh}, {"gelu_fast", Activation::kGeluTanh},
    {"relu", Activation::kRelu},         {"relu2", Activation::kRelu2},
    {"xielu", Activation::kXielu}};
constexpr Named<DType> kDTypes[] = {{"bfloat16", DType::kBF16},
                                    {"float16", DType::kF16},
                                    {"float32", DType::kF32},
                                    {"auto", DType::kBF16}};

// Class names in published files that transformers spells differently.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"PhiMoEForCausalLM", "PhimoeForCausalLM"}};

Activation read_activation(const ConfigReader& config, const FamilyDefaults& family) {
  const std::string_view key =
      config.first_of({"hidden_activation", "hidden_act", "activation_function", "activation"});
  const auto name = config.find_string(key);
  if (!name) return family.hidden_act;
  for (const auto& row : kActivations)
    if (row.name == *name)
      return row.value == Activation::kGelu && family.gelu_means_tanh ? Activation::kGeluTanh
                                                                      : row.value;
  config.reject(key, "it must be silu, gelu, gelu_pytorch_tanh, relu, relu2 or xielu");
}

void read_biases(const ConfigReader& config, const FamilyDefaults& family, ModelConfig& model) {
  const auto flag = [&](std::string_view key, bool fallback) {
    return key.empty() ? fallback : config.bool_or(key, fallback);
  };
  model.qkv_bias = flag(family.bias.qkv_key, family.bias.qkv);
  model.o_bias = flag(family.bias.o_key, family.bias.o);
  model.mlp_bias = flag(family.bias.mlp_key, family.bias.mlp);
  model.qk_norm = flag(family.qk_norm_by_key ? family.qk_norm_key : "", family.qk_norm);
}

void read_latent_attention(const ConfigReader& config, const FamilyDefaults& family,
                           ModelConfig& model) {
  MlaConfig mla;
  // null means that queries are not compressed. A missing key is an error, because no default is
  // safe.
  mla.q_lora_rank = config.has_key("q_lora_rank") ? config.int_or("q_lora_rank", 0)
                                                  : config.required_int("q_lora_rank");
  mla.kv_lora_rank = config.required_int("kv_lora_rank");
  mla.qk_nope_head_dim = config.required_int("qk_nope_head_dim");
  mla.qk_rope_head_dim = config.required_int("qk_rope_head_dim");
  mla.v_head_dim = config.required_int("v_head_dim");
  mla.rotates = family.recurrent != RecurrentRule::kKeyDelta;
  model.num_kv_heads = model.num_heads;
  model.head_dim = mla.qk_head_dim();
  model.mla = mla;

  const bool sparse =
      family.indexer == IndexerRule::kAlways ||
      (family.indexer == IndexerRule::kIfIndexTopk && config.find("index_topk") != nullptr);
  if (!sparse) return;
  IndexerConfig indexer;
  indexer.num_heads = config.required_int("index_n_heads");
  indexer.head_dim = config.required_int("index_head_dim");
  indexer.topk = config.required_int("index_topk");
  indexer.rope_interleaved =
      config.bool_or("indexer_rope_interleave", family.indexer_rope_interleaved);
  require(mla.q_lora_rank > 0,
          "{}: q_lora_rank is null; an indexer takes its queries from the compressed ones",
          config.what());
  require(indexer.head_dim >= mla.qk_rope_head_dim,
          "{}: index_head_dim is {}; it must be at least qk_rope_head_dim, which is {}",
          config.what(), indexer.head_dim, mla.qk_rope_head_dim);
  model.indexer = indexer;
}

void read_sizes(const ConfigReader& config, const FamilyDefaults& family, ModelConfig& model) {
  const auto size = [&](std::initializer_list<std::string_view> keys, int fallback) {
    const std::string_view key = config.first_of(keys);
    return fallback > 0 ? config.int_or(key, fallback) : config.required_int(key);
  };
  model.vocab_size = size({"vocab_size"}, family.vocab_size);
  model.hidden_size = size({"hidden_size", "n_embd", "n_embed"}, 0);
  model.num_layers = size({"num_hidden_layers", "n_layer"}, 0);
  // Mamba2 has no attention and no MLP.
  const bool attends = family.recurrent != RecurrentRule::kMamba2;
  model.num_heads =
      attends ? size({"num_attention_heads", "n_head"}, family.num_heads) : size({"num_heads"}, 0);
  if (family.recurrent == RecurrentRule::kShortConv)
    model.intermediate_size = short_conv_mlp_width(config);
  else if (attends) {
    // Qwen3.5-MoE has experts in every layer, and its class no width of a dense MLP.
    const int experts_alone = family.moe == MoeRule::kSparseStep
                                  ? config.find_int("moe_intermediate_size").value_or(0)
                                  : 0;
    model.intermediate_size =
        size({family.dense_width_key, "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"},
             std::max(experts_alone, family.intermediate_per_hidden * model.hidden_size));
  }
  model.max_position_embeddings =
      size({"max_position_embeddings", "n_positions", "model_max_length", "seq_length"},
           family.max_position_embeddings);
}

void read_heads(const ConfigReader& config, const FamilyDefaults& family, ModelConfig& model) {
  if (family.multi_query && !config.bool_or("new_decoder_architecture", false))
    model.num_kv_heads = config.bool_or("multi_query", true) ? 1 : model.num_heads;
  else
    model.num_kv_heads =
        config.int_or(config.first_of({"num_key_value_heads", "num_kv_heads", "n_head_kv"}),
                      family.num_kv_heads > 0 ? family.num_kv_heads : model.num_heads);
  require(model.num_heads % model.num_kv_heads == 0,
          "{}: num_key_value_heads is {}; it must divide num_attention_heads, which is {}",
          config.what(), model.num_kv_heads, model.num_heads);
  model.head_dim = config.int_or("head_dim", config.has_key("head_dim") ? 0 : family.head_dim);
  if (model.head_dim > 0) return;
  require(model.hidden_size % model.num_heads == 0,
          "{}: num_attention_heads is {}; it must divide hidden_size, which is {}, unless head_dim "
          "is given",
          config.what(), model.num_heads, model.hidden_size);
  model.head_dim = model.hidden_size / model.num_heads;
}

}  // namespace

DType read_dtype(const ConfigReader& config) {
  const std::string_view key = config.first_of({"dtype", "torch_dtype"});
  std::string name = config.find_string(key).value_or("bfloat16");
  if (name.starts_with("torch.")) name = name.substr(6);
  for (const auto& row : kDTypes)
    if (row.name == name) return row.value;
  config.reject(key, "it must be bfloat16, float16 or float32");
}

std::string read_architecture(const ConfigReader& config) {
  const Json* list = config.find("architectures");
  if (list == nullptr || (list->is_array() && list->empty())) return {};
  if (!list->is_array() || !list->front().is_string())
    config.reject("architectures", "it must be a list of names");
  const auto name = list->front().get<std::string>();
  for (const auto& [published, known] : kOtherNames)
    if (name == published) return std::string(known);
  return name;
}

LayerConfig ModelConfig::layer(int i) const {
  if (i < num_layers) return layers[static_cast<std::size_t>(i)];
  return {.window = 0,
          .is_moe = moe.has_value(),
          .indexer = indexer.has_value() ? IndexerRole::kFull : IndexerRole::kNone};
}

namespace {

// The configuration of a class of this program. Error{kBadInput}: there is none, or it does not
// take this variant.
ModelConfig read_native_config(const ConfigReader& config, ModelConfig model,
                               std::string_view what) {
  const bool has_code = config.find("auto_map") != nullptr;
  if (has_code)
    log_warning("{}: auto_map is ignored; code from a model's repository is never run", what);
  const FamilyDefaults& family =
      find_family(model.architecture, model.model_type, config.bool_or("is_encoder_decoder", false),
                  has_code, what);
  model.architecture = family.architecture;
  model.quantization = read_quantization(config);

  read_sizes(config, family, model);
  model.rms_norm_eps =
      config.number_or(config.first_of({"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon",
                                        "layernorm_epsilon", "norm_eps", "norm_epsilon"}),
                       family.rms_norm_eps);
  model.hidden_act = read_activation(config, family);
  model.tie_word_embeddings = config.bool_or(
      config.first_of({"tie_word_embeddings", "tie_embedding"}), family.tie_word_embeddings);
  model.dtype = read_dtype(config);
  model.initializer_range = config.number_or("initializer_range", 0.02);
  model.bos_token_id = read_token_id(config, "bos_token_id");
  model.pad_token_id = read_token_id(config, "pad_token_id");
  model.eos_token_ids = read_token_ids(config, "eos_token_id");
  read_biases(config, family, model);
  if (family.mla) {
    read_latent_attention(config, family, model);
  } else {
    read_heads(config, family, model);
  }
  read_block_form(config, family, model);
  read_rope(config, family, model.mla ? model.mla->qk_rope_head_dim : model.head_dim, model);
  model.moe = read_moe(config, family);
  model.layers = read_layers(config, family, model);
  if (family.recurrent != RecurrentRule::kNone) {
    const std::vector<bool> is_recurrent = read_recurrent(config, family, model);
    for (int i = 0; i < model.num_layers; ++i)
      model.layers[static_cast<std::size_t>(i)].recurrent = is_recurrent[i];
  }
  model.num_nextn_predict_layers = config.int_or("num_nextn_predict_layers", 0);
  return model;
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, std::string_view what,
                               std::string_view override_args, const ImplementationChoice& choice) {
  Json json = parse_config_text(text, what);
  require(json.is_object(), "{}: the top level must be a JSON object", what);
  if (!override_args.empty()) {
    const Json patch = parse_config_text(override_args, kOverrideArgs);
    require(patch.is_object(), "{} must be a JSON object", kOverrideArgs);
    merge_json(json, patch);
  }
  const auto foreign = [&](std::string native_refusal) {
    ModelConfig model = read_fallback_config(json, what);
    model.fallback = {.directory = "",
                      .native_refusal = std::move(native_refusal),
                      .trust_remote_code = choice.trust_remote_code};
    model.override_args = override_args;
    return model;
  };
  ModelConfig model;
  model.override_args = override_args;
  const Json text_json = unwrap_config(json, std::string(what), model.wrapper);
  const ConfigReader config(text_json, std::string(what));

  model.architecture = read_architecture(config);
  model.model_type = config.find_string("model_type").value_or("");
  const bool native = has_native_class(model.architecture, model.model_type);
  const bool may_fall_back = choice.impl == ModelImpl::kAuto && choice.plugin_installed;
  if (choice.impl == ModelImpl::kTransformers || (may_fall_back && !native)) return foreign("");
  if (choice.impl == ModelImpl::kSluice) return read_native_config(config, std::move(model), what);
  try {
    return read_native_config(config, std::move(model), what);
  } catch (const Error& refusal) {
    if (refusal.kind() != ErrorKind::kBadInput) throw;
    std::optional<ModelConfig> other;
    try {
      other = foreign(refusal.message());
    } catch (const Error&) {
      throw refusal;  // what the plugin needs is wrong too: the first reason says more
    }
    require(choice.plugin_installed,
            "{}. The Transformers plugin would try it, but libsluice_transformers.so is not in the "
            "folder lib beside the program's bin, and SLUICE_TRANSFORMERS_PLUGIN names none",
            refusal.message());
    return *other;
  }
}

ModelConfig load_config_json(const std::string& directory, std::string_view override_args,
                             const ImplementationChoice& choice) {
  const auto text = read_text_beneath(directory, "config.json", kMaxConfigBytes);
  require(text.has_value(), "{} has no config.json", directory);
  const std::string what = directory + "/config.json";
  Json json = parse_config_text(*text, what);
  add_hf_quant_config(directory, override_args, json);
  ModelConfig config = parse_model_config(dump_json(json), what, override_args, choice);
  if (config.fallback) config.fallback->directory = directory;
  return config;
}

}  // namespace sluice
