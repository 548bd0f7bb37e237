// The lengths, in code points, of the texts of a language.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "text/grammar/language_store.h"

namespace sluice::grammar {

// The number of code points of the shortest text; kUnbounded if there is none. Exhausts the store's
// budget where the question is too large.
std::uint64_t shortest_length(LanguageStore& store, LanguageStore::Id language);

// For the states of one automaton: whether a text of min to max code points follows.
//
// S(l) is the set of states from which a text of exactly l code points follows. S(l+1) depends on
// S(l) alone, so the sets repeat from some l on, and bounds of any size are answered.
class Lengths {
 public:
  using Id = LanguageStore::Id;
  Lengths(LanguageStore& store, Id root) : store_(&store), root_(root) {}

  // `state` is reached from the root. Exhausts the store's budget where the automaton is too large.
  bool has(Id state, std::uint64_t min, std::uint64_t max);
  // A number so that from each state a text follows whose length is in [a, b], for every a and
  // every b of at least a + slack. Nothing where there is none, or where it is hard to tell.
  std::optional<std::uint64_t> slack();
  std::uint64_t bytes() const { return bytes_; }

 private:
  bool build();
  bool contains(std::uint64_t length, std::uint32_t state);
  void extend();

  LanguageStore* store_;
  Id root_;
  bool is_built_ = false;
  LanguageStore::Graph graph_;
  std::vector<std::vector<std::uint64_t>> sets_;  // S(0), S(1), ...
  std::unordered_multimap<std::uint64_t, std::size_t> by_hash_;
  std::uint64_t period_ = 0;  // 0: not known
  std::uint64_t begin_ = 0;   // the sets repeat from here on
  std::uint64_t bytes_ = 0;
};

}  // namespace sluice::grammar
