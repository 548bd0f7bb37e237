// Defaults of mixtures that only the classes state, and the spellings of published files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "config/model_config.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// A small model of `architecture` with `more` keys beside the sizes, and `changes` laid over it.
ModelConfig read(std::string_view architecture, std::string_view more,
                 std::string_view changes = {}) {
  return parse_model_config(
      fmt::format(R"({{"architectures": ["{}"], "vocab_size": 100, "hidden_size": 64,
      "num_hidden_layers": 12, "num_attention_heads": 8, "num_key_value_heads": 2,
      "intermediate_size": 48,
      "max_position_embeddings": 4096, {}}})",
                  architecture, more),
      "config.json", changes);
}

std::string error_of(std::string_view architecture, std::string_view more,
                     std::string_view changes = {}) {
  try {
    read(architecture, more, changes);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.message();
  }
  return {};
}

TEST(MixtureConfig, GptOss) {
  const ModelConfig c =
      read("GptOssForCausalLM", R"("num_local_experts": 32, "num_experts_per_tok": 4)");
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_TRUE(c.qkv_bias && c.o_bias);
  EXPECT_EQ(c.moe->moe_intermediate_size, 48);
  EXPECT_EQ(c.moe->swiglu_limit, 7);
  EXPECT_EQ(c.moe->swiglu_alpha, 1.702);
  EXPECT_TRUE(c.moe->norm_topk_prob);
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(c.layer(i).window, i % 2 == 0 ? 128 : 0) << i;
    EXPECT_TRUE(c.layer(i).sinks && c.layer(i).is_moe) << i;
  }
}

TEST(MixtureConfig, Llama4) {
  const std::string experts =
      R"("num_local_experts": 16, "num_experts_per_tok": 1, "intermediate_size_mlp": 96)";
  const ModelConfig c = read("Llama4ForCausalLM", experts + R"(, "interleave_moe_layer_step": 2)");
  EXPECT_EQ(c.intermediate_size, 96);
  EXPECT_EQ(c.moe->moe_intermediate_size, 48);
  EXPECT_EQ(c.moe->shared_expert_intermediate_size, 48);
  EXPECT_TRUE(c.moe->weigh_input && c.qk_norm && c.rope.interleaved);
  EXPECT_EQ(*c.query_scaling,
            (QueryScaling{.beta = 0.1, .length = 8192, .offset = 1, .unrotated_only = true}));
  for (int i = 0; i < 12; ++i) {
    const bool rotates = i % 4 != 3;
    EXPECT_EQ(c.layer(i).rope, rotates ? LayerRope::kMain : LayerRope::kNone) << i;
    EXPECT_EQ(c.layer(i).chunk, rotates ? 8192 : 0) << i;
    EXPECT_EQ(c.layer(i).is_moe, i % 2 == 1) << i;
  }
  const ModelConfig listed =
      read("Llama4ForCausalLM", experts + R"(, "moe_layers": [0, 5], "attention_chunk_size": null,
      "attn_temperature_tuning": false, "use_qk_norm": false)");
  EXPECT_TRUE(listed.layer(0).is_moe && listed.layer(5).is_moe && !listed.layer(1).is_moe);
  EXPECT_EQ(listed.layer(0).chunk, 0);
  EXPECT_FALSE(listed.query_scaling || listed.qk_norm);
  EXPECT_THAT(
      error_of("Llama4ForCausalLM",
               experts + R"(, "layer_types": ["a","a","a","a","a","a","a","a","a","a","a","a"])"),
      HasSubstr("chunked_attention"));
}

TEST(MixtureConfig, MimoHasTwiceTheKeyHeadsWhereAWindowIs) {
  const std::string experts =
      R"("n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16)";
  const ModelConfig c =
      read("MiMoV2FlashForCausalLM", experts + R"(, "routed_scaling_factor": null)");
  EXPECT_EQ(c.head_dim, 192);
  EXPECT_EQ(c.value_dim(), 128);
  EXPECT_EQ(c.value_scale, 0.707);
  EXPECT_EQ(c.rope.rotary_dim, 64);
  EXPECT_EQ(c.rope.theta, 5e6);
  EXPECT_EQ(c.local_rope->theta, 10000);
  EXPECT_EQ(c.moe->routed_scaling_factor, 1);
  EXPECT_EQ(c.moe->num_shared_experts, 0);
  for (int i = 0; i < 12; ++i) {
    const bool full = i == 0 || i == 5 || i == 11;
    EXPECT_EQ(c.layer(i).window, full ? 0 : 129) << i;
    EXPECT_EQ(c.kv_heads_of(i), full ? 2 : 4) << i;
    EXPECT_EQ(c.layer(i).sinks, !full) << i;
    EXPECT_EQ(c.layer(i).rope, full ? LayerRope::kMain : LayerRope::kLocal) << i;
    EXPECT_EQ(c.layer(i).is_moe, i > 0) << i;
  }
  EXPECT_EQ(
      read("MiMoV2FlashForCausalLM", experts + R"(, "sliding_window_size": 128)").layer(1).window,
      129);
}

// The spelling of the published file.
TEST(MixtureConfig, MimoByItsOwnKeys) {
  const std::string keys =
      R"("n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
      "n_shared_experts": null, "layernorm_epsilon": 3e-5, "moe_layer_freq": [0, 1, 1, 1, 0, 1,
      1, 1, 1, 1, 1, 1],
      "hybrid_layer_pattern": [0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1], "sliding_window": 128,
      "sliding_window_size": 128,
      "attention_chunk_size": 128, "swa_num_attention_heads": 8, "swa_num_key_value_heads": 8,
      "swa_head_dim": 192,
      "swa_v_head_dim": 128, "swa_rope_theta": 20000, "rope_theta": 6000000, "scoring_func":
      "sigmoid",
      "add_swa_attention_sink_bias": true, "add_full_attention_sink_bias": false)";
  const ModelConfig c = read("MiMoV2FlashForCausalLM", keys);
  EXPECT_EQ(c.rms_norm_eps, 3e-5);
  EXPECT_EQ(c.rope.theta, 6e6);
  EXPECT_EQ(c.local_rope->theta, 20000);
  for (int i = 0; i < 12; ++i) {
    const bool full = i == 0 || i == 3;
    EXPECT_EQ(c.layer(i).window, full ? 0 : 129) << i;
    EXPECT_EQ(c.kv_heads_of(i), full ? 2 : 8) << i;
    EXPECT_EQ(c.layer(i).sinks, !full) << i;
    EXPECT_EQ(c.layer(i).chunk, 0) << i;
    EXPECT_EQ(c.layer(i).is_moe, i != 0 && i != 4) << i;
  }
  EXPECT_TRUE(read("MiMoV2FlashForCausalLM", keys, R"({"add_full_attention_sink_bias": true})")
                  .layer(0)
                  .sinks);
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"hybrid_layer_pattern": [0, 1]})",
       "hybrid_layer_pattern is array of 2 entries; it must have 12 entries"},
      {R"({"hybrid_layer_pattern": [0, 1, 2]})", "hybrid_layer_pattern"},
      {R"({"moe_layer_freq": [0, 1]})",
       "moe_layer_freq is array of 2 entries; it must be a step, or have 12 entries"},
      {R"({"swa_num_attention_heads": 4})",
       "swa_num_attention_heads is 4; layers with a window must have 8"},
      {R"({"swa_head_dim": 64})", "swa_head_dim is 64; layers with a window must have 192"},
      {R"({"swa_num_key_value_heads": 3})", "layers with a window have 3 key heads"},
      {R"({"swa_num_key_value_heads": 0})",
       "swa_num_key_value_heads is 0; it must be an integer from 1"}};
  for (const auto& [more, message] : wrong)
    EXPECT_THAT(error_of("MiMoV2FlashForCausalLM", keys, more), HasSubstr(message));
}

TEST(MixtureConfig, RotationsByFixedNumbers) {
  const std::string hunyuan =
      R"("moe_topk": 2, "num_experts": 4, "head_dim": 16, "rope_theta": 10000, "rope_scaling": )";
  const ModelConfig c = read(
      "HunYuanMoEV1ForCausalLM",
      hunyuan +
          R"({"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "mscale": 1.0, "beta_fast": 32})");
  EXPECT_EQ(c.rope.type, RopeType::kDefault);
  EXPECT_DOUBLE_EQ(c.rope.theta, 10000 * std::pow(1000.0, 16.0 / 14));
  // Without alpha the type means dynamic; other families know no alpha.
  EXPECT_EQ(
      read("HunYuanMoEV1ForCausalLM", hunyuan + R"({"type": "dynamic", "factor": 2.0})").rope.type,
      RopeType::kDynamic);
  EXPECT_EQ(read("OlmoeForCausalLM", R"("num_experts": 4, "num_experts_per_tok": 2, "rope_scaling":
      {"type": "dynamic", "factor": 2.0, "alpha": 4.0})")
                .rope.type,
            RopeType::kDynamic);
  EXPECT_THAT(error_of("HunYuanMoEV1ForCausalLM", hunyuan + R"({"type": "dynamic", "alpha": 0})"),
              HasSubstr("rope_scaling.alpha is 0; it must be a number from"));

  // The name in the published files.
  const std::string phimoe =
      R"("num_local_experts": 4, "num_experts_per_tok": 2, "lm_head_bias": true, "rope_scaling":
      {"type": "longrope", "original_max_position_embeddings": 1024, "short_factor": [1, 1, 1, 1],
       "long_factor": [2, 3, 4, 5], "short_mscale": 1.25)";
  const ModelConfig p = read("PhiMoEForCausalLM", phimoe + R"(, "long_mscale": 1.5})");
  EXPECT_EQ(p.architecture, "PhimoeForCausalLM");
  EXPECT_TRUE(p.head_bias);
  EXPECT_EQ(p.rope.short_mscale, 1.25);
  EXPECT_EQ(p.rope.long_mscale, 1.5);
  EXPECT_THAT(
      error_of("PhiMoEForCausalLM", phimoe + "}"),
      HasSubstr(
          "rope_scaling.long_mscale is missing; short_mscale and long_mscale stand together"));
}

// The language model of a multimodal checkpoint, in the published form.
TEST(MixtureConfig, Llama4InItsWrapper) {
  const std::string text =
      R"({"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4",
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vision_config": {"hidden_size":
      8}, "text_config": {
      %s "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
      "num_key_value_heads": 2,
      "intermediate_size": 48, "intermediate_size_mlp": 96, "max_position_embeddings": 4096,
      "num_local_experts": 16,
      "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "no_rope_layers": [],
      "rope_scaling": {"rope_type": "llama3",
      "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0001,
      "original_max_position_embeddings": 1024}}})";
  for (const std::string type : {R"("model_type": "llama4_text",)", ""}) {
    std::string json = text;
    json.replace(json.find("%s"), 2, type);
    const ModelConfig c = parse_model_config(json, "config.json");
    EXPECT_EQ(c.wrapper, "Llama4ForConditionalGeneration");
    EXPECT_EQ(c.architecture, "Llama4ForCausalLM");
    EXPECT_EQ(c.rope.type, RopeType::kLlama3);
    EXPECT_EQ(c.intermediate_size, 96);
    EXPECT_EQ(c.dtype, DType::kBF16);
    EXPECT_EQ(c.layer(3).rope, LayerRope::kNone);
  }
}

TEST(MixtureConfig, RoutersAndSharedExperts) {
  const ModelConfig ernie =
      read("Ernie4_5_MoeForCausalLM", R"("moe_num_experts": 6, "moe_k": 2, "moe_layer_end_index": 8,
      "moe_intermediate_size": 16, "moe_layer_interval": 2)");
  EXPECT_EQ(ernie.moe->topk_norm_min, 1e-12);
  EXPECT_EQ(ernie.moe->shared_expert_intermediate_size, 32);
  EXPECT_TRUE(ernie.tie_word_embeddings);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(ernie.layer(i).is_moe, i % 2 == 1 && i <= 8) << i;

  const std::string lists = R"("moe_topk": [3,3,3,3,3,3,3,3,3,3,3,3], "num_experts": 4)";
  const ModelConfig hunyuan = read("HunYuanMoEV1ForCausalLM", lists);
  EXPECT_EQ(hunyuan.moe->top_k, 3);
  EXPECT_EQ(hunyuan.moe->shared_expert_intermediate_size, 48);
  EXPECT_THAT(error_of("HunYuanMoEV1ForCausalLM", R"("moe_topk": [3, 2], "num_experts": 4)"),
              HasSubstr("equal"));

  const ModelConfig phimoe =
      read("PhimoeForCausalLM", R"("num_local_experts": 4, "num_experts_per_tok": 3)");
  EXPECT_EQ(phimoe.moe->top_k, 2);  // whatever the file says
  EXPECT_EQ(phimoe.moe->mixer_eps, 0.01);

  const ModelConfig minimax =
      read("MiniMaxM2ForCausalLM", R"("num_local_experts": 8, "num_experts_per_tok": 3,
      "rotary_dim": 64)");
  EXPECT_EQ(minimax.rope.rotary_dim, 64);
  EXPECT_EQ(minimax.head_dim, 128);
  EXPECT_EQ(minimax.moe->topk_method, TopkMethod::kNoauxTc);
  EXPECT_EQ(minimax.moe->scoring, RouterScoring::kSigmoid);

  const ModelConfig granite =
      read("GraniteMoeForCausalLM", R"("num_local_experts": 8, "num_experts_per_tok": 3,
      "attention_multiplier": 0.25, "logits_scaling": 4, "residual_multiplier": 0.5,
      "embedding_multiplier": 12)");
  EXPECT_EQ(granite.attention_scale, 0.25);
  EXPECT_EQ(granite.logit_scale, 0.25);
}

}  // namespace
}  // namespace sluice
