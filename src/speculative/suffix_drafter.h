// Suffix decoding (Oliaro et al., arXiv 2411.04975): the tokens that followed the last words most
// often, in the request's own text and in answers of finished requests. Names and defaults are
// those of vLLM's method `suffix`, which calls ArcticInference.
//
// Each suffix of the text that stood before, of any length, has candidates: from one token to the
// next the likeliest follows. A token's probability is the share of the places, times that of the
// tokens before it. The candidates with the largest sum of probabilities are the drafts; of equal
// sums those of the longest suffix, and the request's own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "batch/token_drafter.h"
#include "speculative/suffix_store.h"

namespace sluice {

struct SuffixOptions {
  int max_tree_depth = 24;          // of a suffix and the drafts behind it
  int max_cached_requests = 10000;  // answers that are kept; 0: none
  double max_spec_factor = 1;       // so many drafts for each token of the suffix
  double min_token_prob = 0.1;      // less likely tokens end the drafts
};

class SuffixDrafter final : public TokenDrafter {
 public:
  // `store` outlives none of its drafters alone; null: answers are not kept.
  SuffixDrafter(const SuffixOptions& options, std::uint64_t seed,
                std::shared_ptr<SuffixStore> store, const DraftedChoice& choice);

  void draft(std::span<const std::int32_t> tokens, int max_drafts,
             std::vector<std::int32_t>& drafts) override;
  void finish(std::span<const std::int32_t> tokens) override;

 private:
  struct Candidate {
    std::vector<std::int32_t> tokens;
    double score = 0;  // expected right tokens
  };

  // `is_own`: the text ends where the suffix does, so that place has no token behind it.
  void consider(SuffixAutomaton& automaton, SuffixAutomaton::Place suffix, bool is_own,
                int max_drafts, Candidate& best) const;

  const SuffixOptions options_;
  const std::shared_ptr<SuffixStore> store_;
  const DraftedChoice choice_;
  SuffixAutomaton own_;
};

}  // namespace sluice
