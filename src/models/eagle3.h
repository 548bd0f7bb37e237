// EAGLE-3: a head of one or a few decoder layers that drafts from several residual streams of its
// target.
#pragma once

#include <memory>

#include "config/eagle3_config.h"
#include "models/embed_head.h"
#include "models/registry.h"

namespace sluice {

// `target` outlives the head, which takes from it what its own checkpoint lacks: the embedding, the
// head. Its cached rows are the layers behind the target's `target_layers`. Error{kBadInput}: the
// checkpoint lacks a tensor, or a tensor has another shape.
std::unique_ptr<SeparateDraft> load_eagle3(Context& ctx, const Eagle3Config& config,
                                           const ModelConfig& target_config,
                                           const EmbeddingAndHead& target,
                                           const WeightSource& source, const ModelOptions& options);

}  // namespace sluice
