#include "models/layer_range.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "models/testing/driver.h"

namespace sluice::testing {
namespace {

TEST(LayerRange, StagesShareAllLayersAndTheLastHasNoMoreThanOthers) {
  for (int layers = 1; layers < 40; ++layers) {
    for (int stages = 1; stages <= layers; ++stages) {
      int next = 0;
      for (int stage = 0; stage < stages; ++stage) {
        const LayerRange range = layers_of_stage(layers, stage, stages);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.count(), layers / stages);
        EXPECT_LE(range.count(), (layers + stages - 1) / stages);
        next = range.end;
      }
      EXPECT_EQ(next, layers);
      EXPECT_EQ(layers_of_stage(layers, stages - 1, stages).count(), layers / stages);
    }
  }
}

struct Stage {
  std::int64_t weight_bytes = 0;
  std::vector<PageGroupSpec> groups;
};

class Stages : public ::testing::TestWithParam<std::string> {
 protected:
  Stage load(const LayerRange& layers) {
    const std::string bundled = golden_models() + GetParam();
    const std::string directory = std::filesystem::exists(bundled)
                                      ? bundled
                                      : std::string(SLUICE_MORE_MODELS "/") + GetParam();
    ModelConfig config =
        parse_model_config(*read_text_beneath(directory, "config.json", 1 << 20), "config.json");
    num_layers_ = config.num_layers;
    tied_bytes_ =
        config.tie_word_embeddings ? std::int64_t{4} * config.vocab_size * config.hidden_size : 0;
    const WeightSource source =
        WeightSource::checkpoint(directory, {.quantization = config.quantization});
    ThreadPool pool(1);
    Context ctx;
    ctx.pool = &pool;
    ctx.cpu_isa = detect_cpu_isa();
    ModelOptions options;
    options.layers = layers;
    const auto model = load_model(ctx, config, source, options);
    return {model->weight_bytes(), model->kv_groups()};
  }
  int num_layers_ = 0;
  std::int64_t tied_bytes_ = 0;
};
INSTANTIATE_TEST_SUITE_P(LayerRange, Stages,
                         ::testing::Values("qwen3", "qwen2-tied", "gpt2", "gemma3", "gpt-oss",
                                           "deepseek-v2-lite", "glm-moe-dsa", "qwen3-next",
                                           "mamba2"));

// Planes of a group by name, each with its layers.
std::multiset<std::pair<std::string, int>> cached(const Stage& stage, std::size_t group) {
  std::multiset<std::pair<std::string, int>> out;
  for (const PlaneSpec& plane : stage.groups[group].planes)
    for (const int layer : plane.layers) out.emplace(plane.name, layer);
  return out;
}

TEST_P(Stages, HaveTheWeightsAndTheCacheOfTheirLayersAlone) {
  const Stage whole = load({});
  const int middle = num_layers_ / 2;
  ASSERT_GE(middle, 1);
  const Stage first = load({0, middle}), last = load({middle, num_layers_});
  EXPECT_LT(first.weight_bytes, whole.weight_bytes);
  EXPECT_LT(last.weight_bytes, whole.weight_bytes);
  // Both have the matrix of tied ends and the frequencies of rotations.
  constexpr std::int64_t kFrequencies = 4096;
  EXPECT_GE(first.weight_bytes + last.weight_bytes, whole.weight_bytes);
  EXPECT_LE(first.weight_bytes + last.weight_bytes,
            whole.weight_bytes + tied_bytes_ + kFrequencies);

  ASSERT_EQ(first.groups.size(), whole.groups.size());
  ASSERT_EQ(last.groups.size(), whole.groups.size());
  for (std::size_t g = 0; g < whole.groups.size(); ++g) {
    auto both = cached(first, g);
    for (const auto& [plane, layer] : both) EXPECT_LT(layer, middle);
    both.merge(cached(last, g));
    EXPECT_EQ(both, cached(whole, g)) << whole.groups[g].name;
    EXPECT_EQ(first.groups[g].name, whole.groups[g].name);
  }
}

}  // namespace
}  // namespace sluice::testing
