#include "speculative/ngram.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace sluice {

NgramDrafter::NgramDrafter(const NgramOptions& options, std::uint64_t seed)
    : options_(options), automaton_({.max_length = options.max_match}, seed) {
  check(options.min_match >= 1 && options.min_match <= options.max_match,
        "matches of {} to {} tokens", options.min_match, options.max_match);
}

NgramMatch NgramDrafter::find(std::span<const std::int32_t> tokens) {
  while (std::cmp_less(automaton_.num_tokens(), tokens.size()))
    automaton_.append(tokens[static_cast<std::size_t>(automaton_.num_tokens())]);
  SuffixAutomaton::Place suffix = automaton_.suffix();
  // What ends nowhere but here has no earlier place; its longest suffix with another end has.
  if (std::cmp_equal(automaton_.first_end(suffix.state) + 1, tokens.size()))
    suffix = automaton_.shorter(suffix);
  if (suffix.length < options_.min_match) return {};
  return {suffix.length, automaton_.first_end(suffix.state) + 1 - suffix.length};
}

void NgramDrafter::draft(std::span<const std::int32_t> tokens, int max_drafts,
                         std::vector<std::int32_t>& drafts) {
  const NgramMatch match = find(tokens);
  if (match.length == 0) return;
  const auto from = static_cast<std::size_t>(match.start + match.length);
  const std::size_t count =
      std::min(static_cast<std::size_t>(std::max(0, max_drafts)), tokens.size() - from);
  drafts.insert(drafts.end(), tokens.begin() + static_cast<std::ptrdiff_t>(from),
                tokens.begin() + static_cast<std::ptrdiff_t>(from + count));
}

}  // namespace sluice
