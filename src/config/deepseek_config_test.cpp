#include "config/deepseek_config.h"
#include "base/testing/source_dir.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

struct Row {
  const char* fixture;
  bool mla, nsa, draft;
};

TEST(DeepseekConfig, OfFixtures) {
  for (const Row& row :
       {Row{"deepseek-v2", true, false, false}, Row{"deepseek-v3", true, false, true},
        Row{"deepseek-v32", true, true, true}, Row{"glm-moe-dsa", true, true, true},
        Row{"qwen3-moe", false, false, false}}) {
    const ModelConfig config =
        load_config_json(source_dir() + "/tests/golden/models/" + row.fixture);
    EXPECT_EQ(is_deepseek_mla(config), row.mla) << row.fixture;
    EXPECT_EQ(is_deepseek_nsa(config), row.nsa) << row.fixture;
    const auto draft = draft_override(config);
    ASSERT_EQ(draft.has_value(), row.draft) << row.fixture;
    if (!draft) continue;
    EXPECT_EQ(draft->model_type, "deepseek_mtp");
    EXPECT_EQ(draft->architecture, "DeepSeekMTPModel");
    ModelConfig without = config;
    without.num_nextn_predict_layers = 0;
    EXPECT_FALSE(draft_override(without).has_value());
  }
}

}  // namespace
}  // namespace sluice
