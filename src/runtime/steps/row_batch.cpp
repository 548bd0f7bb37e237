#include "runtime/steps/row_batch.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "batch/draft_paths.h"

namespace sluice {

bool has_trees(const Batch& batch) {
  return std::ranges::any_of(batch.branches,
                             [](const ItemBranches& one) { return !one.parents.empty(); });
}

// An item of the rows [first, first + count) of a sequence, with the pages of the batch's item.
void RowBatch::add_row(const Batch& batch, std::size_t item, std::int32_t first,
                       std::int32_t count) {
  items_.insert(items_.end(), static_cast<std::size_t>(count),
                static_cast<std::int32_t>(rows_.items.size()));
  BatchItem& row = rows_.items.emplace_back(batch.items[item]);
  row.first = first;
  row.count = count;
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    const PageRows& from = batch.groups[g];
    PageRows& to = rows_.groups[g];
    to.pages.insert(to.pages.end(), from.pages.begin() + from.offsets[item],
                    from.pages.begin() + from.offsets[item + 1]);
    to.offsets.push_back(static_cast<std::int32_t>(to.pages.size()));
  }
}

void RowBatch::add_tree(const Batch& batch, const ItemBranches& tree) {
  has_moves_ = true;
  const auto item = static_cast<std::size_t>(tree.item);
  const std::int32_t first = batch.items[item].first;
  const DraftPaths paths = paths_of(tree.parents);
  const std::size_t num_groups = batch.groups.size();
  check(std::cmp_equal(tree.parents.size(), batch.items[item].count),
        "a tree of {} rows in an item of {}", tree.parents.size(), batch.items[item].count);
  // Of branch b > 0, from entry first_page on.
  const auto pages_of = [&](int branch, std::size_t group) {
    const auto count = static_cast<std::size_t>(tree.num_pages);
    return std::span(tree.pages)
        .subspan((static_cast<std::size_t>(branch - 1) * num_groups + group) * count, count);
  };
  for (std::size_t row = 0; row < tree.parents.size(); ++row) {
    const std::int32_t position = first + paths.depths[row], entry = position / kPageSize;
    add_row(batch, item, position, 1);
    const int own = paths.branch_of(row);
    for (std::size_t g = 0; g < num_groups; ++g) {
      auto pages = std::span(rows_.groups[g].pages)
                       .subspan(static_cast<std::size_t>(*(rows_.groups[g].offsets.end() - 2)));
      if (own > 0) std::ranges::copy(pages_of(own, g), pages.begin() + tree.first_page);
      const auto slot_in = [&](std::int32_t page) {
        return std::int64_t{page} * kPageSize + position % kPageSize;
      };
      const std::int64_t from = slot_in(pages[static_cast<std::size_t>(entry)]);
      for (int branch = own + 1; branch < paths.count; ++branch) {
        if ((paths.branches[row] >> branch & 1) == 0) continue;
        moves_.from[g].push_back(from);
        moves_.to[g].push_back(
            slot_in(pages_of(branch, g)[static_cast<std::size_t>(entry - tree.first_page)]));
      }
    }
  }
}

// Of the item, but behind each draft that of the draft.
void RowBatch::put_states(const Batch& batch) {
  rows_.state_slots.clear();
  if (batch.state_slots.empty()) return;
  std::size_t next = batch.items.size();
  for (std::size_t i = 0; i < batch.items.size(); ++i)
    for (std::int32_t row = 0; row < batch.items[i].count; ++row)
      rows_.state_slots.push_back(batch.state_slots.at(row > 0 ? next++ : i));
  check(next == batch.state_slots.size(), "{} states for {} items and drafts",
        batch.state_slots.size(), next);
}

const Batch& RowBatch::of(const Batch& batch, bool only_trees) {
  check(only_trees ? batch.state_slots.empty() : batch.mode == ForwardMode::kTargetVerify,
        "a step of mode {} with {} states is laid out as decode rows", static_cast<int>(batch.mode),
        batch.state_slots.size());
  rows_.mode = batch.mode;
  rows_.deterministic = batch.deterministic;
  rows_.is_round = batch.is_round;
  rows_.token_ids = batch.token_ids;
  rows_.items.clear();
  items_.clear();
  has_moves_ = false;
  rows_.groups.resize(batch.groups.size());
  for (PageRows& rows : rows_.groups) {
    rows.offsets.assign(1, 0);
    rows.pages.clear();
  }
  for (auto* slots : {&moves_.from, &moves_.to}) slots->assign(batch.groups.size(), {});
  auto branches = batch.branches.begin();
  for (std::size_t i = 0; i < batch.items.size(); ++i) {
    while (branches != batch.branches.end() && std::cmp_less(branches->item, i)) ++branches;
    const BatchItem& item = batch.items[i];
    const bool is_tree = branches != batch.branches.end() && std::cmp_equal(branches->item, i) &&
                         !branches->parents.empty();
    if (is_tree)
      add_tree(batch, *branches);
    else if (only_trees)
      add_row(batch, i, item.first, item.count);
    else
      for (std::int32_t k = 0; k < item.count; ++k) add_row(batch, i, item.first + k, 1);
  }
  put_states(batch);
  rows_.logit_rows = batch.logit_rows;
  for (LogitRow& row : rows_.logit_rows) row.item = items_[static_cast<std::size_t>(row.row)];
  return rows_;
}

}  // namespace sluice
