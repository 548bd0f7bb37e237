// Rules that decide which drafts of a step count, as pure functions of given uniform numbers.
//
//   TreeVerdict verdict = verify_tree(tree, coins, final_coin, {});
//   ChainVerdict verdict = verify_chain(drafts, draft_probs, target_probs, coins, final_coin);
//
// Both keep the distribution of the target: of a tree with thresholds of 1. In a tree drafts are
// certain; of a chain each was drawn from a distribution. The sampler's own rule is another: it
// compares drafts with what it draws by itself (docs/decisions/049). Sources: arXiv 2211.17192;
// SGLang's names of the thresholds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

// Node 0 is the known token, the others are drafts behind their parents.
struct DraftTree {
  std::span<const std::int32_t> tokens;        // [nodes]
  std::span<const std::int32_t> first_child;   // [nodes]; -1: none
  std::span<const std::int32_t> next_sibling;  // [nodes]; -1: none
  std::span<const float> probabilities;        // [nodes, vocab]: of what follows each node
};

// 1 is exact; a smaller one also accepts drafts of less probability.
struct VerifyThresholds {
  double single = 1;       // a draft of this probability is accepted
  double accumulated = 1;  // tried drafts' probabilities count for so much more
};

struct TreeVerdict {
  std::vector<std::int32_t> nodes;   // from the known token on
  std::vector<std::int32_t> tokens;  // of the accepted drafts, and one more
};

// coins [nodes], final_coin: uniform in [0, 1).
TreeVerdict verify_tree(const DraftTree& tree, std::span<const float> coins, float final_coin,
                        const VerifyThresholds& thresholds);

struct ChainVerdict {
  std::size_t accepted = 0;
  std::vector<std::int32_t> tokens;  // of the accepted drafts, and one more
};

// drafts [n]; draft_probabilities [n, vocab]: those that each was drawn from;
// target_probabilities [n + 1, vocab]; coins [n].
ChainVerdict verify_chain(std::span<const std::int32_t> drafts,
                          std::span<const float> draft_probabilities,
                          std::span<const float> target_probabilities, std::span<const float> coins,
                          float final_coin);

}  // namespace sluice
