// DFlash: decoder layers that draft a block of tokens in one pass.
//
// A slot's keys and values come from the target's state of its position, by every layer's own
// projections. The known token and masks behind it are the queries; each sees all slots and the
// whole block.
#pragma once

#include <memory>

#include "config/dflash_config.h"
#include "models/embed_head.h"
#include "models/registry.h"

namespace sluice {

// `target` outlives the draft, which reads its embedding and its head. Error{kBadInput}: the
// checkpoint lacks a tensor, or a tensor has another shape.
std::unique_ptr<SeparateDraft> load_dflash(Context& ctx, const DflashConfig& config,
                                           const ModelConfig& target_config,
                                           const EmbeddingAndHead& target,
                                           const WeightSource& source, const ModelOptions& options);

}  // namespace sluice
