// The smallest automaton that reads every part of one or more texts (Blumer et al., "The smallest
// automaton recognizing the subwords of a text", 1985), built token by token.
//
//   SuffixAutomaton automaton({.max_length = 12}, seed);
//   for (std::int32_t token : text) automaton.append(token);
//   SuffixAutomaton::Place suffix = automaton.suffix();    // the last 12 tokens
//   while (automaton.first_end(suffix.state) + 1 == num_tokens) suffix = automaton.shorter(suffix);
//
// A state stands for parts of the texts that end at the same places. Each is a suffix of the
// longest of them; shorter ones belong to the state's link. A token costs constant time on average,
// and as much as max_length with counts. Memory: at most two states of 32 bytes, and three edges of
// 24 bytes, for each token.
//
// Plain host code, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

struct SuffixAutomatonOptions {
  int max_length = 1;       // of suffixes that are followed, and of parts that are counted
  bool has_counts = false;  // count how often each part occurs
};

class SuffixAutomaton {
 public:
  // Tokens that were read to come to a state; a state stands for several lengths.
  struct Place {
    std::int32_t state = 0;
    std::int32_t length = 0;
  };

  // `seed` keeps a client from choosing tokens that collide in the table of edges.
  SuffixAutomaton(const SuffixAutomatonOptions& options, std::uint64_t seed);

  void append(std::int32_t token);
  // The next token begins another text.
  void begin_text();

  std::int64_t num_tokens() const { return num_tokens_; }
  // The last tokens of the text, max_length at most.
  Place suffix() const { return suffix_; }
  // The longest suffix of a place that ends at other places, too; length 0: it has none.
  Place shorter(Place place) const;
  // The longest suffix of `place` and `token` that is a part, of max_length tokens at most.
  Place follow(Place place, std::int32_t token) const;
  // The shortest length of a state.
  int min_length(std::int32_t state) const;

  // Of one text: the token at which the parts of a state end first.
  std::int32_t first_end(std::int32_t state) const { return at(state).first_end; }
  // How often the parts of a state occur, where one has max_length tokens at most.
  std::int32_t count(std::int32_t state) const { return at(state).count; }

  struct Next {
    std::int32_t token = -1;  // -1: nothing follows
    std::int32_t state = -1;
  };
  // The token that follows most often; of equal ones that which followed first. Where more than
  // kMaxScanned tokens follow, the answer may be as old as a fifth of the counts.
  Next likeliest(std::int32_t state);

  static constexpr int kMaxScanned = 16;

 private:
  struct State {
    std::int32_t length = 0;  // of the longest part
    std::int32_t link = -1;   // of the longest suffix that ends at other places, too
    std::int32_t first_edge = -1;
    std::int32_t num_edges = 0;
    std::int32_t first_end = -1;
    std::int32_t count = 0;
    std::int32_t best_edge = -1;  // as of when it was last looked for
    std::int32_t search_at = 0;   // the count at which it is looked for again
  };
  struct Edge {
    std::int32_t state = 0;  // where it begins
    std::int32_t token = 0;
    std::int32_t target = 0;
    std::int32_t next = -1;  // of the same state
  };

  State& at(std::int32_t state) { return states_[static_cast<std::size_t>(state)]; }
  const State& at(std::int32_t state) const { return states_[static_cast<std::size_t>(state)]; }
  Edge& edge_at(std::int32_t edge) { return edges_[static_cast<std::size_t>(edge)]; }
  const Edge& edge_at(std::int32_t edge) const { return edges_[static_cast<std::size_t>(edge)]; }
  std::size_t place_of(std::int32_t state, std::int32_t token) const;
  // Its number; -1: there is none.
  std::int32_t find_edge(std::int32_t state, std::int32_t token) const;
  void add_edge(std::int32_t state, std::int32_t token, std::int32_t target);
  std::int32_t add_state(const State& state);
  // The state of the longest part of `from` and `token`, split from what is longer.
  std::int32_t target_of(std::int32_t from, std::int32_t token);
  void normalize(Place& place) const;

  const SuffixAutomatonOptions options_;
  const std::uint64_t seed_;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<std::int32_t>
      table_;              // numbers of edges by state and token; a power of two; -1: free
  std::int32_t last_ = 0;  // the state of the whole text
  Place suffix_;
  std::int64_t num_tokens_ = 0;
};

}  // namespace sluice
