#include "models/drafted_model.h"

#include <utility>

#include "base/error.h"
#include "models/dflash.h"
#include "models/eagle3.h"
#include "models/state_draft.h"

namespace sluice {
namespace {

// An ordinary model, which reads tokens alone.
class StandaloneDraft final : public SeparateDraft {
 public:
  StandaloneDraft(std::unique_ptr<Model> model, const ModelConfig& config,
                  const ModelOptions& options, int first_layer)
      : model_(std::move(model)),
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
    model_->forward(ctx, fb, attention, io);
  }

 private:
  const std::unique_ptr<Model> model_;
  const int num_layers_, first_layer_;
  const std::int64_t hidden_size_;
  const DraftShape shape_;
  AttentionShape attention_shape_;
};

class DraftedModel final : public Model {
 public:
  DraftedModel(std::unique_ptr<Model> target, std::unique_ptr<SeparateDraft> draft)
      : target_(std::move(target)), draft_(std::move(draft)) {}

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
  const int first_layer = target_config.num_layers;
  std::unique_ptr<SeparateDraft> loaded;
  require(draft.config.model || target->ends() != nullptr,
          "{} keeps no states for a head that drafts", target_config.architecture);
  if (draft.config.eagle3) {
    loaded = load_eagle3(ctx, *draft.config.eagle3, target_config, *target->ends(), draft.weights,
                         options);
  } else if (draft.config.eagle) {
    loaded = load_eagle(ctx, *draft.config.eagle, target_config, *target->ends(), draft.weights,
                        options);
  } else if (draft.config.dflash) {
    loaded = load_dflash(ctx, *draft.config.dflash, target_config, *target->ends(), draft.weights,
                         options);
  } else {
    ModelOptions of_draft = options;
    of_draft.draft_layer = false;
    loaded = std::make_unique<StandaloneDraft>(
        load_model(ctx, *draft.config.model, draft.weights, of_draft), *draft.config.model,
        of_draft, first_layer);
  }
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
