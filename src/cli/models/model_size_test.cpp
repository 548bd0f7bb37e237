#include "cli/models/model_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "base/testing/source_dir.h"
#include "checkpoint/load_config.h"
#include "checkpoint/weight_source.h"
#include "cli/models/model_files.h"
#include "engine/engine.h"

namespace sluice {
namespace {

const std::string kModels = source_dir() + "/tests/golden/models/";
const std::string kMoreModels = SLUICE_BINARY_DIR "/golden/";
const std::string kTiny = source_dir() + "/models/sluice-tiny";
const std::string kConfigs = source_dir() + "/bench/configs/";

// Elements of the tensors that the model uses: not next-token-prediction layers, nor a head that is
// tied.
std::int64_t elements_in(const std::string& directory, const ModelConfig& config) {
  const WeightSource source =
      WeightSource::checkpoint(directory, {.quantization = config.quantization});
  std::int64_t sum = 0;
  for (const std::string& name : source.names()) {
    const std::string next = fmt::format("model.layers.{}.", config.num_layers);
    if (name.starts_with(next) || name.starts_with("model.mtp_layers.") ||
        name.ends_with("rotary_emb.inv_freq") || name.find("vision") != std::string::npos ||
        name.find("visual") != std::string::npos || name.find("multi_modal") != std::string::npos)
      continue;
    if (config.tie_word_embeddings && name == "lm_head.weight") continue;
    sum += source.find(name)->numel();
  }
  return sum;
}

TEST(ModelSize, EveryGoldenModelHasAsManyParameters) {
  set_log_level(LogLevel::kError);
  int count = 0;
  std::vector<std::string> directories;
  for (const std::string& folder :
       {kModels, kMoreModels})  // the second is unpacked where golden tests are built
    if (std::filesystem::is_directory(folder))
      for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (std::filesystem::exists(entry.path() / "golden.json"))
          directories.push_back(entry.path().string());
  for (const std::string& directory : directories) {
    if (directory.find("fallback") != std::string::npos)
      continue;  // no class here knows their sizes
    ModelConfig config = load_model_config(directory);
    const std::vector<std::string> names = WeightSource::checkpoint(directory).names();
    // A file without a head is tied, whatever its configuration says.
    config.tie_word_embeddings |= std::ranges::none_of(names, [](const std::string& name) {
      return name.ends_with("lm_head.weight") || name.ends_with("embed_out.weight");
    });
    const std::int64_t wanted = elements_in(directory, config);
    std::int64_t extra = 0;  // indexers that sharing layers have in some files
    const WeightSource source =
        WeightSource::checkpoint(directory, {.quantization = config.quantization});
    for (const std::string& name : source.names())
      for (int i = 0; i < config.num_layers; ++i)
        if (config.layer(i).indexer == IndexerRole::kShared &&
            name.starts_with(fmt::format("model.layers.{}.self_attn.indexer.", i)))
          extra += source.find(name)->numel();
    EXPECT_EQ(model_size(config).parameters() + extra, wanted) << directory;
    ++count;
  }
  EXPECT_GE(count, 10);
}

TEST(ModelSize, MemoryIsWhatTheEnginePlans) {
  set_log_level(LogLevel::kError);
  for (const std::string& directory :
       {kModels + "llama-plain", kModels + "mistral-swa", kModels + "mixtral",
        kModels + "deepseek-v3", kModels + "glm-moe-dsa", kModels + "glm-moe-dsa-shared-index"}) {
    Options options;
    options.model = directory;
    options.dtype = "bfloat16";
    options.threads = 1;
    options.max_total_tokens = 2048;
    const auto engine = Engine::create(options);
    EXPECT_EQ(kv_bytes_per_token(kv_page_groups(engine->model_config(), DType::kBF16)),
              engine->memory_plan().kv_bytes_per_token)
        << directory;
    const std::int64_t expected = model_size(engine->model_config()).bytes(16);
    // Tiny tensors are rounded up to whole cache lines or tiles.
    EXPECT_GE(engine->memory_plan().weight_bytes, expected) << directory;
    EXPECT_LE(static_cast<double>(engine->memory_plan().weight_bytes),
              1.25 * static_cast<double>(expected))
        << directory;
  }
}

TEST(ModelSize, QuantisedMemoryIsWhatTheEnginePlans) {
  set_log_level(LogLevel::kError);
  for (const char* quantization : {"int8", "int4"}) {
    Options options;
    options.model = kConfigs + "qwen3-0.6b";
    options.json_model_override_args =
        R"({"num_hidden_layers": 2, "vocab_size": 4096, "tie_word_embeddings": false})";
    options.load_format = "dummy";
    options.quantization = quantization;
    options.kv_cache_dtype = "int8";
    options.threads = 1;
    options.max_total_tokens = 1024;
    const auto engine = Engine::create(options);
    const ModelConfig& config = engine->model_config();
    const ServingPlan plan = resolve_or_throw(options, config, Machine{});
    const WeightForm form = weight_form(plan, config, options.model);
    const auto planned = static_cast<double>(form.bytes(model_size(config), false));
    const auto taken = static_cast<double>(engine->memory_plan().weight_bytes);
    EXPECT_NEAR(taken / planned, 1, 0.01) << quantization;
    EXPECT_NEAR(product_bits(config, taken, form.embedding_bits), form.product_bits, 0.1)
        << quantization;
    EXPECT_EQ(kv_bytes_per_token(kv_page_groups(config, plan.numerics().kv())),
              engine->memory_plan().kv_bytes_per_token);
  }
}

TEST(ModelSize, ExpertsAreRoundedAsTheEngineRoundsThem) {
  set_log_level(LogLevel::kError);
  for (const char* quantization : {"fp8", "int8", "int4"}) {
    Options options;
    options.model = kConfigs + "qwen3-30b-a3b";
    options.json_model_override_args =
        R"({"num_hidden_layers": 2, "vocab_size": 4096, "num_experts": 16})";
    options.load_format = "dummy";
    options.quantization = quantization;
    options.threads = 1;
    options.max_total_tokens = 1024;
    const auto engine = Engine::create(options);
    const ModelConfig& config = engine->model_config();
    const WeightForm form =
        weight_form(resolve_or_throw(options, config, Machine{}), config, options.model);
    const auto planned = static_cast<double>(form.bytes(model_size(config), false));
    EXPECT_NEAR(static_cast<double>(engine->memory_plan().weight_bytes) / planned, 1, 0.01)
        << quantization;
    EXPECT_LE(form.expert_bits, 9) << quantization;
  }
}

TEST(ModelSize, PublishedDimensionsGivePublishedSizes) {
  // Parameters in all, as the models' cards say, in billions.
  for (const auto& [name, billions] :
       std::vector<std::pair<std::string, double>>{{"qwen3-0.6b", 0.596},
                                                   {"llama-3.2-1b", 1.236},
                                                   {"qwen3-8b", 8.19},
                                                   {"qwen3-30b-a3b", 30.53},
                                                   {"deepseek-v2-lite", 15.71},
                                                   {"glm-5", 744}}) {
    const char* whole = name == "glm-5" ? R"({"num_hidden_layers": 78})" : "{}";
    const ModelSize size = model_size(load_model_config(kConfigs + name, whole));
    EXPECT_NEAR(static_cast<double>(size.parameters()) / 1e9, billions, 0.005 * billions) << name;
  }
  const ModelConfig cut =
      load_model_config(kConfigs + "qwen3-30b-a3b", R"({"num_hidden_layers": 12})");
  EXPECT_EQ(cut.num_layers, 12);
}

TEST(ModelSize, StepsReadWhatTheyTouch) {
  const ModelConfig dense = load_model_config(kConfigs + "qwen3-0.6b");
  EXPECT_DOUBLE_EQ(weight_bytes_read(dense, 1, 1.2e9, 16), 1.2e9);  // tied
  EXPECT_EQ(kv_bytes_read(dense, DType::kBF16, 100), 100 * 28 * 2 * 8 * 128 * 2);
  const ModelConfig moe =
      load_model_config(kConfigs + "qwen3-30b-a3b", R"({"num_hidden_layers": 12})");
  EXPECT_DOUBLE_EQ(expected_experts(*moe.moe, 1), 8);
  EXPECT_NEAR(expected_experts(*moe.moe, 2), 8 + 8 * 120.0 / 128, 1e-9);
  const ModelSize size = model_size(moe);
  const double one = static_cast<double>(size.attention.matrices + size.head.matrices + 2048) * 2 +
                     static_cast<double>(size.experts.matrices) * 2 * 8 / 128 +
                     static_cast<double>(size.floats()) * 4;
  EXPECT_NEAR(weight_bytes_read(moe, 1, static_cast<double>(size.bytes(16)), 16), one, 1);
  // Experts and linear layers in 9 bits an element, the embedding in 16.
  const auto embedding = static_cast<double>(size.embedding.matrices);
  const double quantised = (static_cast<double>(size.matrices()) - embedding) * 9 / 8 +
                           embedding * 2 + static_cast<double>(size.floats()) * 4;
  EXPECT_NEAR(product_bits(moe, quantised, 16), 9, 1e-6);
  EXPECT_NEAR(weight_bytes_read(moe, 1, quantised, 16),
              (one - 2 * 2048 - static_cast<double>(size.floats()) * 4) * 9 / 16 + 2 * 2048 +
                  static_cast<double>(size.floats()) * 4,
              1);
  // Sparse attention reads index keys of all tokens and latents of the chosen ones.
  const ModelConfig tiny = load_model_config(kTiny);
  const std::int64_t far = kv_bytes_read(tiny, DType::kBF16, 32768),
                     near = kv_bytes_read(tiny, DType::kBF16, 16384);
  std::int64_t owners = 0;
  for (const LayerConfig& layer : tiny.layers) owners += layer.indexer == IndexerRole::kFull;
  EXPECT_EQ(far - near, 16384 * owners * tiny.indexer->head_dim * 2);
}

TEST(ModelSize, PrefillIsTwoOperationsAWeightAndToken) {
  const ModelConfig c = load_model_config(kConfigs + "qwen3-0.6b");
  const ModelSize size = model_size(c);
  const double layer = static_cast<double>(size.attention.matrices + size.dense_mlp.matrices) / 28;
  // Keys and values of all tokens in 28 layers, the rest of the last for one token.
  const double keys = 1024.0 * 2 * 8 * 128;
  const double weights = 2.0 * (512 * (27 * layer + keys) + layer - keys);
  const double attention = 2.0 * (27 * (512.0 * 513 / 2) + 512) * 16 * 256;
  const double head = 2.0 * 151936 * 1024;
  EXPECT_NEAR(prefill_operations(c, 512), weights + attention + head, 1);
  // One token goes through everything.
  const double one = 2.0 * (28 * layer + 28.0 * 16 * 256 + 151936.0 * 1024);
  EXPECT_NEAR(prefill_operations(c, 1), one, 1);
}

TEST(ModelSize, PrefillOfAMixtureCountsTheChosenExperts) {
  const ModelConfig c = load_model_config(kConfigs + "qwen3-30b-a3b");
  const ModelSize size = model_size(c);
  const double layer = (static_cast<double>(size.attention.matrices + size.router.floats) +
                        static_cast<double>(size.experts.matrices) * 8 / 128) /
                       48;
  const double keys = 2048.0 * 2 * 4 * 128;
  const double weights = 2.0 * (100 * (47 * layer + keys) + layer - keys);
  const double attention = 2.0 * (47 * (100.0 * 101 / 2) + 100) * 32 * 256;
  EXPECT_NEAR(prefill_operations(c, 100), weights + attention + 2.0 * 151936 * 2048, 1000);
}

}  // namespace
}  // namespace sluice
