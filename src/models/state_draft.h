// A draft of ordinary decoder layers that read one row: a projection of a token's embedding and a
// state, side by side. Heads of EAGLE-1 and EAGLE-2 are such drafts, and so are draft layers that
// stand in the checkpoint of GLM-4.5, ERNIE-4.5 and MiMo.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "models/embed_head.h"
#include "models/registry.h"

namespace sluice {

// `target` outlives the draft, which takes the head from it, and where its checkpoint has none the
// embedding. Its cached rows are the layers behind the target's. Error{kBadInput}: the checkpoint
// lacks a tensor, or a tensor has another shape.
//
// `layers`: of a head with a checkpoint of its own.
std::unique_ptr<SeparateDraft> load_eagle(Context& ctx, const ModelConfig& layers,
                                          const ModelConfig& target_config,
                                          const EmbeddingAndHead& target,
                                          const WeightSource& source, const ModelOptions& options);

// Whether the draft layer of an architecture is such a draft.
bool has_state_draft(std::string_view architecture);
// Whether a checkpoint may have it, as far as its configuration tells.
bool may_have_state_draft(const ModelConfig& config);
std::vector<std::string_view> state_draft_architectures();
LayerConfig state_draft_layer(const ModelConfig& config);
// The draft layer in the target's own checkpoint, `source`.
std::unique_ptr<SeparateDraft> load_state_draft(Context& ctx, const ModelConfig& config,
                                                const EmbeddingAndHead& target,
                                                const WeightSource& source,
                                                const ModelOptions& options);

}  // namespace sluice
