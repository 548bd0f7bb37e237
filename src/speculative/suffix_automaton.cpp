#include "speculative/suffix_automaton.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"

namespace sluice {
namespace {

constexpr std::size_t kFirstPlaces = 64;
constexpr std::int32_t kRoot = 0;

}  // namespace

SuffixAutomaton::SuffixAutomaton(const SuffixAutomatonOptions& options, std::uint64_t seed)
    : options_(options), seed_(seed), states_(1), table_(kFirstPlaces, -1) {
  check(options.max_length >= 1, "suffixes of {} tokens", options.max_length);
}

std::size_t SuffixAutomaton::place_of(std::int32_t state, std::int32_t token) const {
  const std::uint64_t key =
      std::uint64_t{static_cast<std::uint32_t>(state)} << 32 | static_cast<std::uint32_t>(token);
  const std::size_t mask = table_.size() - 1;
  for (std::size_t i = hash_combine(seed_, key) & mask;; i = (i + 1) & mask) {
    if (table_[i] < 0) return i;
    const Edge& edge = edge_at(table_[i]);
    if (edge.state == state && edge.token == token) return i;
  }
}

std::int32_t SuffixAutomaton::find_edge(std::int32_t state, std::int32_t token) const {
  return table_[place_of(state, token)];
}

void SuffixAutomaton::add_edge(std::int32_t state, std::int32_t token, std::int32_t target) {
  if (2 * (edges_.size() + 1) > table_.size()) {
    table_.assign(2 * table_.size(), -1);
    for (std::size_t i = 0; i < edges_.size(); ++i)
      table_[place_of(edges_[i].state, edges_[i].token)] = static_cast<std::int32_t>(i);
  }
  const auto number = static_cast<std::int32_t>(edges_.size());
  table_[place_of(state, token)] = number;
  edges_.push_back({state, token, target, at(state).first_edge});
  at(state).first_edge = number;
  ++at(state).num_edges;
}

std::int32_t SuffixAutomaton::add_state(const State& state) {
  states_.push_back(state);
  return static_cast<std::int32_t>(states_.size()) - 1;
}

std::int32_t SuffixAutomaton::target_of(std::int32_t from, std::int32_t token) {
  const std::int32_t target = edge_at(find_edge(from, token)).target;
  const std::int32_t length = at(from).length + 1;
  if (at(target).length == length) return target;
  State part = at(target);
  part.length = length;
  part.first_edge = part.best_edge = -1;
  part.num_edges = part.search_at = 0;
  const std::int32_t split = add_state(part);
  // Oldest first, as they were added.
  std::vector<std::int32_t> edges;
  for (std::int32_t i = at(target).first_edge; i >= 0; i = edge_at(i).next) edges.push_back(i);
  for (auto i = edges.rbegin(); i != edges.rend(); ++i)
    add_edge(split, edge_at(*i).token, edge_at(*i).target);
  at(target).link = split;
  for (; from >= 0; from = at(from).link) {
    const std::int32_t edge = find_edge(from, token);
    if (edge < 0 || edge_at(edge).target != target) break;
    edge_at(edge).target = split;
  }
  return split;
}

void SuffixAutomaton::append(std::int32_t token) {
  const auto position = static_cast<std::int32_t>(num_tokens_++);
  if (find_edge(last_, token) >= 0) {  // an earlier text has it
    last_ = target_of(last_, token);
  } else {
    const std::int32_t whole = add_state({.length = at(last_).length + 1, .first_end = position});
    std::int32_t from = last_;
    for (; from >= 0 && find_edge(from, token) < 0; from = at(from).link)
      add_edge(from, token, whole);
    const std::int32_t link = from < 0 ? kRoot : target_of(from, token);
    at(whole).link = link;
    last_ = whole;
  }
  suffix_.state = edge_at(find_edge(suffix_.state, token)).target;
  suffix_.length = std::min(suffix_.length + 1, options_.max_length);
  normalize(suffix_);
  if (!options_.has_counts) return;
  for (std::int32_t state = suffix_.state; state != kRoot; state = at(state).link)
    ++at(state).count;
}

void SuffixAutomaton::begin_text() {
  last_ = kRoot;
  suffix_ = {};
}

// The state that has parts of the place's length.
void SuffixAutomaton::normalize(Place& place) const {
  while (place.state != kRoot && at(at(place.state).link).length >= place.length)
    place.state = at(place.state).link;
}

SuffixAutomaton::Place SuffixAutomaton::shorter(Place place) const {
  if (place.state == kRoot) return {};
  const std::int32_t link = at(place.state).link;
  return {link, at(link).length};
}

SuffixAutomaton::Place SuffixAutomaton::follow(Place place, std::int32_t token) const {
  for (;;) {
    const std::int32_t edge = find_edge(place.state, token);
    if (edge >= 0) {
      place = {edge_at(edge).target, std::min(place.length + 1, options_.max_length)};
      normalize(place);
      return place;
    }
    if (place.state == kRoot) return {};
    place = shorter(place);
  }
}

int SuffixAutomaton::min_length(std::int32_t state) const {
  return state == kRoot ? 0 : at(at(state).link).length + 1;
}

SuffixAutomaton::Next SuffixAutomaton::likeliest(std::int32_t state) {
  State& from = at(state);
  if (from.num_edges == 0) return {};
  if (from.num_edges <= kMaxScanned || from.best_edge < 0 || from.count >= from.search_at) {
    // The newest edge comes first.
    std::int32_t best = from.first_edge;
    for (std::int32_t i = best; i >= 0; i = edge_at(i).next)
      if (count(edge_at(i).target) >= count(edge_at(best).target)) best = i;
    from.best_edge = best;
    from.search_at = from.count + from.count / 4 + 1;
  }
  const Edge& edge = edge_at(from.best_edge);
  return {edge.token, edge.target};
}

}  // namespace sluice
