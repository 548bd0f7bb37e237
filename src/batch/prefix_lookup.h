// What the prefix cache holds of a prompt, for people who ask why a prompt was computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

struct PrefixLookup {
  static constexpr std::size_t kMaxOtherTokens = 32;

  // Tokens that one request left in the cache.
  struct Run {
    std::int64_t tokens = 0;
    std::uint64_t request = 0;  // its id; 0: unknown
  };

  std::vector<Run> runs;           // the longest cached prefix of the prompt, in order
  std::int64_t common_tokens = 0;  // of all runs
  // The tokens that such a request would take from the cache. Fewer than the runs have where pages
  // or a state of theirs are gone, and because the last token of a prompt is always computed.
  std::int64_t usable_tokens = 0;
  // What the cache has behind the runs, where the prompt goes on with something else: at most
  // kMaxOtherTokens, of the sequence that was used last. Empty: nothing, or the prompt ends there.
  std::vector<std::int32_t> other_tokens;
  std::uint64_t other_request = 0;
};

}  // namespace sluice
