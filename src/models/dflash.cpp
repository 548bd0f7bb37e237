// Source: the DFlash repository.
#include "models/dflash.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "models/layered_draft.h"

namespace sluice {
namespace {

class Dflash final : public LayeredDraft {
 public:
  Dflash(WeightLoader& loader, const DflashConfig& config, const ModelConfig& target_config,
         const EmbeddingAndHead& target, const ModelOptions& options)
      : LayeredDraft(loader, config.layers, target_config, options), target_(target) {
    require(target.embedding_multiplier == 1 && !target.positions.defined(),
            "a DFlash draft reads the target's embeddings, and those are scaled or have positions");
    const Weights root = loader.root();
    const std::int64_t hidden = hidden_size();
    const std::int64_t width =
        static_cast<std::int64_t>(config.target_layers.size()) * target_config.hidden_size;
    const auto norm = [&](std::string_view name) {
      return Norm::load(root, name, hidden, config.layers.rms_norm_eps, spec().norm);
    };
    projection_ =
        Linear::load(root, {{"fc", hidden}}, width, Shard::kReplicated, root.has("fc.bias", false));
    projection_norm_ = norm("hidden_norm");
    for (int i = 0; i < config.layers.num_layers; ++i)
      layers_.push_back(load_layer(root.sub("layers", i), i));
    states_norm_ = norm("norm");
    finish(loader,
           {.target_width = width,
            .target_layers = config.target_layers,
            .hidden_size = hidden,
            .vocab_size = target_config.vocab_size,
            .block_size = config.block_size,
            .mask_token = config.mask_token},
           options);
  }

  void draft(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
             const DraftIO& io) override {
    if (!io.target.defined()) return LayeredDraft::draft(ctx, fb, backend, io);
    if (fb.num_tokens == 0) return;
    Arena::Scope scope(*ctx.arena);
    const Tensor rows = ctx.arena->take(DType::kF32, {fb.num_tokens, hidden_size()});
    projection_.forward(ctx, io.target, rows);
    projection_norm_.forward(ctx, rows, rows);
    store_keys(ctx, fb, backend, rows);
  }

 private:
  ops::NormedRows begin(Context& ctx, const ForwardBatch& fb, const DraftIO&,
                        Rows& rows) const override {
    target_.look_up(ctx, fb.input_ids, rows.stream.hidden);
    return layers_[0].input_norm.of(ctx, rows.stream);
  }

  void score(Context& ctx, const Tensor& states, const Tensor& logits) const override {
    target_.score(ctx, states, logits);
  }

  const EmbeddingAndHead& target_;
  Linear projection_;     // of the target's states
  Norm projection_norm_;  // of what comes out of it
};

}  // namespace

std::unique_ptr<SeparateDraft> load_dflash(Context& ctx, const DflashConfig& config,
                                           const ModelConfig& target_config,
                                           const EmbeddingAndHead& target,
                                           const WeightSource& source,
                                           const ModelOptions& options) {
  require_known_dimensions(config.layers);
  WeightLoader loader(source, options.numerics, config.layers.dtype, ctx);
  auto draft = std::make_unique<Dflash>(loader, config, target_config, target, options);
  const std::vector<std::string> unused = loader.finish([](std::string_view) { return false; });
  if (!unused.empty())
    log_warning("{} tensors of the draft are not used, {} among them", unused.size(), unused[0]);
  return draft;
}

}  // namespace sluice
