// DeepSeek-V2, V2-Lite, V3, V3.2 and GLM-5: latent attention, dense first layers, then mixtures
// with shared experts. In sparse models a layer attends to keys chosen by its own indexer, or by
// the indexer of an earlier layer.
//
// Sources: transformers DeepseekV2ForCausalLM, DeepseekV3ForCausalLM, DeepseekV32ForCausalLM,
// GlmMoeDsaForCausalLM.
#include "models/deepseek_v2.h"

#include "base/error.h"
#include "layers/mla.h"
#include "layers/rope.h"
#include "models/embed_head.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "tensor/format.h"

namespace sluice {
namespace {

struct DecoderLayer {
  Norm input_norm;
  MlaAttention attention;
  Norm post_attention_norm;
  FeedForward feed_forward;
};

// Multi-token prediction (DeepSeek-V3, arXiv 2412.19437 section 2.2), with one layer: from the
// state of position i and token i + 1 to token i + 2. Embedding and head are the model's.
struct DraftLayer {
  Norm embedding_norm, state_norm;
  Linear projection;  // [hidden, 2 hidden]: of [embedding | state]
  DecoderLayer layer;
  Norm norm;
};

class DeepseekV2 final : public Model, private DraftModel {
 public:
  DeepseekV2(WeightLoader& loader, const ModelConfig& config, const ModelOptions& options,
             const MoeNames& names)
      : config_(config),
        own_(options.layers.of(config.num_layers)),
        rotary_(config.rope, config.max_position_embeddings) {
    require(config.mla.has_value(),
            "{} needs the keys of latent attention (kv_lora_rank, qk_nope_head_dim, ...)",
            config.architecture);
    const Weights root = loader.root();
    kv_dtype_ = root.numerics().kv();
    index_dtype_ = root.numerics().index();
    rotary_.place(root);
    ends_ = EmbeddingAndHead::load(root, config, {}, {}, own_);
    const MlaOptions mla{.expandable = options.mla_expandable,
                         .index_hadamard = options.index_hadamard};
    const auto load_norm = [&](const Weights& from, std::string_view name) {
      return Norm::load(from, name, config.hidden_size, config.rms_norm_eps, {});
    };
    const auto load_layer = [&](const Weights& layer, int i) {
      return DecoderLayer{load_norm(layer, "input_layernorm"),
                          MlaAttention::load(layer.sub("self_attn"), config, i, mla),
                          load_norm(layer, "post_attention_layernorm"),
                          FeedForward::load(layer, config, config.layer(i), names)};
    };
    const Weights layers = root.sub("model");
    for (int i = 0; i < config.num_layers; ++i) {
      const Weights layer = layers.sub("layers", i);
      if (own_.holds(i))
        layers_.push_back(load_layer(layer, i));
      else
        layer.leave_out();
    }
    if (options.draft_layer) {
      const Weights of_all = layers.sub("layers", config.num_layers);
      // Groups of data-parallel attention draft for themselves.
      const Weights layer = options.feed_forward_ranks ? of_all.within_group() : of_all;
      const std::int64_t hidden = config.hidden_size;
      require(layer.has("eh_proj.weight", true),
              "the checkpoint lacks its draft layer ({}); serve it without --speculative-algorithm",
              layer.path("eh_proj.weight"));
      draft_ = {load_norm(layer, "enorm"), load_norm(layer, "hnorm"),
                Linear::load(layer, {{"eh_proj", hidden}}, 2 * hidden, Shard::kReplicated, false),
                load_layer(layer, config.num_layers), load_norm(layer, "shared_head.norm")};
      draft_shape_ = {
          .target_width = hidden, .hidden_size = hidden, .vocab_size = config.vocab_size};
    }
    store_ = loader.take_store();
  }

  void forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
               StageIO& io) override {
    if (fb.is_idle() && !ctx.shares_model()) return;
    ends_.begin(ctx, fb, io);
    check(topk_width() == 0 ||
              (io.topk_indices.rank == 2 && io.topk_indices.dim(0) == fb.num_tokens &&
               io.topk_indices.dim(1) == topk_width()),
          "StageIO::topk_indices is {}, not int32 [{}, {}]", io.topk_indices, fb.num_tokens,
          topk_width());
    Arena::Scope scope(*ctx.arena);
    const LastLayer last = ends_.last_layer(ctx, fb, io);
    run_layers(ctx, fb, backend, io, last);
    ends_.end(ctx, io, last);
  }

  DraftModel* draft_model() override { return draft_ ? this : nullptr; }

  const EmbeddingAndHead* ends() const override { return &ends_; }
  std::vector<PageGroupSpec> kv_groups() const override {
    PlaneSpec latent =
        latent_plane(kv_dtype_, config_.mla->kv_lora_rank, config_.mla->qk_rope_head_dim);
    PlaneSpec index_k =
        index_key_plane(index_dtype_, config_.indexer ? config_.indexer->head_dim : 0);
    const auto add = [&](const DecoderLayer& layer) {
      latent.layers.push_back(layer.attention.layer);
      if (layer.attention.indexer) index_k.layers.push_back(layer.attention.layer);
    };
    for (const DecoderLayer& layer : layers_) add(layer);
    if (draft_) add(draft_->layer);
    PageGroupSpec full{{.name = "full", .retention = Retention::kFull, .span = 0}, {latent}};
    if (!index_k.layers.empty()) full.planes.push_back(index_k);
    return {full};
  }
  std::int64_t weight_bytes() const override { return store_.bytes(); }
  std::int64_t topk_width() const override { return config_.indexer ? config_.indexer->topk : 0; }

 private:
  const DraftShape& draft_shape() const override { return draft_shape_; }

  // Source: transformers' MtpModel.
  void draft(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
             const DraftIO& io) override {
    if (fb.num_tokens == 0) return;
    const std::int64_t rows = fb.num_tokens, hidden = config_.hidden_size;
    Arena::Scope scope(*ctx.arena);
    const auto take = [&](std::int64_t columns) {
      return ctx.arena->take(DType::kF32, {rows, columns});
    };
    const Tensor cos_sin = take(rotary_.dim());
    rotary_.cos_sin(ctx, fb, cos_sin);
    const Tensor topk =
        topk_width() > 0 ? ctx.arena->take(DType::kI32, {rows, topk_width()}) : Tensor{};
    const Tensor both = take(2 * hidden), half = take(hidden);
    ops::Residual stream{.hidden = take(hidden), .branch = take(hidden)};
    ends_.look_up(ctx, fb.input_ids, half);
    draft_->embedding_norm.forward(ctx, half, half);
    ops::convert(ctx, half, both.slice(1, 0, hidden));
    draft_->state_norm.forward(ctx, io.target.defined() ? io.target : io.states, half);
    ops::convert(ctx, half, both.slice(1, hidden, hidden));
    draft_->projection.forward(ctx, both, stream.hidden);
    const DecoderLayer& layer = draft_->layer;
    layer.attention.forward(ctx, fb, backend, cos_sin, layer.input_norm.of(ctx, stream), topk,
                            stream);
    layer.feed_forward.forward(ctx, layer.post_attention_norm.of(ctx, stream), stream);
    ops::add_branch(ctx, stream);
    draft_->norm.forward(ctx, stream.hidden, io.states);
    const std::int64_t num_logits = fb.logit_rows.dim(0);
    if (num_logits == 0) return;
    const Tensor chosen = ctx.arena->take(DType::kF32, {num_logits, hidden});
    ops::gather_rows(ctx, io.states, fb.logit_rows, chosen);
    ends_.score(ctx, chosen, io.logits);
  }

  void run_layers(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                  const StageIO& io, const LastLayer& last) const {
    Arena::Scope scope(*ctx.arena);
    const Tensor cos_sin = ctx.arena->take(DType::kF32, {fb.num_tokens, rotary_.dim()});
    rotary_.cos_sin(ctx, fb, cos_sin);
    ops::Residual stream{
        .hidden = io.hidden,
        .branch = ctx.arena->take(DType::kF32, {fb.num_tokens, config_.hidden_size})};
    for (int i = io.layer_begin; i < io.layer_end; ++i) {
      Arena::Scope layer_scope(*ctx.arena);
      const DecoderLayer& layer = layers_[static_cast<std::size_t>(i - own_.begin)];
      const bool is_last = i + 1 == io.layer_end;
      const ForwardBatch& batch = is_last ? last.batch : fb;
      ops::NormedRows x = layer.input_norm.of(ctx, stream);
      if (is_last) x = last.enter(ctx, x, DType::kF32, stream);
      layer.attention.forward(ctx, batch, backend, cos_sin, x, io.topk_indices, stream);
      if (batch.query_rows.none()) return;
      layer.feed_forward.forward(ctx, layer.post_attention_norm.of(ctx, stream), stream, fb.dp);
      ends_.keep_aux(ctx, io, i, stream);
    }
    ops::add_branch(ctx, stream);
  }

  ModelConfig config_;
  LayerRange own_;
  Rotary rotary_;
  DType kv_dtype_{}, index_dtype_{};
  EmbeddingAndHead ends_;
  std::vector<DecoderLayer> layers_;  // of own_
  std::optional<DraftLayer> draft_;
  DraftShape draft_shape_;
  WeightStore store_;
};

}  // namespace

std::unique_ptr<Model> load_deepseek_v2(WeightLoader& loader, const ModelConfig& config,
                                        const ModelOptions& options, const MoeNames& names) {
  return std::make_unique<DeepseekV2>(loader, config, options, names);
}

}  // namespace sluice
