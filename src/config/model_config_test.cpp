#include "config/model_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/testing/errors.h"
#include "base/testing/folder.h"
#include "base/testing/source_dir.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const fs::path kModels = fs::path(source_dir()) / "tests/golden/models";

std::string text_of(const std::string& model, std::string_view file = "config.json") {
  const auto text = read_text_beneath((kModels / model).string(), file, 1 << 20);
  EXPECT_TRUE(text.has_value()) << model;
  return text.value_or("{}");
}

ModelConfig load(const std::string& model, std::string_view patch = {}) {
  return load_config_json((kModels / model).string(), patch);
}

// The message of the Error{kBadInput} that parsing gives; empty when it is accepted.
std::string error_of(const std::string& text, std::string_view patch = {}) {
  try {
    parse_model_config(text, "config.json", patch);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.what();
    EXPECT_EQ(exit_code(error.kind()), 2);
    return error.message();
  }
  return "";
}

std::string without(const std::string& text, const std::string& key) {
  Json json = parse_json_or_throw(text, "test");
  EXPECT_EQ(json.erase(key), 1u) << key;
  return dump_json(json);
}

TEST(ModelConfig, EveryFixtureIsReadAndBothSpellingsAgree) {
  int num_models = 0;
  int num_pairs = 0;
  for (const auto& entry : fs::directory_iterator(kModels)) {
    SCOPED_TRACE(entry.path().filename().string());
    const ModelConfig config = load_config_json(entry.path().string());
    ++num_models;
    EXPECT_EQ(config.vocab_size, 320);
    EXPECT_EQ(static_cast<int>(config.layers.size()), config.num_layers);
    EXPECT_EQ(config.moe.has_value(), config.layer(config.num_layers).is_moe);
    if (!fs::exists(entry.path() / "config.hub.json")) continue;
    ++num_pairs;
    const std::string hub = text_of(entry.path().filename(), "config.hub.json");
    EXPECT_TRUE(parse_model_config(hub, "config.hub.json") == config);
  }
  EXPECT_GE(num_models, 20);
  EXPECT_GE(num_pairs, 7);
}

TEST(ModelConfig, Llama) {
  const ModelConfig c = load("llama-linear-bias-headdim");
  EXPECT_EQ(c.architecture, "LlamaForCausalLM");
  EXPECT_EQ(c.head_dim, 24);
  EXPECT_EQ(c.num_kv_heads, 2);
  EXPECT_TRUE(c.qkv_bias && c.o_bias && c.mlp_bias);
  EXPECT_FALSE(c.qk_norm || c.tie_word_embeddings);
  EXPECT_EQ(c.dtype, DType::kF16);
  EXPECT_EQ(c.rms_norm_eps, 1e-5);
  EXPECT_EQ(c.rope.type, RopeType::kLinear);
  EXPECT_EQ(c.rope.factor, 2.5);
  EXPECT_EQ(c.rope.rotary_dim, 24);
  EXPECT_FALSE(c.moe || c.mla || c.indexer);

  const ModelConfig tied = load("llama-llama3-tied");
  EXPECT_TRUE(tied.tie_word_embeddings);
  EXPECT_THAT(tied.eos_token_ids, ElementsAre(2, 5));
  EXPECT_EQ(tied.rope.type, RopeType::kLlama3);
  EXPECT_EQ(tied.rope.theta, 5e5);
  EXPECT_EQ(tied.rope.original_max_position, 64);
  EXPECT_EQ(tied.rope.high_freq_factor, 4);

  const ModelConfig dynamic = load("llama-dynamic");
  EXPECT_EQ(dynamic.rope.type, RopeType::kDynamic);
  EXPECT_EQ(dynamic.max_position_embeddings, 64);
}

TEST(ModelConfig, Windows) {
  const auto windows = [](const ModelConfig& c) {
    std::vector<int> out;
    for (const LayerConfig& layer : c.layers) out.push_back(layer.window);
    return out;
  };
  EXPECT_THAT(windows(load("mistral-swa")), ElementsAre(16, 16));
  EXPECT_THAT(windows(load("mistral-swa", R"({"sliding_window":null})")), ElementsAre(0, 0));
  EXPECT_THAT(windows(parse_model_config(without(text_of("mistral-swa"), "sliding_window"), "c")),
              ElementsAre(4096, 4096));
  EXPECT_THAT(windows(load("qwen2-yarn-swa")), ElementsAre(0, 16, 16));
  EXPECT_THAT(windows(parse_model_config(without(text_of("qwen2-yarn-swa"), "layer_types"), "c")),
              ElementsAre(0, 16, 16));
  EXPECT_THAT(windows(load("qwen2-yarn-swa", R"({"layer_types":null,"use_sliding_window":false})")),
              ElementsAre(0, 0, 0));
  EXPECT_THAT(windows(load("mixtral")), ElementsAre(0, 0));
  EXPECT_THAT(windows(load("mixtral", R"({"sliding_window":8})")), ElementsAre(8, 8));
}

TEST(ModelConfig, Experts) {
  const auto moe_layers = [](const ModelConfig& c) {
    std::vector<bool> out;
    for (const LayerConfig& layer : c.layers) out.push_back(layer.is_moe);
    return out;
  };
  const ModelConfig qwen2 = load("qwen2-moe");
  EXPECT_TRUE(qwen2.moe->shared_expert_gate);
  EXPECT_EQ(qwen2.moe->shared_expert_intermediate_size, 48);
  EXPECT_FALSE(qwen2.moe->norm_topk_prob);
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.o_bias);
  EXPECT_THAT(moe_layers(qwen2), ElementsAre(false, true, false));

  const ModelConfig qwen3 = load("qwen3-moe");
  EXPECT_EQ(qwen3.moe->num_experts, 8);  // written as num_local_experts
  EXPECT_TRUE(qwen3.qk_norm && qwen3.moe->norm_topk_prob);
  EXPECT_THAT(moe_layers(qwen3), ElementsAre(false, true, true));

  const ModelConfig mixtral = load("mixtral");
  EXPECT_EQ(mixtral.moe->moe_intermediate_size, 48);
  EXPECT_TRUE(mixtral.moe->norm_topk_prob);
  EXPECT_EQ(mixtral.head_dim, 16);  // null in the file

  const ModelConfig v2 = load("deepseek-v2");
  EXPECT_EQ(v2.moe->topk_method, TopkMethod::kGroupLimitedGreedy);
  EXPECT_EQ(v2.moe->scoring, RouterScoring::kSoftmax);
  EXPECT_EQ(v2.moe->n_group, 4);
  EXPECT_EQ(v2.moe->routed_scaling_factor, 3);
  EXPECT_THAT(moe_layers(v2), ElementsAre(false, true, true));
  EXPECT_THAT(moe_layers(load("deepseek-v2", R"({"moe_layer_freq":2})")),
              ElementsAre(false, false, true));

  const ModelConfig v3 = load("deepseek-v3");
  EXPECT_EQ(v3.moe->topk_method, TopkMethod::kNoauxTc);
  EXPECT_EQ(v3.moe->scoring, RouterScoring::kSigmoid);
  EXPECT_EQ(v3.num_nextn_predict_layers, 1);
  EXPECT_TRUE(v3.layer(3).is_moe);
  EXPECT_FALSE(load("deepseek-v3", R"({"n_routed_experts":null})").moe);
}

TEST(ModelConfig, LatentAttentionAndIndexer) {
  const ModelConfig v2 = load("deepseek-v2");
  EXPECT_EQ(v2.mla->qk_head_dim(), 32);
  EXPECT_EQ(v2.head_dim, 32);
  EXPECT_EQ(v2.mla->q_lora_rank, 40);
  EXPECT_TRUE(v2.rope.interleaved);
  EXPECT_EQ(v2.rope.rotary_dim, 12);
  EXPECT_EQ(v2.rope.beta_fast, 20);
  EXPECT_EQ(v2.rope.mscale_all_dim, 0.707);
  EXPECT_EQ(load("deepseek-v2-lite").mla->q_lora_rank, 0);
  EXPECT_FALSE(v2.indexer);
  EXPECT_FALSE(load("deepseek-v3").indexer);

  const ModelConfig v32 = load("deepseek-v32");
  EXPECT_FALSE(v32.indexer->rope_interleaved);
  EXPECT_EQ(v32.indexer->topk, 16);
  EXPECT_TRUE(load("glm-moe-dsa").indexer->rope_interleaved);
  // DeepseekV3 with an index_topk is V3.2.
  const ModelConfig v3 =
      load("deepseek-v3", R"({"index_topk":16,"index_n_heads":12,"index_head_dim":20})");
  EXPECT_TRUE(v3.indexer.has_value());
  EXPECT_FALSE(v3.indexer->rope_interleaved);
}

TEST(ModelConfig, IndexerRoles) {
  const auto roles = [](const ModelConfig& c) {
    std::string out;
    for (const LayerConfig& layer : c.layers)
      out += layer.indexer == IndexerRole::kFull ? 'F' : 'S';
    return out;
  };
  EXPECT_EQ(roles(load("glm-moe-dsa")), "FFF");
  EXPECT_EQ(roles(load("glm-moe-dsa-pattern")), "FFSSF");
  EXPECT_EQ(roles(load("glm-moe-dsa-pattern", R"({"indexer_types":null})")), "FFSSF");
  EXPECT_EQ(roles(load("glm-moe-dsa-shared-index")), "FFSFS");
  EXPECT_EQ(roles(load("glm-moe-dsa-shared-index", R"({"indexer_types":null})")), "FFSFS");
  // GLM-5.2: full at 0, 1, 2, 6, 10, ..., 74.
  const std::string published =
      roles(load("glm-moe-dsa", R"({"num_hidden_layers":78,"indexer_types":null,
      "layer_types":null,"mlp_layer_types":null,"index_topk_freq":4,"index_skip_topk_offset":3})"));
  EXPECT_EQ(std::count(published.begin(), published.end(), 'F'), 21);
  EXPECT_EQ(published.substr(0, 11), "FFFSSSFSSSF");
  EXPECT_EQ(published[74], 'F');
}

TEST(ModelConfig, ClassDefaultsFillLegalOmissions) {
  std::string text = text_of("deepseek-v3", "config.hub.json");
  for (const char* key :
       {"topk_method", "scoring_func", "moe_layer_freq", "norm_topk_prob", "routed_scaling_factor",
        "num_key_value_heads", "tie_word_embeddings", "attention_bias", "rope_interleave",
        "rms_norm_eps", "hidden_act", "torch_dtype", "n_shared_experts"})
    text = without(text, key);
  EXPECT_TRUE(parse_model_config(text, "c") == load("deepseek-v3"));
  EXPECT_EQ(parse_model_config(without(text_of("glm-moe-dsa"), "rms_norm_eps"), "c").rms_norm_eps,
            1e-5);
  EXPECT_EQ(parse_model_config(without(text_of("qwen3"), "head_dim"), "c").head_dim, 128);
  EXPECT_EQ(load("qwen3", R"({"head_dim":null})").head_dim, 16);
  EXPECT_EQ(parse_model_config(without(text_of("mixtral"), "rope_parameters"), "c").rope.theta,
            1e6);
  EXPECT_EQ(parse_model_config(without(text_of("llama-plain"), "architectures"), "c").architecture,
            "LlamaForCausalLM");
}

TEST(ModelConfig, RopeSpellings) {
  const RopeConfig plain = load("llama-plain").rope;
  const auto rope = [](std::string_view patch) { return load("llama-plain", patch).rope; };
  EXPECT_TRUE(rope(R"({"rope_parameters":null,"rope_scaling":null,"rope_theta":10000})") == plain);
  EXPECT_TRUE(rope(R"({"rope_parameters":null,"rope_scaling":{"rope_type":"default"}})") == plain);
  // As --hf-overrides lays the older spelling over a newer file.
  EXPECT_TRUE(rope(R"({"rope_parameters":{"rope_type":"default","rope_theta":5000},)"
                   R"("rope_scaling":{"type":"linear","factor":2}})") ==
              rope(R"({"rope_parameters":{"rope_type":"linear","rope_theta":5000,"factor":2}})"));
  EXPECT_TRUE(rope(R"({"rope_parameters":{"rope_type":null,"rope_theta":null,
      "full_attention":{"rope_type":"default","rope_theta":10000}}})") == plain);
  EXPECT_EQ(rope(R"({"rope_parameters":null,"partial_rotary_factor":0.5})").rotary_dim, 8);
  const RopeConfig yarn = rope(R"({"rope_parameters":{"rope_type":"yarn","factor":null,
      "original_max_position_embeddings":128}})");
  EXPECT_EQ(yarn.factor, 4);
  EXPECT_FALSE(yarn.attention_factor);
  EXPECT_EQ(
      rope(R"({"rope_parameters":{"rope_type":"yarn","factor":2,"apply_yarn_scaling":false}})")
          .attention_factor,
      1);
}

TEST(ModelConfig, SluiceTinyAndOverrides) {
  const std::string directory = (fs::path(source_dir()) / "models/sluice-tiny").string();
  const ModelConfig c = load_config_json(directory);
  EXPECT_EQ(c.num_layers, 6);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(0, 4, 6));
  EXPECT_FALSE(c.bos_token_id);
  EXPECT_EQ(c.indexer->topk, 256);
  const ModelConfig longer =
      load_config_json(directory, R"({"rope_parameters":{"rope_theta":8e6}})");
  EXPECT_EQ(longer.rope.theta, 8e6);
  EXPECT_EQ(longer.rope.type, RopeType::kDefault);
  EXPECT_THAT(error_of(text_of("llama-plain"), "[1]"), HasSubstr("--json-model-override-args"));
}

TEST(ModelConfig, QuantizationOfModelOptsOwnFile) {
  TestFolder folder;
  const auto read = [&](const std::string& more, const std::string& file,
                        std::string_view override_args = {}) {
    std::string text = text_of("llama-plain");
    text.insert(text.find('{') + 1, more);
    folder.write("config.json", text);
    folder.write("hf_quant_config.json", file);
    return load_config_json(folder.path(), override_args).quantization;
  };
  const std::string nvfp4 =
      R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"NVFP4","group_size":16,)"
      R"("kv_cache_quant_algo":"FP8","exclude_modules":["lm_head"]}})";
  EXPECT_EQ(read("", nvfp4)->describe(), "modelopt, nvfp4");
  EXPECT_EQ(read("", R"({"quantization":{"quant_algo":"FP8"}})")->describe(), "modelopt, fp8");
  // That of config.json comes first, and the options come last.
  EXPECT_EQ(read(R"("quantization_config":{"quant_method":"fp8"},)", nvfp4)->method, "fp8");
  EXPECT_EQ(read("", nvfp4, R"({"quantization_config":null})"), std::nullopt);
  EXPECT_EQ(read("", "{", R"({"quantization_config":null})"), std::nullopt);
  for (const char* nothing : {"null", "{}"})
    EXPECT_EQ(read(fmt::format(R"("quantization_config":{},)", nothing), nvfp4)->describe(),
              "modelopt, nvfp4");
  EXPECT_EQ(read("", R"({"quantization":{"quant_algo":null}})"), std::nullopt);
  for (const auto& [file, says] : {std::pair{"{", "hf_quant_config.json"},
                                   {R"({"quantization":7})", "an object \"quantization\""},
                                   {R"({"quantization":{"quant_algo":"MIXED_PRECISION"}})",
                                    "hf_quant_config.json: quantization.quant_algo is \"MIXED"}})
    EXPECT_THAT(message_of([&] { read("", file); }), HasSubstr(says));
}

struct BadRow {
  const char* model;
  const char* patch;
  std::vector<const char*> says;
};

TEST(ModelConfig, BadValuesNameKeyValueAndRange) {
  const BadRow rows[] = {
      {"llama-plain",
       R"({"hidden_size":0})",
       {"hidden_size is 0;", "an integer from 1 to 1048576"}},
      {"llama-plain", R"({"hidden_size":-1})", {"hidden_size is -1;", "from 1 to"}},
      {"llama-plain",
       R"({"hidden_size":1099511627776})",
       {"hidden_size is 1099511627776;", "to 1048576"}},
      {"llama-plain", R"({"hidden_size":1e400})", {"hidden_size is \"1e400\";", "from 1 to"}},
      {"llama-plain", R"({"hidden_size":"4096"})", {"hidden_size is \"4096\";", "an integer"}},
      {"llama-plain", R"({"hidden_size":64.5})", {"hidden_size is 64.5;"}},
      {"llama-plain", R"({"hidden_size":true})", {"hidden_size is true;"}},
      {"llama-plain", R"({"hidden_size":[64]})", {"hidden_size is array of 1 entries;"}},
      {"llama-plain", R"({"hidden_size":null})", {"hidden_size is null;"}},
      {"llama-plain",
       R"({"num_hidden_layers":1000000})",
       {"num_hidden_layers is 1000000;", "to 4096"}},
      {"llama-plain",
       R"({"num_key_value_heads":3})",
       {"num_key_value_heads is 3;", "divide num_attention_heads"}},
      {"llama-plain",
       R"({"head_dim":null,"num_attention_heads":5,"num_key_value_heads":5})",
       {"divide hidden_size"}},
      {"llama-plain", R"({"rms_norm_eps":NaN})", {"rms_norm_eps is \"NaN\";", "from 1e-20 to 0.1"}},
      {"llama-plain", R"({"rms_norm_eps":-Infinity})", {"rms_norm_eps is \"-Infinity\";"}},
      {"llama-plain", R"({"rms_norm_eps":0})", {"rms_norm_eps is 0;"}},
      {"llama-plain", R"({"vocab_size":-320})", {"vocab_size is -320;"}},
      {"llama-plain",
       R"({"max_position_embeddings":18446744073709551615})",
       {"max_position_embeddings is 18446744073709551615"}},
      {"llama-plain",
       R"({"tie_word_embeddings":1})",
       {"tie_word_embeddings is 1;", "true or false"}},
      {"llama-plain", R"({"hidden_act":"relu6"})", {"hidden_act is \"relu6\""}},
      {"llama-plain", R"({"dtype":"int8"})", {"dtype is \"int8\"", "bfloat16"}},
      {"llama-plain", R"({"architectures":"LlamaForCausalLM"})", {"architectures"}},
      {"llama-plain",
       R"({"quantization_config":{"quant_method":"hqq"}})",
       {"quantization_config.quant_method", "\"hqq\""}},
      {"llama-plain", R"({"rope_parameters":7})", {"rope_parameters is 7;", "an object"}},
      {"llama-plain",
       R"({"rope_parameters":{"rope_type":"proportional"}})",
       {"rope_parameters.rope_type is \"proportional\""}},
      {"llama-plain",
       R"({"rope_parameters":{"rope_type":"proportional"}})",
       {"default, linear, dynamic, llama3, yarn or longrope"}},
      {"llama-plain",
       R"({"rope_parameters":null,"rope_scaling":{"type":"linear"}})",
       {"rope_scaling.factor is missing"}},
      {"llama-plain",
       R"({"rope_parameters":null,"rope_scaling":{"type":"linear","factor":0}})",
       {"rope_scaling.factor is 0;"}},
      {"llama-plain",
       R"({"rope_parameters":{"rope_theta":NaN}})",
       {"rope_parameters.rope_theta is \"NaN\""}},
      {"llama-plain", R"({"rope_parameters":null,"partial_rotary_factor":0.2})", {"3 dims"}},
      {"llama-llama3-tied",
       R"({"rope_parameters":{"high_freq_factor":1}})",
       {"high_freq_factor is 1;", "greater"}},
      {"deepseek-v2", R"({"rope_parameters":{"beta_fast":1}})", {"beta_fast is 1;", "beta_slow"}},
      {"deepseek-v2", R"({"qk_rope_head_dim":13})", {"13 dims"}},
      {"deepseek-v2", R"({"n_group":3})", {"n_group is 3;", "divide the 8 experts"}},
      {"deepseek-v2", R"({"topk_group":5})", {"topk_group is 5;"}},
      {"deepseek-v2", R"({"num_experts_per_tok":5})", {"num_experts_per_tok is 5;", "at most 4"}},
      {"deepseek-v3", R"({"n_group":8,"num_experts_per_tok":2})", {"n_group is 8;", "at most 4"}},
      {"deepseek-v3", R"({"topk_method":"random"})", {"topk_method is \"random\""}},
      {"deepseek-v3", R"({"scoring_func":"sqrtsoftplus"})", {"scoring_func"}},
      {"deepseek-v32",
       R"({"mlp_layer_types":["dense","sparse"]})",
       {"mlp_layer_types is array of 2", "list of 3"}},
      {"deepseek-v32",
       R"({"mlp_layer_types":["dense","sparse","moe"]})",
       {"mlp_layer_types", "\"moe\""}},
      {"deepseek-v32", R"({"q_lora_rank":null})", {"q_lora_rank is null"}},
      {"deepseek-v32", R"({"index_head_dim":8})", {"index_head_dim is 8;"}},
      {"glm-moe-dsa", R"({"indexer_types":["shared","full","full"]})", {"layer 0 shares"}},
      {"glm-moe-dsa-pattern",
       R"({"indexer_types":null,"index_topk_pattern":"FFSX"})",
       {"5 letters"}},
      {"glm-moe-dsa-pattern", R"({"indexer_types":null,"index_topk_pattern":"FFSXF"})", {"\"X\""}},
      {"qwen2-yarn-swa",
       R"({"sliding_window":null})",
       {"sliding_window is null", "layer_types[1]"}},
      {"qwen2-yarn-swa", R"({"layer_types":["a","b","c"]})", {"\"a\""}},
      {"qwen2-yarn-swa", R"({"sliding_window":-1})", {"sliding_window is -1"}},
      {"qwen3-moe", R"({"decoder_sparse_step":0})", {"decoder_sparse_step is 0"}},
      {"qwen3-moe", R"({"mlp_only_layers":[-1]})", {"mlp_only_layers"}},
  };
  for (const BadRow& row : rows) {
    SCOPED_TRACE(std::string(row.model) + " " + row.patch);
    const std::string message = error_of(text_of(row.model), row.patch);
    for (const char* part : row.says) EXPECT_THAT(message, HasSubstr(part));
  }
}

TEST(ModelConfig, MissingKeysAreNamed) {
  const std::pair<const char*, std::vector<const char*>> rows[] = {
      {"llama-plain",
       {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "intermediate_size", "max_position_embeddings"}},
      {"qwen2-moe",
       {"num_experts", "num_experts_per_tok", "moe_intermediate_size",
        "shared_expert_intermediate_size"}},
      {"mixtral", {"num_local_experts"}},
      {"deepseek-v3",
       {"n_routed_experts", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
        "v_head_dim"}},
      {"glm-moe-dsa", {"index_topk", "index_n_heads", "index_head_dim"}},
  };
  for (const auto& [model, keys] : rows)
    for (const char* key : keys)
      EXPECT_THAT(error_of(without(text_of(model), key)),
                  HasSubstr(std::string(key) + " is missing"))
          << model;
  EXPECT_THAT(error_of("{}"), HasSubstr("architectures"));
  EXPECT_THAT(error_of("[]"), HasSubstr("object"));
  EXPECT_THAT(error_of("{"), HasSubstr("not valid JSON"));
}

TEST(ModelConfig, ArchitecturesAreRefusedByName) {
  const std::pair<const char*, std::vector<const char*>> rows[] = {
      {"LlamaForCausalLm",
       {"LlamaForCausalLm", "nearest supported name is LlamaForCausalLM", "MixtralForCausalLM"}},
      {"Qwen3MoeForCausalLN", {"nearest supported name is Qwen3MoeForCausalLM"}},
      {"Qwen2_5_VLForConditionalGeneration", {"nearest supported name is Qwen2ForCausalLM"}},
      {"DeepseekV4ForCausalLM", {"hyper-connection", "DeepseekV32ForCausalLM"}},
      {"Llama4ForConditionalGeneration", {"text_config", "Llama4ForCausalLM"}},
      {"Glm5NextForCausalLM", {"gated delta (KDA)", "KimiLinearForCausalLM"}},
      {"MambaForCausalLM", {"first kind", "Mamba2ForCausalLM"}},
      {"Gemma3nForConditionalGeneration", {"block structure"}},
      {"MiniMaxText01ForCausalLM", {"recurrent state"}},
      {"T5ForConditionalGeneration", {"decoder-only"}},
  };
  for (const auto& [name, says] : rows) {
    const std::string message =
        error_of(text_of("llama-plain"), fmt::format(R"({{"architectures":["{}"]}})", name));
    for (const char* part : says) EXPECT_THAT(message, HasSubstr(part)) << name;
  }
  EXPECT_THAT(
      error_of(text_of("llama-plain"), R"({"architectures":["Other"],"is_encoder_decoder":true})"),
      HasSubstr("encoder"));
  // auto_map: ignored for a known architecture, no help for an unknown one.
  EXPECT_EQ(error_of(text_of("llama-plain"), R"({"auto_map":{"AutoConfig":"evil.Config"}})"), "");
  EXPECT_THAT(error_of(text_of("llama-plain"),
                       R"({"architectures":["MyModel"],"auto_map":{"AutoConfig":"evil.C"}})"),
              HasSubstr("never run"));
  EXPECT_GE(supported_architectures().size(), 14u);
}

// The configuration under --model-impl auto, or the message of its error.
std::pair<std::optional<ModelConfig>, std::string> parse_auto(std::string_view patch,
                                                              bool plugin_installed) {
  try {
    return {parse_model_config(text_of("llama-plain"), "config.json", patch,
                               {.impl = ModelImpl::kAuto, .plugin_installed = plugin_installed}),
            ""};
  } catch (const Error& error) {
    return {std::nullopt, error.message()};
  }
}

TEST(ModelConfig, HandsVariantsThatABuiltInClassLacksToThePlugin) {
  EXPECT_FALSE(parse_auto("{}", true).first->fallback);
  const std::pair<std::string_view, std::string_view> variants[] = {
      {R"({"hidden_act": "gelu_10"})", "hidden_act"},
      {R"({"rope_parameters": {"rope_type": "proportional"}})", "rope_type"},
      {R"({"layer_types": ["full_attention", "sliding_attention"]})", "layer_types"},
      {R"({"architectures": ["FalconForCausalLM"], "alibi": true})", "alibi"}};
  for (const auto& [patch, key] : variants) {
    const auto taken = parse_auto(patch, true);
    ASSERT_TRUE(taken.first && taken.first->fallback) << patch << taken.second;
    EXPECT_THAT(taken.first->fallback->native_refusal, HasSubstr(key));
    const auto refused = parse_auto(patch, false);
    EXPECT_THAT(refused.second, HasSubstr(key));
    EXPECT_THAT(refused.second, HasSubstr("libsluice_transformers.so"));
  }
  // What the plugin cannot take either is refused by the first reason.
  for (const bool installed : {false, true}) {
    EXPECT_THAT(parse_auto(R"({"hidden_size": 0})", installed).second,
                testing::AllOf(HasSubstr("hidden_size is 0"), Not(HasSubstr("plugin"))));
    EXPECT_THAT(
        parse_auto(R"({"quantization_config": {"quant_method": "bitnet"}})", installed).second,
        testing::AllOf(HasSubstr("bitnet"), Not(HasSubstr("plugin"))));
  }
}

}  // namespace
}  // namespace sluice
