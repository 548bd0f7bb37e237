// What engines ask of a configuration of the DeepSeek kind by these names.
#pragma once

#include <optional>
#include <string_view>

#include "config/model_config.h"

namespace sluice {

// Latent attention: queries and keys are nope + rope wide, and the cache holds latent + rope (vLLM
// is_deepseek_mla).
bool is_deepseek_mla(const ModelConfig& config);

// Sparse attention by an indexer: one of these architectures, with index_topk (SGLang
// is_deepseek_nsa).
bool is_deepseek_nsa(const ModelConfig& config);

// The draft that a checkpoint brings with it (vLLM config/speculative): its next-token-prediction
// layers under a name of their own. Nothing for other model types, and where the file says that it
// has no such layer.
struct DraftOverride {
  std::string_view model_type;
  std::string_view architecture;
};
std::optional<DraftOverride> draft_override(const ModelConfig& config);

}  // namespace sluice
