#include "models/encoders/encoder_config.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace sluice {
namespace {

enum class Family { kBert, kRoberta, kModern };
struct FamilyRow {
  std::string_view stem;  // of the class's name
  Family family;
};
constexpr FamilyRow kFamilies[] = {
    {"Bert", Family::kBert},          {"Roberta", Family::kRoberta},
    {"XLMRoberta", Family::kRoberta}, {"Camembert", Family::kRoberta},
    {"ModernBert", Family::kModern},
};
constexpr std::string_view kHeadClass = "ForSequenceClassification";
// Classes whose body is read and whose head is not.
constexpr std::string_view kBodies[] = {"Model", "ForMaskedLM"};

std::string class_of(const Json& config) {
  const auto list = config.find("architectures");
  if (list == config.end() || !list->is_array() || list->empty() || !(*list)[0].is_string())
    return {};
  return (*list)[0].get<std::string>();
}

const FamilyRow* family_of(std::string_view name, bool& has_head) {
  for (const FamilyRow& row : kFamilies) {
    if (!name.starts_with(row.stem)) continue;
    const std::string_view rest = name.substr(row.stem.size());
    has_head = rest == kHeadClass;
    if (has_head || std::ranges::find(kBodies, rest) != std::end(kBodies)) return &row;
  }
  return nullptr;
}

// Reads keys with their types and ranges.
class Keys {
 public:
  explicit Keys(const Json& config) : config_(config) {}

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

Activation activation_of(const Keys& keys, const char* key) {
  const std::string name = keys.text(key, "gelu");
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

void read_bert(const Keys& keys, bool is_roberta, EncoderConfig& out) {
  require(keys.text("position_embedding_type", "absolute") == "absolute",
          "config.json: position_embedding_type must be absolute");
  require(!keys.flag("is_decoder", false),
          "config.json: is_decoder is true; a decoder is no encoder");
  out.num_positions = keys.integer("max_position_embeddings", 512, 1, 1 << 20);
  out.num_types = static_cast<int>(keys.integer("type_vocab_size", 2, 1, 1024));
  out.activation = activation_of(keys, "hidden_act");
  out.norm_eps = keys.number("layer_norm_eps", is_roberta ? 1e-5 : 1e-12);
  if (is_roberta) {
    // Positions begin behind the padding's row.
    out.pad_id = static_cast<int>(keys.integer("pad_token_id", 1, 0, 1 << 24));
    out.position_offset = out.pad_id + 1;
  }
  out.max_tokens = static_cast<int>(out.num_positions) - out.position_offset;
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

void read_modern(const Keys& keys, EncoderConfig& out) {
  out.is_modern = true;
  out.max_tokens = static_cast<int>(keys.integer("max_position_embeddings", 8192, 1, 1 << 20));
  out.activation = activation_of(keys, "hidden_activation");
  out.norm_eps = keys.number("norm_eps", 1e-5);
  out.attention_bias = keys.flag("attention_bias", false);
  out.mlp_bias = keys.flag("mlp_bias", false);
  out.norm_bias = keys.flag("norm_bias", false);
  out.window = static_cast<int>(keys.integer("local_attention", 128, 1, 1 << 20)) / 2;
  const std::int64_t every = keys.integer("global_attn_every_n_layers", 3, 1, 4096);
  for (int i = 0; i < out.num_layers; ++i) out.is_local.push_back(i % every != 0);
  if (const Json* types = keys.find("layer_types")) {
    require(types->is_array() && std::cmp_equal(types->size(), out.num_layers),
            "config.json: layer_types must have an entry for each of {} layers", out.num_layers);
    for (int i = 0; i < out.num_layers; ++i)
      out.is_local[static_cast<std::size_t>(i)] =
          (*types)[static_cast<std::size_t>(i)] == "sliding_attention";
  }
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

}  // namespace

bool is_encoder(const Json& config) {
  bool has_head = false;
  return config.is_object() && family_of(class_of(config), has_head) != nullptr;
}

EncoderConfig parse_encoder_config(const Json& config) {
  EncoderConfig out;
  bool has_head = false;
  out.architecture = class_of(config);
  const FamilyRow* family = family_of(out.architecture, has_head);
  require(family != nullptr, "config.json: {} is no encoder that is supported here",
          out.architecture.substr(0, 128));
  const Keys keys(config);
  out.model_type = keys.text("model_type", "");
  const std::string dtype = keys.text("dtype", keys.text("torch_dtype", "float32"));
  out.dtype = dtype == "bfloat16" ? DType::kBF16 : dtype == "float16" ? DType::kF16 : DType::kF32;
  out.vocab_size = keys.integer("vocab_size", std::nullopt, 1, 1 << 24);
  out.hidden_size = keys.integer("hidden_size", std::nullopt, 1, 1 << 17);
  out.intermediate_size = keys.integer("intermediate_size", std::nullopt, 1, 1 << 20);
  out.num_layers = static_cast<int>(keys.integer("num_hidden_layers", std::nullopt, 1, 4096));
  out.num_heads = static_cast<int>(keys.integer("num_attention_heads", std::nullopt, 1, 4096));
  require(out.hidden_size % out.num_heads == 0 &&
              (family->family != Family::kModern || out.hidden_size / out.num_heads % 2 == 0),
          "config.json: hidden_size {} cannot be dealt to {} heads", out.hidden_size,
          out.num_heads);
  if (family->family == Family::kModern)
    read_modern(keys, out);
  else
    read_bert(keys, family->family == Family::kRoberta, out);
  if (has_head) {
    out.head = family->family == Family::kBert      ? EncoderHead::kPooler
               : family->family == Family::kRoberta ? EncoderHead::kDense
                                                    : EncoderHead::kNormed;
    read_labels(keys, out);
  }
  return out;
}

}  // namespace sluice
