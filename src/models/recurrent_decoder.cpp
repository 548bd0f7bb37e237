// Sources: transformers Qwen3NextForCausalLM, Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM,
// KimiLinearForCausalLM, Mamba2ForCausalLM, Lfm2ForCausalLM.
#include "models/recurrent_decoder.h"

#include <algorithm>
#include <array>
#include <variant>

#include "base/error.h"
#include "layers/delta_net.h"
#include "layers/gated_conv.h"
#include "layers/mamba2.h"
#include "layers/mla.h"
#include "layers/rope.h"
#include "ops/elementwise.h"

namespace sluice {
namespace {

constexpr NormSpec kPlusOne{.plus_one = true};
constexpr DecoderSpec kQwenRecurrent{
    .architecture = {},  // name in the rows above
    .norm = kPlusOne,
    .attention_spec = {.head_norm = {.plus_one = true}, .output_gate = true}};

constexpr DecoderSpec named(std::string_view architecture, DecoderSpec spec) {
  spec.architecture = architecture;
  return spec;
}

constexpr std::array kRecurrentDecoders = {
    RecurrentSpec{named("Qwen3NextForCausalLM", kQwenRecurrent), "linear_attn"},
    RecurrentSpec{named("Qwen3_5ForCausalLM", kQwenRecurrent), "linear_attn"},
    RecurrentSpec{named("Qwen3_5MoeForCausalLM", kQwenRecurrent), "linear_attn"},
    RecurrentSpec{{.architecture = "KimiLinearForCausalLM",
                   .moe = {.block = "block_sparse_moe",
                           .expert = {"w1", "w3", "w2"},
                           .shared_experts = "shared_experts"}},
                  "self_attn"},
    RecurrentSpec{{.architecture = "Mamba2ForCausalLM",
                   .ends = {.body = "backbone", .embedding = "embeddings", .norm = "norm_f"},
                   .attention_in = "norm"},
                  "mixer",
                  false},
    RecurrentSpec{
        {.architecture = "Lfm2ForCausalLM",
         .ends = {.norm = "embedding_norm"},
         .attention_in = "operator_norm",
         .mlp_in = "ffn_norm",
         .attention_spec = {.o = "out_proj", .head_norm = {.q = "q_layernorm", .k = "k_layernorm"}},
         .mlp = "feed_forward",
         .mlp_names = {.gate = "w1", .up = "w3", .down = "w2"}},
        "conv"},
};

struct RecurrentLayer {
  Norm mixer_norm;
  std::variant<GqaAttention, MlaAttention, DeltaNet, Mamba2, GatedConv> mixer;
  Norm mlp_norm;  // undefined without an MLP
  FeedForward feed_forward;
};

class RecurrentDecoder final : public Model {
 public:
  RecurrentDecoder(WeightLoader& loader, const ModelConfig& config, const ModelOptions& options,
                   const RecurrentSpec& spec)
      : config_(config), own_(options.layers.of(config.num_layers)) {
    const Weights root = loader.root();
    kv_dtype_ = root.numerics().kv();
    num_ranks_ = root.tp_size();
    const bool attends = std::any_of(config.layers.begin(), config.layers.end(),
                                     [](auto& l) { return !l.recurrent; });
    if (attends && !(config.mla && !config.mla->rotates)) {
      rotary_ = Rotary(config.rope, config.max_position_embeddings);
      rotary_.place(root);
    }
    ends_ = EmbeddingAndHead::load(root, config, spec.decoder.ends, spec.decoder.norm, own_);
    for (int i = 0; i < config.num_layers; ++i) {
      const Weights layer = root.sub(spec.decoder.ends.body).sub(spec.decoder.layers, i);
      if (own_.holds(i))
        load_layer(layer, i, options, spec);
      else
        layer.leave_out();
    }
    store_ = loader.take_store();
  }

  void forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
               StageIO& io) override {
    if (fb.is_idle()) return;
    ends_.begin(ctx, fb, io);
    Arena::Scope scope(*ctx.arena);
    const LastLayer last = ends_.last_layer(ctx, fb, io);
    if (io.layer_begin < io.layer_end) run_layers(ctx, fb, backend, io, last);
    ends_.end(ctx, io, last);
  }

  std::vector<PageGroupSpec> kv_groups() const override {
    std::vector<PageGroupSpec> groups = recurrent_page_groups(config_, num_ranks_, kv_dtype_);
    keep_layers(own_, groups);
    return groups;
  }
  std::int64_t weight_bytes() const override { return store_.bytes(); }
  const EmbeddingAndHead* ends() const override { return &ends_; }

 private:
  void run_layers(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                  const StageIO& io, const LastLayer& last) const {
    Arena::Scope scope(*ctx.arena);
    Tensor cos_sin;
    if (rotary_.dim() > 0) {
      cos_sin = ctx.arena->take(DType::kF32, {fb.num_tokens, rotary_.dim()});
      rotary_.cos_sin(ctx, fb, cos_sin);
    }
    ops::Residual stream{
        .hidden = io.hidden,
        .branch = ctx.arena->take(DType::kF32, {fb.num_tokens, config_.hidden_size})};
    for (int i = io.layer_begin; i < io.layer_end; ++i) {
      Arena::Scope layer_scope(*ctx.arena);
      const RecurrentLayer& layer = layers_[static_cast<std::size_t>(i - own_.begin)];
      const bool is_last = i + 1 == io.layer_end;
      const ForwardBatch& batch = is_last ? last.batch : fb;
      ops::NormedRows x = layer.mixer_norm.of(ctx, stream);
      if (is_last) x = last.enter(ctx, x, DType::kF32, stream);
      if (fb.num_tokens > 0) mix(ctx, batch, backend, cos_sin, layer, x, stream);
      if (batch.query_rows.none()) return;
      if (layer.mlp_norm.defined())
        layer.feed_forward.forward(ctx, layer.mlp_norm.of(ctx, stream), stream, fb.dp);
      ends_.keep_aux(ctx, io, i, stream);
    }
    ops::add_branch(ctx, stream);
  }

  void load_layer(const Weights& layer, int i, const ModelOptions& options,
                  const RecurrentSpec& spec) {
    const DecoderSpec& names = spec.decoder;
    const auto norm = [&](std::string_view name) {
      return Norm::load(layer, name, config_.hidden_size, config_.rms_norm_eps, names.norm);
    };
    RecurrentLayer& out = layers_.emplace_back();
    out.mixer_norm = norm(names.attention_in);
    if (!config_.layer(i).recurrent) {
      const Weights attention = layer.sub(names.attention);
      if (config_.mla)
        out.mixer = MlaAttention::load(
            attention, config_, i, {.expandable = options.mla_expandable, .index_hadamard = false});
      else
        out.mixer = GqaAttention::load(attention, config_, i, names.attention_spec);
    } else {
      load_recurrent(layer.sub(spec.recurrent), i, out);
    }
    if (!spec.has_mlp) return;
    out.mlp_norm = norm(names.mlp_in);
    // In files of Kimi-Linear as transformers saves them, the MLP of a dense layer has the name of
    // the others' experts.
    const bool beside_experts =
        layer.has(std::string(names.moe.block) + ".gate_proj.weight", false);
    out.feed_forward =
        FeedForward::load(layer, config_, config_.layer(i), names.moe,
                          beside_experts ? names.moe.block : names.mlp, names.mlp_names);
  }

  void load_recurrent(const Weights& weights, int i, RecurrentLayer& out) const {
    switch (config_.recurrent->kind) {
      case RecurrentKind::kGatedDelta:
      case RecurrentKind::kKeyDelta:
        out.mixer = DeltaNet::load(weights, config_, i);
        break;
      case RecurrentKind::kMamba2:
        out.mixer = Mamba2::load(weights, config_, i);
        break;
      case RecurrentKind::kShortConv:
        out.mixer = GatedConv::load(weights, config_, i);
        break;
    }
  }

  static void mix(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                  const Tensor& cos_sin, const RecurrentLayer& layer, const ops::NormedRows& x,
                  ops::Residual& stream) {
    if (const auto* gqa = std::get_if<GqaAttention>(&layer.mixer))
      gqa->forward(ctx, fb, backend, cos_sin, x, stream);
    else if (const auto* mla = std::get_if<MlaAttention>(&layer.mixer))
      mla->forward(ctx, fb, backend, cos_sin, x, {}, stream);
    else if (const auto* net = std::get_if<DeltaNet>(&layer.mixer))
      net->forward(ctx, fb, backend, x, stream);
    else if (const auto* mamba = std::get_if<Mamba2>(&layer.mixer))
      mamba->forward(ctx, fb, backend, x, stream);
    else
      std::get<GatedConv>(layer.mixer).forward(ctx, fb, backend, x, stream);
  }

  ModelConfig config_;
  LayerRange own_;
  Rotary rotary_;
  DType kv_dtype_{};
  int num_ranks_ = 1;  // that share heads and experts; each computes the recurrent layers whole
  EmbeddingAndHead ends_;
  std::vector<RecurrentLayer> layers_;  // of own_
  WeightStore store_;
};

}  // namespace

std::span<const RecurrentSpec> recurrent_table() {
  return kRecurrentDecoders;
}

std::vector<PageGroupSpec> recurrent_page_groups(const ModelConfig& config, int num_ranks,
                                                 DType dtype) {
  std::vector<PageGroupSpec> groups;
  std::vector<int> recurrent, attending;
  for (int i = 0; i < config.num_layers; ++i)
    (config.layer(i).recurrent ? recurrent : attending).push_back(i);
  if (!config.mla) {
    groups = gqa_page_groups(config, num_ranks, dtype);
  } else if (!attending.empty()) {
    PlaneSpec latent = latent_plane(dtype, config.mla->kv_lora_rank, config.mla->qk_rope_head_dim);
    latent.layers = attending;
    groups.push_back({{.name = "full", .retention = Retention::kFull, .span = 0}, {latent}});
  }
  if (recurrent.empty()) return groups;
  const RecurrentConfig& r = *config.recurrent;
  const std::int64_t keys = std::int64_t{r.num_key_heads} * r.key_head_dim,
                     values = std::int64_t{r.num_value_heads} * r.value_head_dim;
  const std::int64_t channels =
      r.kind == RecurrentKind::kShortConv ? config.hidden_size : 2 * keys + values;
  PageGroupSpec state{{.name = "state", .retention = Retention::kState, .span = 0}, {}};
  const auto keep = [&](std::string_view name, std::int64_t elements) {
    state.planes.push_back({.name = std::string(name),
                            .dtype = DType::kF32,
                            .row_elements = elements,
                            .layers = recurrent});
  };
  keep(kConvPlane, (r.conv_kernel - 1) * channels);
  if (r.kind != RecurrentKind::kShortConv)
    keep(kMatrixPlane,
         ops::recurrent_state_elements(r.num_value_heads, r.key_head_dim, r.value_head_dim));
  groups.push_back(std::move(state));
  return groups;
}

std::unique_ptr<Model> load_recurrent_decoder(WeightLoader& loader, const ModelConfig& config,
                                              const ModelOptions& options, const MoeNames&) {
  const auto spec =
      std::ranges::find(kRecurrentDecoders, config.architecture,
                        [](const RecurrentSpec& row) { return row.decoder.architecture; });
  check(spec != kRecurrentDecoders.end(), "{} has no row in the table of hybrids",
        config.architecture);
  return std::make_unique<RecurrentDecoder>(loader, config, options, *spec);
}

}  // namespace sluice
