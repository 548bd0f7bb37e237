// From one map of experts to another, one place at a time, so that every expert has a place
// throughout.
//
//   for (const PlaceChange& change : changes_between(current, wanted, 8)) ...
//
// A change takes a place whose expert has another place, and copies an expert from a third one
// there. So no memory beyond the places is needed; some expert must have two places.
#pragma once

#include <vector>

#include "experts/expert_map.h"

namespace sluice {

// Place `to` gets `expert`, of which place `from` has the weights.
struct PlaceChange {
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::int32_t expert = 0;
};

// In their order. Both maps have a place for every expert, and `current` has more places than
// experts. Sources in the group of `to` are preferred, of `groups` groups.
std::vector<PlaceChange> changes_between(ExpertMap current, const ExpertMap& wanted, int experts,
                                         int groups);

}  // namespace sluice
