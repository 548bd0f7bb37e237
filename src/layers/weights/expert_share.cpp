// Which experts a rank has (ExpertShare).
#include <algorithm>
#include <numeric>
#include <span>

#include "base/error.h"
#include "layers/weights/weights.h"

namespace sluice {

ExpertShare expert_share(std::int64_t experts, std::int64_t columns, int rank, int num_ranks,
                         int groups) {
  check(groups >= 1 && groups <= experts && num_ranks % groups == 0,
        "{} experts in {} groups of {} ranks", experts, groups, num_ranks);
  const int size = num_ranks / groups, group = rank / size;
  check(columns % size == 0, "{} columns of an expert for {} ranks", columns, size);
  ExpertShare share{.experts = {},
                    .columns = {columns / size * (rank % size), columns / size},
                    .groups = groups,
                    .own_group = group};
  const std::int64_t end = experts * (group + 1) / groups;
  for (std::int64_t e = experts * group / groups; e < end; ++e) share.experts.push_back(e);
  return share;
}

bool ExpertShare::lacks_some(std::int64_t num_experts) const {
  for (std::int64_t e = 0; e < num_experts; ++e)
    if (std::ranges::find(experts, e) == experts.end()) return true;
  return false;
}

ExpertShare placed_share(ExpertMap map, bool moves, std::int64_t columns, int rank, int num_ranks,
                         int groups) {
  const auto places = static_cast<std::int64_t>(map.size());
  check(groups >= 1 && num_ranks % groups == 0 && places % groups == 0,
        "{} places in {} groups of {} ranks", places, groups, num_ranks);
  const int size = num_ranks / groups, own = rank / size;
  check(columns % size == 0, "{} columns of an expert for {} ranks", columns, size);
  ExpertShare share{.experts = {},
                    .columns = {columns / size * (rank % size), columns / size},
                    .map = std::move(map),
                    .groups = groups,
                    .own_group = own,
                    .moves = moves};
  const auto group_places = static_cast<std::size_t>(places / groups);
  for (int group = 0; group < groups; ++group) {
    const std::span<std::int32_t> part =
        std::span(share.map).subspan(static_cast<std::size_t>(group) * group_places, group_places);
    if (!moves) std::ranges::sort(part);
    if (group == own) share.experts.assign(part.begin(), part.end());
  }
  return share;
}

ExpertShare Weights::share_experts(std::int64_t experts, std::int64_t width) const {
  const auto [rank, size] = ranks();
  const bool is_own = sharers_ == Sharers::kWithinGroup;
  // Of the groups that all ranks form, those that these ranks can. Where all ranks can divide an
  // expert's columns, so can these.
  const int groups = is_own ? std::gcd(loader_->expert_groups_, size) : loader_->expert_groups_;
  require(size % groups == 0 && groups <= experts, "{}: {} experts in {} groups of {} ranks",
          path("experts"), experts, groups, size);
  require(width % (size / groups) == 0,
          "{}: {} columns of an expert cannot be shared equally by {} ranks", path("experts"),
          width, size / groups);
  const ExpertMaps& maps = loader_->expert_maps_;
  if (!is_own && !maps.layers.empty()) {
    const std::size_t number = loader_->num_mapped_++;
    ExpertMap map =
        number < maps.layers.size()
            ? maps.layers[number]
            : trivial_map(static_cast<int>(experts), static_cast<int>(maps.layers.front().size()));
    const std::string error = map_error(map, static_cast<int>(experts));
    require(error.empty(), "{}: {}", path("experts"), error);
    return placed_share(std::move(map), maps.moves, width, rank, size, groups);
  }
  return expert_share(experts, width, rank, size, groups);
}

void Weights::add(ExpertLayer layer) const {
  loader_->expert_layers_.push_back(std::move(layer));
}

}  // namespace sluice
