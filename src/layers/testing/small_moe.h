// A small mixture with random weights, which do not depend on the ranks, run for the same tokens.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "layers/moe.h"

namespace sluice::testing {

inline constexpr std::int64_t kMoeHidden = 48, kMoeWidth = 32;

// Six experts, of which `top_k` are chosen.
inline ModelConfig small_moe(MoeConfig moe, int top_k) {
  ModelConfig config;
  config.hidden_size = kMoeHidden;
  moe.num_experts = 6;
  moe.top_k = top_k;
  moe.moe_intermediate_size = kMoeWidth;
  config.moe = moe;
  return config;
}

struct MoeOutcome {
  std::vector<float> out;  // [tokens, kMoeHidden]
  // What was counted, where experts have places by a map.
  std::vector<std::int64_t> choices, group_choices;
};

// Experts are dealt over `groups` groups of ranks. `communicator`: null for one rank.
inline MoeOutcome run_small_moe(const ModelConfig& config, const MoeNames& names, DType compute,
                                std::int64_t tokens, Communicator* communicator = nullptr,
                                int groups = 1, const ExpertMaps& maps = {}) {
  const WeightSource source = WeightSource::dummy(5, 0.4);
  Context ctx;
  ctx.cpu_isa = detect_cpu_isa();
  ctx.communicator = communicator;
  Arena arena(16 << 20);
  ctx.arena = &arena;
  WeightLoader loader(source, {.compute = compute}, DType::kF32, ctx);
  loader.share_experts(groups, maps);
  const Moe moe = Moe::load(loader.root().sub("layer"), config, names);
  loader.finish([](std::string_view) { return true; });
  const WeightStore store = loader.take_store();
  const std::vector<ExpertLayer> layers = loader.take_expert_layers();
  std::vector<float> x(static_cast<std::size_t>(tokens * kMoeHidden)), out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i * i % 1009));
  ops::Residual branch{.hidden = {},
                       .branch = Tensor::dense(out.data(), DType::kF32, {tokens, kMoeHidden}),
                       .keeps_branch = true};
  moe.forward(ctx, Tensor::dense(x.data(), DType::kF32, {tokens, kMoeHidden}), branch);
  MoeOutcome outcome{.out = std::move(out), .choices = {}, .group_choices = {}};
  if (layers.empty()) return outcome;
  const auto numbers = [](const Tensor& tensor) {
    const auto* first = tensor.ptr<std::int64_t>();
    return std::vector<std::int64_t>(first, first + tensor.numel());
  };
  outcome.choices = numbers(layers[0].choices);
  outcome.group_choices = numbers(layers[0].group_choices);
  return outcome;
}

}  // namespace sluice::testing
