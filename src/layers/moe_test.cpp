#include "layers/moe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/buffer.h"

namespace sluice {
namespace {

// One of two ranks, whose results the test adds itself.
class Half final : public Communicator {
 public:
  explicit Half(int rank) : rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return 2; }
  void all_reduce(const Tensor&) override {}
  void all_gather(const Tensor&, const Tensor&) override {}
  void broadcast(const Tensor&, int) override {}
  void barrier() override {}

 private:
  int rank_;
};

constexpr std::int64_t kTokens = 11, kHidden = 48, kWidth = 32;

ModelConfig config_with(MoeConfig moe) {
  ModelConfig config;
  config.hidden_size = kHidden;
  moe.num_experts = 6;
  moe.top_k = 2;
  moe.moe_intermediate_size = kWidth;
  config.moe = moe;
  return config;
}

// The layer's result for the same random tokens, with random weights that do not depend on the
// ranks.
std::vector<float> run(const ModelConfig& config, const MoeNames& names, DType compute,
                       Communicator* communicator) {
  const WeightSource source = WeightSource::dummy(5, 0.4);
  Context ctx;
  ctx.cpu_isa = detect_cpu_isa();
  ctx.communicator = communicator;
  Arena arena(16 << 20);
  ctx.arena = &arena;
  WeightLoader loader(source, {.compute = compute}, DType::kF32, ctx);
  const Moe moe = Moe::load(loader.root().sub("layer"), config, names);
  loader.finish([](std::string_view) { return true; });
  const WeightStore store = loader.take_store();
  std::vector<float> x(kTokens * kHidden), out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i * i % 1009));
  ops::Residual branch{.hidden = {},
                       .branch = Tensor::dense(out.data(), DType::kF32, {kTokens, kHidden}),
                       .keeps_branch = true};
  moe.forward(ctx, Tensor::dense(x.data(), DType::kF32, {kTokens, kHidden}), branch);
  return out;
}

// Experts are sharded by their width; the bias of the second GEMM is added once.
TEST(Moe, TheRanksResultsAddUp) {
  struct Case {
    const char* what;
    MoeNames names;
    MoeConfig moe;
  };
  const Case cases[] = {
      {"one by one", kQwenMoeNames, {.norm_topk_prob = true}},
      {"stacked", kGraniteMoeNames, {.norm_topk_prob = true}},
      {"alternating with biases", kGptOssMoeNames, {.norm_topk_prob = true, .swiglu_limit = 1.5}},
      {"transposed", kLlama4MoeNames, {.weigh_input = true, .scoring = RouterScoring::kSigmoid}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    const ModelConfig config = config_with(one.moe);
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      const std::vector<float> whole = run(config, one.names, compute, nullptr);
      std::vector<float> sum(whole.size(), 0.0f);
      float largest = 0;
      for (int rank : {0, 1}) {
        Half half(rank);
        const std::vector<float> part = run(config, one.names, compute, &half);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
      for (const float value : whole) largest = std::max(largest, std::abs(value));
      ASSERT_GT(largest, 0.1f);
      // The inner values have the same bits. Only the order of summation of the kWidth terms
      // differs.
      for (std::size_t i = 0; i < sum.size(); ++i)
        ASSERT_NEAR(sum[i], whole[i], 4 * kWidth * std::ldexp(1.0, -24) * (1 + largest)) << i;
    }
  }
}

}  // namespace
}  // namespace sluice
