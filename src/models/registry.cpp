#include "models/registry.h"

#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "layers/kv_scales.h"
#include "layers/rope.h"
#include "layers/weights/weights.h"
#include "models/decoder.h"
#include "models/deepseek_v2.h"
#include "models/plugin.h"
#include "models/recurrent_decoder.h"
#include "models/state_draft.h"
#include "models/wrapped_names.h"

namespace sluice {
namespace {

using Load = std::unique_ptr<Model> (*)(WeightLoader&, const ModelConfig&, const ModelOptions&,
                                        const MoeNames&);
using IsKnownExtra = bool (*)(const ModelConfig&, std::string_view);

struct Row {
  std::string_view architecture;
  Load load;
  MoeNames moe_names;
  // tensors that files of this family may hold although the model does not use them
  IsKnownExtra is_known_extra;
};

// The layer number in "<prefix><n>. ...", or -1.
int layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  int layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' ? layer : -1;
}

// Known extras of all families. Old exports keep the rotary frequencies and, since GPT-2, the
// causal mask. A tied model may still ship its head. Layers that predict further tokens follow the
// last layer, or have names of their own (ERNIE, MiMo).
bool common_extra(const ModelConfig& config, std::string_view head, std::string_view name) {
  for (const std::string_view end :
       {".rotary_emb.inv_freq", ".attn.bias", ".attention.bias", ".masked_bias"})
    if (name.ends_with(end)) return true;
  const int layer = layer_of(name);
  return (layer >= config.num_layers &&
          layer < config.num_layers + config.num_nextn_predict_layers) ||
         name.starts_with("model.mtp_") || name.starts_with("model.mtp.") ||
         (config.tie_word_embeddings && name.starts_with(head) &&
          name.substr(head.size()) == ".weight");
}

// Some files have an indexer in layers that reuse another layer's choice.
bool deepseek_extra(const ModelConfig& config, std::string_view name) {
  const int layer = layer_of(name);
  if (layer >= 0 && layer < config.num_layers &&
      config.layer(layer).indexer == IndexerRole::kShared &&
      name.find(".self_attn.indexer.") != std::string_view::npos)
    return true;
  return common_extra(config, "lm_head", name);
}

bool decoder_extra(const ModelConfig& config, std::string_view name) {
  return common_extra(config, decoder_spec(config)->ends.head, name);
}

constexpr std::array kRows = {
    Row{"DeepseekV2ForCausalLM", &load_deepseek_v2, kDeepseekMoeNames, &deepseek_extra},
    Row{"DeepseekV3ForCausalLM", &load_deepseek_v2, kDeepseekMoeNames, &deepseek_extra},
    Row{"DeepseekV32ForCausalLM", &load_deepseek_v2, kDeepseekMoeNames, &deepseek_extra},
    Row{"GlmMoeDsaForCausalLM", &load_deepseek_v2, kDeepseekMoeNames, &deepseek_extra},
    Row{"Glm4MoeLiteForCausalLM", &load_deepseek_v2, kDeepseekMoeNames, &deepseek_extra},
};

// Their class has the layer that predicts the token after the next.
constexpr std::array<std::string_view, 4> kDraftArchitectures = {
    "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM",
    "Glm4MoeLiteForCausalLM"};

// Files of Qwen3-Next hold a layer that predicts the token after the next.
bool recurrent_extra(const ModelConfig& config, std::string_view name) {
  return name.starts_with("mtp.") || common_extra(config, "lm_head", name);
}

// The general decoders have their own table.
Row row_of(const ModelConfig& config) {
  for (const Row& row : kRows)
    if (row.architecture == config.architecture) return row;
  for (const DecoderSpec& spec : decoder_table())
    if (spec.architecture == config.architecture)
      return {spec.architecture, &load_decoder, {}, &decoder_extra};
  for (const RecurrentSpec& spec : recurrent_table())
    if (spec.decoder.architecture == config.architecture)
      return {spec.decoder.architecture, &load_recurrent_decoder, {}, &recurrent_extra};
  fail(ErrorKind::kBadInput, "the architecture {} has no model here; known are {}",
       config.architecture, fmt::join(model_architectures(), ", "));
}

// The configuration with rotations that do not depend on the sequence length, unless rope_by_length
// is set.
ModelConfig for_length(const ModelConfig& config, const ModelOptions& options) {
  if (options.rope_by_length) return config;
  ModelConfig served = config;
  const std::int64_t context =
      options.context_length > 0 ? options.context_length : config.max_position_embeddings;
  served.rope = rope_for_context(config.rope, config.max_position_embeddings, context);
  if (config.local_rope)
    served.local_rope =
        rope_for_context(*config.local_rope, config.max_position_embeddings, context);
  return served;
}

// The layers with experts come in the order of the decoder's; those of drafts are behind them.
std::vector<ExpertLayer> numbered(std::vector<ExpertLayer> layers, const ModelConfig& config) {
  std::size_t next = 0;
  for (int i = 0; i < config.num_layers && next < layers.size(); ++i)
    if (config.layer(i).is_moe) layers[next++].number = i;
  for (int i = config.num_layers; next < layers.size(); ++i) layers[next++].number = i;
  return layers;
}

void warn_of_unused(const std::vector<std::string>& unused) {
  constexpr std::size_t kMaxNames = 20;
  if (unused.empty()) return;
  const auto shown =
      unused.begin() + static_cast<std::ptrdiff_t>(std::min(unused.size(), kMaxNames));
  log_warning("{} tensor{} of the checkpoint {} not used: {}{}", unused.size(),
              unused.size() == 1 ? "" : "s", unused.size() == 1 ? "is" : "are",
              fmt::join(unused.begin(), shown, ", "), unused.size() > kMaxNames ? ", ..." : "");
}

}  // namespace

void require_known_dimensions(const ModelConfig& config) {
  const auto at_most = [&](std::string_view name, std::int64_t value, std::int64_t most) {
    require(value <= most, "{}: {} is {}; the kernels take {} at most", config.architecture, name,
            value, most);
  };
  if (config.mla) {
    const MlaConfig& mla = *config.mla;
    at_most("kv_lora_rank", mla.kv_lora_rank, ops::kMaxValueDim);
    at_most("kv_lora_rank + qk_rope_head_dim",
            std::int64_t{mla.kv_lora_rank} + mla.qk_rope_head_dim, ops::kMaxKeyDim);
    at_most("qk_nope_head_dim + qk_rope_head_dim",
            std::int64_t{mla.qk_nope_head_dim} + mla.qk_rope_head_dim, ops::kMaxKeyDim);
    at_most("v_head_dim", mla.v_head_dim, ops::kMaxValueDim);
  } else {
    at_most("head_dim", config.head_dim, ops::kMaxValueDim);
  }
  if (config.indexer) at_most("index_head_dim", config.indexer->head_dim, ops::kMaxKeyDim);
}

std::unique_ptr<Model> load_model(Context& ctx, const ModelConfig& config,
                                  const WeightSource& source, const ModelOptions& options) {
  const Numerics& numerics = options.numerics;
  check(numerics.compute == DType::kF32 || numerics.compute == DType::kBF16 ||
            numerics.compute == DType::kF16,
        "models compute in float32, bfloat16 or float16, not {}", dtype_name(numerics.compute));
  if (config.fallback) return load_foreign_model(ctx, config, source, options);
  require_known_dimensions(config);
  const Row row = row_of(config);
  // Latents have scales of their own.
  if (numerics.kv() == DType::kF8E4M3 && !config.mla) check_kv_scales(source);
  WeightLoader loader(source, numerics, config.dtype, ctx);
  loader.share_experts(options.ep_size, options.expert_maps);
  loader.keep_experts_in(options.shared_experts);
  if (options.feed_forward_ranks) loader.share_feed_forward(*options.feed_forward_ranks);
  const std::optional<WrappedNames> wrapped =
      config.wrapper.empty() ? std::nullopt : find_wrapped_names(source.names());
  if (wrapped) wrapped->rename(loader);
  const ModelConfig served = for_length(config, options);
  std::unique_ptr<Model> model = row.load(loader, served, options, row.moe_names);
  std::map<std::string, int> skipped;  // count by the first part of the name
  warn_of_unused(loader.finish([&](std::string_view name) {
    const std::string plain = wrapped ? wrapped->plain(name) : std::string(name);
    if (!plain.empty()) return row.is_known_extra(served, plain);
    ++skipped[std::string(name.substr(0, name.find('.', name.starts_with("model.") ? 6 : 0)))];
    return true;
  }));
  model->expert_layers = numbered(loader.take_expert_layers(), served);
  for (const auto& [part, count] : skipped)
    log_info("{}: {} tensors of {} are skipped; text is served, images and sound are not",
             config.wrapper, count, part);
  return model;
}

std::vector<MatrixForm> planned_forms(Context& ctx, const ModelConfig& config,
                                      const WeightSource& source, const ModelOptions& options) {
  if (config.fallback) return {};
  require_known_dimensions(config);
  const Row row = row_of(config);
  WeightLoader loader(source, options.numerics, config.dtype, ctx);
  loader.only_plan();
  const std::optional<WrappedNames> wrapped =
      config.wrapper.empty() ? std::nullopt : find_wrapped_names(source.names());
  if (wrapped) wrapped->rename(loader);
  row.load(loader, for_length(config, options), options, row.moe_names);
  loader.require_all();
  return loader.forms();
}

AttentionShape attention_shape(const ModelConfig& config, const ModelOptions& options) {
  const Numerics& numerics = options.numerics;
  AttentionShape shape{
      .num_layers = config.num_layers + (options.draft_layer && config.mla ? 1 : 0),
      .mla = config.mla.has_value(),
      .index_topk = config.indexer ? config.indexer->topk : 0,
      .gemm_dtype = numerics.gemm(),
      .head_dim = config.head_dim,
      .value_dim = config.value_dim(),
      .kv_dtype = numerics.kv(),
      .has_score_mods = config.attention_softcap > 0 || config.positions == PositionKind::kAlibi};
  for (int i = config.fallback ? -1 : config.num_layers - 1; i >= 0; --i) {
    const LayerConfig layer = config.layer(i);
    shape.has_score_mods = shape.has_score_mods || layer.chunk > 0;
    if (!layer.recurrent && config.kv_heads_of(i) > 0)
      shape.group = config.num_heads / config.kv_heads_of(i);
  }
  if (config.mla) {
    shape.latent = config.mla->kv_lora_rank;
    shape.rope = config.mla->qk_rope_head_dim;
  }
  if (config.indexer) {
    shape.index_heads = config.indexer->num_heads;
    shape.index_dim = config.indexer->head_dim;
    shape.index_dtype = numerics.index();
  }
  return shape;
}

std::string draft_layer_refusal(const ModelConfig& config) {
  if (config.fallback ||
      (row_of(config).load != &load_deepseek_v2 && !has_state_draft(config.architecture)))
    return fmt::format(
        "the draft layers of {} are not computed by this version; those of {}, {} are",
        config.architecture, fmt::join(kDraftArchitectures, ", "),
        fmt::join(state_draft_architectures(), ", "));
  if (config.num_nextn_predict_layers < 1 && !may_have_state_draft(config))
    return fmt::format("this {} has no draft layer (num_nextn_predict_layers is {})",
                       config.architecture, config.num_nextn_predict_layers);
  return {};
}

std::vector<std::string_view> model_architectures() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.architecture);
  for (const DecoderSpec& spec : decoder_table()) names.push_back(spec.architecture);
  for (const RecurrentSpec& spec : recurrent_table()) names.push_back(spec.decoder.architecture);
  return names;
}

std::string_view model_file(std::string_view architecture) {
  for (const Row& row : kRows)
    if (row.architecture == architecture) return "deepseek_v2.cpp";
  for (const RecurrentSpec& spec : recurrent_table())
    if (spec.decoder.architecture == architecture) return "recurrent_decoder.cpp";
  return "decoder.cpp";
}

}  // namespace sluice
