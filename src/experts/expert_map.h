// Where the experts of a layer are: places in groups of ranks, and the expert that each one holds.
//
//   ExpertMap map = trivial_map(8, 10);            // 0 1 2 3 4 5 6 7 0 1
//   std::string error = map_error(map, 8);         // empty: every expert has a place
//   std::vector<double> load = group_loads(map, counts, 2);
//
// A layer has E experts of its own numbers (logical experts), and E + R places (physical experts).
// Each group has equally many consecutive places. An expert in several places is replicated.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice {

// [places]: the expert of each place.
using ExpertMap = std::vector<std::int32_t>;
inline constexpr std::int32_t kNoExpert = -1;  // the place serves no token

// Place p has expert p % experts, as in SGLang.
ExpertMap trivial_map(int experts, int places);

// Why the map cannot serve a layer; empty: it can.
std::string map_error(const ExpertMap& map, int experts);

// [experts]: places of each expert.
std::vector<int> replica_counts(const ExpertMap& map, int experts);

// [groups]: choices that reach each group, where the places of an expert share its `counts`
// equally.
std::vector<double> group_loads(const ExpertMap& map, std::span<const double> counts, int groups);

// The mean of some loads as a part of the largest, 0 to 1; 1 where there is no load.
double balancedness(std::span<const double> loads);

}  // namespace sluice
