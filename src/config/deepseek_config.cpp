#include "config/deepseek_config.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr std::string_view kSparse[] = {"DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM",
                                        "DeepseekV3ForCausalLMNextN", "GlmMoeDsaForCausalLM"};
constexpr std::string_view kWithDraft[] = {"deepseek_v3", "deepseek_v32", "glm_moe_dsa"};

template <std::size_t N>
bool among(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

bool is_deepseek_mla(const ModelConfig& config) {
  return config.mla.has_value();
}

bool is_deepseek_nsa(const ModelConfig& config) {
  return config.indexer.has_value() && config.indexer->topk > 0 &&
         among(kSparse, config.architecture);
}

std::optional<DraftOverride> draft_override(const ModelConfig& config) {
  if (!among(kWithDraft, config.model_type) || config.num_nextn_predict_layers == 0)
    return std::nullopt;
  return DraftOverride{"deepseek_mtp", "DeepSeekMTPModel"};
}

}  // namespace sluice
