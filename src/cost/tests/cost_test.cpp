#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/testing/errors.h"
#include "cost/step_cost.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kDense = R"({"architectures": ["Qwen3ForCausalLM"],
  "model_type": "qwen3", "torch_dtype": "bfloat16", "vocab_size": 151936, "hidden_size": 4096,
  "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
  "intermediate_size": 12288, "hidden_act": "silu", "rms_norm_eps": 1e-06, "rope_theta": 1000000,
  "max_position_embeddings": 40960, "tie_word_embeddings": false})";
constexpr std::string_view kExperts = R"({"architectures": ["Qwen3MoeForCausalLM"],
  "model_type": "qwen3_moe", "torch_dtype": "bfloat16", "vocab_size": 151936, "hidden_size": 2048,
  "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
  "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
  "num_experts_per_tok": 8, "norm_topk_prob": true, "decoder_sparse_step": 1,
  "mlp_only_layers": [], "hidden_act": "silu", "rms_norm_eps": 1e-06, "rope_theta": 1000000,
  "max_position_embeddings": 40960, "tie_word_embeddings": false})";

struct Fixture {
  explicit Fixture(std::string_view text) : config(parse_model_config(text, "test")) {}
  ModelConfig config;
  CostModel model{config, {}, *find_gpu_machine("H200"), calibrated_constants()};
};

TEST(GpuSet, ReadsANumberAndAKind) {
  EXPECT_EQ(parse_gpu_set("8xH200").count, 8);
  EXPECT_EQ(parse_gpu_set("8xH200").machine->name, "H200");
  EXPECT_EQ(parse_gpu_set("1Xh100").machine->name, "H100");
}

TEST(GpuSet, RefusesWhatItDoesNotKnowByName) {
  for (const char* text : {"0xH200", "-1xH200", "H200", "8", "xH200", "8 xH200", ""})
    EXPECT_THAT(message_of([&] { parse_gpu_set(text); }), HasSubstr("as 8xH200")) << text;
  for (const char* text : {"3xFoo", "8xB200", "8x"})
    EXPECT_THAT(message_of([&] { parse_gpu_set(text); }), HasSubstr("the kinds are H100, H200"))
        << text;
  EXPECT_THAT(message_of([] { parse_gpu_set("16xH200"); }), HasSubstr("at most 8xH200"));
}

TEST(Mix, AllMixesUseAllGpus) {
  const Fixture experts(kExperts), dense(kDense);
  const std::vector<Mix> mixes = all_mixes(experts.config, 8);
  for (const Mix& mix : mixes) {
    EXPECT_EQ(mix.num_gpus(), 8);
    EXPECT_EQ(mix.tp % mix.ep, 0);
    EXPECT_EQ(mix.tp % mix.dp, 0);
    EXPECT_EQ(std::ranges::count(mixes, mix), 1);
  }
  // tp 1, 2, 4, 8 with 4, 3, 2, 1 numbers of stages, and 1, 2, 3, 4 divisors for each of ep and dp.
  EXPECT_EQ(mixes.size(), 4u * 1 + 3 * 4 + 2 * 9 + 1 * 16);
  EXPECT_EQ(all_mixes(dense.config, 8).size(), 4u * 1 + 3 * 2 + 2 * 3 + 1 * 4);
  EXPECT_EQ(describe({.tp = 4, .ep = 2, .replicas = 2}), "2 servers of tp 4, ep 2");
  EXPECT_EQ(describe({}), "1 GPU");
}

TEST(KernelCost, IsTheLargerOfBytesAndOperations) {
  const GpuMachine& gpu = *find_gpu_machine("H200");
  const CostConstants& constants = calibrated_constants();
  KernelWork work{.kind = KernelKind::kProduct,
                  .launches = 0,
                  .rows = 1,
                  .columns = 4096,
                  .weight_bytes = 1e9,
                  .operations = 1e9};
  const double reads = 1e9 / gpu.copy_bytes_per_s / constants.stream_share;
  EXPECT_DOUBLE_EQ(kernel_seconds(work, gpu, constants), reads);
  work.launches = 2;
  EXPECT_DOUBLE_EQ(kernel_seconds(work, gpu, constants), reads + 2 * constants.launch_s);
  work.operations = 1e15;
  EXPECT_GT(kernel_seconds(work, gpu, constants), 1e15 / gpu.bf16_flops);
}

TEST(KernelCost, TilesThatDoNotFillTheLastWaveCostAWholeOne) {
  const GpuMachine& gpu = *find_gpu_machine("H200");
  const auto seconds = [&](double tiles) {
    return kernel_seconds({.kind = KernelKind::kProduct,
                           .launches = 0,
                           .rows = 256,
                           .columns = 64 * tiles,
                           .operations = 1e12 * tiles},
                          gpu, calibrated_constants());
  };
  EXPECT_DOUBLE_EQ(seconds(132), seconds(2 * 132) / 2);
  EXPECT_NEAR(seconds(134), seconds(264), seconds(264) * 1e-9);
}

TEST(KernelCost, LongSumsAreNccls) {
  const GpuMachine& gpu = *find_gpu_machine("H200");
  const CostConstants& constants = calibrated_constants();
  const auto sum = [&](double bytes, int ranks) {
    return kernel_seconds({.kind = KernelKind::kSum, .message_bytes = bytes, .ranks = ranks}, gpu,
                          constants);
  };
  EXPECT_EQ(sum(1e6, 1), 0);
  EXPECT_NEAR(sum(0, 2), constants.sum_s, 1e-12);
  EXPECT_NEAR(sum(0, 8), constants.sum_s + 6 * constants.peer_s, 1e-12);
  const double wire = gpu.link_bytes_per_s * constants.link_share;
  EXPECT_NEAR(sum(1e9, 2), sum(0, 2) + 1e9 / 2 / wire, 1e-12);
  for (const int ranks : {4, 8}) {
    const double limit = peer_sum_bytes(ranks);
    EXPECT_NEAR(sum(limit, ranks), sum(0, ranks) + (ranks - 1) * limit / 2 / wire, 1e-12);
    const double longer = limit + 1;
    EXPECT_NEAR(sum(longer, ranks),
                constants.nccl_s + (ranks - 2) * constants.peer_s +
                    2.0 * (ranks - 1) / ranks * longer / wire,
                1e-12);
  }
}

TEST(PartTable, TheBusiestGroupHasBetweenItsShareAndAllExperts) {
  const MoeConfig moe{.num_experts = 128, .top_k = 8};
  EXPECT_DOUBLE_EQ(busiest_experts(moe, 1, 1), 8);
  for (const double rows : {1.0, 4.0, 32.0, 1024.0})
    for (const int groups : {2, 4, 8}) {
      const double all = busiest_experts(moe, rows, 1), own = busiest_experts(moe, rows, groups);
      EXPECT_GE(own, all / groups);
      EXPECT_LE(own, std::min(all, 128.0 / groups) + 1e-9);
    }
  EXPECT_NEAR(busiest_experts(moe, 1e6, 4), 32, 1e-6);
}

TEST(StepCost, PartsAddUp) {
  const Fixture f(kExperts);
  for (const Mix& mix : all_mixes(f.config, 4))
    for (const StepCost& cost :
         {decode_step(f.model, mix, 64, 4096), prefill(f.model, mix, 3, 20000)}) {
      double sum = 0;
      for (const PartSeconds& part : cost.parts) sum += part.seconds;
      EXPECT_NEAR(sum, cost.seconds, 1e-9 * cost.seconds) << describe(mix);
    }
}

TEST(StepCost, ReplicasMultiplyThroughput) {
  const Fixture f(kDense);
  const StepCost one = decode_step(f.model, {}, 16, 4096);
  const StepCost four = decode_step(f.model, {.replicas = 4}, 64, 4096);
  EXPECT_DOUBLE_EQ(four.seconds, one.seconds);
  EXPECT_DOUBLE_EQ(four.tokens_per_s, 4 * one.tokens_per_s);
}

TEST(StepCost, StagesGainNothingForOneSequenceAndManyForMany) {
  const Fixture f(kDense);
  EXPECT_GT(decode_step(f.model, {.pp = 2}, 1, 4096).seconds,
            decode_step(f.model, {}, 1, 4096).seconds);
  EXPECT_GT(prefill(f.model, {.pp = 2}, 8, 8192).tokens_per_s,
            1.5 * prefill(f.model, {}, 8, 8192).tokens_per_s);
}

TEST(StepCost, ALongPromptTakesLongerForEachTokenThanAShortOne) {
  const Fixture f(kDense);
  EXPECT_LT(prefill(f.model, {}, 1, 32768).tokens_per_s,
            prefill(f.model, {}, 1, 8192).tokens_per_s);
  // Four prompts that share a step are one step.
  EXPECT_NEAR(prefill(f.model, {}, 4, 2048).seconds, prefill(f.model, {}, 1, 8192).seconds,
              0.15 * prefill(f.model, {}, 1, 8192).seconds);
}

TEST(RankBytes, SharesOfRanksAreTheWhole) {
  const Fixture f(kDense);
  const RankBytes one = rank_bytes(f.model, {}, 8, 4096);
  EXPECT_DOUBLE_EQ(one.weights, 2 * matrix_elements(f.config));
  EXPECT_DOUBLE_EQ(one.kv, 8.0 * 4096 * 36 * 2 * 8 * 128 * 2);
  const RankBytes two = rank_bytes(f.model, {.tp = 2}, 8, 4096);
  // The embedding is whole at each rank.
  const double embedding = 2.0 * 151936 * 4096;
  EXPECT_DOUBLE_EQ(two.weights, (one.weights - embedding) / 2 + embedding);
  EXPECT_DOUBLE_EQ(two.kv, one.kv / 2);
  // More ranks than key heads: no rank has less than a head.
  EXPECT_DOUBLE_EQ(rank_bytes(f.model, {.tp = 16}, 8, 4096).kv, one.kv / 8);
  // Groups with attention of their own have whole heads, and their share of the sequences.
  EXPECT_DOUBLE_EQ(rank_bytes(f.model, {.tp = 2, .dp = 2}, 8, 4096).kv, one.kv / 2);
  EXPECT_DOUBLE_EQ(rank_bytes(f.model, {.pp = 2}, 8, 4096).kv, one.kv / 2);
}

TEST(RankBytes, GroupsOfExpertsHoldWholeOnes) {
  const Fixture f(kExperts);
  const double tp = rank_bytes(f.model, {.tp = 4}, 1, 1).weights;
  EXPECT_DOUBLE_EQ(rank_bytes(f.model, {.tp = 4, .ep = 4}, 1, 1).weights, tp);
  // 128 experts of 3 groups: one has 43.
  const double three = rank_bytes(f.model, {.tp = 3, .ep = 3}, 1, 1).weights;
  EXPECT_GT(three, rank_bytes(f.model, {.tp = 3}, 1, 1).weights);
}

}  // namespace
}  // namespace sluice
