#include "models/registry.h"

#include <fmt/ranges.h>

#include <array>
#include <charconv>

#include "base/error.h"
#include "base/log.h"
#include "models/decoder.h"
#include "models/deepseek_v2.h"
#include "models/hybrid.h"
#include "models/llama.h"
#include "models/plugin.h"

namespace sluice {
namespace {

using Load = std::unique_ptr<Model> (*)(WeightLoader&, const ModelConfig&, const ModelOptions&,
                                        const MoeNames&);
using IsKnownExtra = bool (*)(const ModelConfig&, std::string_view);

struct Row {
  std::string_view architecture;
  Load load;
  MoeNames moe_names;
  IsKnownExtra is_known_extra;  // tensors that files of this family may hold and the model does not use
};

// Old exports keep the rotary frequencies; a tied model may still ship its head.
bool llama_extra(const ModelConfig& config, std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || (config.tie_word_embeddings && name == "lm_head.weight");
}

// The layer number of "model.layers.<n>. ...", or -1.
int layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  int layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' ? layer : -1;
}

// Next-token-prediction layers lie behind the last layer. Some files give an indexer to layers that share
// another's.
bool deepseek_extra(const ModelConfig& config, std::string_view name) {
  const int layer = layer_of(name);
  if (layer >= config.num_layers && layer < config.num_layers + config.num_nextn_predict_layers) return true;
  if (layer >= 0 && layer < config.num_layers && config.layer(layer).indexer == IndexerRole::kShared &&
      name.find(".self_attn.indexer.") != std::string_view::npos)
    return true;
  return llama_extra(config, name);
}

// ERNIE's files carry layers that predict several tokens ahead.
bool ernie_extra(const ModelConfig& config, std::string_view name) {
  return name.starts_with("model.mtp_") || llama_extra(config, name);
}

constexpr std::array kRows = {
    Row{"LlamaForCausalLM", &load_llama, kQwenMoeNames, &llama_extra},
    Row{"MistralForCausalLM", &load_llama, kQwenMoeNames, &llama_extra},
    Row{"Qwen2ForCausalLM", &load_llama, kQwenMoeNames, &llama_extra},
    Row{"Qwen3ForCausalLM", &load_llama, kQwenMoeNames, &llama_extra},
    Row{"MixtralForCausalLM", &load_llama, kMixtralMoeNames, &llama_extra},
    Row{"Qwen2MoeForCausalLM", &load_llama, kQwenMoeNames, &llama_extra},
    Row{"Qwen3MoeForCausalLM", &load_llama, kQwenMoeNames, &llama_extra},
    Row{"Glm4MoeForCausalLM", &load_llama, kDeepseekMoeNames, &deepseek_extra},
    Row{"Ernie4_5_MoeForCausalLM", &load_llama, kErnieMoeNames, &ernie_extra},
    Row{"DeepseekV2ForCausalLM", &load_deepseek_v2, kDeepseekMoeNames, &deepseek_extra},
    Row{"DeepseekV3ForCausalLM", &load_deepseek_v2, kDeepseekMoeNames, &deepseek_extra},
    Row{"DeepseekV32ForCausalLM", &load_deepseek_v2, kDeepseekMoeNames, &deepseek_extra},
    Row{"GlmMoeDsaForCausalLM", &load_deepseek_v2, kDeepseekMoeNames, &deepseek_extra},
    Row{"Glm4MoeLiteForCausalLM", &load_deepseek_v2, kDeepseekMoeNames, &deepseek_extra},
};

// Decoders of the general kind have their own table. Old files of GPT-2's time keep the causal mask as well.
bool decoder_extra(const ModelConfig& config, std::string_view name) {
  if (name.ends_with(".attn.bias") || name.ends_with(".masked_bias") || name.ends_with(".attention.bias")) return true;
  const auto spec = decoder_spec(config);
  // MiMo's files carry layers that predict several tokens ahead.
  return name.starts_with("model.mtp.") || llama_extra(config, name) ||
         (config.tie_word_embeddings && spec && name == std::string(spec->ends.head) + ".weight");
}

// Files of Qwen3-Next carry a layer that predicts the token after the next.
bool hybrid_extra(const ModelConfig& config, std::string_view name) {
  return name.starts_with("mtp.") || llama_extra(config, name);
}

Row row_of(const ModelConfig& config) {
  for (const Row& row : kRows)
    if (row.architecture == config.architecture) return row;
  for (const DecoderSpec& spec : decoder_table())
    if (spec.architecture == config.architecture) return {spec.architecture, &load_decoder, {}, &decoder_extra};
  for (const HybridSpec& spec : hybrid_table())
    if (spec.decoder.architecture == config.architecture)
      return {spec.decoder.architecture, &load_hybrid, {}, &hybrid_extra};
  fail(ErrorKind::kBadInput, "the architecture {} has no model here; known are {}", config.architecture,
       fmt::join(model_architectures(), ", "));
}

void warn_of_unused(const std::vector<std::string>& unused) {
  constexpr std::size_t kMaxNames = 20;
  if (unused.empty()) return;
  const auto shown = unused.begin() + static_cast<std::ptrdiff_t>(std::min(unused.size(), kMaxNames));
  log_warning("{} tensor{} of the checkpoint {} not used: {}{}", unused.size(), unused.size() == 1 ? "" : "s",
              unused.size() == 1 ? "is" : "are", fmt::join(unused.begin(), shown, ", "),
              unused.size() > kMaxNames ? ", ..." : "");
}

}  // namespace

std::unique_ptr<Model> load_model(Context& ctx, const ModelConfig& config, const WeightSource& source,
                                  const ModelOptions& options) {
  require(options.compute == DType::kF32 || options.compute == DType::kBF16 || options.compute == DType::kF16,
          "models compute in float32, bfloat16 or float16, not {}", dtype_name(options.compute));
  if (config.fallback) return load_foreign_model(ctx, config, source, options);
  const bool on_cpu = ctx.device.kind == DeviceKind::kCpu;
  require(on_cpu || options.quantization == ops::WeightLayout::kRows,
          "--quantization int8 and int4 run on a CPU; leave them out, or add --device cpu");
  require(on_cpu || options.kv_stored != DType::kI8,
          "--kv-cache-dtype int8 is for a CPU; give auto, bfloat16 or float32, or add --device cpu");
  const Row row = row_of(config);
  const Numerics numerics = {.compute = options.compute,
                             .quantization = options.quantization,
                             .quantization_group = options.quantization_group,
                             .keep_blocks = options.keep_blocks && on_cpu,
                             .kv_stored = options.kv_stored};
  WeightLoader loader(source, numerics, config.dtype, ctx);
  std::unique_ptr<Model> model = row.load(loader, config, options, row.moe_names);
  warn_of_unused(loader.finish([&](std::string_view name) { return row.is_known_extra(config, name); }));
  return model;
}

AttentionShape attention_shape(const ModelConfig& config, const ModelOptions& options) {
  return {.num_layers = config.num_layers,
          .mla = config.mla.has_value(),
          .index_topk = config.indexer ? config.indexer->topk : 0,
          .gemm_dtype = Numerics{.compute = options.compute}.gemm()};
}

std::vector<std::string_view> model_architectures() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.architecture);
  for (const DecoderSpec& spec : decoder_table()) names.push_back(spec.architecture);
  for (const HybridSpec& spec : hybrid_table()) names.push_back(spec.decoder.architecture);
  return names;
}

std::string_view model_file(std::string_view architecture) {
  for (const Row& row : kRows)
    if (row.architecture == architecture) return row.load == &load_llama ? "llama.cpp" : "deepseek_v2.cpp";
  for (const HybridSpec& spec : hybrid_table())
    if (spec.decoder.architecture == architecture) return "hybrid.cpp";
  return "decoder.cpp";
}

}  // namespace sluice
