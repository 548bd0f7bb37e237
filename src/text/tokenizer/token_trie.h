// A double-array trie that finds which byte strings of a set a text begins with, in one step per
// byte without a search. Source: Aoe 1989, "An efficient digital search algorithm by using a
// double-array structure"; children are at base XOR byte, as in Darts-clone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

// Immutable; any thread.
class TokenTrie {
 public:
  // a text and its value, which is not negative
  using Key = std::pair<std::string_view, std::int32_t>;

  TokenTrie() = default;
  // Empty texts are ignored; of equal texts the first counts. O(bytes of all keys).
  explicit TokenTrie(std::vector<Key> keys);

  bool empty() const { return nodes_.empty(); }
  std::size_t longest_bytes() const { return longest_bytes_; }

  // Calls visit(length in bytes, value) for each key that is a prefix of `text`, the shortest
  // first.
  template <class Visit>
  void for_each_prefix(std::string_view text, Visit visit) const {
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < text.size() && !nodes_.empty(); ++i) {
      const std::uint32_t next = nodes_[node].base ^ static_cast<unsigned char>(text[i]);
      if (nodes_[next].parent != node) return;
      node = next;
      if (nodes_[node].value >= 0) visit(i + 1, nodes_[node].value);
    }
  }

  struct Hit {
    std::size_t length = 0;
    std::int32_t value = -1;  // -1: no key
  };
  Hit longest(std::string_view text) const {
    Hit hit;
    for_each_prefix(text, [&](std::size_t length, std::int32_t value) { hit = {length, value}; });
    return hit;
  }

 private:
  static constexpr std::uint32_t kFree = ~0u;
  struct Node {
    std::uint32_t base = 0;
    std::uint32_t parent = kFree;
    std::int32_t value = -1;
  };
  class Builder;

  std::vector<Node> nodes_;
  std::size_t longest_bytes_ = 0;
};

}  // namespace sluice
