// Exact decimal numbers: a JSON number of any length, without rounding.
//
//   Decimal price = *Decimal::parse("12.50");
//   price.is_multiple_of(*Decimal::parse("0.05"));  // true
//
// Plain values; any thread. Exponents saturate at +-10^15, far beyond what a text can spell out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::grammar {

// The value is (-1)^negative * digits * 10^exponent. `digits` has no zero at either end; zero has
// no digits, no sign and exponent 0. So equal values have equal members.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int64_t exponent = 0;

  // `text` is a JSON number; nothing where `text` is none.
  static std::optional<Decimal> parse(std::string_view text);
  static Decimal of(std::int64_t value);

  bool is_zero() const { return digits.empty(); }
  bool is_integer() const { return exponent >= 0; }
  // Whether this value is an integer times `divisor`. `divisor` is not zero and has at most 18
  // digits (`has_small_digits`).
  bool is_multiple_of(const Decimal& divisor) const;
  bool has_small_digits() const { return digits.size() <= 18; }
  // The value where it is an integer of at most 18 decimal places.
  std::optional<std::int64_t> small_integer() const;
  // `digits` as an integer, where they are at most 18.
  std::optional<std::int64_t> digits_value() const;
  // Place of the first digit: 10^(magnitude - 1) <= |value| < 10^magnitude.
  std::int64_t magnitude() const { return static_cast<std::int64_t>(digits.size()) + exponent; }
  // A text that names the value alone: equal texts are equal values.
  std::string canonical() const;

  friend bool operator==(const Decimal&, const Decimal&) = default;
};

// Negative, zero or positive as `a` is below, equal to or above `b`.
int compare(const Decimal& a, const Decimal& b);

}  // namespace sluice::grammar
