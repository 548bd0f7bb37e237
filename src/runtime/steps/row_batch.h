// A step of decode rows and drafts, laid out as decode rows alone: each row is an item with the
// pages of its sequence. So a GPU's kernels and graphs of decode steps compute it. A row of a draft
// tree has the pages of its first branch, and its keys go to all its branches.
//
// A draft's row has the state of the draft.
//
//   RowBatch rows;
//   buffers.fill(rows.of(batch), info, rows.moves());    // the mode stays
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "batch/batch.h"

namespace sluice {

// Slots whose rows are written to other slots too (GroupView::branch_from), by group; equally many
// in each.
struct BranchMoves {
  std::vector<std::vector<std::int64_t>> from, to;
};

// Moves of a step of so many rows, of which a tree has `tree_rows` at most. With i rows that have
// children, l leaves and n = i + l rows, a tree has no more than i (l - 1) <= (n - 1)^2 / 4.
constexpr std::int64_t max_branch_moves(std::int64_t rows, std::int64_t tree_rows) {
  return rows * std::min(rows, tree_rows) / 4;
}

// Whether a step has trees of drafts.
bool has_trees(const Batch& batch);

class RowBatch {
 public:
  // Token and logit rows keep their order; copies and slot_inits are left out. Valid until the next
  // call. `only_trees`: other items stay as they are.
  const Batch& of(const Batch& batch, bool only_trees = false);
  // Of the last call; null: it had no tree.
  const BranchMoves* moves() const { return has_moves_ ? &moves_ : nullptr; }

 private:
  void add_row(const Batch& batch, std::size_t item, std::int32_t first, std::int32_t count);
  void put_states(const Batch& batch);
  void add_tree(const Batch& batch, const ItemBranches& tree);

  Batch rows_;
  BranchMoves moves_;
  bool has_moves_ = false;
  std::vector<std::int32_t> items_;  // of each token row
};

}  // namespace sluice
