// A node of the radix tree; private to cache/.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "cache/page_allocator.h"

namespace sluice {

using TokenSpan = std::span<const std::int32_t>;

inline std::int64_t common_prefix(TokenSpan a, TokenSpan b) {
  const std::size_t limit = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(limit), b.begin()).first -
         a.begin();
}

struct RadixNode {
  // Siblings are ordered by their first page. So the node with the longest common prefix is next to
  // the key's position.
  struct ByFirstPage {
    using is_transparent = void;
    std::size_t page_size;

    TokenSpan key(TokenSpan tokens) const {
      return tokens.first(std::min(page_size, tokens.size()));
    }
    bool less(TokenSpan a, TokenSpan b) const {
      return std::ranges::lexicographical_compare(key(a), key(b));
    }
    bool operator()(const std::unique_ptr<RadixNode>& a,
                    const std::unique_ptr<RadixNode>& b) const {
      return less(a->tokens, b->tokens);
    }
    bool operator()(const std::unique_ptr<RadixNode>& a, TokenSpan b) const {
      return less(a->tokens, b);
    }
    bool operator()(TokenSpan a, const std::unique_ptr<RadixNode>& b) const {
      return less(a, b->tokens);
    }
  };

  RadixNode(RadixNode* parent_node, std::size_t page_size, int num_page_groups)
      : parent(parent_node),
        pages(num_page_groups),
        num_live(num_page_groups, 0),
        children(ByFirstPage{page_size}) {}

  RadixNode* parent;                             // null: a root
  std::uint64_t name_space = 0;                  // in a root only
  std::vector<std::int32_t> tokens;              // empty only in a root
  std::vector<std::vector<std::int32_t>> pages;  // [page group][page]
  std::vector<std::int64_t> num_live;  // [page group] number of pages that are not missing
  std::int32_t snapshot = kNoPage;     // the state after the last token
  std::int64_t locks = 0;              // locks of this node and of the nodes below it
  std::uint64_t last_use = 0;          // unique
  std::uint64_t origin = 0;            // the request that left the tokens; 0: unknown
  std::set<std::unique_ptr<RadixNode>, ByFirstPage> children;

  bool is_leaf() const { return children.empty(); }
  std::int64_t num_tokens() const { return static_cast<std::int64_t>(tokens.size()); }

  // The child with the longest common prefix with `key` (at most a page), and the length of that
  // prefix.
  std::pair<RadixNode*, std::int64_t> closest_child(TokenSpan key) const {
    std::pair<RadixNode*, std::int64_t> best{nullptr, 0};
    if (children.empty()) return best;
    const TokenSpan first_page = children.key_comp().key(key);
    auto consider = [&](const std::unique_ptr<RadixNode>& child) {
      const std::int64_t shared = common_prefix(child->tokens, first_page);
      if (shared > best.second) best = {child.get(), shared};
    };
    auto place = children.lower_bound(first_page);
    if (place != children.end()) consider(*place);
    if (place != children.begin()) consider(*std::prev(place));
    return best;
  }
};

}  // namespace sluice
