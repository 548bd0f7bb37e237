#include "experts/balance.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace sluice {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

// The entries of `weights` by descending weight; equal ones keep their order.
std::vector<int> by_descending_weight(const std::vector<double>& weights) {
  std::vector<int> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) { return weights[at(a)] > weights[at(b)]; });
  return order;
}

// Where an item lies: its pack, and its place in it.
struct Packed {
  int pack = 0, place = 0;
};

// Deals items into packs of equally many: the heaviest first, each to the lightest pack with room.
// `kind` [items], or empty: a pack with an item of the same kind is taken only where no other has
// room.
std::vector<Packed> pack_balanced(const std::vector<double>& weights, int packs,
                                  const std::vector<std::int32_t>& kind) {
  const int room = static_cast<int>(weights.size()) / packs;
  std::vector<Packed> out(weights.size());
  if (room == 1) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i].pack = static_cast<int>(i);
    return out;
  }
  std::vector<double> load(at(packs));
  std::vector<std::vector<std::int32_t>> kinds(at(packs));
  for (const int item : by_descending_weight(weights)) {
    int best = -1;
    bool best_repeats = false;
    for (int pack = 0; pack < packs; ++pack) {
      const std::vector<std::int32_t>& held = kinds[at(pack)];
      if (static_cast<int>(held.size()) == room) continue;
      const bool repeats = !kind.empty() && std::ranges::count(held, kind[at(item)]) > 0;
      const bool better =
          best < 0 || (repeats == best_repeats ? load[at(pack)] < load[at(best)] : !repeats);
      if (better) best = pack, best_repeats = repeats;
    }
    out[at(item)] = {best, static_cast<int>(kinds[at(best)].size())};
    kinds[at(best)].push_back(kind.empty() ? item : kind[at(item)]);
    load[at(best)] += weights[at(item)];
  }
  return out;
}

// The experts of `places` places: each once, then a replica of the one with the most load a
// replica.
ExpertMap replicated(const std::vector<double>& counts, int places, int max_replicas) {
  const int experts = static_cast<int>(counts.size());
  ExpertMap map(at(places));
  std::vector<int> replicas(at(experts), 1);
  for (int p = 0; p < places; ++p) {
    if (p < experts) {
      map[at(p)] = p;
      continue;
    }
    int hottest = -1;
    for (int e = 0; e < experts; ++e) {
      if (max_replicas > 0 && replicas[at(e)] >= max_replicas) continue;
      if (hottest < 0 ||
          counts[at(e)] / replicas[at(e)] > counts[at(hottest)] / replicas[at(hottest)])
        hottest = e;
    }
    check(hottest >= 0, "{} places for {} experts of at most {} replicas", places, experts,
          max_replicas);
    map[at(p)] = hottest;
    ++replicas[at(hottest)];
  }
  return map;
}

}  // namespace

ExpertMap balanced_map(std::span<const double> counts, const BalanceInputs& inputs) {
  const int experts = static_cast<int>(counts.size());
  check(inputs.groups > 0 && inputs.places % inputs.groups == 0 && inputs.places >= experts,
        "{} experts in {} places of {} groups", experts, inputs.places, inputs.groups);
  const bool by_node = inputs.nodes > 1 && inputs.expert_groups % inputs.nodes == 0 &&
                       inputs.groups % inputs.nodes == 0 && experts % inputs.expert_groups == 0;
  const int nodes = by_node ? inputs.nodes : 1, expert_groups = by_node ? inputs.expert_groups : 1;

  // 1. Groups of experts into nodes: the experts of each node, in its order.
  const int group_size = experts / expert_groups, node_experts = experts / nodes;
  std::vector<double> group_counts(at(expert_groups));
  for (int e = 0; e < experts; ++e) group_counts[at(e / group_size)] += counts[at(e)];
  std::vector<std::int32_t> of_node(at(experts));
  const std::vector<Packed> packed_groups = pack_balanced(group_counts, nodes, {});
  for (int e = 0; e < experts; ++e) {
    const Packed& packed = packed_groups[at(e / group_size)];
    of_node[at(packed.pack * node_experts + packed.place * group_size + e % group_size)] = e;
  }

  // 2. Replicas within each node; 3. places into its groups of ranks.
  const int node_places = inputs.places / nodes, node_groups = inputs.groups / nodes,
            group_places = inputs.places / inputs.groups;
  ExpertMap map(at(inputs.places), kNoExpert);
  for (int node = 0; node < nodes; ++node) {
    std::vector<double> own(at(node_experts));
    for (int i = 0; i < node_experts; ++i)
      own[at(i)] = counts[at(of_node[at(node * node_experts + i)])];
    const ExpertMap replicas = replicated(own, node_places, inputs.max_replicas);
    const std::vector<int> num_replicas = replica_counts(replicas, node_experts);
    std::vector<double> loads;
    for (const std::int32_t e : replicas) loads.push_back(own[at(e)] / num_replicas[at(e)]);
    const std::vector<Packed> packed = pack_balanced(loads, node_groups, replicas);
    for (int p = 0; p < node_places; ++p)
      map[at(node * node_places + packed[at(p)].pack * group_places + packed[at(p)].place)] =
          of_node[at(node * node_experts + replicas[at(p)])];
  }
  return map;
}

ExpertMap aligned_map(const ExpertMap& current, const ExpertMap& wanted, int groups) {
  const int places = static_cast<int>(wanted.size()) / groups;
  const auto part = [&](const ExpertMap& map, int group) {
    return std::span(map).subspan(at(group * places), at(places));
  };
  const auto in_common = [&](int now, int then) {
    std::vector<std::int32_t> a(part(current, now).begin(), part(current, now).end()),
        b(part(wanted, then).begin(), part(wanted, then).end()), both;
    std::ranges::sort(a);
    std::ranges::sort(b);
    std::ranges::set_intersection(a, b, std::back_inserter(both));
    return static_cast<int>(both.size());
  };
  // Pairs of groups by how much they have in common.
  struct Pair {
    int now, then, common;
  };
  std::vector<Pair> pairs;
  for (int now = 0; now < groups; ++now)
    for (int then = 0; then < groups; ++then) pairs.push_back({now, then, in_common(now, then)});
  std::ranges::stable_sort(pairs, [](const Pair& a, const Pair& b) { return a.common > b.common; });
  std::vector<int> chosen(at(groups), -1);
  std::vector<bool> taken(at(groups));
  for (const Pair& pair : pairs) {
    if (chosen[at(pair.now)] >= 0 || taken[at(pair.then)]) continue;
    chosen[at(pair.now)] = pair.then;
    taken[at(pair.then)] = true;
  }
  ExpertMap out(wanted.size(), kNoExpert);
  for (int group = 0; group < groups; ++group) {
    std::vector<std::int32_t> left(part(wanted, chosen[at(group)]).begin(),
                                   part(wanted, chosen[at(group)]).end());
    const auto first = at(group * places);
    for (std::size_t p = first; p < first + at(places); ++p) {
      const auto found = std::ranges::find(left, current[p]);
      if (found == left.end()) continue;
      out[p] = *found;
      left.erase(found);
    }
    auto next = left.begin();
    for (std::size_t p = first; p < first + at(places); ++p)
      if (out[p] == kNoExpert) out[p] = *next++;
  }
  return out;
}

}  // namespace sluice
