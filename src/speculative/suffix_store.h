// Answers of finished requests, whose continuations are drafts for others.
//
//   SuffixStore store({.max_answers = 10000, .max_length = 24}, seed);
//   store.add(name_space, answer);
//   store.for_each(name_space, [&](SuffixAutomaton& answers) { ... });
//
// Answers lie in groups, each with an automaton of its own, in the order in which requests ended.
// A group takes a quarter of all answers. Where there are too many, the oldest group goes. Groups
// belong to a namespace of the prefix cache: no request gets drafts from an answer of another.
//
// Plain host code, one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "speculative/suffix_automaton.h"

namespace sluice {

struct SuffixStoreOptions {
  int max_answers = 10000;            // 0: none is kept
  std::int64_t max_tokens = 1 << 20;  // of all answers
  int max_length = 24;                // of matches and the drafts behind them
};

class SuffixStore {
 public:
  SuffixStore(const SuffixStoreOptions& options, std::uint64_t seed);

  void add(std::uint64_t name_space, std::span<const std::int32_t> answer);
  // Groups of a namespace, the oldest first.
  void for_each(std::uint64_t name_space, const std::function<void(SuffixAutomaton&)>& use);

  int num_answers() const { return num_answers_; }
  std::int64_t num_tokens() const { return num_tokens_; }

 private:
  struct Group {
    std::uint64_t name_space;
    SuffixAutomaton automaton;
    int num_answers = 0;
  };
  using Groups = std::list<Group>;

  Group& group_for(std::uint64_t name_space);
  void drop_oldest();

  const SuffixStoreOptions options_;
  const std::uint64_t seed_;
  Groups groups_;                                                        // the oldest first
  std::map<std::uint64_t, std::vector<Groups::iterator>> by_namespace_;  // the oldest first
  int num_answers_ = 0;
  std::int64_t num_tokens_ = 0;
};

}  // namespace sluice
