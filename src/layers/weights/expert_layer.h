// The experts of a layer whose places may change (docs/ranks.md): what the layer reads in a step,
// and the memory that moves.
//
//   ExpertLayer& layer = model->expert_layers[0];
//   layer.set_map(map);          // the next step of this rank chooses places by it
//
// One thread, between steps. All ranks set the same maps between the same steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "experts/expert_map.h"
#include "tensor/tensor.h"

namespace sluice {

struct ExpertLayer {
  int number = 0;      // of the decoder layer
  int groups = 1;      // of ranks, with equally many places
  int own_group = 0;   // of this rank
  ExpertMap map;       // [places]
  bool moves = false;  // places change while the layer serves
  // What ops::place_replicas reads: [E, 1 + maximum places of an expert] int32. A row has the
  // number of places of an expert, and the places.
  Tensor replicas;
  Tensor choices;        // [E] int64: tokens that chose each expert, since the start
  Tensor group_choices;  // [groups] int64: choices that each group has computed
  // Stacks of this rank's places, [places of a group, ...] each. What moves with an expert is its
  // part of each, in this order; the first rank of a group may have one more at the end.
  std::vector<Tensor> stacks;
  std::int64_t first_rank_bytes = 0;  // those of an expert at the first rank of a group
  std::int64_t other_rank_bytes = 0;  // and at the others

  int num_experts() const { return static_cast<int>(replicas.dim(0)); }
  int group_places() const { return static_cast<int>(map.size()) / groups; }
  int first_place() const { return own_group * group_places(); }

  // Bytes of an expert at this rank.
  std::int64_t expert_bytes() const {
    std::int64_t bytes = 0;
    for (const Tensor& stack : stacks) bytes += stack.at(0).bytes();
    return bytes;
  }

  // Replaces the map. Error{kBug}: an expert would have no place, or more than `replicas` holds.
  void set_map(ExpertMap next);
};

}  // namespace sluice
