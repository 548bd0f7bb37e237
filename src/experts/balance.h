// Which experts to replicate, and where to put them, after their load. Pure functions.
//
//   ExpertMap map = balanced_map(counts, {.places = 16, .groups = 8});
//
// The algorithm is that of deepseek-ai/EPLB (rebalance_experts), for one layer: the expert with the
// most load a replica gets the next replica; then the heaviest place goes to the lightest group
// that has room. With several nodes, groups of experts are packed into nodes first
// (hierarchical policy).
#pragma once

#include <span>

#include "experts/expert_map.h"

namespace sluice {

struct BalanceInputs {
  int places = 0;  // of all groups of ranks, which divide them
  int groups = 1;  // of ranks ("gpus")
  // The hierarchical policy, where nodes divide the expert groups and the groups of ranks.
  int nodes = 1;
  int expert_groups = 1;  // of the router
  // Maximum replicas of an expert; 0: any number. A group that has an expert twice gains nothing.
  int max_replicas = 0;
};

// `counts` [experts]: choices of each expert. Every expert gets a place; ties go to the lower
// number.
ExpertMap balanced_map(std::span<const double> counts, const BalanceInputs& inputs);

// The same groups of experts as `wanted`, with groups and places named so that as many places of
// `current` as possible keep their expert.
ExpertMap aligned_map(const ExpertMap& current, const ExpertMap& wanted, int groups);

}  // namespace sluice
