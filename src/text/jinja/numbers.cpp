// Numbers read from and written as text.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja/operations.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja {
namespace {

// The text without surrounding space, with every decimal digit in ASCII and single underscores
// between digits dropped. Nothing if an underscore stands elsewhere.
std::optional<std::string> plain_digits(std::string_view text) {
  std::string out;
  bool after_digit = false;
  text = strip(text);
  for (std::size_t pos = 0; pos < text.size();) {
    const std::uint32_t code = next_code_point(text, pos);
    if (code == '_') {
      if (!after_digit || pos >= text.size()) return std::nullopt;
      after_digit = false;
      continue;
    }
    const int value = decimal_value(code);
    if (value >= 0) {
      out += static_cast<char>('0' + value);
    } else {
      append_code_point(out, code);
    }
    after_digit = value >= 0 || (code < 128 && std::isalpha(static_cast<int>(code)));
  }
  return out;
}

}  // namespace

std::optional<Value> parse_int(std::string_view text, int base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  const auto plain = plain_digits(text);
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view rest = *plain;
  const bool negative = rest[0] == '-';
  if (rest[0] == '-' || rest[0] == '+') rest.remove_prefix(1);
  if (rest.size() > 2 && rest[0] == '0') {
    const char mark = static_cast<char>(rest[1] | 0x20);
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      base = marked;
      rest.remove_prefix(2);
    }
  }
  if (base == 0) base = 10;
  if (rest.empty()) return std::nullopt;
  for (const char c : rest) {
    const char low = static_cast<char>(c | 0x20);
    const int digit = c >= '0' && c <= '9'       ? c - '0'
                      : low >= 'a' && low <= 'z' ? low - 'a' + 10
                                                 : 99;
    if (digit >= base) return std::nullopt;
  }
  if (rest.size() > kMaxIntegerDigits && (base & (base - 1)) != 0) return std::nullopt;
  BigInt value = BigInt::parse(rest, base);
  return Value(negative ? -value : std::move(value));
}

std::optional<double> parse_float(std::string_view text) {
  const auto plain = plain_digits(text);
  if (!plain || plain->empty()) return std::nullopt;
  std::string lower = to_lower(*plain);
  const std::string_view unsigned_part =
      std::string_view(lower).substr(lower[0] == '-' || lower[0] == '+' ? 1 : 0);
  const bool word = unsigned_part == "inf" || unsigned_part == "infinity" || unsigned_part == "nan";
  if (!word && lower.find_first_not_of("0123456789+-.e") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(lower.c_str(), &end);
  if (end != lower.c_str() + lower.size()) return std::nullopt;
  return value;
}

Value truncate_to_int(double value) {
  if (std::isnan(value)) raise_value_error("cannot convert float NaN to integer");
  if (std::isinf(value)) raise_python("OverflowError", "cannot convert float infinity to integer");
  return Value(BigInt::from_real(value));
}

std::string format_real(double value, char kind, int precision, bool alternate) {
  const char format[] = {'%', '.', '*', kind, '\0'};
  const char alternate_format[] = {'%', '#', '.', '*', kind, '\0'};
  const char* chosen = alternate ? alternate_format : format;
  if (std::isnan(value)) return kind < 'a' ? "NAN" : "nan";
  const int size = std::snprintf(nullptr, 0, chosen, precision, value);
  std::string text(static_cast<std::size_t>(size) + 1, '\0');
  std::snprintf(text.data(), text.size(), chosen, precision, value);
  text.pop_back();
  return text;
}

}  // namespace sluice::jinja
