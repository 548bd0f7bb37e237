// Every spelling of the numbers of a NumberSet, as an automaton: 15, 15.0, 1.5e1, 0.15E+2.
//
// A state holds what the characters so far leave open: how the digits compare with those of the
// bounds, the place of the last digit that is not zero, the remainders by the steps, and counts
// against the most digits. From the `e` on it holds the exponents that lead into the set.
//
// A number that is not zero stays one that a double holds, from 1e-323 to below 1e308. Bounds of a
// schema beyond these widen them, and listed values have no such limit.
//
// A beginning is given up as soon as bounds, integers or listed values leave no number of the set.
// Of steps between far bounds it is given up at the `e`, or at the last character.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/grammar/schema/number_set.h"
#include "text/grammar/text_automaton.h"

namespace sluice::grammar {

class NumberAutomaton : public TextAutomaton {
 public:
  // Steps (`set.multiples`) have at most 18 digits.
  explicit NumberAutomaton(const NumberSet& set);

  std::string_view alphabet() const override { return "+-.0123456789Ee"; }
  std::string begin() const override;
  std::string step(std::string_view state, char c) const override;
  bool accepts(std::string_view state) const override;
  std::string horizon_form(std::string_view state, std::uint64_t horizon) const override;
  std::uint64_t free_digits(std::string_view state) const override;

 private:
  enum Phase : std::uint8_t { kStart, kMinus, kZero, kWhole, kPoint, kFraction, kE, kExponent };
  // Magnitudes of one sign: [low, high], and the listed values by their digits.
  struct Side {
    bool is_possible = true;  // values other than zero
    std::optional<Decimal> low, high;
    bool is_low_open = false, is_high_open = false;
    std::vector<std::pair<std::string, std::int64_t>> values;  // digits and exponent, sorted
    std::int64_t min_magnitude = 0, max_magnitude = 0;         // of values that a double holds
    bool has_bounds() const { return low || high; }
  };
  struct Step {  // modulus * 10^exponent
    std::uint64_t modulus = 1;
    std::int64_t exponent = 0;
  };
  struct State {
    std::uint8_t phase = kStart;
    bool is_negative = false;
    bool has_digits = false;  // one that is not zero
    bool has_sign = false;    // of the exponent
    bool is_free = false;     // any exponent may follow
    // of the digits beside those of the bounds: below, equal so far, above
    std::int8_t low_order = 0, high_order = 0;
    std::uint32_t whole = 0, fraction = 0;  // digits before and behind the point
    std::uint32_t zeros = 0;                // at the end of the digits
    // 10^(magnitude - 1) <= value < 10^magnitude; without bounds 0, 1 or 2: below one, of one digit
    // before the point, of several
    std::int32_t magnitude = 0;
    std::uint32_t num_exponent = 0;    // digits of the exponent
    std::int32_t exponent = 0;         // ... their value
    std::int32_t from = 0, to = 0;     // the exponents that may come; behind a sign their size
    std::vector<std::uint64_t> rests;  // of the digits up to the last that is not zero
    std::string digits;                // the same digits, where values are listed
    std::vector<std::int32_t> listed;  // exponents of values, where they are listed
  };
  struct Exponents {
    std::int64_t from = 0, to = -1;
    std::vector<std::int32_t> listed;
    bool has(std::int64_t exponent) const;
    bool is_any() const;  // one that can be written
  };

  static std::string pack(const State& state);
  static State unpack(std::string_view bytes);
  const Side& side_of(const State& state) const { return sides_[state.is_negative ? 1 : 0]; }
  // False: more digits than are allowed.
  bool add_digit(State& state, int digit) const;
  bool add_exponent(State& state, char c) const;
  // Whether the digits so far may become a number of the set.
  bool is_viable(const State& state) const;
  bool may_reach_bounds(const State& state, std::int64_t least_magnitude) const;
  Exponents exponents_of(const State& state) const;
  // The exponents with which the digits stay within the doubles; 0 is always one of them.
  std::pair<std::int64_t, std::int64_t> finite_exponents(const State& state) const;
  // Leaves in a state what tells it from others.
  void tidy(State& state) const;

  std::array<Side, 2> sides_;  // positive, negative
  std::vector<Step> steps_;
  bool has_zero_ = false, has_values_ = false;
  bool has_integers_ = true, has_fractions_ = true, is_plain_integer_ = false;
  bool uses_places_ = false;  // of the last digit that is not zero
  std::uint32_t max_whole_ = 0, max_fraction_ = 0;
};

}  // namespace sluice::grammar
