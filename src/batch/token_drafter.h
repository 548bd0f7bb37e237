// The interface between the scheduler and a method that drafts the next tokens of a sequence from
// its own tokens (speculative/drafter_table.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace sluice {

// A choice of a request whose tokens are drafted.
struct DraftedChoice {
  std::uint64_t cache_namespace = 0;  // Request::cache_namespace
  std::size_t num_prompt = 0;         // tokens of the prompt
};

// One choice of a request; the engine's thread calls.
class TokenDrafter {
 public:
  virtual ~TokenDrafter() = default;
  // Appends at most `max_drafts` drafts of the tokens behind `tokens` to `drafts`. The tokens are
  // the prompt and the output so far; those of an earlier call come again, with more behind them.
  virtual void draft(std::span<const std::int32_t> tokens, int max_drafts,
                     std::vector<std::int32_t>& drafts) = 0;
  // The choice has ended by itself: `tokens` are the prompt and the whole output. Nothing follows.
  virtual void finish(std::span<const std::int32_t> /*tokens*/) {}
};

using DrafterMaker = std::function<std::unique_ptr<TokenDrafter>(const DraftedChoice&)>;

// Appends at most `max_drafts` drafts that the grammar of a sequence (sequence_id()) suggests. All
// known tokens of the sequence have been accepted by its constraint before.
using GrammarDrafter =
    std::function<void(std::uint64_t sequence, int max_drafts, std::vector<std::int32_t>& drafts)>;

}  // namespace sluice
