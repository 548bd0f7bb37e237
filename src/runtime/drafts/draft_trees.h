// Trees of drafts while a draft grows them, a level at a time: which candidates are the frontier,
// and in which branch of the item's pages each of them is computed. Host code: each level waits for
// the best tokens of its rows.
//
//   DraftTrees trees(topk, target_tokens);
//   trees.begin();  trees.add(batch, item, last_slot, row_of_its_state);
//   trees.take_level(best);                          // a row for each tree
//   while (trees.next(batch, max_rows)) {            // copy_rows(), then a row for each entry
//     ... the draft's run ...
//     trees.take_level(best);                        // a row for each of entries()
//   }
//   trees.put(max_drafts, num_items, result);
//
// A node's slot lies in the pages of one branch, behind those of its ancestors. Its first child
// goes on in that branch. The others take branches that no node of the frontier is in, to which
// the ancestors' slots are copied. So there are as many branches as the frontier has nodes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/kv_pool.h"
#include "batch/batch.h"
#include "batch/step_result.h"
#include "kernels/types/sampling_rows.h"
#include "runtime/steps/row_batch.h"
#include "speculative/draft_tree.h"
#include "tensor/context.h"

namespace sluice {

// Planes by page group.
using DraftPlanes = std::vector<std::vector<ops::KvPlane>>;
// Those of the layers from `layer` on: of a draft whose target has so many.
DraftPlanes planes_behind(const KVPool& pool, int layer);

// The branches of an item; null: it has none beside its own pages.
const ItemBranches* find_branches(const Batch& batch, std::int32_t item);
// A page of branch `branch`, of entry branches.first_page + i.
std::int32_t& page_of_branch(ItemBranches& branches, std::size_t num_groups, int branch,
                             std::size_t group, std::int32_t i);
// The item's own pages and those of a branch change places.
void swap_with_branch(ItemBranches& branches, int branch, std::span<PageRows> groups);

class DraftTrees {
 public:
  // A frontier node whose slot the next run fills.
  struct Entry {
    std::int32_t item = 0;
    std::int32_t position = 0;
    std::int32_t token = 0;       // the target's
    std::int32_t state = 0;       // row of the last run's states: of the node before it
    std::int32_t branch = 0;      // 0: the item's own pages
    std::int32_t first_page = 0;  // where the branch has pages of its own
  };

  // `target_tokens`: of the draft's tokens; empty: they are the same.
  DraftTrees(int topk, std::span<const std::int32_t> target_tokens)
      : topk_(topk), target_tokens_(target_tokens) {}

  void begin() {
    trees_.clear();
    entries_.clear();
  }
  void add(const Batch& batch, std::int32_t item, std::int32_t last_slot, std::int32_t state);
  // `best`: of each row the most likely tokens, as many as there are drafts behind a token
  // (ops::read_logprobs). Trees whose rows are not finite end.
  void take_level(std::span<const ops::SampledRow> best);
  // The next level's rows, at most `max_rows`; false: there are none. Trees without pages end.
  bool next(const Batch& batch, std::int64_t max_rows);
  std::span<const Entry> entries() const { return entries_; }
  // To be copied before the entries' run.
  const BranchMoves& moves() const { return moves_; }
  void copy_rows(Context& ctx, const DraftPlanes& planes) const;
  // The last item of `groups` has the pages of the entry's branch.
  static void take_pages(const Batch& batch, const Entry& entry, std::span<PageRows> groups);
  // The best nodes come first. An item without branches gets a chain.
  void put(int max_drafts, std::size_t num_items, BatchResult& result) const;

 private:
  struct Tree {
    std::int32_t item = 0;
    std::int32_t position = 0;  // of the last slot before the tree's
    int level = 0;              // levels that it has
    bool is_over = false;
    bool is_chain = false;  // the item has no branches
    DraftTreeBuilder builder;
    std::vector<std::int32_t> states, branches;  // of the frontier
  };

  bool has_pages(const Batch& batch, const Tree& tree, int width, std::int32_t position) const;
  int width_of(const Batch& batch, std::int32_t item) const;
  // Rows of slots [first, end) of a branch go to another.
  void copy_slots(const Batch& batch, const Tree& tree, std::int32_t first, std::int32_t end,
                  std::int32_t from, std::int32_t to);
  void assign_branches(const Batch& batch, Tree& tree);

  const int topk_;
  const std::span<const std::int32_t> target_tokens_;
  std::vector<Tree> trees_;
  std::vector<Entry> entries_;
  std::vector<std::size_t> tree_of_row_;  // of the logits that come next
  BranchMoves moves_;
};

}  // namespace sluice
