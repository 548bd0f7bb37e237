#include "cli/model_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/files.h"
#include "cli/progress.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::Not;

const std::string kTiny = SLUICE_SOURCE_DIR "/models/sluice-tiny";

TEST(ModelFacts, KeysThatChangeNothingAreFound) {
  Json config = parse_json_or_throw(read_text_file(kTiny + "/config.json"), "config.json");
  config["nobody_knows_this"] = {{"a", 1}};
  config["nor_this"] = "text";
  const std::vector<std::string> ignored = ignored_config_keys(dump_json(config), "");
  EXPECT_THAT(ignored, Contains("nobody_knows_this"));
  EXPECT_THAT(ignored, Contains("nor_this"));
  for (const char* key :
       {"hidden_size", "rms_norm_eps", "architectures", "vocab_size", "hidden_act", "index_topk"})
    EXPECT_THAT(ignored, Not(Contains(key)));
  EXPECT_THAT(ignored_config_keys("[]", ""), IsEmpty());
  EXPECT_THAT(ignored_config_keys("{\"hidden_size\": 0}", ""), IsEmpty());
}

TEST(ModelFacts, StoredTypesAreSummed) {
  const std::vector<StoredType> types = stored_types(kTiny);
  ASSERT_EQ(types.size(), 2u);
  EXPECT_EQ(types[0].dtype, "bfloat16");
  EXPECT_EQ(types[1].dtype, "float32");
  EXPECT_GT(types[0].bytes, 40 << 20);
  EXPECT_THAT(stored_types(SLUICE_SOURCE_DIR "/bench/configs/glm-5"), IsEmpty());
}

TEST(ModelFacts, WeightsLieAsTheOptionsSay) {
  const std::string model = SLUICE_SOURCE_DIR "/bench/configs/qwen3-8b";
  const ModelConfig config = load_model_config(model);
  const ModelSize size = model_size(config);
  const auto bytes = [&](std::string_view dtype, std::string_view quantization, int group) {
    Options options;
    options.dtype = dtype;
    options.quantization = quantization;
    options.quantization_group_size = group;
    return weight_form(options, config, model).bytes(size, false);
  };
  const std::int64_t floats = 4 * size.floats(), rest = size.matrices() - size.embedding.matrices;
  EXPECT_EQ(bytes("auto", "auto", 32), 2 * size.matrices() + floats);
  EXPECT_EQ(bytes("float32", "auto", 32), 2 * size.matrices() + floats);  // widened on the way
  EXPECT_EQ(bytes("auto", "int8", 32), 2 * size.embedding.matrices + rest * 17 / 16 + floats);
  EXPECT_EQ(bytes("auto", "int4", 128), 2 * size.embedding.matrices + rest / 2 + rest / 64 + floats);
}

TEST(Progress, LinesFitTheTerminal) {
  EXPECT_EQ(progress_line("loading", 0.5, "1 of 2", 60),
            "loading     [###############................]  50 %  1 of 2");
  for (int width : {40, 60, 80, 200})
    EXPECT_LT(progress_line("requests", 0.99, "99 of 100", width).size(), static_cast<std::size_t>(width));
  EXPECT_EQ(progress_line("x", 2, "", 80).find('.'), std::string::npos);
  EXPECT_EQ(progress_line("x", -1, "", 80).find('#'), std::string::npos);
}

}  // namespace
}  // namespace sluice
