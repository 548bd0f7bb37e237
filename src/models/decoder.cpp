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

class Decoder final : public Model {
 public:
  Decoder(WeightLoader& loader, const ModelConfig& config, const DecoderSpec& spec,
          const LayerRange& own)
      : config_(config), own_(own.of(config.num_layers)) {
    const Weights root = loader.root();
    kv_dtype_ = root.numerics().kv();
    num_ranks_ = root.tp_size();
    if (config.positions == PositionKind::kRope) {
      rotary(LayerRope::kMain) = Rotary(config.rope, config.max_position_embeddings);
      if (config.local_rope)
        rotary(LayerRope::kLocal) = Rotary(*config.local_rope, config.max_position_embeddings);
      for (Rotary& one : rotaries_)
        if (one.dim() > 0) one.place(root);
    }
    ends_ = EmbeddingAndHead::load(root, config, spec.ends, spec.norm, own_);
    for (int i = 0; i < config.num_layers; ++i) {
      const Weights layer = root.sub(spec.ends.body).sub(spec.layers, i);
      if (!own_.holds(i)) {
        layer.leave_out();
        continue;
      }
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
    store_ = loader.take_store();
  }

  void forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
               StageIO& io) override {
    if (fb.is_idle() && !ctx.shares_model()) return;
    ends_.begin(ctx, fb, io);
    Arena::Scope scope(*ctx.arena);
    const LastLayer last = ends_.last_layer(ctx, fb, io);
    run_layers(ctx, fb, backend, io, last);
    ends_.end(ctx, io, last);
  }

  const EmbeddingAndHead* ends() const override { return &ends_; }
  std::vector<PageGroupSpec> kv_groups() const override {
    std::vector<PageGroupSpec> groups = gqa_page_groups(config_, num_ranks_, kv_dtype_);
    keep_layers(own_, groups);
    return groups;
  }
  std::int64_t weight_bytes() const override { return store_.bytes(); }

 private:
  Rotary& rotary(LayerRope rope) { return rotaries_[static_cast<std::size_t>(rope)]; }

  void run_layers(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                  const StageIO& io, const LastLayer& last) const {
    if (io.layer_begin == io.layer_end) return;
    Arena::Scope scope(*ctx.arena);
    std::array<Tensor, 3> cos_sin;  // by LayerRope; the entry of kNone stays undefined
    for (std::size_t i = 0; i < rotaries_.size(); ++i) {
      if (rotaries_[i].dim() == 0) continue;
      cos_sin[i] = ctx.arena->take(DType::kF32, {fb.num_tokens, rotaries_[i].dim()});
      rotaries_[i].cos_sin(ctx, fb, cos_sin[i]);
    }
    ops::Residual stream{
        .hidden = io.hidden,
        .branch = ctx.arena->take(DType::kF32, {fb.num_tokens, config_.hidden_size})};
    for (int i = io.layer_begin; i < io.layer_end; ++i) {
      Arena::Scope layer_scope(*ctx.arena);
      const DecoderLayer& layer = layers_[static_cast<std::size_t>(i - own_.begin)];
      const bool is_last = i + 1 == io.layer_end;
      const ForwardBatch& batch = is_last ? last.batch : fb;
      ops::NormedRows x = layer.attention_in.of(ctx, stream);
      if (is_last) x = last.enter(ctx, x, input_of(layer), stream);
      run_layer(ctx, batch, backend, cos_sin[static_cast<std::size_t>(layer.rope)], layer, x,
                stream);
      if (batch.query_rows.none()) return;
      ends_.keep_aux(ctx, io, i, stream);
    }
    ops::add_branch(ctx, stream);
  }

  void run_layer(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                 const Tensor& cos_sin, const DecoderLayer& layer, const ops::NormedRows& x,
                 ops::Residual& stream) const {
    if (config_.residual != ResidualForm::kSequential)
      return run_parallel(ctx, fb, backend, cos_sin, layer, x, stream);
    stream.keeps_branch = keeps_branch(layer.attention_out);
    layer.attention.forward(ctx, fb, backend, cos_sin, x, stream);
    if (fb.query_rows.none()) return;
    leave(ctx, layer.attention_out, stream);
    stream.keeps_branch = keeps_branch(layer.mlp_out);
    layer.feed_forward.forward(ctx, layer.mlp_in.of(ctx, stream), stream, fb.dp);
    leave(ctx, layer.mlp_out, stream);
  }

  // Both halves of the layer read the stream as it enters the layer.
  void run_parallel(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                    const Tensor& cos_sin, const DecoderLayer& layer, const ops::NormedRows& input,
                    ops::Residual& stream) const {
    const Tensor x = ops::rows_of(ctx, input, input_of(layer));
    stream.keeps_branch = true;
    layer.attention.forward(ctx, fb, backend, cos_sin, x, stream);
    if (fb.query_rows.none()) return;
    leave(ctx, layer.attention_out, stream);
    ops::Residual mlp{
        .hidden = stream.hidden,
        .branch = ctx.arena->take(DType::kF32, {stream.hidden.dim(0), config_.hidden_size}),
        .keeps_branch = true};
    const bool one_norm = !layer.mlp_in.defined();
    layer.feed_forward.forward(
        ctx, one_norm ? ops::NormedRows(fb.query_rows.of(ctx, x)) : layer.mlp_in.of(ctx, mlp), mlp,
        fb.dp);
    leave(ctx, layer.mlp_out, mlp);
    ops::add(ctx, stream.branch, mlp.branch, stream.branch);
  }

  // The type of a layer's rows that loses nothing for those who read them.
  DType input_of(const DecoderLayer& layer) const {
    const DType attention = layer.attention.qkv.input(), mlp = layer.feed_forward.input();
    const bool shared = config_.residual != ResidualForm::kSequential;
    return shared && attention != mlp ? DType::kF32 : attention;
  }

  // Whether a half's branch is changed before it is added to the stream.
  bool keeps_branch(const Norm& out) const {
    return out.defined() || config_.residual_multiplier != 1;
  }

  // What happens to a branch before it is added.
  void leave(Context& ctx, const Norm& norm, const ops::Residual& stream) const {
    if (norm.defined()) norm.forward(ctx, stream.branch, stream.branch);
    if (config_.residual_multiplier != 1)
      ops::scale(ctx, stream.branch, static_cast<float>(config_.residual_multiplier),
                 stream.branch);
  }

  ModelConfig config_;
  LayerRange own_;
  std::array<Rotary, 2> rotaries_;  // by LayerRope: kMain, kLocal
  DType kv_dtype_{};
  int num_ranks_ = 1;  // that share the heads
  EmbeddingAndHead ends_;
  std::vector<DecoderLayer> layers_;  // of own_
  WeightStore store_;
};

}  // namespace

std::unique_ptr<Model> load_decoder(WeightLoader& loader, const ModelConfig& config,
                                    const ModelOptions& options, const MoeNames&) {
  const std::optional<DecoderSpec> spec = decoder_spec(config);
  check(spec.has_value(), "{} has no row in the table of decoders", config.architecture);
  // Files of the base class (GPT-2, BLOOM) lack the first part of the names.
  const std::string body(spec->ends.body), first = body.substr(0, body.find('.')) + '.';
  const std::string embedding = fmt::format("{}.{}.weight", body, spec->ends.embedding);
  if (!loader.root().has(embedding, true) &&
      loader.root().has(embedding.substr(first.size()), false))
    loader.rename(first, "");
  return std::make_unique<Decoder>(loader, config, *spec, options.layers);
}

}  // namespace sluice
