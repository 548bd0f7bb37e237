#include "hub/config_families.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace sluice {
namespace {

// Sources: the `*Config` classes of transformers 5 and, for legal omissions, the published files of each
// family.
constexpr FamilyDefaults kFamilies[] = {
    {.architecture = "LlamaForCausalLM", .model_type = "llama", .bias = BiasRule::kAllByKey},
    {.architecture = "MistralForCausalLM",
     .model_type = "mistral",
     .window = WindowRule::kEveryLayer,
     .sliding_window = 4096},
    {.architecture = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .bias = BiasRule::kQkvAlways,
     .window = WindowRule::kFromLayer,
     .sliding_window = 4096},
    {.architecture = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .head_dim = 128,
     .bias = BiasRule::kAllByKey,
     .qk_norm = true,
     .window = WindowRule::kFromLayer,
     .sliding_window = 4096},
    {.architecture = "MixtralForCausalLM",
     .model_type = "mixtral",
     .rope_theta = 1e6,
     .rms_norm_eps = 1e-5,
     .window = WindowRule::kEveryLayer,
     .moe = MoeRule::kEveryLayer,
     .expert_count_key = "num_local_experts",
     .expert_width_key = "intermediate_size",
     .norm_topk_prob = true,
     .reads_norm_topk_prob = false},
    {.architecture = "Qwen2MoeForCausalLM",
     .model_type = "qwen2_moe",
     .bias = BiasRule::kQkvByKey,
     .window = WindowRule::kFromLayer,
     .sliding_window = 4096,
     .moe = MoeRule::kSparseStep,
     .gated_shared_expert = true},
    // The class knows no max_window_layers: with use_sliding_window every layer slides.
    {.architecture = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .bias = BiasRule::kAllByKey,
     .qk_norm = true,
     .window = WindowRule::kFromLayer,
     .sliding_window = 4096,
     .max_window_layers = 0,
     .moe = MoeRule::kSparseStep},
    {.architecture = "DeepseekV2ForCausalLM",
     .model_type = "deepseek_v2",
     .bias = BiasRule::kAllByKey,
     .mla = true,
     .moe = MoeRule::kFirstDense,
     .num_shared_experts = 2},
    {.architecture = "DeepseekV3ForCausalLM",
     .model_type = "deepseek_v3",
     .bias = BiasRule::kAllByKey,
     .mla = true,
     .indexer = IndexerRule::kIfIndexTopk,
     .moe = MoeRule::kFirstDense,
     .norm_topk_prob = true,
     .routed_scaling_factor = 2.5,
     .scoring = MoeScoring::kSigmoid,
     .topk_method = TopkMethod::kNoauxTc,
     .first_k_dense_replace = 3,
     .num_shared_experts = 1,
     .n_group = 8,
     .topk_group = 4},
    {.architecture = "DeepseekV32ForCausalLM",
     .model_type = "deepseek_v32",
     .bias = BiasRule::kAllByKey,
     .mla = true,
     .indexer = IndexerRule::kAlways,
     .moe = MoeRule::kFirstDense,
     .norm_topk_prob = true,
     .routed_scaling_factor = 2.5,
     .scoring = MoeScoring::kSigmoid,
     .topk_method = TopkMethod::kNoauxTc,
     .first_k_dense_replace = 3,
     .num_shared_experts = 1,
     .n_group = 8,
     .topk_group = 4},
    {.architecture = "GlmMoeDsaForCausalLM",
     .model_type = "glm_moe_dsa",
     .rms_norm_eps = 1e-5,
     .bias = BiasRule::kAllByKey,
     .mla = true,
     .indexer = IndexerRule::kAlways,
     .indexer_rope_interleaved = true,
     .moe = MoeRule::kFirstDense,
     .norm_topk_prob = true,
     .routed_scaling_factor = 2.5,
     .scoring = MoeScoring::kSigmoid,
     .topk_method = TopkMethod::kNoauxTc,
     .first_k_dense_replace = 3,
     .num_shared_experts = 1},
    {.architecture = "Glm4MoeLiteForCausalLM",
     .model_type = "glm4_moe_lite",
     .rms_norm_eps = 1e-5,
     .bias = BiasRule::kAllByKey,
     .mla = true,
     .moe = MoeRule::kFirstDense,
     .norm_topk_prob = true,
     .routed_scaling_factor = 1.8,
     .scoring = MoeScoring::kSigmoid,
     .topk_method = TopkMethod::kNoauxTc,
     .first_k_dense_replace = 1,
     .num_shared_experts = 1},
    {.architecture = "Glm4MoeForCausalLM",
     .model_type = "glm4_moe",
     .rms_norm_eps = 1e-5,
     .partial_rotary_factor = 0.5,
     .bias = BiasRule::kQkvByAttentionBias,
     .qk_norm_by_key = true,
     .moe = MoeRule::kFirstDense,
     .norm_topk_prob = true,
     .scoring = MoeScoring::kSigmoid,
     .topk_method = TopkMethod::kNoauxTc,
     .first_k_dense_replace = 1,
     .num_shared_experts = 1},
    {.architecture = "Ernie4_5_MoeForCausalLM",
     .model_type = "ernie4_5_moe",
     .rope_theta = 500000,
     .rms_norm_eps = 1e-5,
     .tie_word_embeddings = true,
     .rope_interleaved = true,
     .moe = MoeRule::kInterval,
     .expert_count_key = "moe_num_experts",
     .norm_topk_prob = true,
     .reads_norm_topk_prob = false,
     .topk_method = TopkMethod::kNoauxTc,
     .num_shared_experts = 2},
};

// Architectures that are known and refused: a name or model_type that begins with `prefix`.
struct Refusal {
  std::string_view prefix;
  std::string_view model_type;
  std::string_view reason;
  std::string_view nearest;
};
constexpr Refusal kRefusals[] = {
    {"DeepseekV4", "deepseek_v4",
     "square-root-softplus routing, hyper-connection residuals, FP4 experts and another cache",
     "DeepseekV32ForCausalLM"},
    {"Glm5Next", "glm5_next", "hybrid attention with gated delta (KDA) layers", "GlmMoeDsaForCausalLM"},
    {"Qwen3Next", "qwen3_next", "gated delta net layers", "Qwen3MoeForCausalLM"},
    {"Qwen3_5", "qwen3_5", "gated delta net layers", "Qwen3MoeForCausalLM"},
    {"KimiLinear", "kimi_linear", "per-channel gated delta (KDA) layers and MLA without rotation",
     "DeepseekV3ForCausalLM"},
    {"Gemma3n", "gemma3n", "a different block structure", "LlamaForCausalLM"},
    {"Gemma4", "gemma4", "a different block structure", "LlamaForCausalLM"},
    {"Llama4", "llama4", "chunked attention and layers without positions", "LlamaForCausalLM"},
    {"Cohere", "cohere", "a parallel block, LayerNorm and a logit scale", "LlamaForCausalLM"},
    {"MiniMaxM2", "minimax_m2", "q and k norms over the whole row", "Qwen3MoeForCausalLM"},
    {"MiniMax", "minimax", "linear-attention layers with recurrent state", "Qwen3MoeForCausalLM"},
    {"Jamba", "jamba", "state-space layers with recurrent state", "MixtralForCausalLM"},
    {"Mamba", "mamba", "state-space layers with recurrent state", "LlamaForCausalLM"},
    {"FalconMamba", "falcon_mamba", "state-space layers with recurrent state", "LlamaForCausalLM"},
    {"T5", "t5", "an encoder and a decoder; there is no decoder-only path", "LlamaForCausalLM"},
    {"Bart", "bart", "an encoder and a decoder; there is no decoder-only path", "LlamaForCausalLM"},
    {"Whisper", "whisper", "an encoder and a decoder; there is no decoder-only path", "LlamaForCausalLM"},
};

// Levenshtein distance of the first 128 bytes of each.
int edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, 128);
  b = b.substr(0, 128);
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

std::string list_of_architectures() {
  std::string list;
  for (const FamilyDefaults& family : kFamilies)
    fmt::format_to(std::back_inserter(list), "{}{}", list.empty() ? "" : ", ", family.architecture);
  return list;
}

}  // namespace

std::span<const FamilyDefaults> family_table() {
  return kFamilies;
}

const FamilyDefaults& find_family(std::string_view architecture, std::string_view model_type,
                                  bool is_encoder_decoder, std::string_view what) {
  require(!architecture.empty() || !model_type.empty(),
          "{}: neither architectures nor model_type is given; one of them must name the model's class", what);
  for (const FamilyDefaults& family : kFamilies)
    if (architecture.empty() ? family.model_type == model_type : family.architecture == architecture)
      return family;

  const std::string_view seen = (architecture.empty() ? model_type : architecture).substr(0, 128);
  for (const Refusal& refusal : kRefusals)
    require(!(architecture.empty() ? model_type.starts_with(refusal.model_type)
                                   : architecture.starts_with(refusal.prefix)),
            "{}: the architecture {} is not supported: it has {}. The nearest supported architecture is {}; "
            "supported: {}",
            what, seen, refusal.reason, refusal.nearest, list_of_architectures());
  require(!is_encoder_decoder,
          "{}: the architecture {} has an encoder and a decoder; only decoder-only models are supported: {}",
          what, seen, list_of_architectures());
  const FamilyDefaults* nearest = std::min_element(
      std::begin(kFamilies), std::end(kFamilies), [&](const FamilyDefaults& a, const FamilyDefaults& b) {
        const auto name = [&](const FamilyDefaults& f) {
          return architecture.empty() ? f.model_type : f.architecture;
        };
        return edit_distance(seen, name(a)) < edit_distance(seen, name(b));
      });
  fail(ErrorKind::kBadInput,
       "{}: the architecture {} is not supported (code from a repository is never run). The nearest "
       "supported name is {}; "
       "supported: {}",
       what, seen, nearest->architecture, list_of_architectures());
}

std::vector<std::string_view> supported_architectures() {
  std::vector<std::string_view> names;
  for (const FamilyDefaults& family : kFamilies) names.push_back(family.architecture);
  return names;
}

}  // namespace sluice
