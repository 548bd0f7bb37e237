// Eviction and its orders.
#include "base/error.h"
#include "cache/radix_cache.h"
#include "cache/radix_node.h"

namespace sluice {

void RadixCache::list(RadixNode* node) {
  if (node->parent == nullptr) return;
  if (node->is_leaf() && node->locks == 0) leaves_.emplace(node->last_use, node);
  for (int g = 0; g < num_page_groups_; ++g)
    if (groups_[g].retention != Retention::kFull && node->num_live[g] > 0)
      holders_[g].emplace(node->last_use, node);
  if (node->snapshot != kNoPage) holders_[state_group_].emplace(node->last_use, node);
}

void RadixCache::unlist(RadixNode* node) {
  if (node->parent == nullptr) return;
  if (node->is_leaf() && node->locks == 0) leaves_.erase(node->last_use);
  for (int g = 0; g < num_page_groups_; ++g)
    if (groups_[g].retention != Retention::kFull && node->num_live[g] > 0)
      holders_[g].erase(node->last_use);
  if (node->snapshot != kNoPage) holders_[state_group_].erase(node->last_use);
}

void RadixCache::drop_page(RadixNode* node, int group, std::int64_t index) {
  std::int32_t& page = node->pages[group][index];
  if (page == kNoPage) return;
  pools_[group].set_cached(page, false);
  pools_[group].drop(page);
  page = kNoPage;
  --node->num_live[group];
}

void RadixCache::drop_snapshot(RadixNode* node) {
  if (node->snapshot == kNoPage) return;
  pools_[state_group_].set_cached(node->snapshot, false);
  pools_[state_group_].drop(std::exchange(node->snapshot, kNoPage));
}

// Frees the last page of a leaf, possibly its only one; the leaf is in no eviction order.
void RadixCache::trim_page(RadixNode* leaf) {
  const std::int64_t last = (leaf->num_tokens() - 1) / page_size_;
  for (int g = 0; g < num_page_groups_; ++g) {
    stats_.evicted_pages += leaf->pages[g][last] != kNoPage;
    drop_page(leaf, g, last);
    leaf->pages[g].pop_back();
  }
  stats_.evicted_pages += leaf->snapshot != kNoPage;
  drop_snapshot(leaf);
  stats_.tokens -= leaf->num_tokens() - last * page_size_;
  if (last > 0) leaf->tokens.resize(static_cast<std::size_t>(last * page_size_));
  // An empty leaf keeps its tokens until it is removed: its parent finds the leaf by them.
}

// Removes the leaf, and all that is useless without it.
void RadixCache::remove_leaf(RadixNode* leaf) {
  RadixNode* parent = leaf->parent;
  detach(leaf);
  prune(parent);
}

void RadixCache::detach(RadixNode* leaf) {
  unlist(leaf);
  for (int g = 0; g < num_page_groups_; ++g)
    for (std::size_t i = 0; i < leaf->pages[g].size(); ++i)
      drop_page(leaf, g, static_cast<std::int64_t>(i));
  drop_snapshot(leaf);
  stats_.tokens -= leaf->num_tokens();
  --stats_.nodes;
  RadixNode* parent = leaf->parent;
  unlist(parent);
  parent->children.erase(parent->children.find(TokenSpan(leaf->tokens)));
  list(parent);
}

bool RadixCache::worthless(const RadixNode* node) const {
  if (!node->is_leaf() || node->locks > 0 || node->snapshot != kNoPage) return false;
  return std::ranges::all_of(node->num_live, [](std::int64_t n) { return n == 0; });
}

void RadixCache::prune(RadixNode* node) {
  while (worthless(node)) {
    RadixNode* parent = node->parent;
    if (parent == nullptr) {
      roots_.erase(node->name_space);
      return;
    }
    detach(node);
    node = parent;
  }
}

std::int64_t RadixCache::evict(int group, std::int64_t num_pages) {
  const bool full = groups_[group].retention == Retention::kFull;
  return full ? evict_leaves(group, num_pages) : evict_anywhere(group, num_pages);
}

std::int64_t RadixCache::evict_leaves(int group, std::int64_t num_pages) {
  const PageAllocator& pool = pools_[group];
  const std::int64_t free_before = pool.num_free();
  auto enough = [&] {
    return pool.num_free() - free_before >= num_pages || pool.num_evictable() == 0;
  };
  while (!enough() && !leaves_.empty()) {
    RadixNode* leaf = leaves_.begin()->second;
    unlist(leaf);
    bool empty = false;
    while (!empty && !enough()) {
      trim_page(leaf);
      empty = leaf->pages[group].empty();
    }
    list(leaf);
    if (empty) {
      stats_.tokens += leaf->num_tokens();  // remove_leaf subtracts them
      remove_leaf(leaf);
    }
  }
  return pool.num_free() - free_before;
}

std::int64_t RadixCache::evict_anywhere(int group, std::int64_t num_pages) {
  PageAllocator& pool = pools_[group];
  const std::int64_t free_before = pool.num_free();
  auto enough = [&] {
    return pool.num_free() - free_before >= num_pages || pool.num_evictable() == 0;
  };
  auto it = holders_[group].begin();
  while (!enough() && it != holders_[group].end()) {
    const std::uint64_t place = it->first;
    RadixNode* node = it->second;
    unlist(node);
    if (group == state_group_) {
      if (pool.references(node->snapshot) == 1) {
        drop_snapshot(node);
        ++stats_.evicted_pages;
      }
    } else {
      for (std::size_t i = 0; i < node->pages[group].size() && !enough(); ++i) {
        const std::int32_t page = node->pages[group][i];
        if (page == kNoPage || pool.references(page) != 1) continue;
        drop_page(node, group, static_cast<std::int64_t>(i));
        ++stats_.evicted_pages;
      }
    }
    list(node);
    prune(node);
    it = holders_[group].upper_bound(place);
  }
  return pool.num_free() - free_before;
}

void RadixCache::flush() {
  while (!leaves_.empty()) remove_leaf(leaves_.begin()->second);
  for (std::size_t g = 0; g < groups_.size(); ++g)
    if (groups_[g].retention != Retention::kFull)
      evict_anywhere(static_cast<int>(g), pools_[g].num_pages());
}

void RadixCache::check_invariants() const {
  std::vector<std::int64_t> cached(groups_.size(), 0);
  std::vector<const RadixNode*> rest;
  std::int64_t nodes = 0;
  std::int64_t tokens = 0;
  for (const auto& [name, root] : roots_) {
    check(!root->children.empty(), "namespace {} is empty", name);
    rest.push_back(root.get());
  }
  while (!rest.empty()) {
    const RadixNode* node = rest.back();
    rest.pop_back();
    check_node(node, cached);
    nodes += node->parent != nullptr;
    tokens += node->num_tokens();
    for (const auto& child : node->children) rest.push_back(child.get());
  }
  check(nodes == stats_.nodes && tokens == stats_.tokens,
        "{} nodes, {} tokens counted; {}, {} found", stats_.nodes, stats_.tokens, nodes, tokens);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    std::int64_t marked = 0;
    for (std::int32_t page = 0; page < pools_[g].num_pages(); ++page)
      marked += pools_[g].cached(page);
    check(marked == cached[g], "group {}: {} pages are marked as cached, the tree has {}",
          groups_[g].name, marked, cached[g]);
  }
}

void RadixCache::check_node(const RadixNode* node, std::vector<std::int64_t>& cached) const {
  std::int64_t locks_below = 0;
  for (const auto& child : node->children) {
    check(child->parent == node, "a node's parent is another one");
    locks_below += child->locks;
  }
  check(locks_below <= node->locks, "{} locks below a node that counts {}", locks_below,
        node->locks);
  if (node->parent == nullptr) return;
  check(!worthless(node), "a node of {} tokens holds nothing", node->num_tokens());
  check(node->is_leaf() || node->num_tokens() % page_size_ == 0, "an inner node of {} tokens",
        node->num_tokens());
  const bool evictable = node->is_leaf() && node->locks == 0;
  check(leaves_.contains(node->last_use) == evictable, "a leaf is in the wrong order of eviction");
  for (int g = 0; g < num_page_groups_; ++g) {
    check(static_cast<std::int64_t>(node->pages[g].size()) ==
              (node->num_tokens() + page_size_ - 1) / page_size_,
          "{} tokens in {} pages", node->num_tokens(), node->pages[g].size());
    std::int64_t live = 0;
    for (std::int32_t page : node->pages[g]) {
      if (page == kNoPage) continue;
      ++live;
      check(pools_[g].cached(page), "page {} is in the tree, but not marked", page);
    }
    const bool full = groups_[g].retention == Retention::kFull;
    check(live == node->num_live[g] &&
              (!full || live == static_cast<std::int64_t>(node->pages[g].size())),
          "group {}: {} pages counted, {} found of {}", groups_[g].name, node->num_live[g], live,
          node->pages[g].size());
    check(holders_[g].contains(node->last_use) == (!full && live > 0),
          "group {}: wrong order of eviction", groups_[g].name);
    cached[g] += live;
  }
  if (node->snapshot != kNoPage) {
    check(pools_[state_group_].cached(node->snapshot), "state {} is in the tree, but not marked",
          node->snapshot);
    ++cached[state_group_];
  }
}

}  // namespace sluice
