// Prompt look-up: the tokens that followed the last words when these stood in the text before.
//
//   NgramDrafter drafter({.min_match = 2, .max_match = 8}, seed);
//   drafter.draft(tokens, 7, drafts);
//
// The longest suffix of min_match to max_match tokens that also ends before the last token counts;
// the two places may overlap. Of several such places the earliest counts. The drafts are the tokens
// behind it. The rule is that of vLLM's ngram_proposer and of transformers' prompt look-up.
//
// Every n-gram of the text stands once in a hash table, with its first end. A new token costs
// max_match - min_match + 1 insertions, a look-up as many probes at most. Memory: about 24 bytes
// for each token and length of match.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "batch/token_drafter.h"

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
  // The n-gram of `length` tokens whose last one is tokens[end]; length 0: the place is free.
  struct Entry {
    std::int32_t end = 0;
    std::int32_t length = 0;
  };

  void add_tokens(std::span<const std::int32_t> tokens);
  // The place of the n-gram, or the free one where it belongs.
  Entry& place_of(std::span<const std::int32_t> tokens, Entry wanted, std::uint64_t hash);
  void grow(std::span<const std::int32_t> tokens);
  std::uint64_t hash_of(std::span<const std::int32_t> tokens, Entry ngram) const;

  const NgramOptions options_;
  const std::uint64_t seed_;
  std::vector<Entry> table_;      // a power of two
  std::size_t num_entries_ = 0;   // fewer than half of the table's
  std::int32_t num_indexed_ = 0;  // the n-grams that end before this token are in the table
};

}  // namespace sluice
