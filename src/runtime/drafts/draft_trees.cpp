#include "runtime/drafts/draft_trees.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/slot_moves.h"
#include "base/error.h"

namespace sluice {
namespace {

constexpr auto kPage = static_cast<std::int32_t>(kPageSize);

}  // namespace

DraftPlanes planes_behind(const KVPool& pool, int layer) {
  DraftPlanes out;
  for (int g = 0; g < pool.num_groups(); ++g) {
    std::vector<ops::KvPlane>& planes = out.emplace_back();
    for (const PlaneSpec& spec : pool.group(g).planes)
      for (const int one : spec.layers)
        if (one >= layer) planes.push_back(pool.plane(g, spec.name, one));
  }
  return out;
}

const ItemBranches* find_branches(const Batch& batch, std::int32_t item) {
  const auto found = std::ranges::lower_bound(batch.branches, item, {}, &ItemBranches::item);
  return found != batch.branches.end() && found->item == item ? &*found : nullptr;
}

std::int32_t& page_of_branch(ItemBranches& branches, std::size_t num_groups, int branch,
                             std::size_t group, std::int32_t i) {
  const std::size_t place = (static_cast<std::size_t>(branch - 1) * num_groups + group) *
                                static_cast<std::size_t>(branches.num_pages) +
                            static_cast<std::size_t>(i);
  return branches.pages.at(place);
}

void swap_with_branch(ItemBranches& branches, int branch, std::span<PageRows> groups) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::int32_t first = groups[g].offsets[branches.item] + branches.first_page;
    check(first + branches.num_pages <= groups[g].offsets[branches.item + 1],
          "branches of item {} reach beyond its pages", branches.item);
    for (std::int32_t i = 0; i < branches.num_pages; ++i)
      std::swap(groups[g].pages[static_cast<std::size_t>(first + i)],
                page_of_branch(branches, groups.size(), branch, g, i));
  }
}

void DraftTrees::add(const Batch& batch, std::int32_t item, std::int32_t last_slot,
                     std::int32_t state) {
  trees_.push_back({.item = item,
                    .position = last_slot,
                    .is_chain = width_of(batch, item) == 1,
                    .builder = DraftTreeBuilder(topk_),
                    .states = {state},
                    .branches = {0}});
}

int DraftTrees::width_of(const Batch& batch, std::int32_t item) const {
  const ItemBranches* branches = find_branches(batch, item);
  const std::size_t pages =
      branches == nullptr ? 0 : batch.groups.size() * static_cast<std::size_t>(branches->num_pages);
  const auto count = pages == 0 ? 0 : static_cast<int>(branches->pages.size() / pages);
  return std::min(topk_, 1 + count);
}

void DraftTrees::take_level(std::span<const ops::SampledRow> best) {
  if (entries_.empty()) {  // the first level
    tree_of_row_.resize(trees_.size());
    for (std::size_t i = 0; i < trees_.size(); ++i) tree_of_row_[i] = i;
  }
  check(best.size() == tree_of_row_.size(), "{} rows for {} nodes of drafts", best.size(),
        tree_of_row_.size());
  const auto k = static_cast<std::size_t>(topk_);
  std::vector<float> probabilities(k * best.size(), NAN);
  std::vector<std::int32_t> tokens(probabilities.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const ops::SampledRow& row = best[i / k];
    if (std::cmp_less(row.num_top, k)) continue;
    const auto& [token, logprob] = row.top[i % k];
    probabilities[i] = std::min(1.0f, std::exp(logprob));
    tokens[i] = target_tokens_.empty() ? token : target_tokens_[static_cast<std::size_t>(token)];
  }
  for (std::size_t row = 0; row < tree_of_row_.size();) {
    const std::size_t number = tree_of_row_[row];
    std::size_t end = row + 1;
    while (end < tree_of_row_.size() && tree_of_row_[end] == number) ++end;
    Tree& tree = trees_[number];
    ++tree.level;
    tree.is_over =
        !tree.builder.add_level(std::span(probabilities).subspan(row * k, (end - row) * k),
                                std::span(tokens).subspan(row * k, (end - row) * k));
    row = end;
  }
}

bool DraftTrees::has_pages(const Batch& batch, const Tree& tree, int width,
                           std::int32_t position) const {
  const ItemBranches* branches = find_branches(batch, tree.item);
  const std::int32_t entry = position / kPage;
  if (width > 1 && entry >= branches->first_page + branches->num_pages) return false;
  return std::ranges::all_of(batch.groups, [&](const PageRows& rows) {
    const std::int32_t at = rows.offsets[static_cast<std::size_t>(tree.item)] + entry;
    return at < rows.offsets[static_cast<std::size_t>(tree.item) + 1] &&
           rows.pages[static_cast<std::size_t>(at)] >= 0;
  });
}

void DraftTrees::copy_slots(const Batch& batch, const Tree& tree, std::int32_t first,
                            std::int32_t end, std::int32_t from, std::int32_t to) {
  const ItemBranches& branches = *find_branches(batch, tree.item);
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    const auto slot = [&](std::int32_t branch, std::int32_t position) {
      const std::int32_t entry = position / kPage;
      const PageRows& own = batch.groups[g];
      const std::int32_t page =
          branch == 0 ? own.pages[static_cast<std::size_t>(
                            own.offsets[static_cast<std::size_t>(tree.item)] + entry)]
                      : page_of_branch(const_cast<ItemBranches&>(branches), batch.groups.size(),
                                       branch, g, entry - branches.first_page);
      return std::int64_t{page} * kPage + position % kPage;
    };
    for (std::int32_t position = first; position < end; ++position) {
      moves_.from[g].push_back(slot(from, position));
      moves_.to[g].push_back(slot(to, position));
    }
  }
}

// Gives each node of the frontier a branch that holds its ancestors' slots.
void DraftTrees::assign_branches(const Batch& batch, Tree& tree) {
  const auto frontier = tree.builder.frontier();
  const std::int32_t next = tree.position + 1;
  std::vector<std::int32_t> out(frontier.size(), -1);
  if (tree.level == 1) {
    for (std::size_t i = 0; i < frontier.size(); ++i) {
      out[i] = static_cast<std::int32_t>(i);
      if (i > 0) copy_slots(batch, tree, next / kPage * kPage, next, 0, out[i]);
    }
  } else {
    std::vector<bool> is_taken(tree.branches.size(), false);
    for (std::size_t i = 0; i < frontier.size(); ++i) {
      const auto row = static_cast<std::size_t>(frontier[i].row);
      const auto branch = static_cast<std::size_t>(tree.branches[row]);
      if (is_taken[branch]) continue;
      is_taken[branch] = true;
      out[i] = tree.branches[row];
    }
    std::size_t free = 0;
    for (std::size_t i = 0; i < frontier.size(); ++i) {
      if (out[i] >= 0) continue;
      while (is_taken[free]) ++free;
      is_taken[free] = true;
      out[i] = static_cast<std::int32_t>(free);
      copy_slots(batch, tree, next, next + tree.level - 1,
                 tree.branches[static_cast<std::size_t>(frontier[i].row)], out[i]);
    }
  }
  tree.branches = std::move(out);
}

bool DraftTrees::next(const Batch& batch, std::int64_t max_rows) {
  std::vector<Entry> entries;
  tree_of_row_.clear();
  for (auto* slots : {&moves_.from, &moves_.to}) slots->assign(batch.groups.size(), {});
  for (std::size_t number = 0; number < trees_.size(); ++number) {
    Tree& tree = trees_[number];
    if (tree.is_over) continue;
    if (tree.level == 1) tree.builder.narrow(width_of(batch, tree.item));
    const auto frontier = tree.builder.frontier();
    const std::int32_t position = tree.position + tree.level;
    tree.is_over = std::cmp_greater(entries.size() + frontier.size(), max_rows) ||
                   !has_pages(batch, tree, static_cast<int>(frontier.size()), position);
    if (tree.is_over) continue;
    assign_branches(batch, tree);
    std::vector<std::int32_t> states;
    for (std::size_t i = 0; i < frontier.size(); ++i) {
      states.push_back(static_cast<std::int32_t>(entries.size()));
      entries.push_back({.item = tree.item,
                         .position = position,
                         .token = frontier[i].token,
                         .state = tree.states[static_cast<std::size_t>(frontier[i].row)],
                         .branch = tree.branches[i],
                         .first_page = (tree.position + 1) / kPage});
      tree_of_row_.push_back(number);
    }
    tree.states = std::move(states);
  }
  entries_ = std::move(entries);
  return !entries_.empty();
}

void DraftTrees::copy_rows(Context& ctx, const DraftPlanes& planes) const {
  for (std::size_t g = 0; g < planes.size(); ++g)
    move_slots(ctx, planes[g], moves_.from[g], moves_.to[g]);
}

void DraftTrees::take_pages(const Batch& batch, const Entry& entry, std::span<PageRows> groups) {
  ItemBranches branches = *find_branches(batch, entry.item);
  const std::int32_t end = branches.first_page + branches.num_pages;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::int32_t begin = *(groups[g].offsets.end() - 2);
    check(begin + end <= groups[g].offsets.back(), "branches of item {} reach beyond its pages",
          entry.item);
    for (std::int32_t at = entry.first_page; at < end; ++at)
      groups[g].pages[static_cast<std::size_t>(begin + at)] =
          page_of_branch(branches, groups.size(), entry.branch, g, at - branches.first_page);
  }
}

void DraftTrees::put(int max_drafts, std::size_t num_items, BatchResult& result) const {
  result.drafts.clear();
  result.draft_parents.clear();
  result.draft_offsets.assign(1, 0);
  auto tree = trees_.begin();
  for (std::size_t item = 0; item < num_items; ++item) {
    if (tree != trees_.end() && std::cmp_equal(tree->item, item)) {
      const DraftTreeNodes nodes = tree->is_chain ? tree->builder.select_chain(max_drafts)
                                                  : tree->builder.select_best_first(max_drafts);
      result.drafts.insert(result.drafts.end(), nodes.tokens.begin(), nodes.tokens.end());
      result.draft_parents.insert(result.draft_parents.end(), nodes.parents.begin(),
                                  nodes.parents.end());
      ++tree;
    }
    result.draft_offsets.push_back(static_cast<std::int32_t>(result.drafts.size()));
  }
}

}  // namespace sluice
