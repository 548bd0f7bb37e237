// Texts of JSON: a key as it stands between its quotes, and expressions of numbers.
#pragma once

#include <string>
#include <string_view>

#include "text/grammar/spelling.h"
#include "text/unicode.h"

namespace sluice::grammar {

// In UTF-8. `body` is valid; what is not is left out.
inline std::string json_key(std::string_view body) {
  std::string out;
  Spelling at;
  for (const char c : body) {
    const SpellingStep next = spelling::step(at, static_cast<unsigned char>(c), true,
                                             [](char32_t, char32_t) { return true; });
    at = next.is_possible ? next.spelling : Spelling{};
    if (next.is_whole) append_utf8(out, next.code);
  }
  return out;
}

// A number that is not zero is one that a double holds: readers take 1e400 for infinity and 1e-400
// for zero. An expression does not add the exponent to the digits' place, so the exponent is
// bounded by the most digits: 64 before the point and 24 behind it. One digit in front of the
// point, as programs write numbers, has every double from 5e-324 to 1.7976931348623157e308.
inline constexpr const char* kAnyWhole = "(0|[1-9][0-9]{0,63})";
inline constexpr const char* kAnyFraction = "(\\.[0-9]{1,24})?";

// Fractions that are at most that of the largest double, or begin with it.
inline std::string largest_fraction() {
  constexpr std::string_view kDigits = "7976931348623157";
  constexpr int kMaxDigits = 24;
  int left = kMaxDigits - static_cast<int>(kDigits.size());
  std::string out = "[0-9]{0," + std::to_string(left) + "}";
  for (auto digit = kDigits.rbegin(); digit != kDigits.rend(); ++digit, ++left) {
    const std::string below{'[', '0', '-', static_cast<char>(*digit - 1), ']'};
    out = below + "[0-9]{0," + std::to_string(left) + "}|" + *digit + "(" + out + ")?";
  }
  return out;
}

// A number with an exponent, without its sign: -299 to 244 of any digits, -324 to 308 of one digit
// before the point, and up to four digits of zero.
inline std::string exponent_magnitude() {
  const std::string small = "0{0,3}[0-9]|0{0,2}[1-9][0-9]|0?1[0-9]{2}|0?2";  // up to 199, and 2..
  const std::string fraction = kAnyFraction;
  return std::string(kAnyWhole) + fraction + "[eE](\\+?(" + small + "([0-3][0-9]|4[0-4]))|-(" +
         small + "[0-9]{2}))|[1-9]" + fraction + "[eE](\\+?(" + small + "[0-9]{2}|0?30[0-7])|-(" +
         small + "[0-9]{2}|0?3([01][0-9]|2[0-3])))|[3-9]" + fraction + "[eE]-0?324|1(\\.(" +
         largest_fraction() + "))?[eE]\\+?0?308|0(\\.0{1,24})?[eE][+-]?[0-9]{1,4}";
}

}  // namespace sluice::grammar
