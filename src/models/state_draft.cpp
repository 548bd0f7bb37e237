// Sources: the EAGLE repository; transformers' MtpModel; FastDeploy's ernie4_5_mtp; MiMo's released
// modelling code.
#include "models/state_draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/log.h"
#include "models/layered_draft.h"
#include "ops/elementwise.h"

namespace sluice {
namespace {

// Names in a checkpoint; empty: the draft has no such part. {} is the number of the target's
// layers.
struct StateDraftNames {
  std::string_view embedding_norm = {}, state_norm = {};
  std::string_view projection;      // of the two, the embedding first
  bool state_first = false;         // the projection reads the state first
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
  bool is_moe = false;     // as the target's mixture layers
  bool is_unsaid = false;  // config.json does not tell whether the checkpoint has it
};

constexpr StateDraftNames kQwenNames = {.embedding_norm = "mtp.pre_fc_norm_embedding",
                                        .state_norm = "mtp.pre_fc_norm_hidden",
                                        .projection = "mtp.fc",
                                        .layers = "mtp.layers.0",
                                        .last_norm = "mtp.norm"};

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
    OwnDraft{.architecture = "MiMoForCausalLM",
             .names = {.embedding_norm = "model.mtp_layers.0.token_layernorm",
                       .state_norm = "model.mtp_layers.0.hidden_layernorm",
                       .projection = "model.mtp_layers.0.input_proj",
                       .state_first = true,
                       .layers = "model.mtp_layers.0",
                       .last_norm = "model.mtp_layers.0.final_layernorm"}},
    OwnDraft{.architecture = "Qwen3NextForCausalLM",
             .names = kQwenNames,
             .is_moe = true,
             .is_unsaid = true},
    OwnDraft{.architecture = "Qwen3_5ForCausalLM", .names = kQwenNames, .is_unsaid = true},
    OwnDraft{.architecture = "Qwen3_5MoeForCausalLM",
             .names = kQwenNames,
             .is_moe = true,
             .is_unsaid = true},
};

const OwnDraft* find_own_draft(std::string_view architecture) {
  const auto found = std::ranges::find(kOwnDrafts, architecture, &OwnDraft::architecture);
  return found == kOwnDrafts.end() ? nullptr : &*found;
}

class StateDraft final : public LayeredDraft {
 public:
  // `number`: what stands for {} in names, but for those of several layers.
  StateDraft(WeightLoader& loader, const StateDraftNames& names, int number,
             const ModelConfig& config, const ModelConfig& target_config,
             const EmbeddingAndHead& target, const ModelOptions& options)
      : LayeredDraft(loader, config, target_config, options),
        target_(target),
        state_first_(names.state_first) {
    const Weights root = loader.root().within_group();
    const std::int64_t hidden = config.hidden_size;
    const auto path = [&](std::string_view name, int n) {
      return fmt::format(fmt::runtime(name), n);
    };
    const auto norm = [&](std::string_view name) {
      return name.empty()
                 ? Norm{}
                 : Norm::load(root, path(name, number), hidden, config.rms_norm_eps, spec().norm);
    };
    const std::string projection = path(names.projection, number);
    require(root.has(projection + ".weight", true),
            "the checkpoint lacks its draft layer ({}); give one that has it, or another method",
            root.path(projection + ".weight"));
    embedding_norm_ = norm(names.embedding_norm);
    state_norm_ = norm(names.state_norm);
    projection_ = Linear::load(root, {{projection, hidden}}, 2 * hidden, Shard::kReplicated,
                               root.has(projection + ".bias", false));
    for (int i = 0; i < config.num_layers; ++i)
      layers_.push_back(load_layer(root.sub(path(names.layers, config.num_layers > 1 ? i : number)),
                                   i, 0, i > 0 || names.first_has_norm));
    states_norm_ = names.target_last_norm ? target.norm : norm(names.last_norm);
    own_embedding_ = load_embedding(root, target);
    finish(loader,
           {.target_width = hidden, .hidden_size = hidden, .vocab_size = target_config.vocab_size},
           options);
  }

 private:
  ops::NormedRows begin(Context& ctx, const ForwardBatch& fb, const DraftIO& io,
                        Rows& rows) const override {
    const Tensor half = rows.stream.branch;
    const std::int64_t hidden = hidden_size(), embedding_at = state_first_ ? hidden : 0,
                       state_at = state_first_ ? 0 : hidden;
    if (own_embedding_.data.defined())
      ops::embedding(ctx, fb.input_ids, own_embedding_, half);
    else
      target_.look_up(ctx, fb.input_ids, half);
    if (embedding_norm_.defined()) embedding_norm_.forward(ctx, half, half);
    ops::convert(ctx, half, rows.both.slice(1, embedding_at, hidden));
    ops::convert(ctx, io.target.defined() ? io.target : io.states, half);
    if (state_norm_.defined()) state_norm_.forward(ctx, half, half);
    ops::convert(ctx, half, rows.both.slice(1, state_at, hidden));
    projection_.forward(ctx, rows.both, rows.stream.hidden);
    const Norm& norm = layers_[0].input_norm;
    return norm.defined() ? norm.of(ctx, rows.stream) : ops::NormedRows(rows.stream.hidden);
  }

  void score(Context& ctx, const Tensor& states, const Tensor& logits) const override {
    target_.score(ctx, states, logits);
  }

  const EmbeddingAndHead& target_;
  bool state_first_;
  Norm embedding_norm_, state_norm_;
  Linear projection_;
  ops::Weight own_embedding_;
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

bool may_have_state_draft(const ModelConfig& config) {
  const OwnDraft* own = find_own_draft(config.architecture);
  return own != nullptr && (own->is_unsaid || config.num_nextn_predict_layers > 0);
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
  loader.share_experts(options.ep_size);
  require(!loader.root().has("mtp.embed_tokens.weight", false),
          "the draft layer has an embedding of its own (mtp.embed_tokens), which is not computed; "
          "serve the model without NEXTN");
  require(!loader.root().has("mtp.layers.1.input_layernorm.weight", false),
          "the checkpoint has several draft layers (mtp.layers.1), of which one is computed; serve "
          "the model without NEXTN");
  auto draft = std::make_unique<StateDraft>(loader, find_own_draft(config.architecture)->names,
                                            config.num_layers, one, config, target, options);
  // The target has read the others.
  (void)loader.finish([](std::string_view) { return true; });
  return draft;
}

}  // namespace sluice
