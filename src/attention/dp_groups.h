// Data-parallel attention: groups of ranks with sequences, pages and attention of their own, which
// share the feed-forward layers. Consecutive ranks form a group, and share its heads.
//
// A feed-forward layer gathers the rows of all groups, computes its share for them, and keeps its
// own rows of the sum. Terms as in SGLang (--enable-dp-attention).
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tensor/communicator.h"

namespace sluice {

struct DpGroups {
  Communicator* all_ranks = nullptr;  // of all groups; null: attention is not data parallel
  std::vector<std::int64_t> rows;     // [groups] rows of each group in this step
  int own = 0;                        // the group of this rank

  bool defined() const { return all_ranks != nullptr; }
  std::int64_t num_rows() const {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  }
  // Where this group's rows begin among those of all.
  std::int64_t first_row() const {
    return std::accumulate(rows.begin(), rows.begin() + own, std::int64_t{0});
  }
  // The rows that each rank needs of a sum over all of them.
  std::vector<RowPart> parts() const {
    const std::size_t ranks = static_cast<std::size_t>(all_ranks->size()) / rows.size();
    std::vector<RowPart> parts;
    std::int64_t first = 0;
    for (const std::int64_t count : rows) {
      parts.insert(parts.end(), ranks, {first, count});
      first += count;
    }
    return parts;
  }
  // All groups have as many rows as this one, as in a warm-up.
  void assume_equal(std::int64_t own_rows) { std::ranges::fill(rows, own_rows); }
};

}  // namespace sluice
