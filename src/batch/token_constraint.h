// The interface between the engine, which knows no text, and the grammar of a request
// (text/grammar/constraint.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace sluice {

// One choice of a request; the engine's thread calls.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Sets the bits [ceil(vocab / 32)] of the tokens that may come next and clears all others. Bit
  // t % 32 of bits[t / 32] is token t. False: the budget of a step ran out.
  virtual bool fill(std::span<std::uint32_t> bits) = 0;
  // Takes the next token; false: no mask allowed it.
  virtual bool accept(std::int32_t token) = 0;
  // Takes the last tokens back, as if they had not come.
  virtual void rollback(std::size_t count) = 0;
  // Appends at most `max_drafts` tokens to `drafts` that probably come next, since the grammar
  // leaves little else. They are guesses: a mask may allow other tokens, or forbid these.
  virtual void draft(int /*max_drafts*/, std::vector<std::int32_t>& /*drafts*/) {}
};

// Makes the constraint of one choice. Empty: the request has none.
using ConstraintMaker = std::function<std::unique_ptr<TokenConstraint>()>;

}  // namespace sluice
