// Steps of data-parallel attention: how many rows each group has, and the graph that all replay.
#include <algorithm>

#include "runtime/model_runner.h"

namespace sluice {

void ModelRunner::set_rows_of_groups(const Batch& batch, std::span<const Batch> groups) {
  if (!dp_.defined()) return;
  const std::int64_t least = pads_idle_groups() ? 1 : 0;
  if (groups.empty()) return dp_.assume_equal(std::max<std::int64_t>(least, batch.num_tokens()));
  std::ranges::transform(groups, dp_.rows.begin(), [&](const Batch& one) {
    return std::max<std::int64_t>(least, one.num_tokens());
  });
}

std::int64_t ModelRunner::graph_size(const Batch& rows, std::span<const Batch> groups) const {
  if (!graphs_) return 0;
  if (!dp_.defined() || groups.empty()) return graphs_->size_for(rows);
  std::int64_t largest = 0;
  for (const Batch& one : groups) {
    if (one.num_tokens() == 0) continue;
    const std::int64_t size = graphs_->size_for(one);
    if (size == 0) return 0;
    largest = std::max(largest, size);
  }
  return largest;
}

}  // namespace sluice
