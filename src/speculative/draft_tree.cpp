#include "speculative/draft_tree.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace sluice {
namespace {

using Candidate = DraftTreeBuilder::Candidate;

bool is_better(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.number < b.number;
}

// The best `count`, best first.
std::vector<Candidate> best_of(std::vector<Candidate> all, int count) {
  const auto kept = std::min(static_cast<std::ptrdiff_t>(count), std::ssize(all));
  std::ranges::partial_sort(all, all.begin() + kept, is_better);
  all.resize(static_cast<std::size_t>(kept));
  return all;
}

// Parents stand before their children.
DraftTreeNodes nodes_of(const std::vector<Candidate>& chosen) {
  DraftTreeNodes out;
  std::unordered_map<std::int32_t, std::int32_t> places = {{-1, 0}};
  for (const Candidate& one : chosen) {
    const auto parent = places.find(one.parent);
    check(parent != places.end(), "candidate {} of a tree has no parent {}", one.number,
          one.parent);
    out.numbers.push_back(one.number);
    out.tokens.push_back(one.token);
    out.parents.push_back(parent->second);
    places.emplace(one.number, static_cast<std::int32_t>(out.tokens.size()));
  }
  return out;
}

}  // namespace

bool DraftTreeBuilder::add_level(std::span<const float> probabilities,
                                 std::span<const std::int32_t> tokens) {
  const auto k = static_cast<std::size_t>(topk_);
  const std::size_t rows = levels_ == 0 ? 1 : frontier_.size();
  check(probabilities.size() == rows * k && tokens.size() == rows * k,
        "{} probabilities and {} tokens for {} rows of {}", probabilities.size(), tokens.size(),
        rows, k);
  if (!std::ranges::all_of(probabilities, [](float p) { return p >= 0 && p <= 1; })) return false;
  std::vector<Candidate> level;
  const int first = levels_ == 0 ? 0 : topk_ + topk_ * topk_ * (levels_ - 1);
  for (std::size_t i = 0; i < rows * k; ++i) {
    const auto row = static_cast<std::int32_t>(i / k);
    const Candidate before = levels_ == 0 ? Candidate{.number = -1} : frontier_[i / k];
    level.push_back({.number = first + static_cast<std::int32_t>(i),
                     .parent = before.number,
                     .row = row,
                     .token = tokens[i],
                     .score = before.score * probabilities[i]});
  }
  candidates_.insert(candidates_.end(), level.begin(), level.end());
  if (levels_++ == 0) {
    frontier_ = std::move(level);
  } else {
    frontier_ = best_of(std::move(level), static_cast<int>(rows));
  }
  best_.push_back(frontier_.front());
  return true;
}

void DraftTreeBuilder::narrow(int width) {
  frontier_.resize(std::min(frontier_.size(), static_cast<std::size_t>(width)));
}

DraftTreeNodes DraftTreeBuilder::select(int count) const {
  std::vector<Candidate> chosen = best_of(candidates_, count);
  std::ranges::sort(chosen, {}, &Candidate::number);
  return nodes_of(chosen);
}

// No child is before its parent: its score is no larger, and its number is.
DraftTreeNodes DraftTreeBuilder::select_best_first(int count) const {
  return nodes_of(best_of(candidates_, count));
}

DraftTreeNodes DraftTreeBuilder::select_chain(int count) const {
  std::vector<Candidate> chosen = best_;
  if (std::cmp_less(count, chosen.size())) chosen.resize(static_cast<std::size_t>(count));
  return nodes_of(chosen);
}

TreeArrays arrays_of(std::span<const std::int32_t> parents, std::int32_t seq_len) {
  const std::size_t count = parents.size();
  check(count > 0 && count <= 64 && parents[0] < 0, "a tree of {} nodes", count);
  TreeArrays out{.positions = std::vector<std::int32_t>(count, seq_len),
                 .first_child = std::vector<std::int32_t>(count, -1),
                 .next_sibling = std::vector<std::int32_t>(count, -1),
                 .visible = std::vector<std::uint64_t>(count, 1)};
  std::vector<std::int32_t> last_child(count, -1);
  for (std::size_t node = 1; node < count; ++node) {
    const auto number = static_cast<std::int32_t>(node);
    check(parents[node] >= 0 && parents[node] < number, "node {} of a tree follows node {}", node,
          parents[node]);
    const auto parent = static_cast<std::size_t>(parents[node]);
    out.positions[node] = out.positions[parent] + 1;
    out.visible[node] = out.visible[parent] | std::uint64_t{1} << node;
    const std::int32_t before = std::exchange(last_child[parent], number);
    (before < 0 ? out.first_child[parent] : out.next_sibling[static_cast<std::size_t>(before)]) =
        number;
  }
  return out;
}

std::vector<std::int32_t> verify_greedy(const TreeArrays& tree,
                                        std::span<const std::int32_t> tokens,
                                        std::span<const std::int32_t> predictions) {
  std::vector<std::int32_t> nodes = {0};
  for (;;) {
    const auto node = static_cast<std::size_t>(nodes.back());
    std::int32_t child = tree.first_child[node];
    while (child >= 0 && tokens[static_cast<std::size_t>(child)] != predictions[node])
      child = tree.next_sibling[static_cast<std::size_t>(child)];
    if (child < 0) return nodes;
    nodes.push_back(child);
  }
}

}  // namespace sluice
