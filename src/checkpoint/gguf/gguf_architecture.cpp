#include "checkpoint/gguf/gguf_architecture.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/gguf/gguf_config_writer.h"

namespace sluice {
namespace {

bool has_experts(const GgufFile& file) {
  return file.find_integer(std::string(file.required_string("general.architecture")) +
                           ".expert_count")
             .value_or(0) > 0;
}
bool has_no_experts(const GgufFile& file) {
  return !has_experts(file);
}
bool has_windows(const GgufFile& file) {
  return file.find_integer("olmo2.attention.sliding_window").value_or(0) > 0;
}
bool has_no_windows(const GgufFile& file) {
  return !has_windows(file);
}

constexpr GgufName kEnds[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr GgufName kNames[] = {{"attn_norm", "input_layernorm"},
                               {"ffn_norm", "post_attention_layernorm"},
                               {"post_attention_norm", "post_attention_layernorm"},
                               {"post_ffw_norm", "post_feedforward_layernorm"},
                               {"attn_q", "self_attn.q_proj"},
                               {"attn_k", "self_attn.k_proj"},
                               {"attn_v", "self_attn.v_proj"},
                               {"attn_output", "self_attn.o_proj"},
                               {"attn_q_norm", "self_attn.q_norm"},
                               {"attn_k_norm", "self_attn.k_norm"},
                               {"attn_sinks", "self_attn.sinks", true},
                               {"attn_q_a", "self_attn.q_a_proj"},
                               {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                               {"attn_q_b", "self_attn.q_b_proj"},
                               {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                               {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                               {"attn_kv_b", "self_attn.kv_b_proj"},
                               {"indexer.k_norm", "self_attn.indexer.k_norm"},
                               {"indexer.proj", "self_attn.indexer.weights_proj"},
                               {"indexer.attn_k", "self_attn.indexer.wk"},
                               {"indexer.attn_q_b", "self_attn.indexer.wq_b"},
                               {"nextn.eh_proj", "eh_proj"},
                               {"nextn.enorm", "enorm"},
                               {"nextn.hnorm", "hnorm"},
                               {"nextn.shared_head_norm", "shared_head.norm"},
                               {"nextn.shared_head_head", "shared_head.head"},
                               {"nextn.embed_tokens", "embed_tokens"},
                               {"ffn_gate", "mlp.gate_proj"},
                               {"ffn_up", "mlp.up_proj"},
                               {"ffn_down", "mlp.down_proj"}};

constexpr GgufName kGemmaNames[] = {{"ffn_norm", "pre_feedforward_layernorm"}};
constexpr GgufName kFusedMlp[] = {{"ffn_up", "mlp.gate_up_proj"}};
constexpr GgufName kPhi3Names[] = {{"attn_qkv", "self_attn.qkv_proj"},
                                   {"ffn_up", "mlp.gate_up_proj"}};
constexpr GgufName kGlm4Names[] = {{"post_attention_norm", "post_self_attn_layernorm"},
                                   {"post_ffw_norm", "post_mlp_layernorm"},
                                   {"ffn_up", "mlp.gate_up_proj"}};
constexpr GgufName kStarcoder2Names[] = {{"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}};
constexpr GgufName kHunyuanNames[] = {{"attn_q_norm", "self_attn.query_layernorm"},
                                      {"attn_k_norm", "self_attn.key_layernorm"}};
constexpr GgufName kApertusNames[] = {{"attn_norm", "attention_layernorm"},
                                      {"ffn_norm", "feedforward_layernorm"}};
constexpr GgufName kPhi2Ends[] = {{"output_norm", "model.final_layernorm"}};
constexpr GgufName kPhi2Names[] = {
    {"attn_output", "self_attn.dense"}, {"ffn_up", "mlp.fc1"}, {"ffn_down", "mlp.fc2"}};
constexpr GgufName kGptEnds[] = {{"token_embd", "transformer.wte"},
                                 {"position_embd", "transformer.wpe"},
                                 {"output_norm", "transformer.ln_f"}};
constexpr GgufName kGptNames[] = {{"attn_norm", "ln_1"},       {"ffn_norm", "ln_2"},
                                  {"attn_qkv", "attn.c_attn"}, {"attn_output", "attn.c_proj"},
                                  {"ffn_up", "mlp.c_fc"},      {"ffn_down", "mlp.c_proj"}};
constexpr GgufName kNeoxEnds[] = {{"token_embd", "gpt_neox.embed_in"},
                                  {"output_norm", "gpt_neox.final_layer_norm"},
                                  {"output", "embed_out"}};
constexpr GgufName kNeoxNames[] = {{"attn_qkv", "attention.query_key_value"},
                                   {"attn_output", "attention.dense"},
                                   {"ffn_up", "mlp.dense_h_to_4h"},
                                   {"ffn_down", "mlp.dense_4h_to_h"}};
constexpr GgufName kBloomEnds[] = {{"token_embd", "transformer.word_embeddings"},
                                   {"token_embd_norm", "transformer.word_embeddings_layernorm"},
                                   {"output_norm", "transformer.ln_f"}};
constexpr GgufName kBloomNames[] = {{"attn_qkv", "self_attention.query_key_value"},
                                    {"attn_output", "self_attention.dense"},
                                    {"ffn_up", "mlp.dense_h_to_4h"},
                                    {"ffn_down", "mlp.dense_4h_to_h"}};
// With two norms the files' second one is that of attention.
constexpr GgufName kFalcon2Names[] = {{"attn_norm", "ln_mlp"},
                                      {"attn_norm_2", "ln_attn"},
                                      {"attn_qkv", "self_attention.query_key_value"},
                                      {"attn_output", "self_attention.dense"},
                                      {"ffn_up", "mlp.dense_h_to_4h"},
                                      {"ffn_down", "mlp.dense_4h_to_h"}};
constexpr GgufName kLlama4Names[] = {{"ffn_gate", "feed_forward.gate_proj"},
                                     {"ffn_up", "feed_forward.up_proj"},
                                     {"ffn_down", "feed_forward.down_proj"}};
constexpr GgufName kMimoNames[] = {{"attn_sinks", "self_attn.attention_sink_bias", true}};
constexpr GgufName kQwenLinearNames[] = {
    {"attn_qkv", "linear_attn.in_proj_qkv"}, {"attn_gate", "linear_attn.in_proj_z"},
    {"ssm_alpha", "linear_attn.in_proj_a"},  {"ssm_beta", "linear_attn.in_proj_b"},
    {"ssm_conv1d", "linear_attn.conv1d"},    {"ssm_a", "linear_attn.A_log", true},
    {"ssm_dt", "linear_attn.dt_bias", true}, {"ssm_norm", "linear_attn.norm"},
    {"ssm_out", "linear_attn.out_proj"}};
constexpr GgufName kKimiNames[] = {
    {"ssm_conv1d_q", "self_attn.q_conv1d"}, {"ssm_conv1d_k", "self_attn.k_conv1d"},
    {"ssm_conv1d_v", "self_attn.v_conv1d"}, {"ssm_a", "self_attn.A_log", true},
    {"ssm_dt", "self_attn.dt_bias", true},  {"ssm_beta", "self_attn.b_proj"},
    {"ssm_f_a", "self_attn.f_a_proj"},      {"ssm_f_b", "self_attn.f_b_proj"},
    {"ssm_g_a", "self_attn.g_a_proj"},      {"ssm_g_b", "self_attn.g_b_proj"},
    {"ssm_norm", "self_attn.o_norm"}};
constexpr GgufName kMambaEnds[] = {{"token_embd", "backbone.embeddings"},
                                   {"output_norm", "backbone.norm_f"}};
constexpr GgufName kMambaNames[] = {
    {"attn_norm", "norm"},          {"ssm_in", "mixer.in_proj"},  {"ssm_conv1d", "mixer.conv1d"},
    {"ssm_a", "mixer.A_log", true}, {"ssm_d", "mixer.D", true},   {"ssm_dt", "mixer.dt_bias", true},
    {"ssm_norm", "mixer.norm"},     {"ssm_out", "mixer.out_proj"}};
constexpr GgufName kLfmEnds[] = {{"token_embd_norm", "model.embedding_norm"},
                                 {"output_norm", "model.embedding_norm"}};
constexpr GgufName kLfmNames[] = {
    {"attn_norm", "operator_norm"},           {"ffn_norm", "ffn_norm"},
    {"attn_output", "self_attn.out_proj"},    {"attn_q_norm", "self_attn.q_layernorm"},
    {"attn_k_norm", "self_attn.k_layernorm"}, {"shortconv.conv", "conv.conv"},
    {"shortconv.in_proj", "conv.in_proj"},    {"shortconv.out_proj", "conv.out_proj"},
    {"ffn_gate", "feed_forward.w1"},          {"ffn_up", "feed_forward.w3"},
    {"ffn_down", "feed_forward.w2"}};

constexpr GgufMixture kMixtral{.block = "block_sparse_moe", .expert = {"w1", "w3", "w2"}};
constexpr GgufMixture kSharedExpert{.shared = "shared_expert"};
constexpr GgufMixture kSharedExperts{.shared = "shared_experts"};

// A row says what differs from Llama.
constexpr GgufArchitecture kArchitectures[] = {
    {.name = "llama", .hf = "LlamaForCausalLM", .is_of = has_no_experts, .pairs_rotate = true},
    {.name = "llama",
     .hf = "MixtralForCausalLM",
     .is_of = has_experts,
     .has_experts = true,
     .pairs_rotate = true,
     .mixture = kMixtral,
     .configure = gguf_narrow_experts},
    {.name = "mistral3",
     .hf = "Ministral3ForCausalLM",
     .pairs_rotate = true,
     .configure = gguf_mistral3},
    {.name = "smollm3", .hf = "SmolLM3ForCausalLM", .pairs_rotate = true},
    {.name = "seed_oss", .hf = "SeedOssForCausalLM"},
    {.name = "qwen2", .hf = "Qwen2ForCausalLM"},
    {.name = "qwen3", .hf = "Qwen3ForCausalLM"},
    {.name = "qwen2moe",
     .hf = "Qwen2MoeForCausalLM",
     .has_experts = true,
     .mixture = kSharedExpert,
     .configure = gguf_qwen2moe},
    {.name = "qwen3moe",
     .hf = "Qwen3MoeForCausalLM",
     .has_experts = true,
     .configure = gguf_qwen3moe},
    {.name = "deepseek2",
     .hf = "DeepseekV2ForCausalLM",
     .has_experts = true,
     .mixture = kSharedExperts,
     .configure = gguf_deepseek2},
    {.name = "deepseek32",
     .hf = "DeepseekV32ForCausalLM",
     .has_experts = true,
     .mixture = kSharedExperts,
     .configure = gguf_sparse_attention},
    {.name = "glm-dsa",
     .hf = "GlmMoeDsaForCausalLM",
     .has_experts = true,
     .mixture = kSharedExperts,
     .configure = gguf_sparse_attention},
    {.name = "glm4moe",
     .hf = "Glm4MoeForCausalLM",
     .has_experts = true,
     .mixture = kSharedExperts,
     .configure = gguf_glm4moe},
    {.name = "ernie4_5", .hf = "Ernie4_5ForCausalLM"},
    {.name = "ernie4_5-moe",
     .hf = "Ernie4_5_MoeForCausalLM",
     .has_experts = true,
     .mixture = {.shared = "shared_experts", .correction = "moe_statics.e_score_correction_bias"},
     .configure = gguf_ernie_moe},
    {.name = "gemma", .hf = "GemmaForCausalLM", .adds_one = true},
    {.name = "gemma2",
     .hf = "Gemma2ForCausalLM",
     .adds_one = true,
     .names = kGemmaNames,
     .configure = gguf_gemma2},
    {.name = "gemma3",
     .hf = "Gemma3ForCausalLM",
     .adds_one = true,
     .names = kGemmaNames,
     .configure = gguf_gemma3},
    {.name = "phi2", .hf = "PhiForCausalLM", .ends = kPhi2Ends, .names = kPhi2Names},
    {.name = "phi3",
     .hf = "Phi3ForCausalLM",
     .qkv = GgufQkv::kRows,
     .names = kPhi3Names,
     .configure = gguf_phi3},
    {.name = "phimoe",
     .hf = "PhimoeForCausalLM",
     .has_experts = true,
     .mixture = kMixtral,
     .configure = gguf_phimoe},
    {.name = "command-r", .hf = "CohereForCausalLM", .configure = gguf_cohere},
    {.name = "cohere2", .hf = "Cohere2ForCausalLM", .configure = gguf_cohere},
    {.name = "olmo", .hf = "OlmoForCausalLM", .pairs_rotate = true, .configure = gguf_olmo},
    {.name = "olmo2", .hf = "Olmo2ForCausalLM", .is_of = has_no_windows},
    {.name = "olmo2",
     .hf = "Olmo3ForCausalLM",
     .is_of = has_windows,
     .configure = gguf_write_windows},
    {.name = "olmoe", .hf = "OlmoeForCausalLM", .has_experts = true, .configure = gguf_olmoe},
    {.name = "chatglm", .hf = "GlmForCausalLM", .names = kFusedMlp},
    {.name = "glm4", .hf = "Glm4ForCausalLM", .names = kGlm4Names},
    {.name = "granite",
     .hf = "GraniteForCausalLM",
     .pairs_rotate = true,
     .configure = gguf_granite},
    {.name = "granitemoe",
     .hf = "GraniteMoeForCausalLM",
     .has_experts = true,
     .pairs_rotate = true,
     .mixture = {.block = "block_sparse_moe", .router = "router.layer"},
     .configure = gguf_granite},
    {.name = "stablelm", .hf = "StableLmForCausalLM", .configure = gguf_stablelm},
    {.name = "starcoder2", .hf = "Starcoder2ForCausalLM", .names = kStarcoder2Names},
    {.name = "starcoder",
     .hf = "GPTBigCodeForCausalLM",
     .qkv = GgufQkv::kRows,
     .layers = "transformer.h.",
     .ends = kGptEnds,
     .names = kGptNames,
     .configure = gguf_starcoder},
    {.name = "gpt2",
     .hf = "GPT2LMHeadModel",
     .transposed = true,
     .qkv = GgufQkv::kRows,
     .layers = "transformer.h.",
     .ends = kGptEnds,
     .names = kGptNames},
    {.name = "gptneox",
     .hf = "GPTNeoXForCausalLM",
     .qkv = GgufQkv::kGroups,
     .layers = "gpt_neox.layers.",
     .ends = kNeoxEnds,
     .names = kNeoxNames,
     .configure = gguf_parallel_residual},
    {.name = "bloom",
     .hf = "BloomForCausalLM",
     .qkv = GgufQkv::kGroups,
     .layers = "transformer.h.",
     .ends = kBloomEnds,
     .names = kBloomNames},
    {.name = "falcon",
     .hf = "FalconForCausalLM",
     .is_of = [](const GgufFile& file) { return !gguf_has_part(file, "attn_norm_2.weight"); },
     .qkv = GgufQkv::kGroups,
     .layers = "transformer.h.",
     .ends = kBloomEnds,
     .names = kBloomNames,
     .configure = gguf_falcon},
    {.name = "falcon",
     .hf = "FalconForCausalLM",
     .is_of = [](const GgufFile& file) { return gguf_has_part(file, "attn_norm_2.weight"); },
     .qkv = GgufQkv::kGroups,
     .layers = "transformer.h.",
     .ends = kBloomEnds,
     .names = kFalcon2Names,
     .configure = gguf_falcon},
    {.name = "nemotron", .hf = "NemotronForCausalLM", .adds_one = true},
    {.name = "exaone4", .hf = "Exaone4ForCausalLM", .configure = gguf_exaone4},
    {.name = "hunyuan-dense", .hf = "HunYuanDenseV1ForCausalLM", .names = kHunyuanNames},
    {.name = "hunyuan-moe",
     .hf = "HunYuanMoEV1ForCausalLM",
     .has_experts = true,
     .names = kHunyuanNames,
     .mixture = {.shared = "shared_mlp", .router = "gate.wg"},
     .configure = gguf_narrow_experts},
    {.name = "apertus", .hf = "ApertusForCausalLM", .names = kApertusNames},
    {.name = "gpt-oss",
     .hf = "GptOssForCausalLM",
     .has_experts = true,
     .mixture = {.router = "router"},
     .configure = gguf_gpt_oss},
    {.name = "llama4",
     .hf = "Llama4ForCausalLM",
     .has_experts = true,
     .names = kLlama4Names,
     .mixture = {.block = "feed_forward", .shared = "shared_expert", .router = "router"},
     .configure = gguf_llama4},
    {.name = "mimo2",
     .hf = "MiMoV2FlashForCausalLM",
     .has_experts = true,
     .varies_heads = true,
     .names = kMimoNames,
     .configure = gguf_mimo2},
    {.name = "minimax-m2",
     .hf = "MiniMaxM2ForCausalLM",
     .has_experts = true,
     .mixture = {.block = "block_sparse_moe",
                 .expert = {"w1", "w3", "w2"},
                 .correction = "e_score_correction_bias"},
     .configure = gguf_narrow_experts},
    {.name = "qwen3next",
     .hf = "Qwen3NextForCausalLM",
     .has_experts = true,
     .adds_one = true,
     .names = kQwenLinearNames,
     .mixture = kSharedExpert,
     .configure = gguf_qwen_recurrent},
    {.name = "qwen35",
     .hf = "Qwen3_5ForCausalLM",
     .adds_one = true,
     .tiles_heads = true,
     .names = kQwenLinearNames,
     .configure = gguf_qwen_recurrent},
    {.name = "qwen35moe",
     .hf = "Qwen3_5MoeForCausalLM",
     .has_experts = true,
     .adds_one = true,
     .tiles_heads = true,
     .names = kQwenLinearNames,
     .mixture = kSharedExpert,
     .configure = gguf_qwen_recurrent},
    {.name = "kimi-linear",
     .hf = "KimiLinearForCausalLM",
     .has_experts = true,
     .names = kKimiNames,
     .mixture = {.block = "block_sparse_moe",
                 .expert = {"w1", "w3", "w2"},
                 .shared = "shared_experts"},
     .configure = gguf_kimi_linear},
    {.name = "mamba2",
     .hf = "Mamba2ForCausalLM",
     .layers = "backbone.layers.",
     .ends = kMambaEnds,
     .names = kMambaNames,
     .configure = gguf_mamba2},
    {.name = "lfm2",
     .hf = "Lfm2ForCausalLM",
     .varies_heads = true,
     .ends = kLfmEnds,
     .names = kLfmNames,
     .configure = gguf_lfm2},
};

std::string list_of_architectures() {
  std::vector<std::string_view> names;
  for (const GgufArchitecture& row : kArchitectures)
    if (std::ranges::find(names, row.name) == names.end()) names.push_back(row.name);
  std::ranges::sort(names);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

const GgufArchitecture& gguf_architecture(const GgufFile& file) {
  const std::int64_t part = file.find_integer("split.no").value_or(0);
  require(part == 0,
          "{}: this is part {} of a split file; name its first part, which has the configuration",
          file.name(), part + 1);
  const std::string_view name = file.required_string("general.architecture");
  for (const GgufArchitecture& row : kArchitectures) {
    if (row.name != name || (row.is_of != nullptr && !row.is_of(file))) continue;
    require(row.has_experts <= has_experts(file),
            "{}: {}.expert_count is missing or 0; the architecture {} has experts", file.name(),
            name, name);
    return row;
  }
  fail(ErrorKind::kBadInput,
       "{}: general.architecture is {}, which is not supported; supported are {}", file.name(),
       name.substr(0, 64), list_of_architectures());
}

std::span<const GgufArchitecture> gguf_architectures() {
  return kArchitectures;
}

std::span<const GgufName> gguf_common_ends() {
  return kEnds;
}

std::span<const GgufName> gguf_common_names() {
  return kNames;
}

std::int64_t gguf_columns_of(const GgufFile& file, std::string_view part) {
  const std::string ending = "." + std::string(part) + ".weight";
  for (const GgufTensor& tensor : file.tensors())
    if (tensor.name.starts_with("blk.") && tensor.name.ends_with(ending) &&
        tensor.shape.size() >= 2)
      return tensor.columns();
  return 0;
}

bool gguf_has_part(const GgufFile& file, std::string_view part) {
  const std::string ending = "." + std::string(part);
  return std::ranges::any_of(file.tensors(), [&](const GgufTensor& tensor) {
    return tensor.name.starts_with("blk.") && tensor.name.ends_with(ending);
  });
}

}  // namespace sluice
