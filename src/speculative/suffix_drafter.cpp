#include "speculative/suffix_drafter.h"

#include <algorithm>
#include <utility>

namespace sluice {

SuffixDrafter::SuffixDrafter(const SuffixOptions& options, std::uint64_t seed,
                             std::shared_ptr<SuffixStore> store, const DraftedChoice& choice)
    : options_(options),
      store_(std::move(store)),
      choice_(choice),
      own_({.max_length = options.max_tree_depth, .has_counts = true}, seed) {}

void SuffixDrafter::draft(std::span<const std::int32_t> tokens, int max_drafts,
                          std::vector<std::int32_t>& drafts) {
  while (std::cmp_less(own_.num_tokens(), tokens.size()))
    own_.append(tokens[static_cast<std::size_t>(own_.num_tokens())]);
  Candidate best;
  consider(own_, own_.suffix(), true, max_drafts, best);
  const std::span<const std::int32_t> last =
      tokens.last(std::min(tokens.size(), static_cast<std::size_t>(options_.max_tree_depth)));
  if (store_)
    store_->for_each(choice_.cache_namespace, [&](SuffixAutomaton& answers) {
      SuffixAutomaton::Place place;
      for (const std::int32_t token : last) place = answers.follow(place, token);
      consider(answers, place, false, max_drafts, best);
    });
  drafts.insert(drafts.end(), best.tokens.begin(), best.tokens.end());
}

void SuffixDrafter::consider(SuffixAutomaton& automaton, SuffixAutomaton::Place suffix, bool is_own,
                             int max_drafts, Candidate& best) const {
  std::vector<std::int32_t> tokens;
  for (; suffix.length > 0; suffix = automaton.shorter(suffix)) {
    // Of the lengths of a state, which have the same tokens behind them, that of most drafts.
    int most = 0;
    for (int length = automaton.min_length(suffix.state); length <= suffix.length; ++length)
      most = std::max(most, std::min(static_cast<int>(length * options_.max_spec_factor + 1e-6),
                                     options_.max_tree_depth - length));
    most = std::min(most, max_drafts);
    if (most <= best.score) continue;  // no probability exceeds 1
    tokens.clear();
    double probability = 1, score = 0;
    std::int32_t state = suffix.state;
    int places = automaton.count(state) - (is_own ? 1 : 0);
    while (std::cmp_less(tokens.size(), most)) {
      const SuffixAutomaton::Next next = automaton.likeliest(state);
      if (next.token < 0) break;
      state = next.state;
      probability *= static_cast<double>(automaton.count(state)) / places;
      if (probability < options_.min_token_prob) break;
      places = automaton.count(state);
      tokens.push_back(next.token);
      score += probability;
    }
    if (score > best.score) best = {tokens, score};
  }
}

void SuffixDrafter::finish(std::span<const std::int32_t> tokens) {
  if (store_) store_->add(choice_.cache_namespace, tokens.subspan(choice_.num_prompt));
}

}  // namespace sluice
