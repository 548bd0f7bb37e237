// Pages of drafts that branch: each path of a tree has tail pages of its own.
#include <algorithm>

#include "batch/draft_paths.h"
#include "scheduler/dp_scheduler.h"

namespace sluice {
namespace {

constexpr std::int64_t kEvictedShare = 4;

std::vector<std::int32_t> row_parents(const Sequence& s) {
  std::vector<std::int32_t> parents = {-1};
  parents.insert(parents.end(), s.draft_parents.begin(), s.draft_parents.end());
  return parents;
}

// Keeps the best drafts on at most so many paths. Drafts stand best first, parents before children.
void keep_best_paths(Sequence& s, std::size_t most) {
  std::vector<bool> has_child(s.drafts.size() + 1, false);
  std::size_t paths = 1;
  const std::vector<std::int32_t> parents = s.draft_parents;
  keep_drafts({s.drafts, s.draft_parents}, [&](std::size_t i) {
    const auto parent = static_cast<std::size_t>(parents[i]);
    if (has_child[parent] && paths == most) return false;
    paths += has_child[parent];
    has_child[parent] = true;
    return true;
  });
}

}  // namespace

// How many drafts stand behind each other.
int DpScheduler::draft_depth(const Sequence& s) {
  if (s.draft_parents.empty()) return static_cast<int>(s.drafts.size());
  return paths_of(row_parents(s)).depth();
}

// For each path of the step's trees, and for those of the drafts that come with its result. Paths
// that get no pages are left out, the least likely ones first.
void DpScheduler::make_branches_of_step() {
  const int wanted = next_drafts_ == 0 || !next_is_tree_ ? 1 : options_.draft_branches;
  branch_pages_.assign(pools_.size(), 0);
  for (Item& item : decodes_) {
    Sequence& s = *item.sequence;
    const int end = s.planned + 1 + draft_depth(s);
    if (s.draft_parents.empty()) {
      make_branches(s, s.planned + 1, end, wanted);
      continue;
    }
    const DraftPaths paths = paths_of(row_parents(s));
    make_branches(s, s.planned, end, std::max(paths.count, wanted));
    BranchPages& branches = s.branches;
    const std::size_t pages_of_one =
        static_cast<std::size_t>(branches.num_pages) * static_cast<std::size_t>(num_page_groups_);
    const std::size_t count = 1 + (pages_of_one > 0 ? branches.pages.size() / pages_of_one : 0);
    keep_best_paths(s, count);
    if (s.drafts.empty()) continue;
    branches.tokens = {s.tokens.back()};
    branches.tokens.insert(branches.tokens.end(), s.drafts.begin(), s.drafts.end());
    branches.parents = row_parents(s);
  }
  for (const Item& item : prefills_) {
    Sequence& s = *item.sequence;
    const int end = s.planned + item.count;
    if (end != s.prefill_end || !s.wants_token()) continue;
    const int slots = std::min(memory_end(s), draft_end(end));
    if (slots > end) (void)grow(s, slots);
    make_branches(s, end, end, wanted);
  }
}

// Pages for `count` branches, the sequence's own counted: from position `first` on, for rows up to
// `end` and the slots of drafts behind them. Fewer branches where pages are missing. The branches
// of a step drive cached pages out of a quarter of a group at most.
void DpScheduler::make_branches(Sequence& s, int first, int end, int count) {
  BranchPages& out = s.branches;
  out = {};
  out.first_page = first / static_cast<int>(kPageSize);
  std::int64_t pages = (draft_end(end) + kPageSize - 1) / kPageSize;
  for (int g = 0; g < num_page_groups_; ++g) pages = std::min(pages, s.pages[g].size());
  out.num_pages = std::max(0, static_cast<int>(pages) - out.first_page);
  if (out.num_pages == 0) return;
  for (int branch = 1; branch < count; ++branch) {
    for (int g = 0; g < num_page_groups_; ++g) {
      const bool may_evict =
          branch_pages_[g] + out.num_pages <= pools_[g].num_pages() / kEvictedShare;
      if (pools_[g].num_free() < out.num_pages && !(may_evict && ensure(g, out.num_pages))) return;
    }
    for (int g = 0; g < num_page_groups_; ++g) {
      branch_pages_[g] += out.num_pages;
      for (int i = 0; i < out.num_pages; ++i) out.pages.push_back(PageRef::taken(pools_[g]));
    }
  }
}

// Branches of a tree begin with the rows that the sequence's page has.
void DpScheduler::build_branches(const Sequence& s, std::int32_t index, Batch& batch) const {
  const BranchPages& from = s.branches;
  if (from.pages.empty() && from.parents.empty()) return;
  ItemBranches& out = batch.branches.emplace_back();
  out.item = index;
  out.parents = from.parents;
  out.first_page = from.first_page;
  out.num_pages = from.num_pages;
  for (const PageRef& page : from.pages) out.pages.push_back(page.page());
  const auto rows = static_cast<std::int32_t>(s.planned % kPageSize);
  const int count = from.parents.empty() ? 1 : paths_of(from.parents).count;
  if (rows == 0) return;
  for (int branch = 1; branch < count; ++branch)
    for (int g = 0; g < num_page_groups_; ++g)
      batch.copies.push_back({g, s.pages[g][static_cast<std::size_t>(from.first_page)],
                              out.pages[static_cast<std::size_t>(
                                  ((branch - 1) * num_page_groups_ + g) * from.num_pages)],
                              rows});
}

// Of a tree: the pages of the path that the tokens confirm become the sequence's.
void DpScheduler::keep_right_branch(Sequence& s, std::span<const std::int32_t> tokens) {
  const BranchPages& from = s.branches;
  if (from.parents.empty()) return;
  const auto row = right_rows(from.parents, from.tokens, tokens).back();
  const int branch = paths_of(from.parents).branch_of(static_cast<std::size_t>(row));
  if (branch == 0) return;
  check(s.steps_in_flight == 0,
        "pages of a sequence are exchanged while {} steps of it are in "
        "flight",
        s.steps_in_flight);
  for (int g = 0; g < num_page_groups_; ++g)
    for (int i = 0; i < from.num_pages; ++i) {
      const PageRef& page = from.pages[static_cast<std::size_t>(
          ((branch - 1) * num_page_groups_ + g) * from.num_pages + i)];
      (void)s.pages[g].replace(static_cast<std::size_t>(from.first_page + i), page.page());
    }
}

}  // namespace sluice
