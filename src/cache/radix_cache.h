// The prefix cache: which pages hold the keys and values of which token sequences.
//
// A radix tree over tokens (Zheng et al., "SGLang: Efficient Execution of Structured Language Model
// Programs", 2024, section 3). Nodes begin and end on page boundaries, except that a leaf may end
// inside a page. A node never splits inside a page, so siblings may have common leading tokens.
// Reuse is by token: if a match ends inside a page, the caller copies the first rows of that page
// into a page of its own (PrefixLock::tail_tokens). Prefixes are shared only within a namespace.
//
// Groups. A full group has a page for every page of tokens. In a window or chunk group pages may be
// missing (tombstones). A match may end only where all pages that the next token reads are present.
// A state group has snapshots at the ends of nodes: a match may end only there.
//
// Eviction. In a full group: pages from the end of the least recently used leaf without a lock. In
// other groups: the least recently used pages that no sequence names, at any node. O(log nodes) per
// touched node. Time is a logical clock, so a run can be replayed. Engine thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "batch/page_group.h"
#include "batch/prefix_lookup.h"
#include "cache/page_allocator.h"

namespace sluice {

class RadixCache;
struct RadixNode;

// A prefix found in the cache. While the lock lives, the nodes of its whole pages are not evicted.
// Move-only; the destructor releases the lock. A lock holds no reference to pages: the caller
// shares the pages that it uses at once.
class PrefixLock {
 public:
  PrefixLock() = default;
  PrefixLock(PrefixLock&& other) noexcept;
  PrefixLock& operator=(PrefixLock&& other) noexcept;
  ~PrefixLock() { reset(); }

  std::int64_t length() const { return tokens + tail_tokens; }
  bool locked() const { return node_ != nullptr; }
  void reset();

  std::int64_t tokens = 0;  // tokens in whole pages, which can be shared
  // tokens after the whole pages, in the first rows of tail_pages: to be copied
  std::int64_t tail_tokens = 0;
  // [page group][tokens / page size]; kNoPage if no row reads the page
  std::vector<std::vector<std::int32_t>> pages;
  std::vector<std::int32_t> tail_pages;  // [page group]
  // the state after length() tokens; kNoPage without a state group
  std::int32_t snapshot = kNoPage;
  // Length of the common prefix that is cached in whole pages but has no recurrent state. A state
  // saved at this length lets a third prompt start from it.
  std::int64_t shared_tokens = 0;

 private:
  friend class RadixCache;
  RadixCache* cache_ = nullptr;
  RadixNode* node_ = nullptr;
};

class RadixCache {
 public:
  struct Stats {
    std::int64_t evicted_pages = 0;  // over all groups, states included
    std::int64_t nodes = 0;
    std::int64_t tokens = 0;  // tokens in the tree
  };

  // groups[i] describes pools[i]; a state group comes last, and there is at most one. `pools`
  // outlives the cache.
  RadixCache(std::vector<PageGroup> groups, std::vector<PageAllocator>& pools, int page_size);
  ~RadixCache();
  RadixCache(const RadixCache&) = delete;

  // Locks the longest usable prefix of `tokens`. Pass no more tokens than may be reused.
  PrefixLock match(std::uint64_t name_space, std::span<const std::int32_t> tokens);
  // The length that match() would find. Locks, splits and marks nothing.
  std::int64_t match_length(std::uint64_t name_space, std::span<const std::int32_t> tokens) const;
  // What the tree has of `tokens`, of which at most `max_usable` may be reused. Changes nothing.
  PrefixLookup look_up(std::uint64_t name_space, std::span<const std::int32_t> tokens,
                       std::int64_t max_usable) const;

  // Adds `tokens`, whose pages are pages[page group][i] (kNoPage: missing). The cache adds its own
  // references to the pages that it did not have under these tokens. `snapshot` is the state after
  // the last token; the cache keeps it if it has none there. With `lock`, tokens.size() is a
  // multiple of the page size; the result locks the path and lists the cache's pages. `origin` is
  // the request that look_up() names for the tokens that the tree did not have.
  PrefixLock insert(std::uint64_t name_space, std::span<const std::int32_t> tokens,
                    std::span<const std::span<const std::int32_t>> pages, PageRef snapshot = {},
                    bool lock = false, std::uint64_t origin = 0);

  // Frees at least `num_pages` pages of the group if so many are evictable. Returns the number of
  // freed pages.
  std::int64_t evict(int group, std::int64_t num_pages);
  // Drops everything without a lock.
  void flush();

  Stats stats() const { return stats_; }
  // Throws when the tree contradicts itself or the page counts. O(tree).
  void check_invariants() const;

 private:
  friend class PrefixLock;
  struct Found;

  RadixNode* root(std::uint64_t name_space);
  Found walk(RadixNode* root, std::span<const std::int32_t> tokens) const;
  void list_pages(PrefixLock& result) const;  // all of the locked path
  RadixNode* split(RadixNode* node, std::int64_t pages);
  RadixNode* add_child(RadixNode* parent, std::span<const std::int32_t> tokens);
  void revive(RadixNode* node, std::int64_t first_page,
              std::span<const std::span<const std::int32_t>> pages, std::int64_t count);
  void lock(RadixNode* node);
  void unlock(RadixNode* node);
  void touch(RadixNode* node);
  void touch_path(RadixNode* node);
  void list(RadixNode* node);    // enters the node into its eviction orders
  void unlist(RadixNode* node);  // removes the node from its eviction orders; a node changes only
                                 // while it is in none
  void drop_page(RadixNode* node, int group, std::int64_t index);
  void drop_snapshot(RadixNode* node);
  void trim_page(RadixNode* leaf);
  void remove_leaf(RadixNode* leaf);
  void detach(RadixNode* leaf);
  void prune(RadixNode* node);  // removes the node, and each node above it, while the node is empty
  std::int64_t evict_leaves(int group, std::int64_t num_pages);
  std::int64_t evict_anywhere(int group, std::int64_t num_pages);
  bool worthless(const RadixNode* node) const;
  void check_node(const RadixNode* node, std::vector<std::int64_t>& cached) const;

  const std::vector<PageGroup> groups_;
  std::vector<PageAllocator>& pools_;
  const std::int64_t page_size_;
  int num_page_groups_ = 0;
  int state_group_ = -1;

  std::uint64_t clock_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<RadixNode>> roots_;
  std::map<std::uint64_t, RadixNode*> leaves_;  // unlocked leaves by last use
  // [group] nodes with pages of a group that is not full
  std::vector<std::map<std::uint64_t, RadixNode*>> holders_;
  Stats stats_;
};

}  // namespace sluice
