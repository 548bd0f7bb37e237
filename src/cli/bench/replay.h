// An answer that is known beforehand, for measurements of drafts that copy text.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/arguments.h"
#include "engine/options.h"

namespace sluice {

struct Replay {
  std::vector<std::int32_t> prompt, answer;

  bool is_on() const { return !answer.empty(); }
};

// The tokens of --replay-prompt and --replay-answer; nothing without the two. Writes them into
// options.replayed_tokens: the engine takes them, whatever the model says. Its work is that of any
// other tokens. UsageError for one flag without the other, a batch or lengths of their own, and
// drafts that a model makes: a device may check those without the host. Error{kBadInput} for a file
// that cannot be read, has no token, or one that a model of `vocab_size` tokens does not know.
Replay replay_of(const Arguments& arguments, int vocab_size, Options& options);

}  // namespace sluice
