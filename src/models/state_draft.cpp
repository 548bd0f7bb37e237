// Sources: the EAGLE repository; transformers' MtpModel; FastDeploy's ernie4_5_mtp.
#include "models/state_draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "layers/gqa.h"
#include "layers/moe.h"
#include "layers/rope.h"
#include "models/decoder_spec.h"
#include "ops/elementwise.h"
#include "ops/fused.h"

namespace sluice {
namespace {

// Names in a checkpoint; empty: the draft has no such part. {} is the number of the target's
// layers.
struct StateDraftNames {
  std::string_view embedding_norm = {}, state_norm = {};
  std::string_view projection;      // of the two, the embedding first
  std::string_view layers;          // {}: the number of the layer, where there are several
  bool first_has_norm = true;       // a norm before the attention of the first layer
  std::string_view last_norm = {};  // of what the next depth and the head read
  bool target_last_norm = false;    // instead: the target's own
};

constexpr StateDraftNames kEagleNames = {
    .projection = "fc", .layers = "layers.{}", .first_has_norm = false};

struct OwnDraft {
  std::string_view architecture;
  StateDraftNames names;
  bool is_moe = false;  // as the target's mixture layers
};

constexpr std::array kOwnDrafts = {
    OwnDraft{.architecture = "Glm4MoeForCausalLM",
             .names = {.embedding_norm = "model.layers.{}.enorm",
                       .state_norm = "model.layers.{}.hnorm",
                       .projection = "model.layers.{}.eh_proj",
                       .layers = "model.layers.{}",
                       .last_norm = "model.layers.{}.shared_head.norm"},
             .is_moe = true},
    OwnDraft{.architecture = "Ernie4_5_MoeForCausalLM",
             .names = {.embedding_norm = "model.mtp_emb_norm.0",
                       .state_norm = "model.mtp_hidden_norm.0",
                       .projection = "model.mtp_linear_proj.0",
                       .layers = "model.mtp_block.0",
                       .target_last_norm = true}},
};

const OwnDraft* find_own_draft(std::string_view architecture) {
  const auto found = std::ranges::find(kOwnDrafts, architecture, &OwnDraft::architecture);
  return found == kOwnDrafts.end() ? nullptr : &*found;
}

class StateDraft final : public SeparateDraft {
 public:
  // `number`: what stands for {} in names, but for those of several layers.
  StateDraft(WeightLoader& loader, const StateDraftNames& names, int number,
             const ModelConfig& config, const ModelConfig& target_config,
             const EmbeddingAndHead& target, const ModelOptions& options)
      : config_(config),
        rotary_(config.rope, config.max_position_embeddings),
        first_layer_(target_config.num_layers),
        target_(target) {
    const Weights root = loader.root();
    const std::int64_t hidden = config.hidden_size;
    kv_dtype_ = root.numerics().kv();
    rotary_.place(root);
    const std::optional<DecoderSpec> spec = decoder_spec(config);
    check(spec.has_value(), "{} has no row in the table of decoders", config.architecture);
    const auto path = [&](std::string_view name, int n) {
      return fmt::format(fmt::runtime(name), n);
    };
    const auto norm = [&](const Weights& from, std::string_view name) {
      return name.empty() ? Norm{}
                          : Norm::load(from, name, hidden, config.rms_norm_eps, spec->norm);
    };
    const std::string projection = path(names.projection, number);
    require(root.has(projection + ".weight", true), "the checkpoint lacks its draft layer ({})",
            root.path(projection + ".weight"));
    embedding_norm_ = norm(root, path(names.embedding_norm, number));
    state_norm_ = norm(root, path(names.state_norm, number));
    projection_ = Linear::load(root, {{projection, hidden}}, 2 * hidden, Shard::kReplicated,
                               root.has(projection + ".bias", false));
    for (int i = 0; i < config.num_layers; ++i) {
      const Weights layer = root.sub(path(names.layers, config.num_layers > 1 ? i : number));
      layers_.push_back(
          {.input_norm = i > 0 || names.first_has_norm ? norm(layer, spec->attention_in) : Norm{},
           .post_attention_norm = norm(layer, spec->mlp_in),
           .attention =
               GqaAttention::load(layer.sub(spec->attention), config, i, spec->attention_spec),
           .feed_forward = FeedForward::load(layer, config, config.layer(i), spec->moe, spec->mlp,
                                             spec->mlp_names)});
    }
    last_norm_ = names.target_last_norm ? target.norm : norm(root, path(names.last_norm, number));
    if (root.has("embed_tokens.weight", false)) {
      own_embedding_ =
          root.matrix({{"embed_tokens", target_config.vocab_size}}, hidden, Shard::kReplicated);
    } else {
      require(target.embedding_multiplier == 1 && !target.positions.defined(),
              "the draft's checkpoint has no embed_tokens.weight, and the target's embeddings are "
              "scaled or have positions");
    }
    shape_ = {
        .target_width = hidden, .hidden_size = hidden, .vocab_size = target_config.vocab_size};
    attention_shape_ = sluice::attention_shape(config, options);
    attention_shape_.num_layers = config.num_layers;
    attention_shape_.first_layer = first_layer_;
    store_ = loader.take_store();
  }

  const DraftShape& draft_shape() const override { return shape_; }
  const AttentionShape& attention_shape() const override { return attention_shape_; }
  std::int64_t weight_bytes() const override { return store_.bytes(); }
  std::vector<PageGroupSpec> kv_groups() const override {
    return draft_page_groups(gqa_page_groups(config_, 1, kv_dtype_), first_layer_);
  }

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
    ops::Residual stream{.hidden = take(hidden), .branch = take(hidden)};
    const Tensor both = take(2 * hidden), half = stream.branch;
    if (own_embedding_.data.defined())
      ops::embedding(ctx, fb.input_ids, own_embedding_, half);
    else
      target_.look_up(ctx, fb.input_ids, half);
    if (embedding_norm_.defined()) embedding_norm_.forward(ctx, half, half);
    ops::convert(ctx, half, both.slice(1, 0, hidden));
    ops::convert(ctx, io.target.defined() ? io.target : io.states, half);
    if (state_norm_.defined()) state_norm_.forward(ctx, half, half);
    ops::convert(ctx, half, both.slice(1, hidden, hidden));
    projection_.forward(ctx, both, stream.hidden);
    for (const Layer& layer : layers_) {
      layer.attention.forward(ctx, fb, backend, cos_sin,
                              layer.input_norm.defined() ? layer.input_norm.of(ctx, stream)
                                                         : ops::NormedRows(stream.hidden),
                              stream);
      layer.feed_forward.forward(ctx, layer.post_attention_norm.of(ctx, stream), stream);
    }
    ops::add_branch(ctx, stream);
    if (last_norm_.defined())
      last_norm_.forward(ctx, stream.hidden, io.states);
    else
      ops::convert(ctx, stream.hidden, io.states);
    const std::int64_t num_logits = fb.logit_rows.dim(0);
    if (num_logits == 0) return;
    const Tensor chosen = ctx.arena->take(DType::kF32, {num_logits, hidden});
    ops::gather_rows(ctx, io.states, fb.logit_rows, chosen);
    target_.score(ctx, chosen, io.logits);
  }

 private:
  struct Layer {
    Norm input_norm, post_attention_norm;
    GqaAttention attention;
    FeedForward feed_forward;
  };

  const ModelConfig config_;  // of the draft's layers
  Rotary rotary_;
  const int first_layer_;
  const EmbeddingAndHead& target_;
  DType kv_dtype_{};
  Norm embedding_norm_, state_norm_, last_norm_;
  Linear projection_;
  std::vector<Layer> layers_;
  ops::Weight own_embedding_;
  DraftShape shape_;
  AttentionShape attention_shape_;
  WeightStore store_;
};

}  // namespace

std::unique_ptr<SeparateDraft> load_eagle(Context& ctx, const ModelConfig& layers,
                                          const ModelConfig& target_config,
                                          const EmbeddingAndHead& target,
                                          const WeightSource& source, const ModelOptions& options) {
  require_known_dimensions(layers);
  WeightLoader loader(source, options.numerics, layers.dtype, ctx);
  auto draft =
      std::make_unique<StateDraft>(loader, kEagleNames, 0, layers, target_config, target, options);
  const std::vector<std::string> unused = loader.finish([](std::string_view) { return false; });
  if (!unused.empty())
    log_warning("{} tensors of the draft are not used, {} among them", unused.size(), unused[0]);
  return draft;
}

bool has_state_draft(std::string_view architecture) {
  return find_own_draft(architecture) != nullptr;
}

std::vector<std::string_view> state_draft_architectures() {
  std::vector<std::string_view> names;
  for (const OwnDraft& row : kOwnDrafts) names.push_back(row.architecture);
  return names;
}

LayerConfig state_draft_layer(const ModelConfig& config) {
  const OwnDraft* own = find_own_draft(config.architecture);
  check(own != nullptr, "{} has no draft layer of this kind", config.architecture);
  return {.window = 0, .is_moe = own->is_moe};
}

std::unique_ptr<SeparateDraft> load_state_draft(Context& ctx, const ModelConfig& config,
                                                const EmbeddingAndHead& target,
                                                const WeightSource& source,
                                                const ModelOptions& options) {
  ModelConfig one = config;
  one.num_layers = 1;
  one.layers = {state_draft_layer(config)};
  WeightLoader loader(source, options.numerics, config.dtype, ctx);
  auto draft = std::make_unique<StateDraft>(loader, find_own_draft(config.architecture)->names,
                                            config.num_layers, one, config, target, options);
  // The target has read the others.
  (void)loader.finish([](std::string_view) { return true; });
  return draft;
}

}  // namespace sluice
