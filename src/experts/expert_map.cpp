#include "experts/expert_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace sluice {

ExpertMap trivial_map(int experts, int places) {
  ExpertMap map(static_cast<std::size_t>(places));
  for (int p = 0; p < places; ++p) map[static_cast<std::size_t>(p)] = p % experts;
  return map;
}

std::string map_error(const ExpertMap& map, int experts) {
  for (std::size_t p = 0; p < map.size(); ++p)
    if (map[p] < 0 || map[p] >= experts)
      return fmt::format("place {} has expert {}, and there are {} experts, counted from 0", p,
                         map[p], experts);
  const std::vector<int> counts = replica_counts(map, experts);
  const auto missing = std::ranges::find(counts, 0);
  if (missing == counts.end()) return {};
  return fmt::format("no place has expert {}, and every one of {} experts needs a place",
                     missing - counts.begin(), experts);
}

std::vector<int> replica_counts(const ExpertMap& map, int experts) {
  std::vector<int> counts(static_cast<std::size_t>(experts));
  for (const std::int32_t expert : map)
    if (expert != kNoExpert) ++counts[static_cast<std::size_t>(expert)];
  return counts;
}

std::vector<double> group_loads(const ExpertMap& map, std::span<const double> counts, int groups) {
  const std::vector<int> replicas = replica_counts(map, static_cast<int>(counts.size()));
  std::vector<double> loads(static_cast<std::size_t>(groups));
  const std::size_t places = map.size() / loads.size();
  for (std::size_t p = 0; p < map.size(); ++p) {
    if (map[p] == kNoExpert) continue;
    const auto expert = static_cast<std::size_t>(map[p]);
    loads[p / places] += counts[expert] / replicas[expert];
  }
  return loads;
}

double balancedness(std::span<const double> loads) {
  const double largest = loads.empty() ? 0 : *std::ranges::max_element(loads);
  if (largest <= 0) return 1;
  return std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(loads.size()) /
         largest;
}

}  // namespace sluice
