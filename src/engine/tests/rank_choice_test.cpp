#include "engine/rank_choice.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/testing/source_dir.h"
#include "checkpoint/load_config.h"

namespace sluice {
namespace {

ModelConfig config_of(const std::string& model) {
  return load_model_config(source_dir() + "/tests/golden/models/" + model);
}

TEST(RankChoice, SaysWhatDoesNotDivideAndWhatWould) {
  ModelConfig config = config_of("qwen3");
  config.num_heads = 24;
  config.num_kv_heads = 8;
  config.intermediate_size = 96;
  EXPECT_EQ(sharing_refusal(config, 1), "");
  EXPECT_EQ(sharing_refusal(config, 4), "");
  EXPECT_EQ(sharing_refusal(config, 24), "") << "three ranks have one KV head each";
  EXPECT_EQ(sharing_refusal(config, 5),
            "8 key heads cannot be shared equally by 5 ranks; --tp-size 2, 4, 8, 24 would do");
  config.num_heads = 25;
  config.num_kv_heads = 1;
  EXPECT_EQ(sharing_refusal(config, 2),
            "25 attention heads cannot be shared equally by 2 ranks, and no other number divides "
            "the model");
}

TEST(RankChoice, EachStageNeedsALayer) {
  ModelConfig config = config_of("qwen3");
  const int layers = config.num_layers;
  EXPECT_EQ(stage_refusal(config, 1, 64), "");
  EXPECT_EQ(stage_refusal(config, layers, 2), "");
  EXPECT_EQ(stage_refusal(config, layers + 1, 1),
            fmt::format("each stage needs a layer, and the model has {0}; --pp-size {0} would do",
                        layers));
  EXPECT_EQ(stage_refusal(config, 2, 33), "2 stages of 33 ranks are 66 processes; 64 are the most");
  config.fallback.emplace();
  EXPECT_NE(stage_refusal(config, 2, 1).find("Transformers plugin"), std::string::npos);
}

TEST(RankChoice, CountsExpertsAndLatents) {
  ModelConfig config = config_of("deepseek-v2-lite");
  EXPECT_EQ(sharing_refusal(config, 2), "");
  config.moe->moe_intermediate_size = 33;
  EXPECT_NE(sharing_refusal(config, 2).find("33 columns of an expert"), std::string::npos);
}

TEST(RankChoice, GroupsOfAttentionDivideTheRanksAndNotTheHeads) {
  ModelConfig config = config_of("qwen3");
  config.num_heads = config.num_kv_heads = 6;
  config.intermediate_size = 96;
  EXPECT_NE(sharing_refusal(config, 4), "");
  EXPECT_EQ(sharing_refusal(config, 4, {.dp_size = 4}), "") << "each rank has all heads";
  EXPECT_EQ(sharing_refusal(config, 4, {.dp_size = 2}), "");
  EXPECT_EQ(dp_refusal(config, 4, {.dp_size = 2}), "");
  EXPECT_EQ(dp_refusal(config, 4, {.dp_size = 3}),
            "--tp-size is 4, the number of all ranks, which 3 groups cannot share equally; "
            "--dp-size 2, 4 would do");
  EXPECT_EQ(dp_refusal(config, 1, {.dp_size = 4}),
            "--tp-size is 1, the number of all ranks; --tp-size 4, 8, 12, 24 would do");
  EXPECT_EQ(dp_refusal(config, 1, {.dp_size = 4, .num_stages = 4}),
            "--tp-size is 1, the number of all ranks; --tp-size 4, 8, 12 would do");
}

TEST(RankChoice, DealsWholeExperts) {
  ModelConfig config = config_of("mixtral");
  config.moe->num_experts = 6;
  config.moe->moe_intermediate_size = 33;
  EXPECT_EQ(expert_groups_refusal(config, 4, {.expert_groups = 4}), "");
  EXPECT_EQ(expert_groups_refusal(config, 1, {}), "");
  EXPECT_EQ(sharing_refusal(config, 2, {.expert_groups = 2}), "")
      << "columns of an expert are not shared";
  EXPECT_NE(sharing_refusal(config, 4, {.expert_groups = 2}), "");
  EXPECT_EQ(sharing_refusal(config, 8, {.expert_groups = 8}),
            "4 attention heads cannot be shared equally by 8 ranks, and no other number divides "
            "the model with --ep-size 8");
  EXPECT_EQ(expert_groups_refusal(config, 4, {.expert_groups = 3}),
            "4 ranks cannot form 3 groups of equal size; --ep-size 4 would do");
  EXPECT_EQ(expert_groups_refusal(config, 8, {.expert_groups = 8}),
            "6 experts cannot be dealt over 8 groups of ranks; --ep-size 2, 4 would do with "
            "--tp-size alike");
  for (const int groups : {1, 2})
    EXPECT_EQ(expert_groups_refusal(config_of("qwen3"), 2, {.expert_groups = groups}),
              "Qwen3ForCausalLM has no experts; leave it out");
}

// Each number that a refusal names is served with the other groups.
TEST(RankChoice, AdviceIsTrue) {
  const ModelConfig tiny = load_model_config(source_dir() + "/models/sluice-tiny");
  EXPECT_EQ(dp_refusal(tiny, 3, {.dp_size = 2}),
            "--tp-size is 3, the number of all ranks, which 2 groups cannot share equally; "
            "--tp-size 2, 4, 8, 16 would do");
  for (const int ranks : {2, 4, 8, 16})
    EXPECT_EQ(sharing_refusal(tiny, ranks, {.dp_size = 2}), "") << ranks;
  EXPECT_EQ(sharing_refusal(tiny, 3, {.dp_size = 3}),
            "128 columns of an expert cannot be shared equally by 3 ranks; with --dp-size 3 no "
            "number divides the model, and without --dp-size and --enable-dp-attention --tp-size "
            "2, 4, 8 would do");
  const std::string heads = "8 attention heads cannot be shared equally by 3 ranks";
  for (const RankGroups& groups : {RankGroups{}, RankGroups{.whole_experts = true},
                                   RankGroups{.num_stages = 2, .num_nodes = 4}})
    EXPECT_EQ(sharing_refusal(tiny, 3, groups), heads + "; --tp-size 2, 4, 8 would do");
  EXPECT_EQ(sharing_refusal(tiny, 3, {.num_stages = 2, .num_nodes = 8}),
            heads + "; --tp-size 4, 8 would do");
  EXPECT_EQ(sharing_refusal(tiny, 3, {.num_stages = 16}), heads + "; --tp-size 2, 4 would do");
  EXPECT_EQ(sharing_refusal(tiny, 3, {.expert_groups = 3}),
            heads +
                "; with --ep-size 3 no number divides the model, and without --ep-size 3 "
                "--tp-size 2, 4, 8 would do");
  EXPECT_EQ(sharing_refusal(tiny, 9, {.expert_groups = 3, .dp_size = 3}),
            heads +
                "; with --ep-size 3 and --dp-size 3 no number divides the model, and without "
                "these --tp-size 2, 4, 8 would do");
  const ModelConfig mixture = config_of("mixtral");
  EXPECT_EQ(expert_groups_refusal(mixture, 8, {.expert_groups = 8}),
            "4 experts cannot be dealt over 8 groups of ranks; --ep-size 2, 4 would do with "
            "--tp-size alike");
  EXPECT_EQ(expert_groups_refusal(mixture, 8, {.whole_experts = true}),
            "4 experts cannot be dealt over 8 groups of ranks; --tp-size 2, 4 would do");
  EXPECT_EQ(expert_groups_refusal(mixture, 2, {.expert_groups = 4}),
            "2 ranks cannot form 4 groups of equal size; --ep-size 2 would do, or --tp-size 4");
}

TEST(RankChoice, DealsPlacesOfExperts) {
  ModelConfig config = config_of("mixtral");
  config.moe->num_experts = 6;
  const auto refusal = [&](int groups, int redundant, bool moves) {
    return expert_places_refusal(config,
                                 {.groups = groups, .redundant = redundant, .moves = moves});
  };
  EXPECT_EQ(refusal(2, 0, false), "");
  EXPECT_EQ(refusal(2, 2, true), "");
  EXPECT_EQ(refusal(4, 18, true), "") << "every group has every expert";
  EXPECT_EQ(refusal(1, 2, false),
            "all ranks have all experts; give --ep-size or --enable-expert-parallel, too");
  EXPECT_EQ(refusal(4, 3, false),
            "6 experts and 3 redundant ones cannot be dealt equally over 4 groups of ranks; "
            "--ep-num-redundant-experts 2 or 6 would do");
  EXPECT_EQ(refusal(2, 8, false),
            "with 8 redundant experts, a group would have an expert twice: 2 groups have room for "
            "6 beyond one of each; --ep-num-redundant-experts 6 would do");
  EXPECT_EQ(refusal(2, 0, true),
            "experts move through places beyond one for each, and there are none; "
            "--ep-num-redundant-experts 2 would do");
  EXPECT_EQ(expert_places_refusal(config_of("qwen3"), {.groups = 2, .redundant = 2}),
            "Qwen3ForCausalLM has no experts; leave it out");
}

}  // namespace
}  // namespace sluice
