// Properties of DeepSeek configurations, under the names that other engines use.
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

// The draft model that a checkpoint contains (vLLM config/speculative): its next-token-prediction
// layers under their own architecture name. Nothing for other model types, or if the file says that
// there is no such layer.
struct DraftOverride {
  std::string_view model_type;
  std::string_view architecture;
};
std::optional<DraftOverride> draft_override(const ModelConfig& config);

}  // namespace sluice
