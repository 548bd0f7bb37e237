// Finds the family of a configuration, or the reason why there is none.
#include <algorithm>
#include <cctype>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/config_families.h"

namespace sluice {
namespace {

// Known architectures that are refused: a name or model_type with this `prefix`.
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
    {"Glm5Next", "glm5_next", "hybrid attention with gated delta (KDA) layers",
     "KimiLinearForCausalLM"},
    {"Gemma3n", "gemma3n", "a different block structure", "LlamaForCausalLM"},
    {"Gemma4", "gemma4", "a different block structure", "LlamaForCausalLM"},
    {"Llama4", "llama4", "its language model in a text_config, which is not there",
     "Llama4ForCausalLM"},
    {"MiniMax", "minimax", "linear-attention layers with recurrent state", "Qwen3MoeForCausalLM"},
    {"Jamba", "jamba", "state-space layers with recurrent state", "MixtralForCausalLM"},
    {"Mamba", "mamba", "state-space layers of the first kind", "Mamba2ForCausalLM"},
    {"FalconMamba", "falcon_mamba", "state-space layers of the first kind", "Mamba2ForCausalLM"},
    {"T5", "t5", "an encoder and a decoder; there is no decoder-only path", "LlamaForCausalLM"},
    {"Bart", "bart", "an encoder and a decoder; there is no decoder-only path", "LlamaForCausalLM"},
    {"Whisper", "whisper", "an encoder and a decoder; there is no decoder-only path",
     "LlamaForCausalLM"},
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

// "qwen2_5_vl" for Qwen2_5_VLForConditionalGeneration, in lower case; a model_type stays unchanged.
std::string family_word(std::string_view name) {
  std::string word(name.substr(0, std::min(name.find("For"), name.find("LMHead"))));
  std::ranges::transform(word, word.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word;
}

std::string list_of_architectures() {
  std::string list;
  for (const FamilyDefaults& family : family_table())
    fmt::format_to(std::back_inserter(list), "{}{}", list.empty() ? "" : ", ", family.architecture);
  return list;
}

}  // namespace

const FamilyDefaults* native_family(std::string_view architecture, std::string_view model_type) {
  for (const FamilyDefaults& family : family_table())
    if (architecture.empty() ? family.model_type == model_type
                             : family.architecture == architecture)
      return &family;
  // Files of an embedding model may name the class without a head.
  constexpr std::string_view kBase = "Model", kWithHead = "ForCausalLM";
  if (!architecture.ends_with(kBase)) return nullptr;
  const std::string_view stem = architecture.substr(0, architecture.size() - kBase.size());
  for (const FamilyDefaults& family : family_table())
    if (family.architecture.size() == stem.size() + kWithHead.size() &&
        family.architecture.starts_with(stem) && family.architecture.ends_with(kWithHead))
      return &family;
  return nullptr;
}

const FamilyDefaults& find_family(std::string_view architecture, std::string_view model_type,
                                  bool is_encoder_decoder, bool has_code, std::string_view what) {
  require(
      !architecture.empty() || !model_type.empty(),
      "{}: neither architectures nor model_type is given; one of them must name the model's class",
      what);
  if (const FamilyDefaults* family = native_family(architecture, model_type)) return *family;

  const std::string_view seen = (architecture.empty() ? model_type : architecture).substr(0, 128);
  for (const Refusal& refusal : kRefusals)
    require(!(architecture.empty() ? model_type.starts_with(refusal.model_type)
                                   : architecture.starts_with(refusal.prefix)),
            "{}: the architecture {} is not supported: it has {}. The nearest supported "
            "architecture is {}; "
            "supported: {}",
            what, seen, refusal.reason, refusal.nearest, list_of_architectures());
  require(!is_encoder_decoder,
          "{}: the architecture {} has an encoder and a decoder; only decoder-only models are "
          "supported: {}",
          what, seen, list_of_architectures());
  fail(
      ErrorKind::kBadInput,
      "{}: the architecture {} is not supported{}. The nearest supported name is {}; supported: {}",
      what, seen, has_code ? " (code from a repository is never run)" : "",
      nearest_architecture(seen), list_of_architectures());
}

std::string_view nearest_architecture(std::string_view name) {
  // Names of one family begin alike, so a common beginning counts more than a common end.
  const std::string wanted = family_word(name);
  const auto distance = [&](const FamilyDefaults& f) {
    const std::string own = family_word(f.architecture);
    const auto alike = std::ranges::mismatch(wanted, own).in1 - wanted.begin();
    return edit_distance(wanted, own) - 2 * static_cast<int>(alike);
  };
  const std::span<const FamilyDefaults> families = family_table();
  const auto nearer = [&](const FamilyDefaults& a, const FamilyDefaults& b) {
    return distance(a) < distance(b);
  };
  return std::min_element(families.begin(), families.end(), nearer)->architecture;
}

std::vector<std::string_view> supported_architectures() {
  std::vector<std::string_view> names;
  for (const FamilyDefaults& family : family_table()) names.push_back(family.architecture);
  return names;
}

}  // namespace sluice
