// Matrices that a quantised checkpoint leaves plain: what `plan` counts for them, and what the
// engine takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/log.h"
#include "base/testing/folder.h"
#include "base/testing/source_dir.h"
#include "checkpoint/load_config.h"
#include "cli/models/draft_size.h"
#include "cli/models/mix_choice.h"
#include "cli/models/model_files.h"
#include "engine/engine.h"
#include "engine/model_choice.h"

namespace sluice {
namespace {

const std::string kConfigs = source_dir() + "/bench/configs/";

// FP8 of compressed-tensors, with a scale for each row.
std::string fp8_without(const std::string& ignored) {
  return R"({"quantization_config": {"quant_method": "compressed-tensors",
             "format": "float-quantized", "ignore": [)" +
         ignored +
         R"(], "config_groups": {"group_0": {"targets": ["Linear"],
             "weights": {"type": "float", "num_bits": 8, "strategy": "channel"}}}}})";
}

struct Priced {
  ModelSize size;
  WeightForm form;
  std::int64_t bytes = 0;
  double of_mix = 0;  // what the cost model counts on one GPU
};

Priced price(const std::string& name, const std::string& override_args, Options options = {}) {
  options.json_model_override_args = override_args;
  const std::string model = kConfigs + name;
  const ModelConfig config = read_model_config(options, model);
  const ServingPlan plan = resolve_or_throw(options, config, imagined_gpu());
  Priced out{.size = size_of_model(plan, config, model), .form = weight_form(plan, config, model)};
  out.bytes = out.form.bytes(out.size, config.tie_word_embeddings);
  const MixQuestion question =
      mix_question(options, config, model, parse_gpu_set("1xH200"), 1024, 1);
  out.of_mix = answer_mixes(question).front().bytes.weights;
  return out;
}

// Qwen3-8B: 36 layers, hidden size 4096, 32 and 8 heads of 128, an MLP of 12,288 columns. Embedding
// and head have 151,936 rows each.
TEST(PlainMatrices, TakeSixteenBitsEach) {
  constexpr std::int64_t kHidden = 4096, kInner = 12288, kLayers = 36;
  constexpr std::int64_t kAttention = 2 * kHidden * 4096 + 2 * kHidden * 1024,
                         kMatrix = kHidden * kInner, kMlp = 3 * kMatrix,
                         kEnds = 2 * std::int64_t{151936} * kHidden,
                         kAll = kLayers * (kAttention + kMlp);
  // Norms: two of a layer, two of its heads, and the last one.
  constexpr std::int64_t kFloats = kLayers * (2 * kHidden + 2 * 128) + kHidden;
  const auto expect = [&](const std::string& ignored, std::int64_t plain) {
    SCOPED_TRACE(ignored);
    const Priced found = price("qwen3-8b", fp8_without(ignored));
    // In FP8 a byte each, and a float32 for 2,048.
    const double matrices =
        2.0 * kEnds + 2.0 * double(plain) + double(kAll - plain) * (1 + 4.0 / 2048);
    // Each part is rounded to a byte.
    EXPECT_NEAR(double(found.bytes), matrices + 4.0 * kFloats, 4);
    EXPECT_NEAR(found.of_mix, matrices, 4);
    EXPECT_EQ(found.form.describe(found.size),
              plain == kAll ? "bfloat16" : "FP8 in linear layers, bfloat16 in others");
  };
  expect("", 0);
  expect(R"("lm_head")", 0);  // a head is plain anyway
  expect(R"("lm_head", "model.layers.0.mlp.down_proj")", kMatrix);
  expect(R"("re:.*\\.mlp\\.(gate|up)_proj$")", kLayers * 2 * kMatrix);
  expect(R"("model.layers.*.self_attn")", kLayers * kAttention);
  expect(R"("re:model\\.layers\\.[0-9]\\..*", "model.layers.35")", 11 * (kAttention + kMlp));
  expect(R"("re:.*self_attn\\.v_proj")", kLayers * kHidden * 1024);
  expect(R"("re:.*")", kAll);
}

// gpt-oss-20b: 24 layers of 32 experts with three matrices of 2,880 x 2,880.
TEST(PlainMatrices, Mxfp4IsOfExperts) {
  constexpr std::int64_t kExperts = std::int64_t{24} * 32 * 3 * 2880 * 2880;
  const std::string own = R"({"quantization_config": {"quant_method": "mxfp4")";
  for (const std::string& args : {std::string(), own + "}}"}) {
    const Priced found = price("gpt-oss-20b", args);
    EXPECT_EQ(found.size.attention.plain, found.size.attention.matrices);
    EXPECT_EQ(found.size.experts.plain, 0);
    EXPECT_EQ(found.bytes, 2 * (found.size.matrices() - kExperts) + 4 * found.size.floats() +
                               kExperts * 17 / 32);
    EXPECT_EQ(found.form.describe(found.size), "MXFP4 in experts, bfloat16 in others");
  }
  const Priced one = price("gpt-oss-20b", own + R"(, "modules_to_not_convert": ["layers.0"]}})");
  EXPECT_EQ(one.size.experts.plain, kExperts / 24);
  EXPECT_EQ(one.bytes, 2 * (one.size.matrices() - kExperts / 24 * 23) + 4 * one.size.floats() +
                           kExperts / 24 * 23 * 17 / 32);
}

// Another form that options ask for is that of all matrices.
TEST(PlainMatrices, AreThoseOfTheStoredForm) {
  Options options;
  options.quantization = "int8";
  const Priced found = price("qwen3-8b", fp8_without(R"("re:.*")"), options);
  EXPECT_EQ(found.size.attention.plain, 0);
  options.quantization = "fp8";
  EXPECT_GT(price("qwen3-8b", fp8_without(R"("re:.*")"), options).size.attention.plain, 0);
}

// The tensors tell, whatever the lists say.
TEST(PlainMatrices, OfFilesAreThoseWithoutScales) {
  set_log_level(LogLevel::kError);
  const std::string model = source_dir() + "/tests/golden/models/quant-modelopt-fp8-llama";
  ModelConfig config = load_model_config(model);
  config.quantization->plain_modules = {"re:.*"};
  const ServingPlan plan = resolve_or_throw({}, config, imagined_gpu());
  EXPECT_EQ(size_of_model(plan, config, model).dense_mlp.plain, 0);
  Options dummy;
  dummy.load_format = "dummy";
  const ModelSize size =
      size_of_model(resolve_or_throw(dummy, config, imagined_gpu()), config, model);
  EXPECT_EQ(size.dense_mlp.plain, size.dense_mlp.matrices);
}

// Whatever the family, names are those of its files: without scales all of them are there, plain.
TEST(PlainMatrices, HaveTheNamesOfTheFiles) {
  set_log_level(LogLevel::kError);
  int count = 0;
  for (const std::string& folder :
       {source_dir() + "/tests/golden/models/", std::string(SLUICE_BINARY_DIR "/golden/")}) {
    if (!std::filesystem::is_directory(folder)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string directory = entry.path().string();
      if (!std::filesystem::exists(entry.path() / "golden.json") ||
          directory.find("fallback") != std::string::npos ||
          directory.find("quant-") != std::string::npos)
        continue;
      SCOPED_TRACE(directory);
      const ModelConfig config = load_model_config(directory);
      const StoredMatrices stored(WeightSource::checkpoint(
          directory, {.quantization = QuantizationConfig{.method = "fp8"}}));
      const ModelSize size = model_size(config, &stored), plain = model_size(config);
      for (const WeightCount ModelSize::* part :
           {&ModelSize::attention, &ModelSize::indexer, &ModelSize::dense_mlp,
            &ModelSize::shared_experts, &ModelSize::experts}) {
        EXPECT_EQ((size.*part).plain, (size.*part).matrices) << (size.*part).name;
        EXPECT_EQ((size.*part).matrices, (plain.*part).matrices) << (size.*part).name;
      }
      ++count;
    }
  }
  EXPECT_GE(count, 10);
}

// Linear layers have the form; a tied embedding is the head, which stays bfloat16.
TEST(PlainMatrices, ATiedEmbeddingIsAHead) {
  const auto expect_half = [](const std::string& args, const Options& options) {
    SCOPED_TRACE(args + options.quantization);
    const Priced found = price("qwen3-0.6b", args, options);
    EXPECT_LT(found.form.linear_bits, 9);
    EXPECT_EQ(found.form.bytes(found.size.embedding, true), 2 * found.size.embedding.matrices);
    // The cost model leaves norms out.
    EXPECT_NEAR(double(found.bytes - 4 * found.size.floats()), found.of_mix, 4);
  };
  expect_half(fp8_without(""), {});
  for (const char* stored :
       {R"("awq", "bits": 4, "group_size": 128, "zero_point": true)",
        R"("gptq", "bits": 4, "group_size": 128, "sym": true, "desc_act": false)",
        R"("modelopt", "quant_algo": "NVFP4")",
        R"("fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic")"})
    expect_half(fmt::format(R"({{"quantization_config": {{"quant_method": {}}}}})", stored), {});
  for (const char* rounded : {"fp8", "int8", "int4"}) {
    Options options;
    options.quantization = rounded;
    expect_half("", options);
  }
}

// Expects that a start takes what is planned, and returns it.
double expect_planned(Options options, const std::string& config_args) {
  options.json_model_override_args = config_args;
  options.load_format = "dummy";
  options.threads = 1;
  options.max_total_tokens = 1024;
  const auto engine = Engine::create(options);
  const ModelConfig& config = engine->model_config();
  const ServingPlan plan = resolve_or_throw(options, config, Machine{});
  const auto planned = static_cast<double>(
      weight_form(plan, config, options.model)
          .bytes(size_of_model(plan, config, options.model), config.tie_word_embeddings));
  const auto taken = static_cast<double>(engine->memory_plan().weight_bytes);
  EXPECT_NEAR(taken / planned, 1, 0.005) << options.quantization << config_args;
  return taken;
}

// kv_b_proj of latent attention, the weights of an indexer's heads, and learned positions.
TEST(PlainMatrices, AreThoseThatNoFormIsFor) {
  set_log_level(LogLevel::kError);
  Options latents, positions;
  latents.model = source_dir() + "/models/sluice-tiny";
  TestFolder folder;
  folder.write("config.json",
               R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 256,
                   "n_layer": 2, "n_head": 4, "n_positions": 1024, "vocab_size": 1024,
                   "torch_dtype": "bfloat16"})");
  positions.model = folder.path();
  for (const char* quantization : {"none", "fp8", "int8", "int4"}) {
    latents.quantization = positions.quantization = quantization;
    latents.mla_prefill = "absorb";
    const double absorbed = expect_planned(latents, "");
    latents.mla_prefill = "auto";
    EXPECT_GT(expect_planned(latents, ""), absorbed);
    expect_planned(positions, "");
  }
  // DeepSeek-V3.2: 61 layers of 128 heads, latents of 512 numbers, 64 heads of the indexer.
  for (const char* quantization : {"auto", "fp8", "int4"}) {
    Options options;
    options.quantization = quantization;
    const Priced found = price("deepseek-v3.2", "", options);
    const bool is_plain = found.form.linear_bits == 16;
    EXPECT_FALSE(is_plain && quantization != std::string("auto"));
    EXPECT_EQ(found.size.attention.plain, std::int64_t{61} * 512 * 128 * (128 + 128));
    EXPECT_EQ(found.size.indexer.plain, std::int64_t{61} * 7168 * 64);
    // The cost model counts routers, but no vectors.
    const std::int64_t vectors = found.size.floats() - found.size.router.floats;
    EXPECT_NEAR(double(found.bytes - 4 * vectors) / found.of_mix, 1, 1e-6);
  }
}

// The projection before the model's own draft layer is a linear layer.
TEST(PlainMatrices, OfADraftLayerAreThoseOfAStart) {
  set_log_level(LogLevel::kError);
  Options options;
  options.model = source_dir() + "/models/sluice-tiny";
  options.speculative_algorithm = "NEXTN";
  options.threads = 1;
  options.max_total_tokens = 1024;
  for (const char* quantization : {"none", "fp8", "int4"}) {
    options.quantization = quantization;
    const auto engine = Engine::create(options);
    const ModelConfig& config = engine->model_config();
    const ServingPlan plan = resolve_or_throw(options, config, Machine{});
    const WeightForm form = weight_form(plan, config, options.model);
    const auto planned = static_cast<double>(
        form.bytes(size_of_model(plan, config, options.model), config.tie_word_embeddings) +
        draft_size(options, plan, config, options.model, form).weight_bytes);
    EXPECT_NEAR(static_cast<double>(engine->memory_plan().weight_bytes) / planned, 1, 0.002)
        << quantization;
  }
}

// Random weights stand for the checkpoint that the configuration describes.
TEST(PlainMatrices, StayPlainInRandomWeights) {
  set_log_level(LogLevel::kError);
  Options dense, experts;
  dense.model = kConfigs + "qwen3-0.6b";
  experts.model = kConfigs + "qwen3-30b-a3b";
  const auto with = [](const std::string& shape, const std::string& ignored) {
    std::string text = fp8_without(ignored);
    return text.insert(1, shape + ", ");
  };
  const std::string
      two = R"("num_hidden_layers": 2, "vocab_size": 4096, "tie_word_embeddings": false)",
      few = two + R"(, "num_experts": 16)";
  const double all = expect_planned(dense, with(two, ""));
  const std::string tied = R"("num_hidden_layers": 2, "vocab_size": 16384)";
  expect_planned(dense, with(tied, ""));
  for (const char* rounded : {"fp8", "int8", "int4"}) {
    Options options = dense;
    options.quantization = rounded;
    expect_planned(options, "{" + tied + "}");
  }
  // A byte more for each number, and no float32 for 128 of them.
  EXPECT_EQ(expect_planned(dense, with(two, R"("model.layers.0.mlp.down_proj")")) - all,
            1024 * 3072 * (1 - 4.0 / 128));
  expect_planned(dense, with(two, R"("re:.*\\.(v|gate)_proj")"));
  expect_planned(dense, with(two, R"("self_attn")"));
  expect_planned(experts, with(few, ""));
  expect_planned(experts, with(few, R"("model.layers.1.mlp.experts", "re:.*0.self_attn")"));
  expect_planned(experts, with(few, R"("re:.*")"));
}

// Integers with zero points take a byte more for each group.
TEST(PlainMatrices, IntegersHaveTheGroupsOfTheirCheckpoint) {
  set_log_level(LogLevel::kError);
  const auto awq = [](int group) {
    return fmt::format(R"("quantization_config": {{"quant_method": "awq", "bits": 4,
                           "group_size": {}, "zero_point": true}}}})",
                       group);
  };
  EXPECT_DOUBLE_EQ(price("qwen3-8b", "{" + awq(128)).form.linear_bits, 4 + 24.0 / 128);
  EXPECT_DOUBLE_EQ(price("qwen3-8b", "{" + awq(32)).form.linear_bits, 4 + 24.0 / 32);
  EXPECT_DOUBLE_EQ(price("qwen3-8b",
                         R"({"quantization_config": {"quant_method": "gptq", "bits": 4,
                             "group_size": 64, "sym": true, "desc_act": false}})")
                       .form.linear_bits,
                   4 + 24.0 / 64);
  EXPECT_DOUBLE_EQ(price("qwen3-8b",
                         R"({"quantization_config": {"quant_method": "compressed-tensors",
                             "format": "pack-quantized", "config_groups": {"g": {
                             "targets": ["Linear"], "weights": {"type": "int", "num_bits": 4,
                             "strategy": "group", "group_size": 64, "symmetric": true}}}}})")
                       .form.linear_bits,
                   4 + 16.0 / 64);
  Options options;
  const std::string two =
      R"({"num_hidden_layers": 2, "vocab_size": 4096, "tie_word_embeddings": false, )";
  options.model = kConfigs + "qwen3-0.6b";
  expect_planned(options, two + awq(128));
  options.model = kConfigs + "qwen3-30b-a3b";
  expect_planned(options, two + R"("num_experts": 16, )" + awq(128));
}

}  // namespace
}  // namespace sluice
