#include "hub/model_config.h"

#include "base/log.h"
#include "hub/config_parts.h"
#include "hub/file.h"
#include "hub/gguf_config.h"

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
    {"gelu_new", Activation::kGeluTanh}, {"relu", Activation::kRelu}};
constexpr Named<DType> kDTypes[] = {
    {"bfloat16", DType::kBF16}, {"float16", DType::kF16}, {"float32", DType::kF32}, {"auto", DType::kBF16}};

Activation read_activation(const ConfigReader& config) {
  const std::string name = config.find_string("hidden_act").value_or("silu");
  for (const auto& row : kActivations)
    if (row.name == name) return row.value;
  config.reject("hidden_act", "it must be silu, gelu, gelu_pytorch_tanh or relu");
}

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
  return list->front().get<std::string>();
}

void read_biases(const ConfigReader& config, const FamilyDefaults& family, ModelConfig& model) {
  switch (family.bias) {
    case BiasRule::kNone:
      break;
    case BiasRule::kQkvAlways:
      model.qkv_bias = true;
      break;
    case BiasRule::kQkvByKey:
      model.qkv_bias = config.bool_or("qkv_bias", true);
      break;
    case BiasRule::kAllByKey:
      model.qkv_bias = model.o_bias = config.bool_or("attention_bias", false);
      break;
    case BiasRule::kQkvByAttentionBias:
      model.qkv_bias = config.bool_or("attention_bias", false);
      break;
  }
  model.mlp_bias = config.bool_or("mlp_bias", false);
  model.qk_norm = family.qk_norm_by_key ? config.bool_or("use_qk_norm", family.qk_norm) : family.qk_norm;
}

void read_latent_attention(const ConfigReader& config, const FamilyDefaults& family, ModelConfig& model) {
  MlaConfig mla;
  // null means that queries are not compressed; a file without the key says nothing, and no default is safe.
  mla.q_lora_rank =
      config.has_key("q_lora_rank") ? config.int_or("q_lora_rank", 0) : config.required_int("q_lora_rank");
  mla.kv_lora_rank = config.required_int("kv_lora_rank");
  mla.qk_nope_head_dim = config.required_int("qk_nope_head_dim");
  mla.qk_rope_head_dim = config.required_int("qk_rope_head_dim");
  mla.v_head_dim = config.required_int("v_head_dim");
  mla.rotates = family.recurrent != RecurrentRule::kKeyDelta;
  model.num_kv_heads = model.num_heads;
  model.head_dim = mla.qk_head_dim();
  model.mla = mla;

  const bool sparse = family.indexer == IndexerRule::kAlways ||
                      (family.indexer == IndexerRule::kIfIndexTopk && config.find("index_topk") != nullptr);
  if (!sparse) return;
  IndexerConfig indexer;
  indexer.num_heads = config.required_int("index_n_heads");
  indexer.head_dim = config.required_int("index_head_dim");
  indexer.topk = config.required_int("index_topk");
  indexer.rope_interleaved = config.bool_or("indexer_rope_interleave", family.indexer_rope_interleaved);
  require(mla.q_lora_rank > 0,
          "{}: q_lora_rank is null; an indexer takes its queries from the compressed ones", config.what());
  require(indexer.head_dim >= mla.qk_rope_head_dim,
          "{}: index_head_dim is {}; it must be at least qk_rope_head_dim, which is {}", config.what(),
          indexer.head_dim, mla.qk_rope_head_dim);
  model.indexer = indexer;
}

void read_heads(const ConfigReader& config, const FamilyDefaults& family, ModelConfig& model) {
  model.num_kv_heads = config.int_or("num_key_value_heads", model.num_heads);
  require(model.num_heads % model.num_kv_heads == 0,
          "{}: num_key_value_heads is {}; it must divide num_attention_heads, which is {}", config.what(),
          model.num_kv_heads, model.num_heads);
  model.head_dim = config.int_or("head_dim", config.has_key("head_dim") ? 0 : family.head_dim);
  if (model.head_dim > 0) return;
  require(model.hidden_size % model.num_heads == 0,
          "{}: num_attention_heads is {}; it must divide hidden_size, which is {}, unless head_dim is given",
          config.what(), model.num_heads, model.hidden_size);
  model.head_dim = model.hidden_size / model.num_heads;
}

}  // namespace

LayerConfig ModelConfig::layer(int i) const {
  if (i < num_layers) return layers[static_cast<std::size_t>(i)];
  return {.window = 0,
          .is_moe = moe.has_value(),
          .indexer = indexer.has_value() ? IndexerRole::kFull : IndexerRole::kNone};
}

ModelConfig parse_model_config(std::string_view text, std::string_view what, std::string_view override_args) {
  Json json = parse_config_text(text, what);
  if (!override_args.empty()) {
    const Json patch = parse_config_text(override_args, "--json-model-override-args");
    require(patch.is_object(), "--json-model-override-args must be a JSON object");
    merge_json(json, patch);
  }
  const ConfigReader config(json, std::string(what));

  ModelConfig model;
  model.architecture = read_architecture(config);
  model.model_type = config.find_string("model_type").value_or("");
  if (config.find("auto_map") != nullptr)
    log_warning("{}: auto_map is ignored; code from a model's repository is never run", what);
  const FamilyDefaults& family =
      find_family(model.architecture, model.model_type, config.bool_or("is_encoder_decoder", false), what);
  model.architecture = family.architecture;
  model.quantization = read_quantization(config);

  model.vocab_size = config.required_int("vocab_size");
  model.hidden_size = config.required_int("hidden_size");
  model.num_layers = config.required_int("num_hidden_layers");
  // Mamba2 has no attention and no MLP, and its file gives no length.
  const bool attends = family.recurrent != RecurrentRule::kMamba2;
  model.num_heads = config.required_int(attends ? "num_attention_heads" : "num_heads");
  if (family.recurrent == RecurrentRule::kShortConv)
    model.intermediate_size = short_conv_mlp_width(config);
  else if (attends)
    model.intermediate_size = config.required_int("intermediate_size");
  const std::string_view length_key = config.first_of({"max_position_embeddings", "model_max_length"});
  model.max_position_embeddings = family.max_position_embeddings > 0
                                      ? config.int_or(length_key, family.max_position_embeddings)
                                      : config.required_int(length_key);
  model.rms_norm_eps = config.number_or(config.first_of({"rms_norm_eps", "norm_eps", "layer_norm_epsilon"}),
                                        family.rms_norm_eps);
  model.hidden_act = read_activation(config);
  model.tie_word_embeddings =
      config.bool_or(config.first_of({"tie_word_embeddings", "tie_embedding"}), family.tie_word_embeddings);
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
  model.rope = read_rope(config, family, model.mla ? model.mla->qk_rope_head_dim : model.head_dim,
                         model.max_position_embeddings);
  model.moe = read_moe(config, family);
  model.layers = read_layers(config, family, model);
  if (family.recurrent != RecurrentRule::kNone) {
    const std::vector<bool> is_recurrent = read_recurrent(config, family, model);
    for (int i = 0; i < model.num_layers; ++i) model.layers[static_cast<std::size_t>(i)].recurrent = is_recurrent[i];
  }
  model.num_nextn_predict_layers = config.int_or("num_nextn_predict_layers", 0);
  return model;
}

ModelConfig load_model_config(const std::string& directory, std::string_view override_args) {
  if (is_gguf_path(directory)) {
    const GgufFile file(open_regular_file(directory), directory);
    return parse_model_config(dump_json(gguf_config(file)), directory, override_args);
  }
  const auto text = read_text_beneath(directory, "config.json", kMaxConfigBytes);
  require(text.has_value(), "{} has no config.json", directory);
  return parse_model_config(*text, directory + "/config.json", override_args);
}

}  // namespace sluice
