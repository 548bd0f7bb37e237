// The Llama-like families: grouped-query attention, then a gated MLP or a mixture of experts.
#pragma once

#include <memory>

#include "layers/moe.h"
#include "models/registry.h"

namespace sluice {

std::unique_ptr<Model> load_llama(WeightLoader& loader, const ModelConfig& config,
                                  const ModelOptions& options, const MoeNames& names);

}  // namespace sluice
