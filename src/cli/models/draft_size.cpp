#include "cli/models/draft_size.h"

#include "cli/models/model_size.h"
#include "models/state_draft.h"

namespace sluice {
namespace {

using Count = std::int64_t;

// A head's layers read embedding and state side by side; `fc` reads all states together.
Count matrices_of(const Eagle3Config& head, const ModelConfig& target) {
  const ModelConfig& layers = head.layers;
  const ModelSize size = model_size(layers);
  const Count hidden = layers.hidden_size,
              heads = Count{layers.num_heads} * layers.head_dim +
                      Count{layers.num_kv_heads} * (layers.head_dim + layers.value_dim()),
              // Of a row, the first projections: of queries without a rank of their own all.
      latents = !layers.mla ? 0
                            : layers.mla->kv_lora_rank + layers.mla->qk_rope_head_dim +
                                  (layers.mla->q_lora_rank > 0
                                       ? layers.mla->q_lora_rank
                                       : layers.num_heads * layers.mla->qk_head_dim());
  const auto states = static_cast<Count>(head.target_layers.size());
  return size.attention.matrices + size.dense_mlp.matrices +
         hidden * (layers.mla ? latents : heads) + states * target.hidden_size * hidden +
         head.draft_vocab_size * hidden;
}

// Those of layers from `first` on.
std::vector<PageGroupSpec> groups_from(std::vector<PageGroupSpec> groups, int first) {
  for (PageGroupSpec& group : groups) {
    for (PlaneSpec& plane : group.planes)
      std::erase_if(plane.layers, [&](int layer) { return layer < first; });
    std::erase_if(group.planes, [](const PlaneSpec& plane) { return plane.layers.empty(); });
  }
  std::erase_if(groups, [](const PageGroupSpec& group) { return group.planes.empty(); });
  return groups;
}

}  // namespace

DraftSize draft_size(const Options& options, const ServingPlan& plan, const ModelConfig& target,
                     const std::string& target_directory, const WeightForm& form) {
  const SpeculationOptions& speculation = plan.speculation;
  DraftSize out;
  if (speculation.reads_text()) return out;
  const auto kv_of = [&](const ModelConfig& config) {
    return kv_page_groups(config, plan.numerics().kv(), plan.numerics().index());
  };
  const auto bytes_of = [&](const ModelConfig& config) {
    return form.bytes(model_size(config), config.tie_word_embeddings);
  };
  const std::string name(draft_method_row(speculation.method).name);
  if (speculation.method == DraftMethod::kNextn) {
    ModelConfig longer = target;
    longer.layers.push_back(has_state_draft(target.architecture) ? state_draft_layer(target)
                                                                 : target.layer(target.num_layers));
    ++longer.num_layers;
    const std::optional<StoredMatrices> stored = stored_matrices(plan, target, target_directory);
    const ModelSize layer = layer_size(longer, target.num_layers, stored ? &*stored : nullptr);
    const Count projection = 2 * Count{target.hidden_size} * target.hidden_size;
    out.what = name + "'s layer";
    // A linear layer, which checkpoints leave plain, but for GGUF files.
    const double bits =
        plan.numerics().quantization || form.blocks ? form.linear_bits : form.product_bits;
    out.weight_bytes = form.bytes(layer, target.tie_word_embeddings) +
                       static_cast<Count>(static_cast<double>(projection) * bits / 8);
    out.kept = groups_from(kv_of(longer), target.num_layers);
    return out;
  }
  const NamedDraft draft = find_draft(options, speculation, target, target_directory, false);
  out.what = name + "'s model";
  if (draft.config.eagle3) {
    const Count matrices = matrices_of(*draft.config.eagle3, target);
    out.weight_bytes = static_cast<Count>(static_cast<double>(matrices) * form.product_bits / 8);
    out.kept = kv_of(draft.config.eagle3->layers);
  } else if (draft.config.eagle) {
    const ModelConfig& layers = *draft.config.eagle;
    const ModelSize size = model_size(layers);
    const Count matrices = size.attention.matrices + size.dense_mlp.matrices +
                           2 * Count{layers.hidden_size} * layers.hidden_size;
    out.weight_bytes = static_cast<Count>(static_cast<double>(matrices) * form.product_bits / 8);
    out.kept = kv_of(layers);
  } else if (draft.config.dflash) {
    const ModelConfig& layers = draft.config.dflash->layers;
    const ModelSize size = model_size(layers);
    const auto states = static_cast<Count>(draft.config.dflash->target_layers.size());
    const Count matrices = size.attention.matrices + size.dense_mlp.matrices +
                           states * target.hidden_size * layers.hidden_size;
    out.weight_bytes = static_cast<Count>(static_cast<double>(matrices) * form.product_bits / 8);
    out.kept = kv_of(layers);
  } else {
    out.weight_bytes = bytes_of(*draft.config.model);
    out.kept = kv_of(*draft.config.model);
  }
  return out;
}

}  // namespace sluice
