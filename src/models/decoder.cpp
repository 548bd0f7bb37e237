// The general decoder. Norms stand before the halves of a layer, after them, or both. The halves
// run in sequence or side by side.
//
// Sources: the modeling_* files of transformers that the rows of decoder_table.cpp name.
#include "models/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "layers/rope.h"
#include "ops/elementwise.h"
#include "ops/fused.h"

namespace sluice {
namespace {

struct DecoderLayer {
  Norm attention_in, attention_out, mlp_in, mlp_out;  // undefined where the family has none
  GqaAttention attention;
  FeedForward feed_forward;
  LayerRope rope = LayerRope::kMain;
};

Norm load_norm(const Weights& layer, std::string_view name, const ModelConfig& config,
               const DecoderSpec& spec) {
  return name.empty() ? Norm{}
                      : Norm::load(layer, name, config.hidden_size, config.rms_norm_eps, spec.norm);
}

// Whether the norms and residual sums of a layer can be fused with its GEMMs.
bool joins(const DecoderLayer& layer) {
  const auto plain = [](const Norm& norm) { return norm.defined() && norm.kind == NormKind::kRms; };
  return plain(layer.attention_in) && plain(layer.mlp_in) && !layer.attention_out.defined() &&
         !layer.mlp_out.defined() && layer.attention.can_fuse() && layer.feed_forward.can_fuse();
}

class Decoder final : public Model {
 public:
  Decoder(WeightLoader& loader, const ModelConfig& config, const DecoderSpec& spec)
      : config_(config) {
    const Weights root = loader.root();
    kv_dtype_ = root.numerics().kv();
    kv_heads_ = root.share(config.num_kv_heads, "key heads").count;
    if (config.positions == PositionKind::kRope) {
      rotary(LayerRope::kMain) = Rotary(config.rope, config.max_position_embeddings);
      if (config.local_rope)
        rotary(LayerRope::kLocal) = Rotary(*config.local_rope, config.max_position_embeddings);
      for (Rotary& one : rotaries_)
        if (one.dim() > 0) one.place(root);
    }
    ends_ = EmbeddingAndHead::load(root, config, spec.ends, spec.norm);
    for (int i = 0; i < config.num_layers; ++i) {
      const Weights layer = root.sub(spec.ends.body).sub(spec.layers, i);
      const bool shared_norm = config.residual == ResidualForm::kParallelOneNorm;
      layers_.push_back({.attention_in = load_norm(layer, spec.attention_in, config, spec),
                         .attention_out = load_norm(layer, spec.attention_out, config, spec),
                         .mlp_in = load_norm(layer, shared_norm ? "" : spec.mlp_in, config, spec),
                         .mlp_out = load_norm(layer, spec.mlp_out, config, spec),
                         .attention = GqaAttention::load(layer.sub(spec.attention), config, i,
                                                         spec.attention_spec),
                         .feed_forward = FeedForward::load(layer, config, config.layer(i), spec.moe,
                                                           spec.mlp, spec.mlp_names),
                         .rope = config.positions == PositionKind::kRope ? config.layer(i).rope
                                                                         : LayerRope::kNone});
    }
    joins_ = config.residual == ResidualForm::kSequential && config.residual_multiplier == 1 &&
             std::all_of(layers_.begin(), layers_.end(), joins);
    store_ = loader.take_store();
  }

  void forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
               StageIO& io) override {
    if (fb.num_tokens == 0 && !ctx.shares_model()) return;
    ends_.begin(ctx, fb, io);
    Arena::Scope scope(*ctx.arena);
    const LastLayerRows last = ends_.last_rows(ctx, fb, io);
    run_layers(ctx, fb, backend, io, last);
    ends_.end(ctx, fb, io, last);
  }

  std::vector<PageGroupSpec> kv_groups() const override {
    return gqa_page_groups(config_, kv_heads_, kv_dtype_);
  }
  std::int64_t weight_bytes() const override { return store_.bytes(); }

 private:
  Rotary& rotary(LayerRope rope) { return rotaries_[static_cast<std::size_t>(rope)]; }

  void run_layers(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                  const StageIO& io, const LastLayerRows& last) const {
    if (io.layer_begin == io.layer_end) return;
    Arena::Scope scope(*ctx.arena);
    std::array<Tensor, 3> cos_sin;  // by LayerRope; the entry of kNone stays undefined
    for (std::size_t i = 0; i < rotaries_.size(); ++i) {
      if (rotaries_[i].dim() == 0) continue;
      cos_sin[i] = ctx.arena->take(DType::kF32, {fb.num_tokens, rotaries_[i].dim()});
      rotaries_[i].cos_sin(ctx, fb, cos_sin[i]);
    }
    int begin = io.layer_begin;
    if (joins_ && ops::fuses_rows(ctx, fb.num_tokens, config_.moe.has_value())) {
      begin = last.wanted.all() ? io.layer_end : io.layer_end - 1;
      for (int i = io.layer_begin; i < begin; ++i) {
        const DecoderLayer& layer = layers_[static_cast<std::size_t>(i)];
        layer.attention.add_forward(ctx, fb, backend, cos_sin[static_cast<std::size_t>(layer.rope)],
                                    layer.attention_in, io.hidden);
        layer.feed_forward.add_forward(ctx, layer.mlp_in, io.hidden);
        ends_.keep_aux(ctx, io, i);
      }
      if (begin == io.layer_end) return;
    }
    // The branch that is still to be added to the residual stream: the norm of the next layer adds
    // it.
    const Tensor all_branches = ctx.arena->take(DType::kF32, {fb.num_tokens, config_.hidden_size});
    const LastLayerRows every = EmbeddingAndHead::every_row(io);
    for (int i = begin; i < io.layer_end; ++i) {
      const DecoderLayer& layer = layers_[static_cast<std::size_t>(i)];
      const DType attention_type = layer.attention.qkv.input, mlp_type = layer.feed_forward.input();
      const bool parallel = config_.residual != ResidualForm::kSequential;
      Arena::Scope layer_scope(*ctx.arena);

      const DType wanted = parallel && attention_type != mlp_type ? DType::kF32 : attention_type;
      const Tensor x = enter(ctx, layer.attention_in, wanted, i > begin, all_branches, io.hidden);
      if (i > begin) ends_.keep_aux(ctx, io, i - 1);
      const LastLayerRows& rows = i + 1 < io.layer_end ? every : last;
      const Tensor branch = rows.of(all_branches);
      layer.attention.forward(ctx, fb, backend, cos_sin[static_cast<std::size_t>(layer.rope)], x,
                              rows.wanted, branch);
      if (rows.wanted.none()) return;
      rows.begin(ctx, io);
      leave(ctx, layer.attention_out, branch);
      if (!parallel) {
        layer.feed_forward.forward(
            ctx, enter(ctx, layer.mlp_in, mlp_type, true, branch, rows.hidden), branch);
        leave(ctx, layer.mlp_out, branch);
        continue;
      }
      const Tensor second = ctx.arena->take(DType::kF32, {branch.dim(0), config_.hidden_size});
      const bool own_norm = layer.mlp_in.defined();
      layer.feed_forward.forward(
          ctx,
          own_norm ? enter(ctx, layer.mlp_in, mlp_type, false, branch, rows.hidden)
                   : rows.wanted.of(ctx, x),
          second);
      leave(ctx, layer.mlp_out, second);
      ops::add(ctx, branch, second, branch);
    }
    ops::add(ctx, last.hidden, last.of(all_branches), last.hidden);
    ends_.keep_aux(ctx, io, io.layer_end - 1);
  }

  // The input of half a layer, after the `pending` branch was added to the residual stream.
  static Tensor enter(Context& ctx, const Norm& norm, DType wanted, bool pending,
                      const Tensor& branch, const Tensor& hidden) {
    if (!norm.defined()) {
      if (pending) ops::add(ctx, hidden, branch, hidden);
      return hidden;
    }
    const Tensor x = ctx.arena->take(norm.output(wanted), {hidden.dim(0), hidden.dim(1)});
    if (pending)
      norm.add_forward(ctx, branch, hidden, x);
    else
      norm.forward(ctx, hidden, x);
    return x;
  }

  // The output of half a layer, as it is added to the residual stream.
  void leave(Context& ctx, const Norm& norm, const Tensor& branch) const {
    if (norm.defined()) norm.forward(ctx, branch, branch);
    if (config_.residual_multiplier != 1)
      ops::scale(ctx, branch, static_cast<float>(config_.residual_multiplier), branch);
  }

  ModelConfig config_;
  std::array<Rotary, 2> rotaries_;  // by LayerRope: kMain, kLocal
  DType kv_dtype_{};
  std::int64_t kv_heads_ = 0;  // this rank's share of ModelConfig::num_kv_heads
  EmbeddingAndHead ends_;
  std::vector<DecoderLayer> layers_;
  bool joins_ = false;  // layers may be fused with the residual sum
  WeightStore store_;
};

}  // namespace

std::unique_ptr<Model> load_decoder(WeightLoader& loader, const ModelConfig& config,
                                    const ModelOptions&, const MoeNames&) {
  const std::optional<DecoderSpec> spec = decoder_spec(config);
  check(spec.has_value(), "{} has no row in the table of decoders", config.architecture);
  // Files of the base class (GPT-2, BLOOM) lack the first part of the names.
  const std::string body(spec->ends.body), first = body.substr(0, body.find('.')) + '.';
  const std::string embedding = fmt::format("{}.{}.weight", body, spec->ends.embedding);
  if (!loader.root().has(embedding, true) &&
      loader.root().has(embedding.substr(first.size()), false))
    loader.rename(first, "");
  return std::make_unique<Decoder>(loader, config, *spec);
}

}  // namespace sluice
