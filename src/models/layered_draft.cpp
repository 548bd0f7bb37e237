#include "models/layered_draft.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "models/recurrent_decoder.h"
#include "ops/elementwise.h"

namespace sluice {
namespace {

DecoderSpec spec_of(const ModelConfig& layers) {
  if (layers.mla) return {.architecture = layers.architecture};
  for (const RecurrentSpec& row : recurrent_table())
    if (row.decoder.architecture == layers.architecture) return row.decoder;
  const std::optional<DecoderSpec> spec = decoder_spec(layers);
  check(spec.has_value(), "{} has no row in the table of decoders", layers.architecture);
  return *spec;
}

// As of the target's layers, rotations do not follow the length of a sequence, which a recorded
// run does not know.
RopeConfig fixed_rope(const ModelConfig& layers, const ModelOptions& options) {
  const std::int64_t most = layers.max_position_embeddings;
  return rope_for_context(layers.rope, most,
                          options.context_length > 0 ? options.context_length : most);
}

}  // namespace

LayeredDraft::LayeredDraft(WeightLoader& loader, const ModelConfig& layers,
                           const ModelConfig& target_config, const ModelOptions& options)
    : config_(layers),
      spec_(spec_of(layers)),
      rotary_(fixed_rope(layers, options), layers.max_position_embeddings),
      first_layer_(target_config.num_layers),
      num_ranks_(loader.root().tp_size()),
      kv_dtype_(loader.root().numerics().kv()),
      target_vocab_size_(target_config.vocab_size),
      expandable_(options.mla_expandable) {
  rotary_.place(loader.root());
}

LayeredDraft::Layer LayeredDraft::load_layer(const Weights& weights, int index,
                                             std::int64_t input_size, bool has_input_norm) const {
  const auto norm = [&](std::string_view name) {
    return Norm::load(weights, name, config_.hidden_size, config_.rms_norm_eps, spec_.norm);
  };
  const Weights of_attention = weights.sub(spec_.attention);
  AttentionSpec of_heads = spec_.attention_spec;
  if (input_size > 0) of_heads.input_size = input_size;
  Layer out{.input_norm = has_input_norm ? norm(spec_.attention_in) : Norm{},
            .post_attention_norm = norm(spec_.mlp_in),
            .attention = {},
            .feed_forward = FeedForward::load(weights, config_, config_.layer(index), spec_.moe,
                                              spec_.mlp, spec_.mlp_names)};
  if (config_.mla)
    out.attention = MlaAttention::load(
        of_attention, config_, index,
        {.expandable = expandable_, .index_hadamard = false, .input_size = input_size});
  else
    out.attention = GqaAttention::load(of_attention, config_, index, of_heads);
  return out;
}

void LayeredDraft::Layer::attend(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                                 const Tensor& cos_sin, const ops::NormedRows& x,
                                 ops::Residual& stream) const {
  if (const auto* latents = std::get_if<MlaAttention>(&attention))
    latents->forward(ctx, fb, backend, cos_sin, x, {}, stream);
  else
    std::get<GqaAttention>(attention).forward(ctx, fb, backend, cos_sin, x, stream);
}

ops::Weight LayeredDraft::load_embedding(const Weights& root,
                                         const EmbeddingAndHead& target) const {
  if (root.has("embed_tokens.weight", false))
    return EmbeddingAndHead::load_embedding(root, "embed_tokens", target_vocab_size_,
                                            config_.hidden_size);
  require(target.embedding_multiplier == 1 && !target.positions.defined(),
          "the draft's checkpoint has no embed_tokens.weight, and the target's embeddings are "
          "scaled or have positions");
  return {};
}

void LayeredDraft::finish(WeightLoader& loader, DraftShape shape, const ModelOptions& options) {
  shape_ = std::move(shape);
  attention_shape_ = sluice::attention_shape(config_, options);
  attention_shape_.num_layers = config_.num_layers;
  attention_shape_.first_layer = first_layer_;
  store_ = loader.take_store();
}

std::vector<PageGroupSpec> LayeredDraft::kv_groups() const {
  if (!config_.mla)
    return draft_page_groups(gqa_page_groups(config_, num_ranks_, kv_dtype_), first_layer_);
  PlaneSpec latent =
      latent_plane(kv_dtype_, config_.mla->kv_lora_rank, config_.mla->qk_rope_head_dim);
  for (int i = 0; i < config_.num_layers; ++i) latent.layers.push_back(i);
  return draft_page_groups(
      {{{.name = "full", .retention = Retention::kFull, .span = 0}, {std::move(latent)}}},
      first_layer_);
}

void LayeredDraft::store_keys(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                              const Tensor& rows) const {
  Arena::Scope scope(*ctx.arena);
  const Tensor cos_sin = ctx.arena->take(DType::kF32, {fb.num_tokens, rotary_.dim()});
  rotary_.cos_sin(ctx, fb, cos_sin);
  ForwardBatch keys = fb;
  keys.query_rows.rows = fb.row_seq.rows(0, 0);
  ops::Residual none;
  Context own = of_layers(ctx);
  for (const Layer& layer : layers_) layer.attend(own, keys, backend, cos_sin, rows, none);
}

void LayeredDraft::draft(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                         const DraftIO& io) {
  if (fb.num_tokens == 0) return;
  const std::int64_t hidden = config_.hidden_size;
  Arena::Scope scope(*ctx.arena);
  const auto take = [&](std::int64_t columns) {
    return ctx.arena->take(DType::kF32, {fb.num_tokens, columns});
  };
  const Tensor cos_sin = take(rotary_.dim());
  rotary_.cos_sin(ctx, fb, cos_sin);
  Rows rows{.stream = {.hidden = take(hidden), .branch = take(hidden)}, .both = take(2 * hidden)};
  ops::Residual& stream = rows.stream;
  const ops::NormedRows first = begin(ctx, fb, io, rows);
  ForwardBatch seen = fb;  // as attention sees it; the rotations are known
  if (io.last_seen.defined()) {
    seen.positions = io.last_seen;
    seen.has_draft_rows = true;
    seen.row_runs = {};  // the rows of a block read those behind them, too
  }
  Context own = of_layers(ctx);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    layer.attend(own, seen, backend, cos_sin, i == 0 ? first : layer.input_norm.of(own, stream),
                 stream);
    layer.feed_forward.forward(own, layer.post_attention_norm.of(own, stream), stream);
  }
  ops::add_branch(ctx, stream);
  if (states_norm_.defined())
    states_norm_.forward(ctx, stream.hidden, io.states);
  else
    ops::convert(ctx, stream.hidden, io.states);
  const std::int64_t num_logits = fb.logit_rows.dim(0);
  if (num_logits == 0) return;
  const Tensor chosen = ctx.arena->take(DType::kF32, {num_logits, hidden});
  ops::gather_rows(ctx, io.states, fb.logit_rows, chosen);
  score(ctx, chosen, io.logits);
}

}  // namespace sluice
