#include "cache/radix_cache.h"

#include <array>

#include "base/error.h"
#include "cache/radix_node.h"

namespace sluice {
namespace {

constexpr int kMaxGroups = 8;

}  // namespace

PrefixLock::PrefixLock(PrefixLock&& other) noexcept
    : tokens(other.tokens),
      tail_tokens(other.tail_tokens),
      pages(std::move(other.pages)),
      tail_pages(std::move(other.tail_pages)),
      snapshot(other.snapshot),
      shared_tokens(other.shared_tokens),
      cache_(other.cache_),
      node_(std::exchange(other.node_, nullptr)) {
  other.reset();
}

PrefixLock& PrefixLock::operator=(PrefixLock&& other) noexcept {
  if (this == &other) return *this;
  reset();
  tokens = other.tokens;
  tail_tokens = other.tail_tokens;
  pages = std::move(other.pages);
  tail_pages = std::move(other.tail_pages);
  snapshot = other.snapshot;
  shared_tokens = other.shared_tokens;
  cache_ = other.cache_;
  node_ = std::exchange(other.node_, nullptr);
  other.reset();
  return *this;
}

void PrefixLock::reset() {
  if (node_ != nullptr) cache_->unlock(std::exchange(node_, nullptr));
  tokens = tail_tokens = 0;
  pages.clear();
  tail_pages.clear();
  snapshot = kNoPage;
  shared_tokens = 0;
}

// The end of a usable prefix: after `pages` pages of `node` (null: at the root), then `tail_tokens`
// rows of page `tail_page` of `tail_node`.
struct RadixCache::Found {
  RadixNode* node = nullptr;
  std::int64_t pages = 0;
  std::int64_t tokens = 0;
  RadixNode* tail_node = nullptr;
  std::int64_t tail_page = 0;
  std::int64_t tail_tokens = 0;
  std::int64_t shared_tokens = 0;  // see PrefixLock
};

RadixCache::RadixCache(std::vector<PageGroup> groups, std::vector<PageAllocator>& pools,
                       int page_size)
    : groups_(std::move(groups)), pools_(pools), page_size_(page_size), holders_(groups_.size()) {
  check(page_size > 0 && groups_.size() == pools.size() && groups_.size() <= kMaxGroups,
        "a radix cache of {} groups, {} pools (at most {}), page size {}", groups_.size(),
        pools.size(), kMaxGroups, page_size);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Retention retention = groups_[g].retention;
    check(retention != Retention::kState || g + 1 == groups_.size(),
          "state group {} is not the last", groups_[g].name);
    if (retention == Retention::kState) state_group_ = static_cast<int>(g);
  }
  num_page_groups_ = static_cast<int>(groups_.size()) - (state_group_ >= 0 ? 1 : 0);
}

RadixCache::~RadixCache() {
  // Without recursion: a tree may be as deep as a conversation is long.
  std::vector<std::unique_ptr<RadixNode>> rest;
  for (auto& [name, root] : roots_) rest.push_back(std::move(root));
  while (!rest.empty()) {
    std::unique_ptr<RadixNode> node = std::move(rest.back());
    rest.pop_back();
    while (!node->children.empty())
      rest.push_back(std::move(node->children.extract(node->children.begin()).value()));
    for (int g = 0; g < num_page_groups_; ++g)
      for (std::size_t i = 0; i < node->pages[g].size(); ++i)
        drop_page(node.get(), g, static_cast<std::int64_t>(i));
    drop_snapshot(node.get());
  }
}

RadixNode* RadixCache::root(std::uint64_t name_space) {
  std::unique_ptr<RadixNode>& root = roots_[name_space];
  if (root == nullptr) {
    root = std::make_unique<RadixNode>(nullptr, page_size_, num_page_groups_);
    root->name_space = name_space;
  }
  return root.get();
}

RadixCache::Found RadixCache::walk(RadixNode* root, TokenSpan tokens) const {
  Found best;
  RadixNode* node = root;
  RadixNode* above = nullptr;  // the node whose last page precedes `node`, null for the root
  std::int64_t depth = 0;      // tokens above `node`
  // [group] first page of the unbroken run that ends here
  std::array<std::int64_t, kMaxGroups> run_start{};

  auto readable = [&](std::int64_t end) {
    for (int g = 0; g < num_page_groups_; ++g)
      if (groups_[g].keep_from(end) / page_size_ < run_start[g]) return false;
    return true;
  };
  while (depth < static_cast<std::int64_t>(tokens.size())) {
    const TokenSpan rest = tokens.subspan(static_cast<std::size_t>(depth));
    auto [child, shared] = node->closest_child(rest);
    if (child == nullptr) break;
    if (shared == page_size_) shared = common_prefix(child->tokens, rest);
    const std::int64_t whole = shared / page_size_;
    const bool at_end = shared == child->num_tokens();
    for (std::int64_t i = 0; i < whole; ++i) {
      for (int g = 0; g < num_page_groups_; ++g)
        if (child->pages[g][i] == kNoPage) run_start[g] = depth / page_size_ + i + 1;
      const std::int64_t end = depth + (i + 1) * page_size_;
      const bool has_state =
          state_group_ < 0 ||
          (at_end && i + 1 == whole && shared % page_size_ == 0 && child->snapshot != kNoPage);
      if (!readable(end)) continue;
      if (has_state)
        best = {child, i + 1, end, nullptr, 0, 0, 0};
      else
        best.shared_tokens = end;
    }
    const std::int64_t tail = shared % page_size_;
    if (tail > 0) {
      bool usable =
          readable(depth + shared) && (state_group_ < 0 || (at_end && child->snapshot != kNoPage));
      for (int g = 0; g < num_page_groups_; ++g)
        usable = usable && child->pages[g][whole] != kNoPage;
      if (usable) {
        best = {child, whole, depth + whole * page_size_, child, whole, tail, 0};
        if (whole == 0) {
          best.node = above;
          best.pages = above == nullptr ? 0 : above->num_tokens() / page_size_;
        }
      }
      break;
    }
    if (!at_end) break;
    above = node = child;
    depth += shared;
  }
  return best;
}

std::int64_t RadixCache::match_length(std::uint64_t name_space, TokenSpan tokens) const {
  auto it = roots_.find(name_space);
  if (it == roots_.end()) return 0;
  const Found found = walk(it->second.get(), tokens);
  return found.tokens + found.tail_tokens;
}

PrefixLock RadixCache::match(std::uint64_t name_space, TokenSpan tokens) {
  PrefixLock result;
  auto it = roots_.find(name_space);
  if (it == roots_.end()) return result;
  const Found found = walk(it->second.get(), tokens);
  result.shared_tokens = found.shared_tokens;
  if (found.tokens + found.tail_tokens == 0) return result;

  result.tokens = found.tokens;
  result.tail_tokens = found.tail_tokens;
  const RadixNode* last = found.tail_node != nullptr ? found.tail_node : found.node;
  result.snapshot = last->snapshot;
  if (found.tail_node != nullptr)
    for (int g = 0; g < num_page_groups_; ++g)
      result.tail_pages.push_back(found.tail_node->pages[g][found.tail_page]);
  touch_path(found.tail_node != nullptr ? found.tail_node : found.node);
  if (found.tokens == 0) return result;

  RadixNode* node = found.node;
  if (found.pages < static_cast<std::int64_t>(node->tokens.size() + page_size_ - 1) / page_size_)
    node = split(node, found.pages);
  lock(node);
  if (node != found.node) prune(found.node);  // the lower part may hold only tombstones
  result.cache_ = this;
  result.node_ = node;
  list_pages(result);
  for (int g = 0; g < num_page_groups_; ++g) {
    const std::int64_t first = groups_[g].keep_from(result.length()) / page_size_;
    std::fill_n(result.pages[g].begin(), std::min<std::int64_t>(first, found.tokens / page_size_),
                kNoPage);
  }
  return result;
}

void RadixCache::list_pages(PrefixLock& result) const {
  result.pages.assign(num_page_groups_,
                      std::vector<std::int32_t>(result.tokens / page_size_, kNoPage));
  std::int64_t end = result.tokens / page_size_;
  for (const RadixNode* node = result.node_; node->parent != nullptr; node = node->parent) {
    const std::int64_t count = node->num_tokens() / page_size_;
    end -= count;
    for (int g = 0; g < num_page_groups_; ++g)
      std::copy_n(node->pages[g].begin(), count, result.pages[g].begin() + end);
  }
}

RadixNode* RadixCache::split(RadixNode* node, std::int64_t pages) {
  // The new node is the upper part, so that locks on `node` still lock the whole path.
  RadixNode* parent = node->parent;
  unlist(node);
  auto handle = parent->children.extract(parent->children.find(TokenSpan(node->tokens)));
  auto upper = std::make_unique<RadixNode>(parent, page_size_, num_page_groups_);
  const auto cut = pages * page_size_;
  upper->tokens.assign(node->tokens.begin(), node->tokens.begin() + cut);
  node->tokens.erase(node->tokens.begin(), node->tokens.begin() + cut);
  for (int g = 0; g < num_page_groups_; ++g) {
    std::vector<std::int32_t>& from = node->pages[g];
    upper->pages[g].assign(from.begin(), from.begin() + pages);
    from.erase(from.begin(), from.begin() + pages);
    upper->num_live[g] = pages - std::ranges::count(upper->pages[g], kNoPage);
    node->num_live[g] -= upper->num_live[g];
  }
  upper->locks = node->locks;
  upper->origin = node->origin;
  upper->last_use = ++clock_;
  node->parent = upper.get();
  upper->children.insert(std::move(handle));
  RadixNode* result = upper.get();
  parent->children.insert(std::move(upper));
  list(node);
  list(result);
  ++stats_.nodes;
  return result;
}

RadixNode* RadixCache::add_child(RadixNode* parent, TokenSpan tokens) {
  auto child = std::make_unique<RadixNode>(parent, page_size_, num_page_groups_);
  child->tokens.assign(tokens.begin(), tokens.end());
  for (auto& pages : child->pages)
    pages.assign((tokens.size() + page_size_ - 1) / page_size_, kNoPage);
  child->last_use = ++clock_;
  RadixNode* result = child.get();
  unlist(parent);
  parent->children.insert(std::move(child));
  list(parent);
  list(result);
  ++stats_.nodes;
  stats_.tokens += static_cast<std::int64_t>(tokens.size());
  return result;
}

void RadixCache::revive(RadixNode* node, std::int64_t first_page, std::span<const TokenSpan> pages,
                        std::int64_t count) {
  unlist(node);
  for (int g = 0; g < num_page_groups_; ++g) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t page = pages[g][first_page + i];
      if (node->pages[g][i] != kNoPage || page == kNoPage) continue;
      pools_[g].share(page);
      pools_[g].set_cached(page, true);
      node->pages[g][i] = page;
      ++node->num_live[g];
    }
  }
  list(node);
}

PrefixLock RadixCache::insert(std::uint64_t name_space, TokenSpan tokens,
                              std::span<const TokenSpan> pages, PageRef snapshot, bool lock_path,
                              std::uint64_t origin) {
  const std::int64_t total = static_cast<std::int64_t>(tokens.size());
  check(!lock_path || total % page_size_ == 0, "a path of {} tokens is locked, pages have {}",
        total, page_size_);
  for (int g = 0; g < num_page_groups_; ++g) {
    const std::int64_t needed = (total + page_size_ - 1) / page_size_;
    check(static_cast<std::int64_t>(pages[g].size()) >= needed,
          "{} tokens with {} pages in group {}", total, pages[g].size(), groups_[g].name);
    check(groups_[g].retention != Retention::kFull ||
              std::ranges::count(pages[g].first(needed), kNoPage) == 0,
          "group {} is full, but a page is missing", groups_[g].name);
  }
  PrefixLock result;
  if (total == 0) return result;

  RadixNode* node = root(name_space);
  RadixNode* covered = nullptr;  // a leaf whose tokens all begin the new node
  RadixNode* lower = nullptr;    // remainder of a split; it may hold only tombstones
  std::int64_t depth = 0;
  while (depth < total) {
    const TokenSpan rest = tokens.subspan(static_cast<std::size_t>(depth));
    auto [child, shared] = node->closest_child(rest);
    if (shared == page_size_) shared = common_prefix(child->tokens, rest);
    const std::int64_t left = static_cast<std::int64_t>(rest.size());
    const std::int64_t whole = shared / page_size_;
    const std::int64_t first_page = depth / page_size_;
    if (child != nullptr && shared == child->num_tokens() &&
        (shared % page_size_ == 0 || shared == left)) {
      revive(child, first_page, pages, (shared + page_size_ - 1) / page_size_);
      node = child;
      depth += shared;
      continue;
    }
    if (whole > 0) {  // leave the child after its last page in common
      lower = child;
      child = split(child, whole);
      revive(child, first_page, pages, whole);
      node = child;
      depth += whole * page_size_;
      continue;
    }
    if (shared == left) break;  // the end lies inside a page that is cached already
    if (child != nullptr && shared == child->num_tokens() && child->is_leaf() &&
        child->locks == 0 && child->snapshot == kNoPage)
      covered = child;
    node = add_child(node, rest);
    node->origin = origin;
    revive(node, first_page, pages, (left + page_size_ - 1) / page_size_);
    depth = total;
  }
  if (covered != nullptr) remove_leaf(covered);
  if (depth == total && snapshot && state_group_ >= 0 && node->snapshot == kNoPage) {
    unlist(node);
    node->snapshot = snapshot.release();
    pools_[state_group_].set_cached(node->snapshot, true);
    list(node);
  }
  touch_path(node);
  if (lock_path) {
    lock(node);
    result.cache_ = this;
    result.node_ = node;
    result.tokens = total;
    list_pages(result);
  }
  if (lower == covered) lower = nullptr;
  const bool ends_above = lower != nullptr && lower->parent == node;
  if (lower != nullptr) prune(lower);  // and possibly the node above
  if (!ends_above) prune(node);
  return result;
}

void RadixCache::lock(RadixNode* node) {
  for (; node != nullptr; node = node->parent) {
    if (node->locks == 0) unlist(node);
    if (++node->locks == 1) list(node);
  }
}

void RadixCache::unlock(RadixNode* node) {
  RadixNode* lowest = node;
  for (; node != nullptr; node = node->parent) {
    if (node->locks == 1) unlist(node);
    if (--node->locks == 0) list(node);
  }
  prune(lowest);
}

void RadixCache::touch(RadixNode* node) {
  unlist(node);
  node->last_use = ++clock_;
  list(node);
}

void RadixCache::touch_path(RadixNode* node) {
  for (; node->parent != nullptr; node = node->parent) touch(node);
}

}  // namespace sluice
