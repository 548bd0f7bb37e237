#include "experts/moves.h"

#include <algorithm>

#include "base/error.h"

namespace sluice {

std::vector<PlaceChange> changes_between(ExpertMap current, const ExpertMap& wanted, int experts,
                                         int groups) {
  check(current.size() == wanted.size() && map_error(current, experts).empty() &&
            map_error(wanted, experts).empty(),
        "a change between maps that are none");
  const int places = static_cast<int>(current.size());
  const int group_places = places / groups;
  std::vector<int> replicas = replica_counts(current, experts);
  std::vector<PlaceChange> changes;
  const auto at = [](int place) { return static_cast<std::size_t>(place); };
  const auto is_wrong = [&](int place) { return current[at(place)] != wanted[at(place)]; };
  const auto is_spare = [&](int place) { return replicas[at(current[at(place)])] > 1; };
  // Gives `to` an expert from the nearest place that has it.
  const auto change = [&](int to, std::int32_t expert) {
    int from = -1;
    for (int p = 0; p < places; ++p)
      if (current[at(p)] == expert && (from < 0 || p / group_places == to / group_places)) from = p;
    check(from >= 0 && from != to, "expert {} has no place to be copied from", expert);
    changes.push_back({from, to, expert});
    --replicas[at(current[at(to)])];
    current[at(to)] = expert;
    ++replicas[at(expert)];
  };
  // A right place that holds the first expert of a cycle meanwhile.
  int lent = -1;
  for (int left = 3 * places; left > 0; --left) {
    int wrong = -1, target = -1;
    for (int p = 0; p < places; ++p) {
      if (!is_wrong(p)) continue;
      if (wrong < 0 && p != lent) wrong = p;
      if (is_spare(p) && (target < 0 || target == lent)) target = p;
    }
    if (target >= 0) {
      change(target, wanted[at(target)]);
      if (target == lent) lent = -1;
      continue;
    }
    if (wrong < 0) {
      check(lent < 0, "a place that was lent to a cycle of moves is not given back");
      return changes;
    }
    // Every wrong place has the only replica of its expert: one that is right and spare takes it.
    for (int p = 0; p < places && lent < 0; ++p)
      if (!is_wrong(p) && is_spare(p)) lent = p;
    check(lent >= 0, "experts cannot move where none has two places");
    change(lent, current[at(wrong)]);
  }
  fail(ErrorKind::kBug, "{} places do not reach their map", places);
}

}  // namespace sluice
