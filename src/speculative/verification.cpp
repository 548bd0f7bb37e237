#include "speculative/verification.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace sluice {
namespace {

// The first token at which the running sum exceeds its part of the whole.
std::int32_t draw(std::span<const float> weights, float coin) {
  const double bound = coin * std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  std::int32_t last = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    last = static_cast<std::int32_t>(i);
    sum += weights[i];
    if (sum > bound) break;
  }
  return last;
}

std::span<const float> row_of(std::span<const float> rows, std::size_t row, std::size_t vocab) {
  return rows.subspan(row * vocab, vocab);
}

float at(std::span<const float> row, std::int32_t token) {
  check(token >= 0 && std::cmp_less(token, row.size()), "token {} of {}", token, row.size());
  return row[static_cast<std::size_t>(token)];
}

}  // namespace

TreeVerdict verify_tree(const DraftTree& tree, std::span<const float> coins, float final_coin,
                        const VerifyThresholds& thresholds) {
  const std::size_t count = tree.tokens.size();
  check(count > 0 && tree.first_child.size() == count && tree.next_sibling.size() == count &&
            coins.size() == count && tree.probabilities.size() % count == 0,
        "a tree of {} nodes with {} coins and {} probabilities", count, coins.size(),
        tree.probabilities.size());
  const std::size_t vocab = tree.probabilities.size() / count;
  TreeVerdict out{.nodes = {0}, .tokens = {}};
  for (;;) {
    const auto node = static_cast<std::size_t>(out.nodes.back());
    const std::span<const float> row = row_of(tree.probabilities, node, vocab);
    double tried = 0;
    std::int32_t child = tree.first_child[node];
    for (auto before = static_cast<std::int32_t>(node); child >= 0;
         before = child, child = tree.next_sibling[static_cast<std::size_t>(child)]) {
      check(child > before && std::cmp_less(child, count),
            "node {} of {} is named behind node {}; children and siblings ascend", child, count,
            before);
      const double p = at(row, tree.tokens[static_cast<std::size_t>(child)]);
      tried += p;
      if (p > 0 && (coins[node] < tried / thresholds.accumulated || p >= thresholds.single)) break;
    }
    if (child >= 0) {
      out.nodes.push_back(child);
      out.tokens.push_back(tree.tokens[static_cast<std::size_t>(child)]);
      continue;
    }
    std::vector<float> left(row.begin(), row.end());
    for (child = tree.first_child[node]; child >= 0;
         child = tree.next_sibling[static_cast<std::size_t>(child)])
      left[static_cast<std::size_t>(tree.tokens[static_cast<std::size_t>(child)])] = 0;
    out.tokens.push_back(draw(left, final_coin));
    return out;
  }
}

ChainVerdict verify_chain(std::span<const std::int32_t> drafts,
                          std::span<const float> draft_probabilities,
                          std::span<const float> target_probabilities, std::span<const float> coins,
                          float final_coin) {
  const std::size_t count = drafts.size(), vocab = target_probabilities.size() / (count + 1);
  check(vocab > 0 && target_probabilities.size() == (count + 1) * vocab &&
            draft_probabilities.size() == count * vocab && coins.size() == count,
        "{} drafts with {} coins and {} and {} probabilities", count, coins.size(),
        draft_probabilities.size(), target_probabilities.size());
  ChainVerdict out;
  for (; out.accepted < count; ++out.accepted) {
    const std::size_t i = out.accepted;
    const std::span<const float> p = row_of(target_probabilities, i, vocab),
                                 q = row_of(draft_probabilities, i, vocab);
    if (coins[i] * at(q, drafts[i]) < at(p, drafts[i])) {
      out.tokens.push_back(drafts[i]);
      continue;
    }
    std::vector<float> left(vocab);
    std::ranges::transform(p, q, left.begin(),
                           [](float a, float b) { return std::max(a - b, 0.0f); });
    out.tokens.push_back(draw(left, final_coin));
    return out;
  }
  out.tokens.push_back(draw(row_of(target_probabilities, count, vocab), final_coin));
  return out;
}

}  // namespace sluice
