#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "base/error.h"
#include "base/testing/folder.h"
#include "checkpoint/gguf/gguf_rope.h"
#include "checkpoint/load_config.h"
#include "checkpoint/testing/gguf_writer.h"
#include "config/model_config.h"

namespace sluice {
namespace {

using std::uint32_t;

ModelConfig config_of(const GgufWriter& writer, std::string_view override_args = {}) {
  const TestFolder folder;
  folder.write("x.gguf", writer.bytes());
  return load_model_config(folder.path() + "/x.gguf", override_args);
}

std::string refusal(const GgufWriter& writer) {
  try {
    config_of(writer);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.what();
    return error.message();
  }
  return "";
}

GgufWriter model(const std::string& arch) {
  GgufWriter writer;
  writer.text("general.architecture", arch).number(arch + ".block_count", uint32_t{2});
  writer.number(arch + ".context_length", uint32_t{4096})
      .number(arch + ".embedding_length", uint32_t{64});
  writer.number(arch + ".feed_forward_length", uint32_t{96})
      .number(arch + ".attention.head_count", uint32_t{4});
  writer.number(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  writer.tensor("token_embd.weight", {10, 64}, 1, std::string(10 * 64 * 2, '\0'));
  return writer;
}

GgufWriter with_output(GgufWriter writer) {
  writer.tensor("output.weight", {10, 64}, 1, std::string(10 * 64 * 2, '\0'));
  return writer;
}

TEST(GgufConfig, Llama) {
  GgufWriter writer = model("llama");
  writer.number("llama.attention.head_count_kv", uint32_t{2})
      .number("llama.rope.freq_base", 100000.0f);
  writer.number("llama.rope.dimension_count", uint32_t{16})
      .number("tokenizer.ggml.bos_token_id", uint32_t{1});
  writer.number("tokenizer.ggml.eos_token_id", uint32_t{7})
      .number("tokenizer.ggml.eot_token_id", uint32_t{3});
  const ModelConfig config = config_of(writer);
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.vocab_size, 10);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.intermediate_size, 96);
  EXPECT_EQ(config.max_position_embeddings, 4096);
  EXPECT_EQ(static_cast<float>(config.rms_norm_eps), 1e-5f);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.dtype, DType::kF16);
  EXPECT_EQ(config.rope.theta, 100000);
  EXPECT_EQ(config.rope.type, RopeType::kDefault);
  EXPECT_FALSE(config.rope.interleaved);
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_EQ(config.eos_token_ids, (std::vector<int>{3, 7}));
  EXPECT_EQ(config.layer(0).window, 0);
  EXPECT_FALSE(config_of(with_output(writer)).tie_word_embeddings);
  EXPECT_EQ(config_of(writer, R"({"max_position_embeddings": 100})").max_position_embeddings, 100);

  const TestFolder folder;
  folder.write("x.gguf", writer.bytes());
  const GenerationConfig generation = load_generation_config(folder.path() + "/x.gguf", config);
  EXPECT_EQ(generation.eos_token_ids, (std::vector<int>{3, 7}));
  EXPECT_FALSE(generation.temperature.has_value());
}

TEST(GgufConfig, TypeOfTheWeights) {
  GgufWriter writer = model("llama");
  writer.tensor("a", {32, 64}, 0, std::string(32 * 64 * 4, '\0'));
  EXPECT_EQ(config_of(writer).dtype, DType::kF32);
  writer.tensor("b", {256, 64}, 30, std::string(256 * 64 * 2, '\0'));
  EXPECT_EQ(config_of(writer).dtype, DType::kBF16);
  GgufWriter blocks = model("llama");
  blocks.tensor("a", {1, 32}, 2, std::string(18, '\0'));
  EXPECT_EQ(config_of(blocks).dtype, DType::kBF16);
}

TEST(GgufConfig, QwenFamilies) {
  GgufWriter dense = model("qwen3");
  dense.number("qwen3.attention.key_length", uint32_t{32})
      .number("qwen3.attention.value_length", uint32_t{32});
  EXPECT_EQ(config_of(dense).head_dim, 32);
  EXPECT_TRUE(config_of(dense).qk_norm);
  EXPECT_TRUE(config_of(model("qwen2")).qkv_bias);

  GgufWriter qwen3 = model("qwen3moe");
  qwen3.number("qwen3moe.expert_count", uint32_t{8})
      .number("qwen3moe.expert_used_count", uint32_t{2});
  qwen3.number("qwen3moe.expert_feed_forward_length", uint32_t{24});
  const ModelConfig moe = config_of(qwen3);
  EXPECT_EQ(moe.architecture, "Qwen3MoeForCausalLM");
  EXPECT_EQ(moe.moe->num_experts, 8);
  EXPECT_EQ(moe.moe->top_k, 2);
  EXPECT_EQ(moe.moe->moe_intermediate_size, 24);
  EXPECT_TRUE(moe.moe->norm_topk_prob);
  EXPECT_TRUE(moe.layer(1).is_moe);

  GgufWriter qwen2 = model("qwen2moe");
  qwen2.number("qwen2moe.expert_count", uint32_t{8})
      .number("qwen2moe.expert_used_count", uint32_t{2});
  qwen2.tensor("blk.0.ffn_up_exps.weight", {8, 24, 64}, 1, std::string(8 * 24 * 64 * 2, '\0'));
  qwen2.tensor("blk.0.ffn_up_shexp.weight", {40, 64}, 1, std::string(40 * 64 * 2, '\0'));
  const ModelConfig shared = config_of(qwen2);
  EXPECT_EQ(shared.moe->moe_intermediate_size, 24);
  EXPECT_EQ(shared.moe->shared_expert_intermediate_size, 40);
  EXPECT_FALSE(shared.moe->norm_topk_prob);
}

TEST(GgufConfig, Mixtral) {
  GgufWriter writer = model("llama");
  writer.number("llama.expert_count", uint32_t{4}).number("llama.expert_used_count", uint32_t{2});
  writer.tensor("blk.0.ffn_up_exps.weight", {4, 24, 64}, 1, std::string(4 * 24 * 64 * 2, '\0'));
  const ModelConfig config = config_of(writer);
  EXPECT_EQ(config.architecture, "MixtralForCausalLM");
  EXPECT_EQ(config.moe->num_experts, 4);
  EXPECT_EQ(config.moe->moe_intermediate_size, 24);
  EXPECT_EQ(config.rope.theta, 10000);  // the default of a missing key, not the family's default
  EXPECT_EQ(config.layer(0).window, 0);
}

GgufWriter deepseek(bool absorbed_lengths) {
  GgufWriter writer = model("deepseek2");
  const auto set = [&](const char* key, uint32_t value) {
    writer.number(std::string("deepseek2.") + key, value);
  };
  set("attention.kv_lora_rank", 32);
  set("rope.dimension_count", 8);
  set("attention.key_length", absorbed_lengths ? 40 : 24);
  set("attention.value_length", absorbed_lengths ? 32 : 12);
  set("attention.head_count_kv", absorbed_lengths ? 1 : 4);
  if (absorbed_lengths) {
    set("attention.key_length_mla", 24);
    set("attention.value_length_mla", 12);
  }
  set("expert_count", 8);
  set("expert_used_count", 2);
  set("expert_feed_forward_length", 24);
  set("expert_shared_count", 2);
  set("leading_dense_block_count", 1);
  writer.number("deepseek2.expert_weights_scale", 2.5f);
  return writer;
}

TEST(GgufConfig, Deepseek) {
  for (const bool absorbed : {false, true}) {
    const ModelConfig config = config_of(deepseek(absorbed));
    EXPECT_EQ(config.architecture, "DeepseekV2ForCausalLM");
    EXPECT_EQ(config.mla->kv_lora_rank, 32);
    EXPECT_EQ(config.mla->q_lora_rank, 0);
    EXPECT_EQ(config.mla->qk_rope_head_dim, 8);
    EXPECT_EQ(config.mla->qk_nope_head_dim, 16);
    EXPECT_EQ(config.mla->v_head_dim, 12);
    EXPECT_TRUE(config.rope.interleaved);
    EXPECT_FALSE(config.layer(0).is_moe);
    EXPECT_TRUE(config.layer(1).is_moe);
    EXPECT_EQ(config.moe->routed_scaling_factor, 2.5);
    EXPECT_EQ(config.moe->shared_expert_intermediate_size, 48);
    EXPECT_EQ(config.moe->scoring, RouterScoring::kSoftmax);
    EXPECT_EQ(config.moe->topk_method, TopkMethod::kGreedy);
  }
  GgufWriter v3 = deepseek(true);
  v3.number("deepseek2.attention.q_lora_rank", uint32_t{16})
      .number("deepseek2.expert_gating_func", uint32_t{2});
  v3.number("deepseek2.expert_group_count", uint32_t{4})
      .number("deepseek2.expert_group_used_count", uint32_t{2});
  v3.number("deepseek2.expert_weights_norm", true);
  v3.floats("blk.1.exp_probs_b.bias", {8}, std::vector<float>(8));
  v3.text("deepseek2.rope.scaling.type", "yarn").number("deepseek2.rope.scaling.factor", 40.0f);
  v3.number("deepseek2.rope.scaling.original_context_length", uint32_t{2048})
      .number("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f);
  const ModelConfig config = config_of(v3);
  EXPECT_EQ(config.architecture, "DeepseekV3ForCausalLM");
  EXPECT_EQ(config.mla->q_lora_rank, 16);
  EXPECT_EQ(config.moe->scoring, RouterScoring::kSigmoid);
  EXPECT_EQ(config.moe->topk_method, TopkMethod::kNoauxTc);
  EXPECT_EQ(config.moe->n_group, 4);
  EXPECT_EQ(config.moe->topk_group, 2);
  EXPECT_TRUE(config.moe->norm_topk_prob);
  EXPECT_EQ(config.rope.type, RopeType::kYarn);
  EXPECT_EQ(config.rope.factor, 40);
  EXPECT_EQ(config.rope.original_max_position, 2048);
  EXPECT_EQ(config.rope.mscale, 0.707);
  EXPECT_EQ(config.rope.mscale_all_dim, 0.707);
}

TEST(GgufConfig, ScaledRotation) {
  GgufWriter linear = model("llama");
  linear.text("llama.rope.scaling.type", "linear").number("llama.rope.scaling.factor", 4.0f);
  EXPECT_EQ(config_of(linear).rope.type, RopeType::kLinear);
  EXPECT_EQ(config_of(linear).rope.factor, 4);
  GgufWriter old = model("llama");
  old.number("llama.rope.scale_linear", 2.0f);
  EXPECT_EQ(config_of(old).rope.factor, 2);
  GgufWriter ones = model("llama");
  ones.floats("rope_freqs.weight", {8}, std::vector<float>(8, 1.0f));
  EXPECT_EQ(config_of(ones).rope.type, RopeType::kDefault);
}

// transformers `_compute_llama3_parameters`, restated.
std::vector<float> llama3_divisors(double theta, int num, double factor, double low, double high,
                                   double original) {
  std::vector<float> divisors;
  for (int i = 0; i < num; ++i) {
    const double length = 2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / num);
    if (length < original / high) {
      divisors.push_back(1);
    } else if (length > original / low) {
      divisors.push_back(static_cast<float>(factor));
    } else {
      const double smooth = (original / length - low) / (high - low);
      divisors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
    }
  }
  return divisors;
}

TEST(GgufConfig, Llama3ParametersComeBackFromTheirDivisors) {
  struct Case {
    double theta;
    int num;
    double factor, low, high, original;
  };
  for (const Case& row : {Case{500000, 64, 8, 1, 4, 8192}, Case{500000, 32, 32, 1, 4, 8192},
                          Case{500000, 64, 32, 1, 4, 8192}, Case{10000, 48, 4, 1, 8, 4096},
                          Case{500000, 64, 8, 2, 8, 16384}}) {
    const auto found = fit_llama3_scaling(
        llama3_divisors(row.theta, row.num, row.factor, row.low, row.high, row.original),
        row.theta);
    ASSERT_TRUE(found.has_value()) << row.factor;
    EXPECT_EQ(found->factor, row.factor);
    EXPECT_EQ(found->high_freq_factor, row.high / row.low);
    EXPECT_EQ(found->original_max_position, row.original / row.low);
  }
  std::vector<float> other = llama3_divisors(500000, 64, 8, 1, 4, 8192);
  other[10] = 1.5f;
  EXPECT_FALSE(fit_llama3_scaling(other, 500000).has_value());
  for (const float bad : {0.0f, -1.0f, NAN, INFINITY, 0.5f}) {
    other[10] = bad;
    EXPECT_FALSE(fit_llama3_scaling(other, 500000).has_value());
  }
  EXPECT_FALSE(fit_llama3_scaling({}, 500000).has_value());
  EXPECT_FALSE(fit_llama3_scaling(std::vector<float>(8, 2.0f), 500000).has_value());
}

TEST(GgufConfig, Refusals) {
  struct Case {
    const char* arch;
    std::function<void(GgufWriter&)> change;
    const char* message;
  };
  const Case cases[] = {
      {"llama", [](GgufWriter& w) { w.tensors.clear(); }, "there is no tensor token_embd.weight"},
      {"llama", [](GgufWriter& w) { w.number("split.count", std::uint16_t{3}); },
       "one of 3 parts; join them first"},
      {"llama", [](GgufWriter& w) { w.number("llama.rope.dimension_count", uint32_t{8}); },
       "llama.rope.dimension_count is 8; it must be the 16 dims of a head"},
      {"llama",
       [](GgufWriter& w) {
         w.number("llama.attention.key_length", uint32_t{16})
             .number("llama.attention.value_length", uint32_t{8});
       },
       "they must be equal"},
      {"llama", [](GgufWriter& w) { w.number("llama.attention.head_count_kv", uint32_t{3}); },
       "num_key_value_heads is 3; it must divide num_attention_heads"},
      {"llama", [](GgufWriter& w) { w.numbers<uint32_t>("llama.attention.head_count_kv", {1, 2}); },
       "llama.attention.head_count_kv differs from layer to layer, which llama cannot"},
      {"llama", [](GgufWriter& w) { w.numbers<uint32_t>("llama.attention.head_count_kv", {1}); },
       "llama.attention.head_count_kv has 1 entries; there are 2 layers"},
      {"qwen2", [](GgufWriter& w) { w.number("qwen2.rope.dimension_count", uint32_t{32}); },
       "it must be at most the 16 dims of a head"},
      {"llama", [](GgufWriter& w) { w.number("llama.nextn_predict_layers", uint32_t{2}); },
       "llama.nextn_predict_layers is 2 of 2 layers"},
      {"llama", [](GgufWriter& w) { w.text("llama.rope.scaling.type", "longrope"); },
       "llama.rope.scaling.type is longrope; supported are none, linear and yarn"},
      {"llama", [](GgufWriter& w) { w.text("llama.rope.scaling.type", "linear"); },
       "the key llama.rope.scaling.factor is missing"},
      {"llama",
       [](GgufWriter& w) { w.floats("rope_factors_long.weight", {8}, std::vector<float>(8)); },
       "rope_factors_long.weight and rope_factors_short.weight must stand together"},
      {"llama", [](GgufWriter& w) { w.floats("rope_freqs.weight", {8}, {1, 2, 3, 4, 5, 6, 7, 8}); },
       "not Llama 3's"},
      {"llama", [](GgufWriter& w) { w.tensor("rope_freqs.weight", {8}, 1, std::string(16, '\0')); },
       "a float32 vector of at most 8192 was expected"},
      {"rwkv7", [](GgufWriter&) {},
       "general.architecture is rwkv7, which is not supported; supported are apertus, bloom, "
       "chatglm, cohere2, command-r, deepseek2, "},
      {"mamba2",
       [](GgufWriter& w) {
         w.number("mamba2.ssm.time_step_rank", uint32_t{3})
             .number("mamba2.ssm.inner_size", uint32_t{128});
       },
       "mamba2.ssm.inner_size is 128; it must be a multiple of mamba2.ssm.time_step_rank"},
      {"starcoder",
       [](GgufWriter& w) { w.number("starcoder.attention.head_count_kv", uint32_t{2}); },
       "supported is one key head for all queries"},

      {"qwen3moe", [](GgufWriter& w) { w.number("qwen3moe.expert_count", uint32_t{4}); },
       "the key qwen3moe.expert_used_count is missing"},
  };
  for (const Case& row : cases) {
    GgufWriter writer = model(row.arch);
    row.change(writer);
    const std::string message = refusal(writer);
    EXPECT_NE(message.find(row.message), std::string::npos) << row.message << ": " << message;
    EXPECT_NE(message.find("/x.gguf: "), std::string::npos) << message;
  }
  GgufWriter gate = deepseek(true);
  gate.number("deepseek2.expert_gating_func", uint32_t{2});
  EXPECT_NE(refusal(gate).find(
                "deepseek2.expert_gating_func is 2, but the experts have no correction biases"),
            std::string::npos);
}

TEST(GgufConfig, WindowsOfLayers) {
  GgufWriter gemma = model("gemma3");
  gemma.number("gemma3.attention.sliding_window", uint32_t{16});
  EXPECT_EQ(config_of(gemma).layer(1).window, 16);
  EXPECT_EQ(config_of(model("gemma3")).layer(1).window, 0);
  EXPECT_EQ(config_of(model("gemma2")).layer(0).window, 4096);
  GgufWriter exaone = model("exaone4");
  exaone.number("exaone4.attention.sliding_window", uint32_t{16})
      .numbers<bool>("exaone4.attention.sliding_window_pattern", {false, true});
  EXPECT_EQ(config_of(exaone).layer(0).window, 0);
  EXPECT_EQ(config_of(exaone).layer(1).window, 16);
  GgufWriter olmo = model("olmo2");
  EXPECT_EQ(config_of(olmo).architecture, "Olmo2ForCausalLM");
  olmo.number("olmo2.attention.sliding_window", uint32_t{8});
  EXPECT_EQ(config_of(olmo).architecture, "Olmo3ForCausalLM");
}

TEST(GgufConfig, WidthsAreThoseOfTheTensors) {
  GgufWriter writer = model("gpt2");
  writer.tensor("blk.1.ffn_down.weight", {64, 80}, 1, std::string(64 * 80 * 2, '\0'));
  EXPECT_EQ(config_of(writer).intermediate_size, 80);
  EXPECT_EQ(config_of(model("gpt2")).intermediate_size, 96);
}

TEST(GgufConfig, LayersThatPredictFurtherTokensAreNotCounted) {
  GgufWriter writer = model("glm4moe");
  writer.number("glm4moe.nextn_predict_layers", uint32_t{1})
      .number("glm4moe.expert_count", uint32_t{4})
      .number("glm4moe.expert_used_count", uint32_t{2})
      .number("glm4moe.expert_feed_forward_length", uint32_t{24});
  const ModelConfig config = config_of(writer);
  EXPECT_EQ(config.num_layers, 1);
  EXPECT_EQ(config.num_nextn_predict_layers, 1);
}

// A missing key that the configuration needs is named.
TEST(GgufConfig, MissingKeys) {
  for (const std::string missing :
       {"block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    GgufWriter writer;
    writer.text("general.architecture", "llama");
    for (const std::string key : {"block_count", "context_length", "embedding_length",
                                  "feed_forward_length", "attention.head_count"})
      if (key != missing) writer.number("llama." + key, uint32_t{64});
    if (missing != "attention.layer_norm_rms_epsilon")
      writer.number("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    writer.tensor("token_embd.weight", {10, 64}, 1, std::string(10 * 64 * 2, '\0'));
    EXPECT_NE(refusal(writer).find("the key llama." + missing + " is missing"), std::string::npos)
        << missing << ": " << refusal(writer);
  }
}

}  // namespace
}  // namespace sluice
