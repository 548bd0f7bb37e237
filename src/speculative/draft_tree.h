// Trees of drafts: which candidates of a draft's top-k tables become nodes, as pure functions.
//
//   DraftTreeBuilder builder(4);                          // candidates behind each token
//   builder.add_level(probabilities, tokens);             // [1, 4]: what follows the known token
//   builder.add_level(probabilities, tokens);             // [4, 4]: a row for each of frontier()
//   DraftTreeNodes nodes = builder.select(15);            // the best ones, parents before children
//   TreeArrays arrays = arrays_of(nodes.parents, seq_len);
//
// A candidate's score is the product of the probabilities on its path, one float32 product a
// candidate. The frontier of a level has the best `topk` of its candidates. Ties go to the smaller
// number. Numbers are SGLang's: 0 .. k - 1 for the first level, then k + k * k * (level - 1) + k *
// row + column. No child has a larger score than its parent, so no node is without its parent.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

// Nodes that a tree can have behind the known token.
constexpr std::int64_t max_tree_drafts(std::int64_t topk, std::int64_t steps) {
  return topk + topk * topk * (steps - 1);
}

// Index 0 is the first draft. A parent is 0 for the known token, i for the i-th draft.
struct DraftTreeNodes {
  std::vector<std::int32_t> numbers;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> parents;
};

class DraftTreeBuilder {
 public:
  struct Candidate {
    std::int32_t number = 0;
    std::int32_t parent = -1;  // number of the candidate before it; -1: the known token
    std::int32_t row = 0;      // its place in the frontier before
    std::int32_t token = 0;
    float score = 1;
  };

  explicit DraftTreeBuilder(int topk) : topk_(topk) {}

  // Rows of topk candidates for each of frontier(), one row at first. The next frontier is no wider
  // than the last one, but for the first. False where a probability is not in [0, 1]: then nothing
  // is added, and nothing may be added any more.
  bool add_level(std::span<const float> probabilities, std::span<const std::int32_t> tokens);
  // Leaves at most `width` nodes in the frontier.
  void narrow(int width);
  // Best first; of the first level in the order of the table.
  std::span<const Candidate> frontier() const { return frontier_; }
  // At most `count` nodes: the best of all candidates, ascending by number.
  DraftTreeNodes select(int count) const;
  // The same, best first: the first nodes are the best tree of so many.
  DraftTreeNodes select_best_first(int count) const;
  // At most `count` nodes: the best node of each frontier, whose frontiers have one node.
  DraftTreeNodes select_chain(int count) const;

 private:
  const int topk_;
  int levels_ = 0;
  std::vector<Candidate> candidates_;  // ascending by number
  std::vector<Candidate> frontier_;
  std::vector<Candidate> best_;  // of each frontier
};

// Of a tree with the known token as node 0; [nodes] each.
struct TreeArrays {
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> first_child;   // -1: none
  std::vector<std::int32_t> next_sibling;  // -1: none
  std::vector<std::uint64_t> visible;      // bit j: node i sees node j, itself and its ancestors
};

// `parents`: of nodes, -1 for node 0; at most 64. `seq_len`: position of node 0.
TreeArrays arrays_of(std::span<const std::int32_t> parents, std::int32_t seq_len);

// Walks to the child that holds what its parent predicts: the nodes that count, from node 0 on.
std::vector<std::int32_t> verify_greedy(const TreeArrays& tree,
                                        std::span<const std::int32_t> tokens,
                                        std::span<const std::int32_t> predictions);

}  // namespace sluice
