// What the tree has of a prompt, and which requests left it.
#include "cache/radix_cache.h"
#include "cache/radix_node.h"

namespace sluice {
namespace {

void add_run(PrefixLookup& out, std::int64_t tokens, std::uint64_t request) {
  out.common_tokens += tokens;
  if (!out.runs.empty() && out.runs.back().request == request)
    out.runs.back().tokens += tokens;
  else
    out.runs.push_back({tokens, request});
}

void set_other(PrefixLookup& out, const RadixNode& node, std::int64_t from) {
  const TokenSpan rest = TokenSpan(node.tokens).subspan(static_cast<std::size_t>(from));
  const TokenSpan shown = rest.first(std::min(rest.size(), PrefixLookup::kMaxOtherTokens));
  out.other_tokens.assign(shown.begin(), shown.end());
  out.other_request = node.origin;
}

}  // namespace

PrefixLookup RadixCache::look_up(std::uint64_t name_space, TokenSpan tokens,
                                 std::int64_t max_usable) const {
  PrefixLookup out;
  const auto root = roots_.find(name_space);
  if (root == roots_.end()) return out;
  const auto total = static_cast<std::int64_t>(tokens.size());
  const auto usable = static_cast<std::size_t>(std::clamp<std::int64_t>(max_usable, 0, total));
  out.usable_tokens = match_length(name_space, tokens.first(usable));
  const RadixNode* node = root->second.get();
  while (out.common_tokens < total) {
    const TokenSpan rest = tokens.subspan(static_cast<std::size_t>(out.common_tokens));
    auto [child, shared] = node->closest_child(rest);
    if (child == nullptr) break;
    if (shared == page_size_) shared = common_prefix(child->tokens, rest);
    add_run(out, shared, child->origin);
    if (shared < child->num_tokens()) {
      if (out.common_tokens < total) set_other(out, *child, shared);
      return out;
    }
    node = child;
  }
  if (out.common_tokens == total || node->is_leaf()) return out;
  const auto last_used = std::ranges::max_element(
      node->children, {}, [](const auto& child) { return child->last_use; });
  set_other(out, **last_used, 0);
  return out;
}

}  // namespace sluice
