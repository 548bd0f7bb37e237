// Configurations of models with recurrent layers, as published and as transformers 5 writes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "config/model_config.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kQwen3Next = R"({
  "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "vocab_size": 1000,
  "hidden_size": 2048,
  "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
  "intermediate_size": 5120, "max_position_embeddings": 262144, "rms_norm_eps": 1e-06,
  "partial_rotary_factor": 0.25,
  "rope_theta": 10000000, "rope_scaling": null, "full_attention_interval": 4,
  "linear_conv_kernel_dim": 4,
  "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
  "linear_value_head_dim": 128,
  "decoder_sparse_step": 1, "mlp_only_layers": [], "num_experts": 512, "num_experts_per_tok": 10,
  "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "norm_topk_prob": true})";

constexpr std::string_view kKimiLinear = R"({
  "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "vocab_size": 1000,
  "hidden_size": 2304,
  "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 72,
  "intermediate_size": 9216, "model_max_length": 1048576, "first_k_dense_replace": 1,
  "hidden_act": "silu",
  "kv_lora_rank": 512, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "v_head_dim": 128,
  "mla_use_nope": true, "moe_intermediate_size": 1024, "moe_layer_freq": 1, "moe_renormalize": true,
  "moe_router_activation_func": "sigmoid", "num_expert_group": 1, "num_experts": 256,
  "num_experts_per_token": 8,
  "num_shared_experts": 1, "routed_scaling_factor": 2.446, "topk_group": 1, "use_grouped_topk":
  true,
  "linear_attn_config": {"full_attn_layers": [4, 8], "head_dim": 128, "kda_layers": [1, 2, 3, 5,
  6, 7],
                         "num_heads": 32, "short_conv_kernel_size": 4}})";

constexpr std::string_view kMamba2 = R"({
  "architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "vocab_size": 1000,
  "hidden_size": 2560,
  "num_hidden_layers": 64, "num_heads": 80, "head_dim": 64, "state_size": 128, "n_groups": 1,
  "expand": 2,
  "conv_kernel": 4, "use_conv_bias": true, "use_bias": false, "layer_norm_epsilon": 1e-05,
  "time_step_limit": [0.0, Infinity], "tie_word_embeddings": true})";

constexpr std::string_view kLfm2 = R"({
  "architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "vocab_size": 1000, "hidden_size":
  1024,
  "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8,
  "max_position_embeddings": 128000,
  "norm_eps": 1e-05, "rope_theta": 1000000.0, "conv_L_cache": 3, "conv_bias": false,
  "block_ff_dim": 6656,
  "block_auto_adjust_ff_dim": true, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256,
  "full_attn_idxs": [2], "tie_embedding": true})";

std::vector<int> recurrent_layers(const ModelConfig& config) {
  std::vector<int> layers;
  for (int i = 0; i < config.num_layers; ++i)
    if (config.layer(i).recurrent) layers.push_back(i);
  return layers;
}

std::string error_of(std::string_view text, std::string_view patch) {
  try {
    parse_model_config(text, "config.json", patch);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.what();
    return error.message();
  }
  return "";
}

TEST(RecurrentConfig, Qwen3Next) {
  const ModelConfig config = parse_model_config(kQwen3Next, "config.json");
  EXPECT_EQ(config.recurrent, (RecurrentConfig{.kind = RecurrentKind::kGatedDelta,
                                               .conv_kernel = 4,
                                               .num_key_heads = 16,
                                               .num_value_heads = 32,
                                               .key_head_dim = 128,
                                               .value_head_dim = 128}));
  EXPECT_THAT(recurrent_layers(config), ElementsAre(0, 1, 2, 4, 5, 6));
  EXPECT_EQ(config.rope.rotary_dim, 64);
  EXPECT_TRUE(config.moe->norm_topk_prob);
  EXPECT_TRUE(config.moe->shared_expert_gate);
  const ModelConfig named =
      parse_model_config(kQwen3Next, "config.json", R"({"num_hidden_layers": 2,
      "layer_types": ["full_attention", "linear_attention"]})");
  EXPECT_THAT(recurrent_layers(named), ElementsAre(1));
}

TEST(RecurrentConfig, KimiLinear) {
  const ModelConfig config = parse_model_config(kKimiLinear, "config.json");
  EXPECT_EQ(config.recurrent, (RecurrentConfig{.kind = RecurrentKind::kKeyDelta,
                                               .conv_kernel = 4,
                                               .num_key_heads = 32,
                                               .num_value_heads = 32,
                                               .key_head_dim = 128,
                                               .value_head_dim = 128}));
  EXPECT_THAT(recurrent_layers(config), ElementsAre(0, 1, 2, 4, 5, 6));
  EXPECT_FALSE(config.mla->rotates);
  EXPECT_EQ(config.mla->q_lora_rank, 0);
  EXPECT_EQ(config.max_position_embeddings, 1048576);
  EXPECT_EQ(config.moe->top_k, 8);
  EXPECT_EQ(config.moe->n_group, 1);
  EXPECT_TRUE(config.moe->norm_topk_prob);
  EXPECT_EQ(config.moe->topk_method, TopkMethod::kNoauxTc);
  EXPECT_FALSE(config.layer(0).is_moe);
  EXPECT_TRUE(config.layer(1).is_moe);
  // The file that transformers 5 saves is equivalent.
  ModelConfig saved = parse_model_config(kKimiLinear, "config.json", R"({"linear_attn_config": null,
      "linear_head_dim": 128, "linear_num_heads": 32, "linear_conv_kernel_dim": 4,
      "layer_types": ["linear_attention",
      "linear_attention", "linear_attention", "full_attention", "linear_attention",
      "linear_attention",
      "linear_attention", "full_attention"], "mlp_layer_types": ["dense", "sparse", "sparse",
      "sparse", "sparse",
      "sparse", "sparse", "sparse"]})");
  saved.override_args.clear();
  EXPECT_EQ(saved, config);
}

TEST(RecurrentConfig, Mamba2) {
  const ModelConfig config = parse_model_config(kMamba2, "config.json");
  EXPECT_EQ(config.recurrent, (RecurrentConfig{.kind = RecurrentKind::kMamba2,
                                               .conv_kernel = 4,
                                               .conv_bias = true,
                                               .num_key_heads = 1,
                                               .num_value_heads = 80,
                                               .key_head_dim = 128,
                                               .value_head_dim = 64}));
  EXPECT_EQ(recurrent_layers(config).size(), 64u);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  const ModelConfig bounded =
      parse_model_config(kMamba2, "config.json", R"({"time_step_limit": [0.001, 0.1]})");
  EXPECT_EQ(bounded.recurrent->min_step, 0.001);
  EXPECT_EQ(bounded.recurrent->max_step, 0.1);
}

TEST(RecurrentConfig, Lfm2) {
  const ModelConfig config = parse_model_config(kLfm2, "config.json");
  EXPECT_EQ(config.recurrent->kind, RecurrentKind::kShortConv);
  EXPECT_EQ(config.recurrent->conv_kernel, 3);
  EXPECT_THAT(recurrent_layers(config), ElementsAre(0, 1, 3));
  EXPECT_EQ(config.intermediate_size, 4608);  // 2/3 of 6656, rounded up to 256s
  EXPECT_TRUE(config.tie_word_embeddings);
  const ModelConfig plain =
      parse_model_config(kLfm2, "config.json", R"({"block_auto_adjust_ff_dim": false})");
  EXPECT_EQ(plain.intermediate_size, 6656);
}

TEST(RecurrentConfig, WhatCannotBeIsNamed) {
  const std::tuple<std::string_view, std::string_view, std::string_view> rows[] = {
      {kQwen3Next, R"({"linear_num_key_heads": 5})",
       "must divide linear_num_value_heads, which is 32"},
      {kQwen3Next, R"({"linear_conv_kernel_dim": 9})", "from 2 to 8"},
      {kQwen3Next, R"({"linear_key_head_dim": null})", "linear_key_head_dim"},
      {kKimiLinear, R"({"linear_attn_config": {"full_attn_layers": [9]}})", "from 1 to 8"},
      {kMamba2, R"({"expand": 3})", "expand times hidden_size is 7680"},
      {kMamba2, R"({"time_step_limit": [0.1, 0.01]})", "not above the second"},
      {kMamba2, R"({"time_step_limit": "wide"})", "list of two numbers"},
      {kLfm2, R"({"layer_types": ["conv", "conv", "mamba", "conv"]})", "entry 2 is \"mamba\""},
      {kLfm2, R"({"full_attn_idxs": [4]})", "from 0 to 3"},
  };
  for (const auto& [text, patch, says] : rows)
    EXPECT_THAT(error_of(text, patch), HasSubstr(std::string(says))) << patch;
}

TEST(RecurrentConfig, ExpertsInEveryLayerNeedNoWidthOfADenseMlp) {
  Json json = parse_json_or_throw(kQwen3Next, "test");
  json["architectures"] = {"Qwen3_5MoeForCausalLM"};
  json["model_type"] = "qwen3_5_moe_text";
  json.erase("intermediate_size");
  const ModelConfig config = parse_model_config(dump_json(json), "config.json");
  EXPECT_EQ(config.moe->moe_intermediate_size, 512);
  for (int i = 0; i < config.num_layers; ++i) EXPECT_TRUE(config.layer(i).is_moe);
}

}  // namespace
}  // namespace sluice
