// Prompt look-up: the tokens that followed the last words when these stood in the text before.
//
//   NgramDrafter drafter({.min_match = 2, .max_match = 8}, seed);
//   drafter.draft(tokens, 7, drafts);
//
// The longest suffix of min_match to max_match tokens that also ends before the last token counts;
// the two places may overlap. Of several such places the earliest counts. The drafts are the tokens
// behind it. The rule is that of vLLM's ngram_proposer and of transformers' prompt look-up.
//
// A suffix automaton follows the text. A new token and a look-up cost constant time on average,
// whatever max_match is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "batch/token_drafter.h"
#include "speculative/suffix_automaton.h"

namespace sluice {

struct NgramOptions {
  int min_match = 1;  // tokens; at least 1
  int max_match = 1;  // at least min_match
};

struct NgramMatch {
  int length = 0;  // tokens of the suffix; 0: none
  int start = -1;  // where it stood first
};

class NgramDrafter final : public TokenDrafter {
 public:
  // `seed` keeps a client from choosing tokens that collide in the table.
  NgramDrafter(const NgramOptions& options, std::uint64_t seed);

  // Calls bring the same tokens with more behind them (TokenDrafter).
  NgramMatch find(std::span<const std::int32_t> tokens);
  void draft(std::span<const std::int32_t> tokens, int max_drafts,
             std::vector<std::int32_t>& drafts) override;

 private:
  const NgramOptions options_;
  SuffixAutomaton automaton_;
};

}  // namespace sluice
