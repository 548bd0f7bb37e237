#include "config/dflash_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/json.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json draft() {
  return Json::parse(R"({"architectures": ["DFlashDraftModel"], "model_type": "qwen3",
      "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 12, "vocab_size": 320, "rms_norm_eps": 1e-6,
      "rope_theta": 1000000, "max_position_embeddings": 2048, "block_size": 5,
      "num_target_layers": 7,
      "dflash_config": {"mask_token_id": 319, "target_layer_ids": [1, 3, 5]}})");
}

ModelConfig target() {
  ModelConfig out;
  out.vocab_size = 320;
  out.hidden_size = 32;
  out.num_layers = 7;
  return out;
}

TEST(DflashConfig, ReadsTheBlockAndTheOutputsOfLayers) {
  const std::string text = dump_json(draft());
  EXPECT_TRUE(is_dflash_config(text));
  const DflashConfig read = parse_dflash_config(text, "config.json", target());
  EXPECT_EQ(read.block_size, 5);
  EXPECT_EQ(read.mask_token, 319);
  EXPECT_THAT(read.target_layers, ElementsAre(2, 4, 6));
  EXPECT_EQ(read.layers.num_layers, 2);
  EXPECT_TRUE(read.layers.qk_norm);
  EXPECT_FALSE(is_dflash_config(R"({"architectures": ["Qwen3ForCausalLM"]})"));
}

TEST(DflashConfig, WhatDoesNotFitIsRefusedByName) {
  struct Row {
    const char *patch, *message;
  };
  for (const Row& row : {
           Row{R"({"architectures": ["Qwen3ForCausalLM"]})", "is no DFlash draft"},
           Row{R"({"model_type": "llama"})", "model_type is llama"},
           Row{R"({"vocab_size": 321})", "vocab_size and hidden_size are 321 and 32"},
           Row{R"({"hidden_size": 64})", "vocab_size and hidden_size are 320 and 64"},
           Row{R"({"num_target_layers": 8})", "num_target_layers is 8, and the target has 7"},
           Row{R"({"block_size": null})", "block_size"},
           Row{R"({"block_size": 1})", "block_size is 1; it must be an integer from 2 to 64"},
           Row{R"({"dflash_config": null})", "dflash_config.mask_token_id is missing"},
           Row{R"({"dflash_config": {"mask_token_id": 320}})", "is no token of the target's 320"},
           Row{R"({"dflash_config": {"target_layer_ids": null}})", "target_layer_ids"},
           Row{R"({"dflash_config": {"target_layer_ids": [1, 7]}})", "target_layer_ids"},
           Row{R"({"dflash_config": {"target_layer_ids": [3, 1]}})", "they must ascend"},
           Row{R"({"use_sliding_window": true, "sliding_window": 64,
                   "layer_types": ["full_attention", "sliding_attention"]})",
               "layer 1 attends to a window of 64 tokens"},
       }) {
    Json config = draft();
    config.merge_patch(Json::parse(row.patch));
    try {
      (void)parse_dflash_config(dump_json(config), "config.json", target());
      ADD_FAILURE() << row.patch;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_THAT(error.message(), HasSubstr(row.message));
    }
  }
}

}  // namespace
}  // namespace sluice
