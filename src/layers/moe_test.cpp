#include "layers/moe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/testing/folder.h"
#include "checkpoint/testing/safetensors_writer.h"
#include "layers/testing/small_moe.h"
#include "tensor/buffer.h"
#include "tensor/testing/rank_of.h"

namespace sluice {
namespace {

constexpr std::int64_t kTokens = 11, kHidden = testing::kMoeHidden, kWidth = testing::kMoeWidth;

ModelConfig config_with(const MoeConfig& moe) {
  return testing::small_moe(moe, 2);
}

// Ranks have columns of each expert, whole experts, or columns of some experts; six experts over
// four groups are two or one each. The bias of the second GEMM is added once.
TEST(Moe, TheRanksResultsAddUp) {
  struct Division {
    int ranks, groups;
  };
  struct Case {
    const char* what;
    MoeNames names;
    MoeConfig moe;
  };
  const Case cases[] = {
      {"one by one", kQwenMoeNames, {.norm_topk_prob = true}},
      {"beside shared experts",
       kDeepseekMoeNames,
       {.shared_expert_intermediate_size = kWidth, .norm_topk_prob = true}},
      {"stacked", kGraniteMoeNames, {.norm_topk_prob = true}},
      {"alternating with biases", kGptOssMoeNames, {.norm_topk_prob = true, .swiglu_limit = 1.5}},
      {"transposed", kLlama4MoeNames, {.weigh_input = true, .scoring = RouterScoring::kSigmoid}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    const ModelConfig config = config_with(one.moe);
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      const std::vector<float> whole =
          testing::run_small_moe(config, one.names, compute, kTokens).out;
      float largest = 0;
      for (const float value : whole) largest = std::max(largest, std::abs(value));
      ASSERT_GT(largest, 0.1f);
      for (const auto [ranks, groups] :
           {Division{2, 1}, Division{2, 2}, Division{4, 2}, Division{4, 4}}) {
        SCOPED_TRACE(fmt::format("{} ranks in {} groups", ranks, groups));
        std::vector<float> sum(whole.size(), 0.0f);
        for (int rank = 0; rank < ranks; ++rank) {
          RankOf communicator(rank, ranks);
          const std::vector<float> part =
              testing::run_small_moe(config, one.names, compute, kTokens, &communicator, groups)
                  .out;
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
        }
        // The inner values have the same bits. Only the order of summation of the kWidth terms of
        // at most three experts differs.
        for (std::size_t i = 0; i < sum.size(); ++i)
          ASSERT_NEAR(sum[i], whole[i], 4 * kWidth * std::ldexp(1.0, -24) * (1 + largest)) << i;
      }
    }
  }
}

// A rank neither reads the experts of others nor misses them: a file without them will do.
TEST(Moe, ExpertsOfOtherRanksAreLeft) {
  const std::vector<std::int64_t> dealt[] = {{0}, {1, 2}, {3}, {4, 5}};
  for (int group = 0; group < 4; ++group) {
    const ExpertShare share = expert_share(6, kWidth, 2 * group + 1, 8, 4);
    EXPECT_EQ(share.experts, dealt[group]);
    EXPECT_EQ(share.columns.begin, kWidth / 2);
    EXPECT_EQ(share.columns.count, kWidth / 2);
  }
  const TestFolder folder;
  SafetensorsWriter writer;
  const auto add = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    writer.add("layer.mlp." + name, "F32", {rows, columns},
               std::vector<float>(static_cast<std::size_t>(rows * columns), 0.5f));
  };
  add("gate.weight", 6, kHidden);
  for (const int e : {3, 4, 5}) {
    add(fmt::format("experts.{}.gate_proj.weight", e), kWidth, kHidden);
    add(fmt::format("experts.{}.up_proj.weight", e), kWidth, kHidden);
    add(fmt::format("experts.{}.down_proj.weight", e), kHidden, kWidth);
  }
  writer.write_to(folder, "model.safetensors");
  const WeightSource source = WeightSource::checkpoint(folder.path());
  for (const int rank : {0, 1}) {
    RankOf communicator(rank, 2);
    Context ctx;
    ctx.cpu_isa = detect_cpu_isa();
    ctx.communicator = &communicator;
    WeightLoader loader(source, {}, DType::kF32, ctx);
    loader.share_experts(2);
    const Moe moe = Moe::load(loader.root().sub("layer"), config_with({}), kQwenMoeNames);
    EXPECT_EQ(moe.w13.count, 3);
    if (rank == 0)
      EXPECT_THROW(loader.finish([](std::string_view) { return false; }), Error);
    else
      EXPECT_TRUE(loader.finish([](std::string_view) { return false; }).empty());
  }
}

}  // namespace
}  // namespace sluice
