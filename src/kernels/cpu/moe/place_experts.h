// From the layer's numbers of chosen experts to places among those of a rank (ops/moe.h).
#pragma once

#include "tensor/context.h"

namespace sluice::cpu {

void place_experts(Context& ctx, const Tensor& places, const Tensor& ids);

void count_choices(const Tensor& ids, const Tensor& choices);

// As ops::ExpertPlaces.
struct ReplicaPlaces {
  Tensor replicas, choices, group_choices;
  std::int64_t group_places = 0;  // places of a group
  std::int64_t first_place = 0;
};
void place_replicas(const ReplicaPlaces& places, const Tensor& weights, const Tensor& ids);

// out[t] = sum of rows [t * k, (t + 1) * k) of pairs, in their order; k is their ratio.
void add_pairs(Context& ctx, const Tensor& pairs, const Tensor& out);

}  // namespace sluice::cpu
