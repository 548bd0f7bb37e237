// For tests: trees of drafts in the simulation.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
#include "batch/draft_paths.h"
#include "scheduler/testing/sim_options.h"

namespace sluice::sim {

// Makes a tree of the drafts of the last item: others stand beside some of them, and chains hang
// on these.
inline void add_siblings(Random& random, BatchResult& out) {
  const auto begin = static_cast<std::size_t>(out.draft_offsets.back());
  const std::size_t count = out.drafts.size() - begin;
  std::vector<std::int32_t> tokens, parents;
  std::int32_t last = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t token = out.drafts[begin + i], parent = last;
    const int before = random.between(0, 2), all = random.between(before, 3);
    std::int32_t other = token;
    for (int k = 0; k <= all; ++k) {
      if (k != before) other = (other + 1) % kVocab;
      tokens.push_back(k == before ? token : other);
      parents.push_back(parent);
      if (k == before) last = static_cast<std::int32_t>(tokens.size());
    }
    if (tokens.size() > kVocab / 2) break;
    if (random.chance(0.3)) {  // a token behind a sibling
      parents.push_back(static_cast<std::int32_t>(tokens.size()));
      tokens.push_back(random.between(0, kVocab - 1));
    }
  }
  out.drafts.resize(begin);
  out.drafts.insert(out.drafts.end(), tokens.begin(), tokens.end());
  out.draft_parents.insert(out.draft_parents.end(), parents.begin(), parents.end());
}

// Of the last row of an item whose rows follow each other, or of a tree.
inline int depth_of(const Batch& batch, std::size_t item, int depth) {
  for (const ItemBranches& one : batch.branches)
    if (std::cmp_equal(one.item, item) && !one.parents.empty())
      return paths_of(one.parents).depth();
  return depth;
}

// Pages of branches are of one branch of one item alone. The number of trees.
inline std::int64_t check_branches(const SchedulerOptions& options, const Batch& batch) {
  std::int64_t trees = 0;
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    std::vector<int> uses(static_cast<std::size_t>(options.groups[g].num_pages), 0);
    for (const std::int32_t page : batch.groups[g].pages)
      if (page >= 0) uses[static_cast<std::size_t>(page)] = 1;
    for (const ItemBranches& one : batch.branches) {
      trees += g == 0 && !one.parents.empty();
      for (std::size_t i = 0; i < one.pages.size(); ++i)
        if (i / static_cast<std::size_t>(one.num_pages) % batch.groups.size() == g)
          check(uses[static_cast<std::size_t>(one.pages[i])]++ == 0,
                "page {} of a branch has another use", one.pages[i]);
    }
  }
  return trees;
}

}  // namespace sluice::sim
