#include "models/drafted_model.h"

#include <utility>

#include "base/error.h"
#include "base/error_context.h"
#include "models/dflash.h"
#include "models/eagle3.h"
#include "models/state_draft.h"

namespace sluice {
namespace {

// An ordinary model, which reads tokens alone.
class StandaloneDraft final : public SeparateDraft {
 public:
  StandaloneDraft(std::unique_ptr<Model> model, const ModelConfig& config,
                  const ModelOptions& options, int first_layer, bool is_whole)
      : model_(std::move(model)),
        is_whole_(is_whole),
        num_layers_(config.num_layers),
        first_layer_(first_layer),
        hidden_size_(config.hidden_size),
        shape_{.vocab_size = config.vocab_size},
        attention_shape_(sluice::attention_shape(config, options)) {
    attention_shape_.first_layer = first_layer;
  }

  const DraftShape& draft_shape() const override { return shape_; }
  const AttentionShape& attention_shape() const override { return attention_shape_; }
  std::int64_t weight_bytes() const override { return model_->weight_bytes(); }
  std::vector<PageGroupSpec> kv_groups() const override {
    return draft_page_groups(model_->kv_groups(), first_layer_);
  }

  void draft(Context& ctx, const ForwardBatch& fb, AttentionBackend& attention,
             const DraftIO& draft) override {
    if (fb.num_tokens == 0) return;
    Arena::Scope scope(*ctx.arena);
    StageIO io;
    io.layer_end = num_layers_;
    io.only_logits = true;
    io.hidden = ctx.arena->take(DType::kF32, {fb.num_tokens, hidden_size_});
    if (model_->topk_width() > 0)
      io.topk_indices = ctx.arena->take(DType::kI32, {fb.num_tokens, model_->topk_width()});
    io.logits = draft.logits;
    Context own = is_whole_ ? without_ranks(ctx) : ctx;
    model_->forward(own, fb, attention, io);
  }

 private:
  const std::unique_ptr<Model> model_;
  const bool is_whole_;
  const int num_layers_, first_layer_;
  const std::int64_t hidden_size_;
  const DraftShape shape_;
  AttentionShape attention_shape_;
};

class DraftedModel final : public Model {
 public:
  DraftedModel(std::unique_ptr<Model> target, std::unique_ptr<SeparateDraft> draft)
      : target_(std::move(target)), draft_(std::move(draft)) {
    expert_layers = std::move(target_->expert_layers);
  }

  void forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& attention,
               StageIO& io) override {
    target_->forward(ctx, fb, attention, io);
  }
  DraftModel* draft_model() override { return draft_.get(); }
  SeparateDraft* separate_draft() override { return draft_.get(); }
  const EmbeddingAndHead* ends() const override { return target_->ends(); }
  std::vector<PageGroupSpec> kv_groups() const override {
    std::vector<PageGroupSpec> groups = target_->kv_groups();
    // Behind the others, but before states.
    for (PageGroupSpec& group : draft_->kv_groups())
      groups.insert(groups.begin() + num_page_groups(groups), std::move(group));
    return groups;
  }
  std::int64_t weight_bytes() const override {
    return target_->weight_bytes() + draft_->weight_bytes();
  }
  std::int64_t topk_width() const override { return target_->topk_width(); }

 private:
  const std::unique_ptr<Model> target_;
  const std::unique_ptr<SeparateDraft> draft_;  // reads the target's weights
};

}  // namespace

std::vector<PageGroupSpec> draft_page_groups(std::vector<PageGroupSpec> groups, int first_layer) {
  for (PageGroupSpec& group : groups) {
    group.name = "draft-" + group.name;
    for (PlaneSpec& plane : group.planes)
      for (int& layer : plane.layers) layer += first_layer;
  }
  return groups;
}

std::unique_ptr<Model> add_draft(Context& ctx, std::unique_ptr<Model> target,
                                 const ModelConfig& target_config, const DraftSource& draft,
                                 const ModelOptions& options) {
  // Experts of the draft have no places of their own, and its feed-forward layers no other ranks.
  const ModelOptions of_draft{.numerics = options.numerics,
                              .mla_expandable = options.mla_expandable,
                              .context_length = options.context_length,
                              .rope_by_length = options.rope_by_length,
                              .index_hadamard = options.index_hadamard};
  Context own = draft.is_whole ? without_ranks(ctx) : ctx;
  require(draft.config.model || target->ends() != nullptr,
          "{} keeps no states for a head that drafts", target_config.architecture);
  std::unique_ptr<SeparateDraft> loaded =
      saying(draft.name, [&]() -> std::unique_ptr<SeparateDraft> {
        if (draft.config.eagle3)
          return load_eagle3(own, *draft.config.eagle3, target_config, *target->ends(),
                             draft.weights, of_draft);
        if (draft.config.eagle)
          return load_eagle(own, *draft.config.eagle, target_config, *target->ends(), draft.weights,
                            of_draft);
        if (draft.config.dflash)
          return load_dflash(own, *draft.config.dflash, target_config, *target->ends(),
                             draft.weights, of_draft);
        return std::make_unique<StandaloneDraft>(
            load_model(own, *draft.config.model, draft.weights, of_draft), *draft.config.model,
            of_draft, target_config.num_layers, draft.is_whole);
      });
  return std::make_unique<DraftedModel>(std::move(target), std::move(loaded));
}

std::unique_ptr<Model> add_own_draft(Context& ctx, std::unique_ptr<Model> target,
                                     const ModelConfig& config, const WeightSource& source,
                                     const ModelOptions& options) {
  if (!options.draft_layer || !has_state_draft(config.architecture)) return target;
  check(target->ends() != nullptr, "{} keeps no states for its draft layer", config.architecture);
  std::unique_ptr<SeparateDraft> loaded =
      load_state_draft(ctx, config, *target->ends(), source, options);
  return std::make_unique<DraftedModel>(std::move(target), std::move(loaded));
}

}  // namespace sluice
