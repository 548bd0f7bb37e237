#include "text/grammar/schema/decimal.h"

#include <algorithm>

namespace sluice::grammar {
namespace {

constexpr std::int64_t kMaxExponent = 1'000'000'000'000'000;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Digits are compared as fractions 0.d1d2d3..., so a missing digit is a zero.
int compare_digits(const std::string& a, const std::string& b) {
  const int order = a.compare(b);  // a prefix is smaller, and the longer one has a digit above zero
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

std::uint64_t small_value(const std::string& digits) {
  std::uint64_t value = 0;
  for (const char digit : digits) value = value * 10 + static_cast<std::uint64_t>(digit - '0');
  return value;
}

std::uint64_t multiply_mod(std::uint64_t a, std::uint64_t b, std::uint64_t modulus) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(static_cast<Wide>(a) * b % modulus);
}

std::uint64_t power_of_ten_mod(std::uint64_t power, std::uint64_t modulus) {
  std::uint64_t result = 1 % modulus;
  for (std::uint64_t base = 10 % modulus; power > 0; power >>= 1) {
    if (power & 1) result = multiply_mod(result, base, modulus);
    base = multiply_mod(base, base, modulus);
  }
  return result;
}

}  // namespace

std::optional<Decimal> Decimal::parse(std::string_view text) {
  Decimal value;
  std::size_t at = 0;
  if (at < text.size() && text[at] == '-') {
    value.negative = true;
    ++at;
  }
  const std::size_t first = at;
  while (at < text.size() && is_digit(text[at])) value.digits += text[at++];
  if (at == first || (text[first] == '0' && at > first + 1)) return std::nullopt;
  if (at < text.size() && text[at] == '.') {
    const std::size_t point = ++at;
    while (at < text.size() && is_digit(text[at])) value.digits += text[at++];
    if (at == point) return std::nullopt;
    value.exponent = -static_cast<std::int64_t>(at - point);
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    bool is_negative = false;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) is_negative = text[at++] == '-';
    const std::size_t start = at;
    std::int64_t exponent = 0;
    while (at < text.size() && is_digit(text[at])) {
      exponent = std::min(kMaxExponent, exponent * 10 + (text[at++] - '0'));
    }
    if (at == start) return std::nullopt;
    value.exponent += is_negative ? -exponent : exponent;
  }
  if (at != text.size()) return std::nullopt;

  const std::size_t begin = std::min(value.digits.find_first_not_of('0'), value.digits.size());
  value.digits.erase(0, begin);
  while (!value.digits.empty() && value.digits.back() == '0') {
    value.digits.pop_back();
    ++value.exponent;
  }
  if (value.digits.empty()) value = Decimal{};
  return value;
}

Decimal Decimal::of(std::int64_t value) {
  return *parse(std::to_string(value));
}

bool Decimal::is_multiple_of(const Decimal& divisor) const {
  if (is_zero()) return true;
  // digits * 10^shift has to be a multiple of the divisor's digits. With a negative shift ten would
  // have to divide `digits`, whose last digit is not zero.
  const std::int64_t shift = exponent - divisor.exponent;
  if (shift < 0) return false;
  const std::uint64_t modulus = small_value(divisor.digits);
  std::uint64_t rest = 0;
  for (const char digit : digits) {
    rest = (multiply_mod(rest, 10, modulus) + static_cast<std::uint64_t>(digit - '0')) % modulus;
  }
  return multiply_mod(rest, power_of_ten_mod(static_cast<std::uint64_t>(shift), modulus),
                      modulus) == 0;
}

std::optional<std::int64_t> Decimal::small_integer() const {
  if (is_zero()) return 0;
  if (!is_integer() || magnitude() > 18) return std::nullopt;
  const auto value = static_cast<std::int64_t>(
      small_value(digits + std::string(static_cast<std::size_t>(exponent), '0')));
  return negative ? -value : value;
}

std::optional<std::int64_t> Decimal::digits_value() const {
  if (!has_small_digits()) return std::nullopt;
  return static_cast<std::int64_t>(small_value(digits));
}

std::string Decimal::canonical() const {
  return (negative ? "-" : "") + digits + "e" + std::to_string(exponent);
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  if (a.is_zero() || b.is_zero()) {
    const int order = static_cast<int>(!a.is_zero()) - static_cast<int>(!b.is_zero());
    return a.negative || b.negative ? -order : order;
  }
  int order = a.magnitude() < b.magnitude() ? -1 : a.magnitude() > b.magnitude() ? 1 : 0;
  if (order == 0) order = compare_digits(a.digits, b.digits);
  return a.negative ? -order : order;
}

}  // namespace sluice::grammar
