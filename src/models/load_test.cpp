// Checkpoints that lack, misshape or add tensors; models from a configuration alone; partial runs
// over StageIO.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "checkpoint/load_config.h"
#include "models/testing/driver.h"
#include "models/testing/golden_support.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A copy of a fixture with an edited safetensors header. Edits keep the header's length, so offsets
// stay right.
class EditedModel {
 public:
  explicit EditedModel(const std::string& fixture)
      : path_((std::filesystem::temp_directory_path() / "sluice-model-XXXXXX").string()) {
    check(::mkdtemp(path_.data()) != nullptr, "cannot make {}", path_);
    std::filesystem::copy(golden_models() + fixture, path_);
    std::ifstream in(path_ + "/model.safetensors", std::ios::binary);
    std::stringstream bytes;
    bytes << in.rdbuf();
    bytes_ = bytes.str();
  }
  ~EditedModel() { std::filesystem::remove_all(path_); }

  // Replaces `from` by `to` after the first occurrence of `after`.
  EditedModel& edit(const std::string& after, const std::string& from, const std::string& to) {
    check(from.size() == to.size(), "an edit must keep the length");
    const std::size_t begin = bytes_.find(after);
    const std::size_t at = bytes_.find(from, begin);
    check(begin != std::string::npos && at != std::string::npos, "'{}' is not in the header", from);
    bytes_.replace(at, from.size(), to);
    std::filesystem::remove(path_ + "/model.safetensors");
    std::ofstream(path_ + "/model.safetensors", std::ios::binary) << bytes_;
    return *this;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string bytes_;
};

std::string error_of(const std::string& directory) {
  try {
    TestDriver driver(directory, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.message();
  }
  return "loaded";
}

std::string warnings_of(const std::string& directory) {
  ::testing::internal::CaptureStderr();
  TestDriver driver(directory, {});
  return ::testing::internal::GetCapturedStderr();
}

TEST(LoadModel, MissingTensorsAreAllNamed) {
  EditedModel model("qwen3");
  model.edit("", "model.norm.weight", "model.norm.weighs");
  model.edit("", "model.layers.1.self_attn.o_proj.weight",
             "model.layers.1.self_attn.o_proj.weighs");
  EXPECT_THAT(error_of(model.path()),
              AllOf(HasSubstr("lacks 2 tensors"), HasSubstr("model.norm.weight"),
                    HasSubstr("model.layers.1.self_attn.o_proj.weight")));
}

TEST(LoadModel, AWrongShapeNamesTheTensorAndBothShapes) {
  EditedModel model("qwen3-moe");
  model.edit("\"lm_head.weight\"", "[320,64]", "[64,320]");
  EXPECT_THAT(error_of(model.path()),
              AllOf(HasSubstr("lm_head.weight"), HasSubstr("64, 320"), HasSubstr("320, 64")));
}

TEST(LoadModel, AWrongTypeNamesTheTensor) {
  EditedModel model("qwen3");
  model.edit("\"model.norm.weight\"", "\"BF16\"", "\"I16\" ");
  EXPECT_THAT(error_of(model.path()), AllOf(HasSubstr("model.norm.weight"), HasSubstr("int16")));
}

TEST(LoadModel, UnusedTensorsAreNamedInOneWarning) {
  // Layer 0 keeps its biases under another name: the model has no bias there and reports the unused
  // tensors.
  EditedModel model("qwen2-tied");
  for (const std::string part : {"q", "k", "v"})
    model.edit("", "model.layers.0.self_attn." + part + "_proj.bias",
               "model.layers.0.self_attn." + part + "_proj.bios");
  const std::string warnings = warnings_of(model.path());
  EXPECT_THAT(warnings,
              AllOf(HasSubstr("3 tensors of the checkpoint are not used"), HasSubstr("q_proj.bios"),
                    HasSubstr("k_proj.bios"), HasSubstr("v_proj.bios")));
  EXPECT_EQ(std::count(warnings.begin(), warnings.end(), '\n'), 1);
}

TEST(LoadModel, KnownExtrasAreNoSurprise) {
  // deepseek-v3 and glm-moe-dsa carry next-token-prediction layers.
  for (const std::string fixture : {"deepseek-v3", "deepseek-v32", "glm-moe-dsa", "qwen2-tied"})
    EXPECT_THAT(warnings_of(golden_models() + fixture), Not(HasSubstr("not used"))) << fixture;
}

TEST(LoadModel, AFullIndexerLayerWithoutIndexerIsAnError) {
  EditedModel model("glm-moe-dsa");
  model.edit("", "model.layers.1.self_attn.indexer.wk.weight",
             "model.layers.1.self_attn.indexer.wq.weight");
  EXPECT_THAT(error_of(model.path()), HasSubstr("model.layers.1.self_attn.indexer.wk.weight"));
}

TEST(LoadModel, AFamilyWithHeadNormsDoesNotRunWithoutThem) {
  EditedModel model("qwen3");
  model.edit("", "model.layers.0.self_attn.q_norm.weight",
             "model.layers.0.self_attn.q_nurm.weight");
  EXPECT_THAT(error_of(model.path()), HasSubstr("model.layers.0.self_attn.q_norm.weight"));
}

TEST(LoadModel, EveryArchitectureOfTheConfigurationTableHasAModel) {
  const std::vector<std::string_view> models = model_architectures();
  for (const std::string_view name : supported_architectures())
    EXPECT_THAT(models, ::testing::Contains(name));
}

TEST(LoadModel, RandomWeightsComeFromTheConfigurationAlone) {
  for (const std::string fixture :
       {"llama-linear-bias-headdim", "qwen3", "qwen2-moe", "deepseek-v3", "glm-moe-dsa"}) {
    const ModelConfig config = load_model_config(golden_models() + fixture);
    ThreadPool pool(1);
    Context ctx;
    ctx.pool = &pool;
    const WeightSource random = WeightSource::dummy(1, 0.02);
    const auto model = load_model(ctx, config, random, {});
    // Random bfloat16 weights take as many bytes as the file's. Vectors are float32 in memory,
    // whatever type the file has.
    TestDriver loaded(golden_models() + fixture, {});
    EXPECT_EQ(model->weight_bytes(), loaded.model().weight_bytes()) << fixture;
    EXPECT_EQ(model->kv_groups().size(), loaded.model().kv_groups().size());
  }
}

TEST(LoadModel, DimensionsThatNoKernelTakesAreRefusedByName) {
  using Change = void (*)(ModelConfig&);
  const std::tuple<std::string, std::string, Change> cases[] = {
      {"qwen3", "head_dim is 1025; the kernels take 1024",
       [](ModelConfig& c) { c.head_dim = 1025; }},
      {"deepseek-v3", "kv_lora_rank is 2000", [](ModelConfig& c) { c.mla->kv_lora_rank = 2000; }},
      {"deepseek-v3", "kv_lora_rank + qk_rope_head_dim is 1153",
       [](ModelConfig& c) { c.mla->kv_lora_rank = 1024, c.mla->qk_rope_head_dim = 129; }},
      {"deepseek-v3", "v_head_dim is 1040", [](ModelConfig& c) { c.mla->v_head_dim = 1040; }},
      {"glm-moe-dsa", "index_head_dim is 4096", [](ModelConfig& c) { c.indexer->head_dim = 4096; }},
  };
  for (const auto& [fixture, message, change] : cases) {
    ModelConfig config = load_model_config(golden_models() + fixture);
    EXPECT_NO_THROW(require_known_dimensions(config));
    change(config);
    try {
      require_known_dimensions(config);
      ADD_FAILURE() << message;
    } catch (const Error& error) {
      EXPECT_THAT(error.message(), ::testing::HasSubstr(message));
    }
  }
}

TEST(LoadModel, WeightsStayInTheirStoredTypeAndAreThereOnce) {
  // Matrices as stored, vectors and routers in float32: the total is the sum over the file's
  // tensors.
  const std::string directory = golden_models() + "qwen3";
  const WeightSource source = WeightSource::checkpoint(directory);
  std::int64_t expected = 0;
  for (const std::string& name : source.names()) {
    const TensorInfo& info = *source.find(name);
    expected += info.numel() * (info.shape.size() == 1 ? 4 : 2);
  }
  TestDriver driver(directory, {});
  // In addition, a frequency for each pair of a head's rotary dimensions.
  expected += driver.config().head_dim / 2 * 4;
  EXPECT_EQ(driver.model().weight_bytes(), expected);
}

class Stage : public ::testing::Test {
 protected:
  Stage() : driver_(golden_models() + "qwen3", {}) {}
  TestDriver driver_;
  const std::vector<int> ids_{5, 9, 2, 31, 77};
};

TEST_F(Stage, AuxiliaryHiddenStatesAreTheResidualStreamBehindALayer) {
  const std::int64_t width = driver_.config().hidden_size;
  Buffer aux(2 * 5 * width * 4), half(5 * width * 4), last(5 * width * 4);
  driver_.step({{0, ids_}}, {}, [&](StageIO& io) {
    io.aux_layers = {0, 1};
    io.aux_hidden = {aux.tensor(DType::kF32, {5, width}),
                     aux.tensor(DType::kF32, {5, width}, 5 * width * 4)};
    io.final_hidden = last.tensor(DType::kF32, {5, width});
  });
  // A run that ends after layer 0 leaves the same residual stream for the next run.
  driver_.step({{1, ids_}}, {1}, [&](StageIO& io) {
    if (io.layer_begin == 1)
      std::memcpy(half.data(), io.hidden.data, static_cast<std::size_t>(half.bytes()));
  });
  EXPECT_EQ(std::memcmp(aux.data(), half.data(), static_cast<std::size_t>(5 * width * 4)), 0);
  EXPECT_NE(std::memcmp(aux.data(), last.data(), static_cast<std::size_t>(5 * width * 4)), 0);
}

TEST_F(Stage, GivenEmbeddingsReplaceTheTable) {
  const std::int64_t width = driver_.config().hidden_size;
  const Rows expected = driver_.step({{0, ids_}});
  Buffer embeds(5 * width * 4);
  const WeightSource source = WeightSource::checkpoint(golden_models() + "qwen3");
  for (std::size_t t = 0; t < ids_.size(); ++t) {
    const std::size_t row_bytes = static_cast<std::size_t>(width) * 4;
    source.load({.name = "model.embed_tokens.weight",
                 .shape = {driver_.config().vocab_size, width},
                 .ranges = {{ids_[t], 1}}},
                DType::kF32, {static_cast<std::byte*>(embeds.data()) + t * row_bytes, row_bytes});
  }
  const std::vector<int> other(ids_.size(), 0);
  const Rows rows = driver_.step({{1, other}}, {}, [&](StageIO& io) {
    io.input_embeds = embeds.tensor(DType::kF32, {5, width});
  });
  EXPECT_EQ(rows, expected);
}

TEST_F(Stage, AnEmptyBatchTouchesNothing) {
  EXPECT_TRUE(driver_.step({}).empty());
}

}  // namespace
}  // namespace sluice::testing
