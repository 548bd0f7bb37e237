#include <algorithm>
#include <array>

#include "models/decoder_spec.h"

namespace sluice {
namespace {

// Several families share these.
constexpr NormSpec kGemmaNorm{.plus_one = true};
constexpr NormSpec kLayerNorm{.kind = NormKind::kLayer};  // Cohere has no biases
constexpr NormSpec kBiasedLayerNorm{.kind = NormKind::kLayer, .bias = true};
constexpr MlpNames kFusedMlp{.gate_up = "gate_up_proj"};
constexpr EndNames kGptEnds{
    .body = "transformer", .embedding = "wte", .positions = "wpe", .norm = "ln_f"};

void adjust_stablelm(const ModelConfig& config, DecoderSpec& spec) {
  if (config.residual == ResidualForm::kParallelOneNorm) spec.mlp_in = {};
}

// Falcon's layers with two norms use other names for them.
void adjust_falcon(const ModelConfig& config, DecoderSpec& spec) {
  if (config.residual != ResidualForm::kParallelTwoNorms) return;
  spec.attention_in = "ln_attn";
  spec.mlp_in = "ln_mlp";
}

// Sources: the classes of transformers whose names the rows have. A row states its differences from
// Llama.
constexpr std::array kDecoders = {
    DecoderSpec{.architecture = "LlamaForCausalLM"},
    DecoderSpec{.architecture = "MistralForCausalLM"},
    DecoderSpec{.architecture = "Qwen2ForCausalLM"},
    DecoderSpec{.architecture = "MiMoForCausalLM"},
    DecoderSpec{.architecture = "Qwen3ForCausalLM"},
    DecoderSpec{.architecture = "MixtralForCausalLM", .moe = kMixtralMoeNames},
    DecoderSpec{.architecture = "Qwen2MoeForCausalLM"},
    DecoderSpec{.architecture = "Qwen3MoeForCausalLM"},
    DecoderSpec{.architecture = "Glm4MoeForCausalLM", .moe = kDeepseekMoeNames},
    DecoderSpec{.architecture = "Ernie4_5_MoeForCausalLM", .moe = kErnieMoeNames},
    DecoderSpec{.architecture = "GemmaForCausalLM", .norm = kGemmaNorm},
    DecoderSpec{.architecture = "Gemma2ForCausalLM",
                .norm = kGemmaNorm,
                .attention_out = "post_attention_layernorm",
                .mlp_in = "pre_feedforward_layernorm",
                .mlp_out = "post_feedforward_layernorm"},
    DecoderSpec{.architecture = "Gemma3ForCausalLM",
                .norm = kGemmaNorm,
                .attention_out = "post_attention_layernorm",
                .mlp_in = "pre_feedforward_layernorm",
                .mlp_out = "post_feedforward_layernorm",
                .attention_spec = {.head_norm = {.plus_one = true}}},
    DecoderSpec{.architecture = "Phi3ForCausalLM",
                .attention_spec = {.layout = QkvLayout::kRows},
                .mlp_names = kFusedMlp},
    DecoderSpec{.architecture = "CohereForCausalLM",
                .norm = kLayerNorm,
                .mlp_in = {},
                .attention_spec = {.head_norm = {.kind = HeadNormKind::kLayer}}},
    DecoderSpec{.architecture = "Cohere2ForCausalLM", .norm = kLayerNorm, .mlp_in = {}},
    DecoderSpec{.architecture = "OlmoForCausalLM",
                .norm = {.kind = NormKind::kLayer, .has_weight = false}},
    DecoderSpec{.architecture = "Olmo2ForCausalLM",
                .attention_in = {},
                .attention_out = "post_attention_layernorm",
                .mlp_in = {},
                .mlp_out = "post_feedforward_layernorm",
                .attention_spec = {.head_norm = {.kind = HeadNormKind::kRow}}},
    DecoderSpec{.architecture = "Olmo3ForCausalLM",
                .attention_in = {},
                .attention_out = "post_attention_layernorm",
                .mlp_in = {},
                .mlp_out = "post_feedforward_layernorm",
                .attention_spec = {.head_norm = {.kind = HeadNormKind::kRow}}},
    DecoderSpec{.architecture = "GlmForCausalLM", .mlp_names = kFusedMlp},
    DecoderSpec{.architecture = "Glm4ForCausalLM",
                .attention_out = "post_self_attn_layernorm",
                .mlp_out = "post_mlp_layernorm",
                .mlp_names = kFusedMlp},
    DecoderSpec{.architecture = "GraniteForCausalLM"},
    DecoderSpec{.architecture = "StableLmForCausalLM",
                .norm = kBiasedLayerNorm,
                .attention_spec = {.head_norm = {.kind = HeadNormKind::kLayerList,
                                                 .q = "q_layernorm",
                                                 .k = "k_layernorm"}},
                .adjust = &adjust_stablelm},
    DecoderSpec{.architecture = "Starcoder2ForCausalLM",
                .norm = kBiasedLayerNorm,
                .mlp_names = {.up = "c_fc", .down = "c_proj", .gated = false}},
    DecoderSpec{.architecture = "GPT2LMHeadModel",
                .ends = kGptEnds,
                .layers = "h",
                .norm = kBiasedLayerNorm,
                .attention_in = "ln_1",
                .mlp_in = "ln_2",
                .attention = "attn",
                .attention_spec = {.layout = QkvLayout::kRows,
                                   .transposed = true,
                                   .qkv = "c_attn",
                                   .o = "c_proj"},
                .mlp_names = {.up = "c_fc", .down = "c_proj", .gated = false, .transposed = true}},
    DecoderSpec{.architecture = "GPTBigCodeForCausalLM",
                .ends = kGptEnds,
                .layers = "h",
                .norm = kBiasedLayerNorm,
                .attention_in = "ln_1",
                .mlp_in = "ln_2",
                .attention = "attn",
                .attention_spec = {.layout = QkvLayout::kRows, .qkv = "c_attn", .o = "c_proj"},
                .mlp_names = {.up = "c_fc", .down = "c_proj", .gated = false}},
    DecoderSpec{.architecture = "GPTJForCausalLM",
                .ends = {.body = "transformer", .embedding = "wte", .norm = "ln_f"},
                .layers = "h",
                .norm = kBiasedLayerNorm,
                .attention_in = "ln_1",
                .attention = "attn",
                .attention_spec = {.o = "out_proj"},
                .mlp_names = {.up = "fc_in", .down = "fc_out", .gated = false}},
    DecoderSpec{
        .architecture = "GPTNeoXForCausalLM",
        .ends = {.body = "gpt_neox",
                 .embedding = "embed_in",
                 .norm = "final_layer_norm",
                 .head = "embed_out"},
        .norm = kBiasedLayerNorm,
        .attention = "attention",
        .attention_spec = {.layout = QkvLayout::kGroups, .qkv = "query_key_value", .o = "dense"},
        .mlp_names = {.up = "dense_h_to_4h", .down = "dense_4h_to_h", .gated = false}},
    DecoderSpec{.architecture = "OPTForCausalLM",
                .ends = {.body = "model.decoder",
                         .positions = "embed_positions",
                         .position_offset = 2,
                         .norm = "final_layer_norm"},
                .norm = kBiasedLayerNorm,
                .attention_in = "self_attn_layer_norm",
                .mlp_in = "final_layer_norm",
                .attention_spec = {.o = "out_proj"},
                .mlp = {},
                .mlp_names = {.up = "fc1", .down = "fc2", .gated = false}},
    DecoderSpec{
        .architecture = "BloomForCausalLM",
        .ends = {.body = "transformer",
                 .embedding = "word_embeddings",
                 .embedding_norm = "word_embeddings_layernorm",
                 .norm = "ln_f"},
        .layers = "h",
        .norm = kBiasedLayerNorm,
        .attention = "self_attention",
        .attention_spec = {.layout = QkvLayout::kGroups, .qkv = "query_key_value", .o = "dense"},
        .mlp_names = {.up = "dense_h_to_4h", .down = "dense_4h_to_h", .gated = false}},
    DecoderSpec{
        .architecture = "FalconForCausalLM",
        .ends = {.body = "transformer", .embedding = "word_embeddings", .norm = "ln_f"},
        .layers = "h",
        .norm = kBiasedLayerNorm,
        .attention = "self_attention",
        .attention_spec = {.layout = QkvLayout::kGroups, .qkv = "query_key_value", .o = "dense"},
        .mlp_names = {.up = "dense_h_to_4h", .down = "dense_4h_to_h", .gated = false},
        .adjust = &adjust_falcon},
    DecoderSpec{
        .architecture = "PhiForCausalLM",
        .ends = {.norm = "final_layernorm"},
        .norm = kBiasedLayerNorm,
        .attention_spec = {.o = "dense", .head_norm = {.q = "q_layernorm", .k = "k_layernorm"}},
        .mlp_names = {.up = "fc1", .down = "fc2", .gated = false}},
    DecoderSpec{.architecture = "NemotronForCausalLM",
                .norm = {.kind = NormKind::kLayer, .plus_one = true, .bias = true},
                .mlp_names = {.gated = false}},
    DecoderSpec{.architecture = "Exaone4ForCausalLM",
                .attention_in = {},
                .attention_out = "post_attention_layernorm",
                .mlp_in = {},
                .mlp_out = "post_feedforward_layernorm"},
    DecoderSpec{.architecture = "Ernie4_5ForCausalLM"},
    DecoderSpec{.architecture = "SeedOssForCausalLM"},
    DecoderSpec{.architecture = "SmolLM3ForCausalLM"},
    DecoderSpec{.architecture = "HunYuanDenseV1ForCausalLM",
                .attention_spec = {.head_norm = {.after_rope = true,
                                                 .q = "query_layernorm",
                                                 .k = "key_layernorm"}}},
    DecoderSpec{.architecture = "ApertusForCausalLM",
                .attention_in = "attention_layernorm",
                .mlp_in = "feedforward_layernorm",
                .mlp_names = {.gated = false}},
    DecoderSpec{.architecture = "Ministral3ForCausalLM"},
    // Mixtures of experts.
    DecoderSpec{.architecture = "GptOssForCausalLM", .moe = kGptOssMoeNames},
    DecoderSpec{.architecture = "GraniteMoeForCausalLM", .moe = kGraniteMoeNames},
    DecoderSpec{.architecture = "HunYuanMoEV1ForCausalLM",
                .attention_spec = {.head_norm = {.after_rope = true,
                                                 .q = "query_layernorm",
                                                 .k = "key_layernorm"}},
                .moe = kHunyuanMoeNames},
    DecoderSpec{.architecture = "Llama4ForCausalLM",
                .attention_spec = {.head_norm = {.kind = HeadNormKind::kUnit, .after_rope = true}},
                .mlp = "feed_forward",
                .moe = kLlama4MoeNames},
    DecoderSpec{.architecture = "MiMoV2FlashForCausalLM",
                .attention_spec = {.sinks = "attention_sink_bias"},
                .moe = kDeepseekMoeNames},
    DecoderSpec{.architecture = "MiniMaxM2ForCausalLM",
                .attention_spec = {.head_norm = {.kind = HeadNormKind::kRow}},
                .moe = kMinimaxMoeNames},
    DecoderSpec{.architecture = "OlmoeForCausalLM",
                .attention_spec = {.head_norm = {.kind = HeadNormKind::kRow}}},
    DecoderSpec{
        .architecture = "PhimoeForCausalLM", .norm = kBiasedLayerNorm, .moe = kMixtralMoeNames},
};

}  // namespace

std::span<const DecoderSpec> decoder_table() {
  return kDecoders;
}

std::optional<DecoderSpec> decoder_spec(const ModelConfig& config) {
  const auto row = std::find_if(kDecoders.begin(), kDecoders.end(), [&](const DecoderSpec& spec) {
    return spec.architecture == config.architecture;
  });
  if (row == kDecoders.end()) return std::nullopt;
  DecoderSpec spec = *row;
  if (spec.adjust != nullptr) spec.adjust(config, spec);
  return spec;
}

}  // namespace sluice
