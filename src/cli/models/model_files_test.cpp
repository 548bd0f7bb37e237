#include "cli/models/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/folder.h"
#include "base/testing/source_dir.h"
#include "checkpoint/load_config.h"
#include "checkpoint/testing/gguf_writer.h"
#include "cli/files.h"
#include "cli/models/mix_choice.h"
#include "cli/progress.h"

namespace sluice {
namespace {

// The form under options on a CPU of one thread, and what it takes.
WeightForm form_of(const Options& options, const ModelConfig& config, const std::string& model) {
  return weight_form(resolve_or_throw(options, config, Machine{}), config, model);
}

std::int64_t bytes_of(const Options& options, const ModelConfig& config, const std::string& model) {
  const ServingPlan plan = resolve_or_throw(options, config, Machine{});
  return weight_form(plan, config, model).bytes(size_of_model(plan, config, model), false);
}

using testing::Contains;
using testing::IsEmpty;
using testing::Not;

const std::string kTiny = source_dir() + "/models/sluice-tiny";

TEST(ModelFiles, StoredTypesAreSummed) {
  const std::vector<StoredType> types = stored_types(kTiny);
  ASSERT_EQ(types.size(), 2u);
  EXPECT_EQ(types[0].dtype, "bfloat16");
  EXPECT_EQ(types[1].dtype, "float32");
  EXPECT_GT(types[0].bytes, 40 << 20);
  EXPECT_THAT(stored_types(source_dir() + "/bench/configs/glm-5"), IsEmpty());
}

// Who sees "no weights" would serve random ones.
TEST(ModelFiles, WeightsThatAreDamagedAreNotTakenForNone) {
  const TestFolder cut, partial;
  cut.write("model.safetensors", "too short");
  EXPECT_THROW(stored_types(cut.path()), Error);
  partial.write("model.safetensors.index.json",
                R"({"weight_map": {"a": "model-00001-of-00002.safetensors"}})");
  EXPECT_THROW(stored_types(partial.path()), Error);
}

TEST(ModelFiles, WeightsLieAsTheOptionsSay) {
  const std::string model = source_dir() + "/bench/configs/qwen3-8b";
  const ModelConfig config = load_model_config(model);
  const ModelSize size = model_size(config);
  const auto bytes = [&](std::string_view dtype, std::string_view quantization, int group) {
    Options options;
    options.dtype = dtype;
    options.quantization = quantization;
    options.quantization_group_size = group;
    return form_of(options, config, model).bytes(size, false);
  };
  const std::int64_t floats = 4 * size.floats(), rest = size.matrices() - size.embedding.matrices;
  EXPECT_EQ(bytes("auto", "auto", 32), 2 * size.matrices() + floats);
  EXPECT_EQ(bytes("float32", "auto", 32), 2 * size.matrices() + floats);  // widened on the way
  EXPECT_EQ(bytes("auto", "int8", 32), 2 * size.embedding.matrices + rest * 17 / 16 + floats);
  EXPECT_EQ(bytes("auto", "int4", 128),
            2 * size.embedding.matrices + rest / 2 + rest / 64 + floats);
}

TEST(ModelFiles, ExpertsOfMxfp4TakeTheirBits) {
  const std::string model = source_dir() + "/bench/configs/gpt-oss-20b";
  const ModelConfig config = load_model_config(model);
  const ModelSize size = model_size(config);
  // 24 layers of 32 experts with three matrices of 2,880 x 2,880, and biases.
  constexpr std::int64_t kExperts = std::int64_t{24} * 32 * 3 * 2880 * 2880;
  const auto bytes = [&](std::string_view quantization) {
    Options options;
    options.quantization = quantization;
    return bytes_of(options, config, model);
  };
  const std::int64_t rest = 2 * (size.matrices() - kExperts) + 4 * size.floats();
  EXPECT_EQ(bytes("auto"), rest + kExperts * 17 / 32);
  EXPECT_EQ(bytes("none"), rest + kExperts * 2);
}

TEST(ModelFiles, Nvfp4TakesItsBits) {
  const std::string model = source_dir() + "/bench/configs/qwen3-30b-a3b";
  ModelConfig config = load_model_config(model);
  config.quantization = {.method = "modelopt", .format = "nvfp4", .bits = 4};
  for (const std::string_view load : {"auto", "dummy"}) {
    Options options;
    options.load_format = load;
    const WeightForm form = form_of(options, config, model);
    EXPECT_EQ(form.linear_bits, 4.5625);
    EXPECT_EQ(form.expert_bits, 4.5625);
    EXPECT_EQ(form.product_bits, 16);
    EXPECT_EQ(form.describe(model_size(config)),
              "NVFP4 in linear layers and experts, bfloat16 in others");
  }
  Options none;
  none.quantization = "none";
  EXPECT_EQ(form_of(none, config, model).linear_bits, 16);
}

TEST(ModelFiles, TypesOfBlocksAreNamed) {
  GgufWriter writer;
  writer.text("general.architecture", "qwen2").number("qwen2.block_count", std::uint32_t{1});
  writer.number("qwen2.attention.head_count", std::uint32_t{1});
  writer.tensor("blk.0.ffn_up.weight", {64, 64}, 2, std::string(64 * 64 / 32 * 18, '\1'));
  writer.tensor("blk.0.ffn_down.weight", {64, 64}, 8, std::string(64 * 64 / 32 * 34, '\1'));
  writer.floats("output_norm.weight", {4}, {1, 1, 1, 1});
  TestFolder folder;
  folder.write("x.gguf", writer.bytes());
  const std::vector<StoredType> types = stored_types(folder.path() + "/x.gguf");
  ASSERT_EQ(types.size(), 3u);
  EXPECT_EQ(types[0].dtype, "Q8_0");
}

TEST(ModelFiles, TheCacheLiesAsTheOptionsSay) {
  const std::string configs = source_dir() + "/bench/configs/";
  const ModelConfig config = load_model_config(configs + "qwen3-8b");
  Options options;
  const auto bytes = [&] {
    return kv_bytes_per_token(
        kv_page_groups(config, resolve_or_throw(options, config, Machine{}).numerics().kv()));
  };
  EXPECT_EQ(bytes(), 36 * 2 * 8 * 128 * 2);
  options.kv_cache_dtype = "int8";  // and a scale for each head
  EXPECT_EQ(bytes(), 36 * 2 * 8 * (128 + 4));
  options.kv_cache_dtype = "fp8_e4m3";
  EXPECT_EQ(bytes(), 36 * 2 * 8 * 128);
  options.kv_cache_dtype = "float32";
  EXPECT_EQ(bytes(), 36 * 2 * 8 * 128 * 4);
  // Latents have a scale for 128 numbers, and rotated keys stay bfloat16.
  const ModelConfig latents = load_model_config(configs + "deepseek-v2-lite");
  for (const char* name : {"int8", "fp8_e4m3"}) {
    options.kv_cache_dtype = name;
    const DType dtype = resolve_or_throw(options, latents, Machine{}).numerics().kv();
    EXPECT_EQ(kv_bytes_per_token(kv_page_groups(latents, dtype)), 27 * (512 + 2 * 64 + 4));
  }
}

TEST(Progress, LinesFitTheTerminal) {
  EXPECT_EQ(progress_line("loading", 0.5, "1 of 2", 60),
            "loading     [###############................]  50 %  1 of 2");
  for (int width : {40, 60, 80, 200})
    EXPECT_LT(progress_line("requests", 0.99, "99 of 100", width).size(),
              static_cast<std::size_t>(width));
  EXPECT_EQ(progress_line("x", 2, "", 80).find('.'), std::string::npos);
  EXPECT_EQ(progress_line("x", -1, "", 80).find('#'), std::string::npos);
}

}  // namespace
}  // namespace sluice
