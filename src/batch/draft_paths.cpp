#include "batch/draft_paths.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace sluice {

int DraftPaths::depth() const {
  return depths.empty() ? 0 : *std::ranges::max_element(depths);
}

DraftPaths paths_of(std::span<const std::int32_t> parents) {
  const std::size_t count = parents.size();
  check(count > 0 && count <= kMaxTreeRows && parents[0] < 0, "a tree of {} rows", count);
  DraftPaths out;
  out.depths.assign(count, 0);
  out.branches.assign(count, 0);
  std::vector<std::vector<std::size_t>> children(count);
  for (std::size_t row = 1; row < count; ++row) {
    check(parents[row] >= 0 && std::cmp_less(parents[row], row), "row {} of a tree follows row {}",
          row, parents[row]);
    const auto parent = static_cast<std::size_t>(parents[row]);
    out.depths[row] = out.depths[parent] + 1;
    children[parent].push_back(row);
  }
  std::vector<std::size_t> stack = {0};
  while (!stack.empty()) {
    const std::size_t row = stack.back();
    stack.pop_back();
    if (children[row].empty()) out.branches[row] = std::uint64_t{1} << out.count++;
    stack.insert(stack.end(), children[row].rbegin(), children[row].rend());
  }
  for (std::size_t row = count; row-- > 1;)
    out.branches[static_cast<std::size_t>(parents[row])] |= out.branches[row];
  return out;
}

std::vector<std::int32_t> right_rows(std::span<const std::int32_t> parents,
                                     std::span<const std::int32_t> row_tokens,
                                     std::span<const std::int32_t> tokens) {
  std::vector<std::int32_t> rows = {0};
  for (std::size_t row = 1; row < parents.size() && rows.size() < tokens.size(); ++row)
    if (parents[row] == rows.back() && row_tokens[row] == tokens[rows.size() - 1])
      rows.push_back(static_cast<std::int32_t>(row));
  return rows;
}

bool is_chain(std::span<const std::int32_t> draft_parents) {
  for (std::size_t i = 0; i < draft_parents.size(); ++i)
    if (!std::cmp_equal(draft_parents[i], i)) return false;
  return true;
}

}  // namespace sluice
