#include "models/encoders/encoder_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace sluice {
namespace {

class Keys;
void read_bert(const Keys& keys, EncoderConfig& out);
void read_roberta(const Keys& keys, EncoderConfig& out);
void read_modern(const Keys& keys, EncoderConfig& out);
void read_nomic(const Keys& keys, EncoderConfig& out);
void read_eurobert(const Keys& keys, EncoderConfig& out);
void read_gemma(const Keys& keys, EncoderConfig& out);

struct FamilyRow {
  std::string_view stem;  // of the class's name
  EncoderFamily family;
  void (*read)(const Keys& keys, EncoderConfig& out);
  EncoderHead head;  // of the class for sequence classification; kNone: there is none
};
constexpr FamilyRow kFamilies[] = {
    {"Bert", EncoderFamily::kBert, read_bert, EncoderHead::kPooler},
    {"Roberta", EncoderFamily::kBert, read_roberta, EncoderHead::kDense},
    {"XLMRoberta", EncoderFamily::kBert, read_roberta, EncoderHead::kDense},
    {"Camembert", EncoderFamily::kBert, read_roberta, EncoderHead::kDense},
    {"ModernBert", EncoderFamily::kModern, read_modern, EncoderHead::kNormed},
    {"NomicBert", EncoderFamily::kNomic, read_nomic, EncoderHead::kNone},
    {"EuroBert", EncoderFamily::kLlama, read_eurobert, EncoderHead::kLate},
};
// A decoder's class whose configuration asks for attention in both directions: EmbeddingGemma.
constexpr FamilyRow kGemma = {"Gemma3Text", EncoderFamily::kGemma, read_gemma, EncoderHead::kNone};
constexpr std::string_view kHeadClass = "ForSequenceClassification";
// Classes whose body is read and whose head is not.
constexpr std::string_view kBodies[] = {"Model", "ForMaskedLM"};

std::string class_of(const Json& config) {
  const auto list = config.find("architectures");
  if (list == config.end() || !list->is_array() || list->empty() || !(*list)[0].is_string())
    return {};
  return (*list)[0].get<std::string>();
}

const FamilyRow* family_of(const Json& config, bool& has_head) {
  const std::string name = class_of(config);
  has_head = false;
  for (const FamilyRow& row : kFamilies) {
    if (!name.starts_with(row.stem)) continue;
    const std::string_view rest = std::string_view(name).substr(row.stem.size());
    has_head = rest == kHeadClass && row.head != EncoderHead::kNone;
    if (has_head || std::ranges::find(kBodies, rest) != std::end(kBodies)) return &row;
  }
  const auto both_ways = config.find("use_bidirectional_attention");
  return name == "Gemma3TextModel" && both_ways != config.end() && *both_ways == true ? &kGemma
                                                                                      : nullptr;
}

// Reads keys with their types and ranges.
class Keys {
 public:
  explicit Keys(const Json& config) : config_(config) {}

  bool has(const char* key) const { return find(key) != nullptr; }
  const Json* find(const char* key) const {
    const auto found = config_.find(key);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }
  std::int64_t integer(const char* key, std::optional<std::int64_t> fallback, std::int64_t low,
                       std::int64_t high) const {
    const Json* value = find(key);
    if (value == nullptr) {
      require(fallback.has_value(), "config.json: {} is missing", key);
      return *fallback;
    }
    require(value->is_number_integer() && *value >= low && *value <= high,
            "config.json: {} is {}; it must be an integer from {} to {}", key, dump_json(*value),
            low, high);
    return value->get<std::int64_t>();
  }
  double number(const char* key, double fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    require(value->is_number() && *value > 0, "config.json: {} is {}; it must be a number above 0",
            key, dump_json(*value));
    return value->get<double>();
  }
  bool flag(const char* key, bool fallback) const {
    const Json* value = find(key);
    require(value == nullptr || value->is_boolean(), "config.json: {} must be true or false", key);
    return value == nullptr ? fallback : value->get<bool>();
  }
  std::string text(const char* key, std::string fallback) const {
    const Json* value = find(key);
    require(value == nullptr || value->is_string(), "config.json: {} must be a string", key);
    return value == nullptr ? std::move(fallback) : value->get<std::string>();
  }

 private:
  const Json& config_;
};

Activation activation_of(const Keys& keys, const char* key, const char* fallback = "gelu") {
  const std::string name = keys.text(key, fallback);
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast")
    return Activation::kGeluTanh;
  if (name == "relu") return Activation::kRelu;
  if (name == "silu" || name == "swish") return Activation::kSilu;
  fail(ErrorKind::kBadInput, "config.json: {} is {}; supported are gelu, gelu_new, relu and silu",
       key, name.substr(0, 64));
}

void read_labels(const Keys& keys, EncoderConfig& out) {
  const Json* names = keys.find("id2label");
  const auto count = names != nullptr && names->is_object() && !names->empty()
                         ? static_cast<std::int64_t>(names->size())
                         : keys.integer("num_labels", 2, 1, 65536);
  require(count <= 65536, "config.json: id2label has {} entries; 65536 are the most", count);
  for (std::int64_t i = 0; i < count; ++i) {
    std::string name = fmt::format("LABEL_{}", i);
    if (names != nullptr && names->is_object()) {
      const auto found = names->find(std::to_string(i));
      if (found != names->end() && found->is_string()) name = found->get<std::string>();
    }
    out.labels.push_back(std::move(name));
  }
  out.is_multi_label = keys.text("problem_type", "") == "multi_label_classification";
  // What sentence-transformers and its older versions wrote of a reranker.
  std::string activation = keys.text("sbert_ce_default_activation_function", "");
  if (const Json* st = keys.find("sentence_transformers"); st != nullptr && st->is_object()) {
    const auto found = st->find("activation_fn");
    if (found != st->end() && found->is_string()) activation = found->get<std::string>();
  }
  if (activation.ends_with("Sigmoid")) out.score_activation = "sigmoid";
  if (activation.ends_with("Identity")) out.score_activation = "identity";
  require(activation.empty() || !out.score_activation.empty(),
          "config.json: scores by {} are not supported", activation.substr(0, 96));
}

// Error{kBadInput} unless the key has this value, or is not there.
void only(const Keys& keys, const char* key, const Json& value) {
  const Json* found = keys.find(key);
  require(found == nullptr || *found == value, "config.json: {} is {}; only {} is supported", key,
          found == nullptr ? "" : dump_json(*found).substr(0, 64), dump_json(value));
}

void read_sizes(const Keys& keys, EncoderConfig& out) {
  out.vocab_size = keys.integer("vocab_size", std::nullopt, 1, 1 << 24);
  out.hidden_size = keys.integer("hidden_size", std::nullopt, 1, 1 << 17);
  out.intermediate_size = keys.integer("intermediate_size", std::nullopt, 1, 1 << 20);
  out.num_layers = static_cast<int>(keys.integer("num_hidden_layers", std::nullopt, 1, 4096));
  out.num_heads = static_cast<int>(keys.integer("num_attention_heads", std::nullopt, 1, 4096));
}

void read_bert(const Keys& keys, EncoderConfig& out) {
  read_sizes(keys, out);
  only(keys, "position_embedding_type", "absolute");
  require(!keys.flag("is_decoder", false),
          "config.json: is_decoder is true; a decoder is no encoder");
  out.num_positions = keys.integer("max_position_embeddings", 512, 1, 1 << 20);
  out.max_tokens = static_cast<int>(out.num_positions);
  out.num_types = static_cast<int>(keys.integer("type_vocab_size", 2, 1, 1024));
  out.activation = activation_of(keys, "hidden_act");
  out.norm_eps = keys.number("layer_norm_eps", 1e-12);
}

void read_roberta(const Keys& keys, EncoderConfig& out) {
  read_bert(keys, out);
  out.norm_eps = keys.number("layer_norm_eps", 1e-5);
  // Positions begin behind the padding's row.
  out.pad_id = static_cast<int>(keys.integer("pad_token_id", 1, 0, 1 << 24));
  out.position_offset = out.pad_id + 1;
  out.max_tokens -= out.position_offset;
  require(out.max_tokens > 0,
          "config.json: max_position_embeddings is {}, of which {} are no positions",
          out.num_positions, out.position_offset);
}

double theta_of(const Json* parameters, const char* layers, double fallback) {
  if (parameters == nullptr || !parameters->is_object()) return fallback;
  const auto own = parameters->find(layers);
  const Json& part = own != parameters->end() && own->is_object() ? *own : *parameters;
  const auto type = part.find("rope_type");
  require(type == part.end() || type->is_null() || *type == "default",
          "config.json: rope_type of an encoder must be default");
  const auto theta = part.find("rope_theta");
  if (theta == part.end()) return fallback;
  require(theta->is_number() && *theta > 0, "config.json: rope_theta must be a number above 0");
  return theta->get<double>();
}

void read_layer_types(const Keys& keys, EncoderConfig& out) {
  const Json* types = keys.find("layer_types");
  if (types == nullptr) return;
  require(types->is_array() && std::cmp_equal(types->size(), out.num_layers),
          "config.json: layer_types must have an entry for each of {} layers", out.num_layers);
  for (std::size_t i = 0; i < types->size(); ++i)
    out.is_local[i] = (*types)[i] == "sliding_attention";
}

void read_modern(const Keys& keys, EncoderConfig& out) {
  read_sizes(keys, out);
  out.max_tokens = static_cast<int>(keys.integer("max_position_embeddings", 8192, 1, 1 << 20));
  out.activation = activation_of(keys, "hidden_activation");
  out.norm_eps = keys.number("norm_eps", 1e-5);
  out.attention_bias = keys.flag("attention_bias", false);
  out.mlp_bias = out.down_bias = keys.flag("mlp_bias", false);
  out.norm_bias = keys.flag("norm_bias", false);
  out.window = static_cast<int>(keys.integer("local_attention", 128, 1, 1 << 20)) / 2;
  const std::int64_t every = keys.integer("global_attn_every_n_layers", 3, 1, 4096);
  for (int i = 0; i < out.num_layers; ++i) out.is_local.push_back(i % every != 0);
  read_layer_types(keys, out);
  const Json* rope = keys.find("rope_parameters");
  out.rope_theta = theta_of(rope, "full_attention", keys.number("global_rope_theta", 160000));
  out.local_rope_theta =
      theta_of(rope, "sliding_attention", keys.number("local_rope_theta", 10000));
  const std::string pooling = keys.text("classifier_pooling", "cls");
  require(pooling == "cls" || pooling == "mean",
          "config.json: classifier_pooling must be cls or mean");
  out.head_pools_mean = pooling == "mean";
  out.head_bias = keys.flag("classifier_bias", false);
  out.head_activation = activation_of(keys, "classifier_activation");
}

// The configuration of Nomic's own code, by its keys.
void read_nomic_keys(const Keys& keys, EncoderConfig& out) {
  const auto rounded = [](std::int64_t value, std::int64_t unit) {
    return (value + unit - 1) / unit * unit;
  };
  out.vocab_size = rounded(keys.integer("vocab_size", std::nullopt, 1, 1 << 24),
                           keys.integer("pad_vocab_size_multiple", 1, 1, 1 << 16));
  out.hidden_size = keys.integer("n_embd", std::nullopt, 1, 1 << 17);
  out.num_layers = static_cast<int>(keys.integer("n_layer", std::nullopt, 1, 4096));
  out.num_heads = static_cast<int>(keys.integer("n_head", std::nullopt, 1, 4096));
  // The gated MLP rounds its width up to whole 256.
  out.intermediate_size = rounded(keys.integer("n_inner", 4 * out.hidden_size, 1, 1 << 20), 256);
  out.num_types = static_cast<int>(keys.integer("type_vocab_size", 2, 0, 1024));
  out.norm_eps = keys.number("layer_norm_epsilon", 1e-12);
  out.max_tokens = static_cast<int>(keys.integer("n_positions", 2048, 1, 1 << 20));
  // Beyond the trained positions the base of the rotations would depend on a text's length.
  if (keys.has("rotary_scaling_factor") && keys.has("max_trained_positions"))
    out.max_tokens = std::min(
        out.max_tokens, static_cast<int>(keys.integer("max_trained_positions", 2048, 1, 1 << 20)));
  out.rope_theta = keys.number("rotary_emb_base", 10000);
  const std::string activation = keys.text("activation_function", "gelu");
  require(activation == "swiglu" || activation == "geglu",
          "config.json: activation_function is {}; supported are swiglu and geglu",
          activation.substr(0, 64));
  out.activation = activation == "swiglu" ? Activation::kSilu : Activation::kGelu;
  out.attention_bias = keys.flag("qkv_proj_bias", true);
  out.mlp_bias = keys.flag("mlp_fc1_bias", true);
  out.down_bias = keys.flag("mlp_fc2_bias", true);
  for (const char* key : {"prenorm", "use_rms_norm", "parallel_block", "causal",
                          "rotary_emb_interleaved", "scale_attn_by_inverse_layer_idx"})
    only(keys, key, false);
  for (const char* key : {"num_experts", "moe_every_n_layers"}) only(keys, key, 0);
  require(keys.number("rotary_emb_fraction", 1) == 1, "config.json: rotary_emb_fraction must be 1");
  require(!keys.has("rotary_emb_scale_base"),
          "config.json: rotary_emb_scale_base is not supported");
}

void read_nomic(const Keys& keys, EncoderConfig& out) {
  if (keys.has("n_embd")) return read_nomic_keys(keys, out);
  read_sizes(keys, out);
  out.num_types = static_cast<int>(keys.integer("type_vocab_size", 2, 1, 1024));
  out.norm_eps = keys.number("layer_norm_eps", 1e-12);
  out.max_tokens = static_cast<int>(keys.integer("max_position_embeddings", 2048, 1, 1 << 20));
  out.rope_theta = theta_of(keys.find("rope_parameters"), "", keys.number("rope_theta", 1000));
  out.activation = activation_of(keys, "hidden_act", "silu");
  out.attention_bias = out.mlp_bias = out.down_bias = false;
  out.head_dim = static_cast<int>(keys.integer("head_dim", 0, 0, 1 << 16));
}

// What the decoders' layers have in common.
void read_llama(const Keys& keys, EncoderConfig& out) {
  read_sizes(keys, out);
  out.num_kv_heads = static_cast<int>(keys.integer("num_key_value_heads", out.num_heads, 1, 4096));
  require(out.num_heads % out.num_kv_heads == 0,
          "config.json: {} heads cannot share {} of keys and values equally", out.num_heads,
          out.num_kv_heads);
  out.head_dim = static_cast<int>(keys.integer("head_dim", 0, 0, 1 << 16));
  out.max_tokens = static_cast<int>(keys.integer("max_position_embeddings", 8192, 1, 1 << 20));
  out.attention_bias = keys.flag("attention_bias", false);
  out.mlp_bias = out.down_bias = keys.flag("mlp_bias", false);
  only(keys, "rope_scaling", nullptr);
}

void read_eurobert(const Keys& keys, EncoderConfig& out) {
  read_llama(keys, out);
  out.norm_eps = keys.number("rms_norm_eps", 1e-5);
  out.activation = activation_of(keys, "hidden_act", "silu");
  out.rope_theta = theta_of(keys.find("rope_parameters"), "", keys.number("rope_theta", 10000));
  const char* key = keys.has("clf_pooling") ? "clf_pooling" : "classifier_pooling";
  const std::string pooling = keys.text(key, "late");
  require(pooling == "bos" || pooling == "mean" || pooling == "late",
          "config.json: {} must be bos, mean or late", key);
  out.head_pools_mean = pooling != "bos";
  out.head_waits = pooling == "late";
  out.head_activation = Activation::kGelu;
}

void read_gemma(const Keys& keys, EncoderConfig& out) {
  read_llama(keys, out);
  out.norm_eps = keys.number("rms_norm_eps", 1e-6);
  out.activation = activation_of(keys, "hidden_activation", "gelu_pytorch_tanh");
  out.embedding_scale = std::sqrt(static_cast<double>(out.hidden_size));
  out.attention_scale = 1 / std::sqrt(keys.number("query_pre_attn_scalar", 256));
  require(!keys.has("attn_logit_softcapping"),
          "config.json: attn_logit_softcapping is not supported with attention in both directions");
  // The file's window is of both sides together.
  out.window = static_cast<int>(keys.integer("sliding_window", 4096, 2, 1 << 20)) / 2;
  const std::int64_t every = keys.integer(
      "sliding_window_pattern", keys.integer("_sliding_window_pattern", 6, 1, 4096), 1, 4096);
  for (int i = 0; i < out.num_layers; ++i) out.is_local.push_back((i + 1) % every != 0);
  read_layer_types(keys, out);
  const Json* rope = keys.find("rope_parameters");
  out.rope_theta = theta_of(rope, "full_attention", keys.number("rope_theta", 1000000));
  out.local_rope_theta =
      theta_of(rope, "sliding_attention", keys.number("rope_local_base_freq", 10000));
}

}  // namespace

bool is_encoder(const Json& config) {
  bool has_head = false;
  return config.is_object() && family_of(config, has_head) != nullptr;
}

EncoderConfig parse_encoder_config(const Json& config) {
  EncoderConfig out;
  bool has_head = false;
  out.architecture = class_of(config);
  const FamilyRow* family = family_of(config, has_head);
  require(family != nullptr, "config.json: {} is no encoder that is supported here",
          out.architecture.substr(0, 128));
  const Keys keys(config);
  out.family = family->family;
  out.model_type = keys.text("model_type", "");
  const std::string dtype = keys.text("dtype", keys.text("torch_dtype", "float32"));
  out.dtype = dtype == "bfloat16" ? DType::kBF16 : dtype == "float16" ? DType::kF16 : DType::kF32;
  family->read(keys, out);
  require(out.head_dim > 0 || out.hidden_size % out.num_heads == 0,
          "config.json: hidden_size {} cannot be dealt to {} heads", out.hidden_size,
          out.num_heads);
  if (out.head_dim == 0) out.head_dim = static_cast<int>(out.hidden_size) / out.num_heads;
  require(out.rope_theta == 0 || out.head_dim % 2 == 0,
          "config.json: heads of {} numbers cannot be rotated", out.head_dim);
  if (out.num_kv_heads == 0) out.num_kv_heads = out.num_heads;
  if (out.attention_scale == 0) out.attention_scale = 1 / std::sqrt(out.head_dim);
  if (has_head) {
    out.head = family->head;
    if (out.head == EncoderHead::kLate && !out.head_waits) out.head = EncoderHead::kPooled;
    read_labels(keys, out);
  }
  return out;
}

}  // namespace sluice
