// Where an encoder's tensors are in a checkpoint, by family.
#include <algorithm>

#include <fmt/ranges.h>

#include "base/log.h"
#include "models/encoders/encoder.h"

namespace sluice {
namespace {

std::string_view words_of(EncoderFamily family) {
  switch (family) {
    case EncoderFamily::kModern:
      return "embeddings.tok_embeddings";
    case EncoderFamily::kLlama:
    case EncoderFamily::kGemma:
      return "embed_tokens";
    default:
      return "embeddings.word_embeddings";
  }
}

// The prefix of the body's names: files of a class with a head have one.
Weights body_of(const Weights& root, const EncoderConfig& config) {
  const std::string table = std::string(words_of(config.family)) + ".weight";
  if (root.has(table, config.head == EncoderHead::kNone)) return root;
  for (const char* prefix : {"bert", "roberta", "model", "nomic_bert"})
    if (root.sub(prefix).has(table, false)) return root.sub(prefix);
  return root.sub(config.family == EncoderFamily::kBert ? "bert" : "model");
}

// Tensors of heads that are not served, and of older files.
bool is_known_extra(std::string_view name) {
  for (const std::string_view part : {"pooler.", "cls.", "lm_head.", "head.", "decoder.",
                                      "position_ids", "classifier.", "token_type_ids", "inv_freq"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

Linear linear(const Weights& at, const WeightParts& parts, std::int64_t columns, bool bias) {
  return Linear::load(at, parts, columns, Shard::kReplicated, bias);
}

}  // namespace

Norm Encoder::load_norm(const Weights& weights, std::string_view name) const {
  if (config_.has_rms_norms())
    return Norm::load(weights, name, config_.hidden_size, config_.norm_eps,
                      {.plus_one = config_.family == EncoderFamily::kGemma});
  Norm norm{.kind = NormKind::kLayer, .weight = {}, .bias = {}, .eps = 0};
  norm.eps = static_cast<float>(config_.norm_eps);
  // The first files of BERT have TensorFlow's names.
  const bool is_old = !weights.has(std::string(name) + ".weight", true) &&
                      weights.has(std::string(name) + ".gamma", false);
  norm.weight = weights.vector(std::string(name) + (is_old ? ".gamma" : ".weight"),
                               config_.hidden_size, WeightInit::kOnes);
  if (config_.norm_bias)
    norm.bias = weights.vector(std::string(name) + (is_old ? ".beta" : ".bias"),
                               config_.hidden_size, WeightInit::kNormal);
  return norm;
}

Encoder::Layer Encoder::load_bert(const Weights& weights) const {
  const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
  const Weights attention = weights.sub("attention");
  Layer layer;
  layer.qkv = linear(attention.sub("self"), {{"query", hidden}, {"key", hidden}, {"value", hidden}},
                     hidden, true);
  layer.attention_out = linear(attention.sub("output"), {{"dense", hidden}}, hidden, true);
  layer.attention_norm = load_norm(attention.sub("output"), "LayerNorm");
  layer.up = linear(weights.sub("intermediate"), {{"dense", inner}}, hidden, true);
  layer.down = linear(weights.sub("output"), {{"dense", hidden}}, inner, true);
  layer.mlp_norm = load_norm(weights.sub("output"), "LayerNorm");
  return layer;
}

Encoder::Layer Encoder::load_nomic(const Weights& weights) const {
  const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
  const std::int64_t width = std::int64_t{config_.num_heads} * config_.head_dim;
  const Weights attention = weights.sub("attn"), mlp = weights.sub("mlp");
  Layer layer;
  layer.qkv = linear(attention, {{"Wqkv", 3 * width}}, hidden, config_.attention_bias);
  layer.attention_out = linear(attention, {{"out_proj", hidden}}, width, config_.attention_bias);
  layer.attention_norm = load_norm(weights, "norm1");
  layer.up = linear(mlp, {{"fc12", inner}, {"fc11", inner}}, hidden, config_.mlp_bias);
  layer.down = linear(mlp, {{"fc2", hidden}}, inner, config_.down_bias);
  layer.mlp_norm = load_norm(weights, "norm2");
  return layer;
}

Encoder::Layer Encoder::load_modern(const Weights& weights, int index) const {
  const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
  const Weights attention = weights.sub("attn"), mlp = weights.sub("mlp");
  Layer layer;
  if (index > 0) layer.attention_norm = load_norm(weights, "attn_norm");
  layer.mlp_norm = load_norm(weights, "mlp_norm");
  layer.qkv = linear(attention, {{"Wqkv", 3 * hidden}}, hidden, config_.attention_bias);
  layer.attention_out = linear(attention, {{"Wo", hidden}}, hidden, config_.attention_bias);
  layer.up = linear(mlp, {{"Wi", 2 * inner}}, hidden, config_.mlp_bias);
  layer.down = linear(mlp, {{"Wo", hidden}}, inner, config_.down_bias);
  return layer;
}

Encoder::Layer Encoder::load_llama(const Weights& weights) const {
  const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
  const std::int64_t width = std::int64_t{config_.num_heads} * config_.head_dim,
                     shared = std::int64_t{config_.num_kv_heads} * config_.head_dim;
  const Weights attention = weights.sub("self_attn"), mlp = weights.sub("mlp");
  Layer layer;
  layer.attention_norm = load_norm(weights, "input_layernorm");
  if (config_.family == EncoderFamily::kGemma) {
    layer.attention_last = load_norm(weights, "post_attention_layernorm");
    layer.mlp_norm = load_norm(weights, "pre_feedforward_layernorm");
    layer.mlp_last = load_norm(weights, "post_feedforward_layernorm");
    const NormSpec spec{.plus_one = true};
    layer.query_norm = Norm::load(attention, "q_norm", config_.head_dim, config_.norm_eps, spec);
    layer.key_norm = Norm::load(attention, "k_norm", config_.head_dim, config_.norm_eps, spec);
  } else {
    layer.mlp_norm = load_norm(weights, "post_attention_layernorm");
  }
  layer.qkv = linear(attention, {{"q_proj", width}, {"k_proj", shared}, {"v_proj", shared}}, hidden,
                     config_.attention_bias);
  layer.attention_out = linear(attention, {{"o_proj", hidden}}, width, config_.attention_bias);
  layer.up = linear(mlp, {{"gate_proj", inner}, {"up_proj", inner}}, hidden, config_.mlp_bias);
  layer.down = linear(mlp, {{"down_proj", hidden}}, inner, config_.down_bias);
  return layer;
}

void Encoder::load_embeddings(const Weights& body) {
  const Weights embeddings = body.sub("embeddings");
  const auto table = [&](const Weights& at, std::string_view name, std::int64_t rows) {
    return at.matrix({{name, rows}}, config_.hidden_size, Shard::kReplicated);
  };
  words_ = table(body, words_of(config_.family), config_.vocab_size);
  if (config_.num_positions > 0)
    positions_ = table(embeddings, "position_embeddings", config_.num_positions);
  if (config_.num_types > 0) types_ = table(embeddings, "token_type_embeddings", config_.num_types);
  if (config_.family == EncoderFamily::kNomic)
    embedding_norm_ = load_norm(body, "emb_ln");
  else if (!config_.has_rms_norms())
    embedding_norm_ =
        load_norm(embeddings, config_.family == EncoderFamily::kModern ? "norm" : "LayerNorm");
}

void Encoder::load_layers(const Weights& body) {
  for (int i = 0; i < config_.num_layers; ++i) {
    switch (config_.family) {
      case EncoderFamily::kBert:
        layers_.push_back(load_bert(body.sub("encoder").sub("layer", i)));
        break;
      case EncoderFamily::kNomic:
        layers_.push_back(load_nomic(body.sub("encoder").sub("layers", i)));
        break;
      case EncoderFamily::kModern:
        layers_.push_back(load_modern(body.sub("layers", i), i));
        break;
      case EncoderFamily::kLlama:
      case EncoderFamily::kGemma:
        layers_.push_back(load_llama(body.sub("layers", i)));
        break;
    }
    if (!config_.is_local.empty())
      layers_.back().is_local = config_.is_local[static_cast<std::size_t>(i)];
  }
  if (config_.family == EncoderFamily::kModern) final_norm_ = load_norm(body, "final_norm");
  if (config_.has_rms_norms()) final_norm_ = load_norm(body, "norm");
}

void Encoder::load_head(const Weights& root, const Weights& body) {
  const std::int64_t hidden = config_.hidden_size;
  const bool is_euro = config_.head == EncoderHead::kPooled || config_.head == EncoderHead::kLate;
  const Weights dense = config_.head == EncoderHead::kPooler  ? body.sub("pooler")
                        : config_.head == EncoderHead::kDense ? root.sub("classifier")
                        : is_euro                             ? root
                                                              : root.sub("head");
  head_dense_ = linear(dense, {{"dense", hidden}}, hidden,
                       config_.head != EncoderHead::kNormed || config_.head_bias);
  if (config_.head == EncoderHead::kNormed) head_norm_ = load_norm(dense, "norm");
  const auto labels = static_cast<std::int64_t>(config_.labels.size());
  const Weights last = config_.head == EncoderHead::kDense ? dense : root;
  // EuroBERT's own code calls it as RoBERTa does.
  const bool is_projection =
      config_.head == EncoderHead::kDense || (is_euro && root.has("out_proj.weight", false));
  const std::string name = is_projection ? "out_proj" : "classifier";
  classifier_ = last.matrix_f32({.name = name, .rows = labels}, hidden);
  classifier_bias_ = last.vector(name + ".bias", labels, WeightInit::kNormal);
}

Encoder::Encoder(WeightLoader& loader, const EncoderConfig& config) : config_(config) {
  const Weights root = loader.root(), body = body_of(root, config);
  load_embeddings(body);
  load_layers(body);
  if (config.rope_theta > 0)
    rotation_ = RotationTable(config.rope_theta, config.head_dim, config.max_tokens);
  if (config.local_rope_theta > 0)
    local_rotation_ = RotationTable(config.local_rope_theta, config.head_dim, config.max_tokens);
  if (config.head != EncoderHead::kNone) load_head(root, body);
}

std::unique_ptr<Encoder> load_encoder(Context& ctx, const EncoderConfig& config,
                                      const WeightSource& source, const Numerics& numerics) {
  WeightLoader loader(source, numerics, config.dtype, ctx);
  auto encoder = std::make_unique<Encoder>(loader, config);
  const std::vector<std::string> unused = loader.finish(is_known_extra);
  if (!unused.empty())
    log_warning("{} tensors of the checkpoint are not used: {}", unused.size(),
                fmt::join(unused.begin(),
                          unused.begin() + std::min<std::ptrdiff_t>(std::ssize(unused), 20), ", "));
  encoder->keep(loader.take_store());
  return encoder;
}

}  // namespace sluice
