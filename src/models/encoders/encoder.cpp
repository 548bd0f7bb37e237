#include "models/encoders/encoder.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "ops/activation.h"
#include "ops/elementwise.h"

namespace sluice {
namespace {

// The prefix of the body's names: files of a class with a head have one.
Weights body_of(const Weights& root, const EncoderConfig& config) {
  const std::string_view table =
      config.is_modern ? "embeddings.tok_embeddings.weight" : "embeddings.word_embeddings.weight";
  if (root.has(table, config.head == EncoderHead::kNone)) return root;
  for (const char* prefix : {"bert", "roberta", "model"})
    if (root.sub(prefix).has(table, false)) return root.sub(prefix);
  return config.is_modern ? root.sub("model") : root.sub("bert");
}

// Tensors of heads that are not served, and of older files.
bool is_known_extra(std::string_view name) {
  for (const std::string_view part : {"pooler.", "cls.", "lm_head.", "head.", "decoder.",
                                      "position_ids", "classifier.", "token_type_ids"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

}  // namespace

Norm Encoder::load_norm(const Weights& weights, std::string_view name) const {
  Norm norm{.kind = NormKind::kLayer, .weight = {}, .bias = {}, .eps = 0};
  norm.eps = static_cast<float>(config_.norm_eps);
  // The first files of BERT have TensorFlow's names.
  const bool is_old = !weights.has(std::string(name) + ".weight", true) &&
                      weights.has(std::string(name) + ".gamma", false);
  norm.weight = weights.vector(std::string(name) + (is_old ? ".gamma" : ".weight"),
                               config_.hidden_size, WeightInit::kOnes);
  if (!config_.is_modern || config_.norm_bias)
    norm.bias = weights.vector(std::string(name) + (is_old ? ".beta" : ".bias"),
                               config_.hidden_size, WeightInit::kNormal);
  return norm;
}

Encoder::Layer Encoder::load_layer(const Weights& weights, int index) const {
  const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
  const auto linear = [](const Weights& at, const WeightParts& parts, std::int64_t columns,
                         bool bias) {
    return Linear::load(at, parts, columns, Shard::kReplicated, bias);
  };
  Layer layer;
  if (config_.is_modern) {
    layer.is_local = config_.is_local[static_cast<std::size_t>(index)];
    if (index > 0) layer.attention_norm = load_norm(weights, "attn_norm");
    layer.mlp_norm = load_norm(weights, "mlp_norm");
    const Weights attention = weights.sub("attn"), mlp = weights.sub("mlp");
    layer.qkv = linear(attention, {{"Wqkv", 3 * hidden}}, hidden, config_.attention_bias);
    layer.attention_out = linear(attention, {{"Wo", hidden}}, hidden, config_.attention_bias);
    layer.up = linear(mlp, {{"Wi", 2 * inner}}, hidden, config_.mlp_bias);
    layer.down = linear(mlp, {{"Wo", hidden}}, inner, config_.mlp_bias);
    return layer;
  }
  const Weights attention = weights.sub("attention");
  layer.qkv = linear(attention.sub("self"), {{"query", hidden}, {"key", hidden}, {"value", hidden}},
                     hidden, true);
  layer.attention_out = linear(attention.sub("output"), {{"dense", hidden}}, hidden, true);
  layer.attention_norm = load_norm(attention.sub("output"), "LayerNorm");
  layer.up = linear(weights.sub("intermediate"), {{"dense", inner}}, hidden, true);
  layer.down = linear(weights.sub("output"), {{"dense", hidden}}, inner, true);
  layer.mlp_norm = load_norm(weights.sub("output"), "LayerNorm");
  return layer;
}

Encoder::Encoder(WeightLoader& loader, const EncoderConfig& config) : config_(config) {
  const Weights root = loader.root(), body = body_of(root, config);
  const Weights embeddings = body.sub("embeddings");
  const std::int64_t hidden = config.hidden_size;
  const auto table = [&](std::string_view name, std::int64_t rows) {
    return embeddings.matrix({{name, rows}}, hidden, Shard::kReplicated);
  };
  words_ = table(config.is_modern ? "tok_embeddings" : "word_embeddings", config.vocab_size);
  if (config.num_positions > 0) positions_ = table("position_embeddings", config.num_positions);
  if (config.num_types > 0) types_ = table("token_type_embeddings", config.num_types);
  embedding_norm_ = load_norm(embeddings, config.is_modern ? "norm" : "LayerNorm");
  const Weights layers = config.is_modern ? body : body.sub("encoder");
  for (int i = 0; i < config.num_layers; ++i)
    layers_.push_back(load_layer(layers.sub(config.is_modern ? "layers" : "layer", i), i));
  if (config.is_modern) {
    final_norm_ = load_norm(body, "final_norm");
    const int d = static_cast<int>(hidden) / config.num_heads;
    rotation_ = RotationTable(config.rope_theta, d, config.max_tokens);
    local_rotation_ = RotationTable(config.local_rope_theta, d, config.max_tokens);
  }
  if (config.head == EncoderHead::kNone) return;
  const Weights dense = config.head == EncoderHead::kPooler  ? body.sub("pooler")
                        : config.head == EncoderHead::kDense ? root.sub("classifier")
                                                             : root.sub("head");
  head_dense_ = Linear::load(dense, {{"dense", hidden}}, hidden, Shard::kReplicated,
                             config.head != EncoderHead::kNormed || config.head_bias);
  if (config.head == EncoderHead::kNormed) head_norm_ = load_norm(dense, "norm");
  const auto labels = static_cast<std::int64_t>(config.labels.size());
  const Weights last = config.head == EncoderHead::kDense ? dense : root;
  const std::string name = config.head == EncoderHead::kDense ? "out_proj" : "classifier";
  classifier_ = last.matrix_f32({.name = name, .rows = labels}, hidden);
  classifier_bias_ = last.vector(name + ".bias", labels, WeightInit::kNormal);
}

void Encoder::attend(Context& ctx, const EncoderBatch& batch, const Layer& layer, const Tensor& x,
                     const Tensor& out) const {
  Arena::Scope scope(*ctx.arena);
  const std::int64_t hidden = config_.hidden_size;
  const Tensor qkv = ctx.arena->take(DType::kF32, {x.dim(0), 3 * hidden});
  const Tensor mixed = ctx.arena->take(DType::kF32, {x.dim(0), hidden});
  layer.qkv.forward(ctx, x, qkv);
  const int d = static_cast<int>(hidden) / config_.num_heads;
  attend_both_ways(ctx, {.num_heads = config_.num_heads, .head_dim = d}, batch.starts, qkv,
                   layer.is_local ? local_rotation_ : rotation_,
                   layer.is_local ? config_.window : 0, mixed);
  layer.attention_out.forward(ctx, mixed, out);
}

void Encoder::feed_forward(Context& ctx, const Layer& layer, const Tensor& x,
                           const Tensor& out) const {
  Arena::Scope scope(*ctx.arena);
  const Tensor up = ctx.arena->take(DType::kF32, {x.dim(0), layer.up.rows()});
  const Tensor inner = ctx.arena->take(layer.down.input(), {x.dim(0), config_.intermediate_size});
  layer.up.forward(ctx, x, up);
  if (config_.is_modern)
    ops::act_and_mul(ctx, config_.activation, up, inner);
  else
    ops::activate(ctx, config_.activation, up, inner);
  layer.down.forward(ctx, inner, out);
}

// x := the layer's output.
void Encoder::run_layer(Context& ctx, const EncoderBatch& batch, const Layer& layer,
                        const Tensor& x) const {
  Arena::Scope scope(*ctx.arena);
  const Tensor branch = ctx.arena->take(DType::kF32, {x.dim(0), x.dim(1)});
  const Tensor normed = config_.is_modern ? ctx.arena->take(DType::kF32, {x.dim(0), x.dim(1)}) : x;
  if (config_.is_modern && layer.attention_norm.defined())
    layer.attention_norm.forward(ctx, x, normed);
  attend(ctx, batch, layer, layer.attention_norm.defined() ? normed : x, branch);
  ops::add(ctx, x, branch, x);
  if (!config_.is_modern) layer.attention_norm.forward(ctx, x, x);
  if (config_.is_modern) layer.mlp_norm.forward(ctx, x, normed);
  feed_forward(ctx, layer, normed, branch);
  ops::add(ctx, x, branch, x);
  if (!config_.is_modern) layer.mlp_norm.forward(ctx, x, x);
}

void Encoder::forward(Context& ctx, const EncoderBatch& batch, const Tensor& states) const {
  check(batch.ids.dim(0) == states.dim(0) && states.dim(1) == config_.hidden_size,
        "{} tokens, {} states", batch.ids.dim(0), states.dim(0));
  {
    Arena::Scope scope(*ctx.arena);
    const Tensor part = ctx.arena->take(DType::kF32, {states.dim(0), states.dim(1)});
    ops::embedding(ctx, batch.ids, words_, states);
    for (const auto& [rows, table] :
         {std::pair{&batch.types, &types_}, {&batch.positions, &positions_}}) {
      if (!table->defined()) continue;
      ops::embedding(ctx, *rows, *table, part);
      ops::add(ctx, states, part, states);
    }
    embedding_norm_.forward(ctx, states, states);
  }
  for (const Layer& layer : layers_) run_layer(ctx, batch, layer, states);
  if (final_norm_.defined()) final_norm_.forward(ctx, states, states);
}

void Encoder::score(Context& ctx, std::span<const std::int32_t> starts, const Tensor& states,
                    const Tensor& scores) const {
  Arena::Scope scope(*ctx.arena);
  const auto texts = static_cast<std::int64_t>(starts.size()) - 1;
  const std::int64_t hidden = config_.hidden_size;
  const Tensor pooled = ctx.arena->take(DType::kF32, {texts, hidden});
  const Tensor dense = ctx.arena->take(DType::kF32, {texts, hidden});
  if (!ctx.dry_run) {
    for (std::int64_t t = 0; t < texts; ++t) {
      const std::int64_t begin = starts[static_cast<std::size_t>(t)],
                         end = starts[static_cast<std::size_t>(t) + 1];
      float* to = pooled.ptr<float>() + t * hidden;
      const float* from = states.ptr<float>() + begin * hidden;
      if (!config_.head_pools_mean) {
        std::copy_n(from, hidden, to);
        continue;
      }
      for (std::int64_t c = 0; c < hidden; ++c) {
        double sum = 0;
        for (std::int64_t row = 0; row < end - begin; ++row) sum += from[row * hidden + c];
        to[c] = static_cast<float>(sum / static_cast<double>(end - begin));
      }
    }
  }
  head_dense_.forward(ctx, pooled, dense);
  if (config_.head == EncoderHead::kNormed) {
    ops::activate(ctx, config_.head_activation, dense, pooled);
    head_norm_.forward(ctx, pooled, dense);
  }
  if (ctx.dry_run) return;
  const std::int64_t labels = classifier_.dim(0);
  for (std::int64_t t = 0; t < texts; ++t) {
    float* row = dense.ptr<float>() + t * hidden;
    if (config_.head != EncoderHead::kNormed)
      for (std::int64_t c = 0; c < hidden; ++c) row[c] = std::tanh(row[c]);
    for (std::int64_t label = 0; label < labels; ++label) {
      const float* weight = classifier_.ptr<float>() + label * hidden;
      double sum = classifier_bias_.ptr<float>()[label];
      for (std::int64_t c = 0; c < hidden; ++c) sum += static_cast<double>(weight[c]) * row[c];
      scores.ptr<float>()[t * labels + label] = static_cast<float>(sum);
    }
  }
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
