// The MLA family: DeepSeek-V2, V3, V3.2 and GLM-5.
#pragma once

#include <memory>

#include "layers/moe.h"
#include "models/registry.h"

namespace sluice {

std::unique_ptr<Model> load_deepseek_v2(WeightLoader& loader, const ModelConfig& config,
                                        const ModelOptions& options, const MoeNames& names);

}  // namespace sluice
