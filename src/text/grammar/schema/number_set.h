// Sets of numbers that a schema allows, and their spellings in JSON.
//
// A number has infinitely many spellings: 15, 15.0, 1.5e1, 0.15E+2. Those without an exponent have
// an expression, and so have those with one where only the sign is bounded. Others are read by an
// automaton (number_automaton.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/schema/decimal.h"

namespace sluice::grammar {

struct NumberSet {
  bool has_integers = true;
  bool has_fractions = true;      // values that are no integers
  bool is_plain_integer = false;  // draft 4: integers without a point or an exponent only
  std::optional<Decimal> low, high;
  bool is_low_open = false;  // the bound itself is outside
  bool is_high_open = false;
  std::vector<Decimal> multiples;  // of each of these
  bool has_values = false;         // only these
  std::vector<Decimal> values;

  // Equal texts are equal sets.
  std::string canonical() const;
  void raise_low(const Decimal& bound, bool is_open);
  void lower_high(const Decimal& bound, bool is_open);
  bool contains(const Decimal& value) const;
  // All members, where that is plain from bounds and steps and they are few (at most `max`).
  std::optional<std::vector<Decimal>> members(std::size_t max) const;
  // Whether nothing is in the set, as far as bounds and multiples of moderate size tell.
  bool is_empty() const;
};

// The spellings without an exponent; nothing where the set has steps without a short expression.
std::optional<LanguageId> plain_numbers(Languages& languages, const NumberSet& set);
// The spellings with an exponent, where bounds speak of the sign alone; nothing for other sets. Of
// integers with more than 9 digits behind the point, or as many zeros to cut, none is there.
std::optional<LanguageId> exponent_numbers(Languages& languages, const NumberSet& set);
// All spellings of the numbers of a set.
NodeId number_node(Grammar& grammar, const NumberSet& set);

}  // namespace sluice::grammar
