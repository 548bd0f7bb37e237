// A limit on the tokens of a model's thoughts: when it is reached, the mark that ends them is the
// only token that may come. What follows is free, or obeys the request's grammar.
//
//   request.make_constraint = limit_thoughts(budget, std::move(request.make_constraint));
//
// The constraint runs on the engine's thread, as all do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "batch/token_constraint.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {

struct ThinkingBudget {
  std::int64_t max_tokens = 0;                 // between the marks
  std::optional<std::int32_t> open;            // empty: only a prompt opens the thoughts
  std::int32_t close = 0;                      // the token that ends them
  bool is_thinking = false;                    // the prompt has opened them
  std::shared_ptr<const Tokenizer> tokenizer;  // white space may come before `open`
};

// `inner`: the constraint that holds beside it; empty: none.
ConstraintMaker limit_thoughts(ThinkingBudget budget, ConstraintMaker inner);

}  // namespace sluice
