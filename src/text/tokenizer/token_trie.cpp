#include "text/tokenizer/token_trie.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr std::size_t kBlock = 256;
// number of blocks searched for free units; older blocks stay as they are
constexpr std::size_t kOpenBlocks = 16;

}  // namespace

class TokenTrie::Builder {
 public:
  Builder(const std::vector<Key>& keys, std::vector<Node>& nodes) : keys_(keys), nodes_(nodes) {}

  void run() {
    add_block();
    used_[0] = 1;  // the root is no node's child
    std::vector<Task> tasks = {{0, 0, keys_.size(), 0}};
    while (!tasks.empty()) {
      const Task task = tasks.back();
      tasks.pop_back();
      expand(task, tasks);
    }
  }

 private:
  struct Task {  // the keys [begin, end) share their first `depth` bytes, which lead to `node`
    std::uint32_t node;
    std::size_t begin, end, depth;
  };
  struct Child {
    unsigned char byte;
    std::size_t begin, end;
  };
  struct Block {
    std::size_t free, end;  // no unit before `free` is free
  };

  void expand(const Task& task, std::vector<Task>& tasks) {
    std::size_t begin = task.begin;
    if (keys_[begin].first.size() == task.depth) {
      nodes_[task.node].value = keys_[begin].second;
      while (begin < task.end && keys_[begin].first.size() == task.depth) ++begin;
    }
    children_.clear();
    while (begin < task.end) {
      const auto byte = static_cast<unsigned char>(keys_[begin].first[task.depth]);
      std::size_t end = begin + 1;
      while (end < task.end && static_cast<unsigned char>(keys_[end].first[task.depth]) == byte)
        ++end;
      children_.push_back({byte, begin, end});
      begin = end;
    }
    if (children_.empty()) {
      // its XOR neighbours are the root's children, which have another parent
      nodes_[task.node].base = 0;
      return;
    }
    const std::uint32_t base = place();
    nodes_[task.node].base = base;
    for (const Child& child : children_) {
      const std::uint32_t node = base ^ child.byte;
      nodes_[node].parent = task.node;
      used_[node] = 1;
      tasks.push_back({node, child.begin, child.end, task.depth + 1});
    }
  }

  void add_block() {
    open_.push_back({nodes_.size(), nodes_.size() + kBlock});
    nodes_.resize(nodes_.size() + kBlock);
    used_.resize(nodes_.size(), 0);
    if (open_.size() > kOpenBlocks) open_.erase(open_.begin());
  }

  // A base at which the units of all children are free.
  std::uint32_t place() {
    for (Block& block : open_) {
      while (block.free < block.end && used_[block.free]) ++block.free;
      for (std::size_t slot = block.free; slot < block.end; ++slot) {
        if (used_[slot]) continue;
        const auto base = static_cast<std::uint32_t>(slot) ^ children_[0].byte;
        const bool fits = std::all_of(children_.begin(), children_.end(), [&](const Child& child) {
          return !used_[base ^ child.byte];
        });
        if (fits) return base;
      }
    }
    add_block();
    return static_cast<std::uint32_t>(nodes_.size() - kBlock);
  }

  const std::vector<Key>& keys_;
  std::vector<Node>& nodes_;
  std::vector<char> used_;
  std::vector<Block> open_;
  std::vector<Child> children_;
};

TokenTrie::TokenTrie(std::vector<Key> keys) {
  std::erase_if(keys, [](const Key& key) { return key.first.empty(); });
  if (keys.empty()) return;
  std::stable_sort(keys.begin(), keys.end(),
                   [](const Key& a, const Key& b) { return a.first < b.first; });
  for (const Key& key : keys) longest_bytes_ = std::max(longest_bytes_, key.first.size());
  Builder(keys, nodes_).run();
}

}  // namespace sluice
