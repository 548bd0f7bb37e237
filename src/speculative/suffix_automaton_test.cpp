#include "speculative/suffix_automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace sluice {
namespace {

using Tokens = std::vector<std::int32_t>;
using Texts = std::vector<Tokens>;

// Where a part ends, over all texts one behind the other.
int places_of(const Texts& texts, const Tokens& part) {
  int places = 0;
  for (const Tokens& text : texts)
    for (auto at = text.begin();; ++at) {
      at = std::search(at, text.end(), part.begin(), part.end());
      if (at == text.end()) break;
      ++places;
    }
  return places;
}

// Against counting every place, after every token of several texts.
TEST(SuffixAutomaton, CountsPartsAndWhatFollowsThem) {
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    const auto draw = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const int max_length = draw(1, 7), vocabulary = draw(1, 5);
    SuffixAutomaton automaton({.max_length = max_length, .has_counts = true}, random());
    Texts texts;
    for (int t = draw(1, 4); t > 0; --t) {
      automaton.begin_text();
      Tokens& text = texts.emplace_back();
      for (int more = draw(1, 25); more > 0; --more) {
        text.push_back(draw(0, vocabulary - 1));
        automaton.append(text.back());
        // The suffix, and all shorter ones.
        SuffixAutomaton::Place place = automaton.suffix();
        ASSERT_EQ(place.length, std::min<int>(max_length, static_cast<int>(text.size())));
        for (int length = place.length; length > 0; --length) {
          if (length < automaton.min_length(place.state)) place = automaton.shorter(place);
          const Tokens part(text.end() - length, text.end());
          ASSERT_EQ(automaton.count(place.state), places_of(texts, part));
          std::map<std::int32_t, int> followers;
          for (int token = 0; token < vocabulary; ++token) {
            Tokens longer = part;
            longer.push_back(token);
            if (const int count = places_of(texts, longer); count > 0) followers[token] = count;
          }
          const SuffixAutomaton::Next next = automaton.likeliest(place.state);
          ASSERT_EQ(next.token >= 0, !followers.empty());
          if (followers.empty() || length >= max_length) continue;
          ASSERT_EQ(automaton.count(next.state), followers[next.token]);
          for (const auto& [token, count] : followers) ASSERT_LE(count, followers[next.token]);
        }
      }
    }
    // The longest suffix of another text that is a part.
    Tokens other;
    SuffixAutomaton::Place place;
    for (int i = 0; i < 60; ++i) {
      other.push_back(draw(0, vocabulary));
      place = automaton.follow(place, other.back());
      int length = std::min<int>(max_length, static_cast<int>(other.size()));
      while (length > 0 && places_of(texts, Tokens(other.end() - length, other.end())) == 0)
        --length;
      ASSERT_EQ(place.length, length);
      if (length > 0) {
        ASSERT_EQ(automaton.count(place.state),
                  places_of(texts, Tokens(other.end() - length, other.end())));
      }
    }
  }
}

// Of many followers the answer is that of a search that is not long ago.
TEST(SuffixAutomaton, OfManyFollowersALikelyOneIsFound) {
  SuffixAutomaton automaton({.max_length = 4, .has_counts = true}, 3);
  for (int i = 0; i < 4000; ++i) {
    automaton.append(1);
    automaton.append(i % 3 == 0 ? 7 : 100 + i);
    const SuffixAutomaton::Next next = automaton.likeliest(automaton.follow({}, 1).state);
    if (i >= 40) {
      ASSERT_EQ(next.token, 7);
    }
  }
}

// A text of one token over and over has as many suffixes as tokens; each costs the same.
TEST(SuffixAutomaton, LongTextsCostTheSameForEachToken) {
  for (const bool has_counts : {false, true}) {
    SuffixAutomaton automaton({.max_length = 12, .has_counts = has_counts}, 3);
    for (int i = 0; i < 300'000; ++i) automaton.append(5);
    EXPECT_EQ(automaton.suffix().length, 12);
    EXPECT_EQ(automaton.first_end(automaton.suffix().state), 11);
  }
}

}  // namespace
}  // namespace sluice
