#include "text/grammar/schema/number_set.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::grammar {

std::string NumberSet::canonical() const {
  std::string out = fmt::format("{:d}{:d}{:d}", has_integers, has_fractions, is_plain_integer);
  if (low) out += (is_low_open ? "(" : "[") + low->canonical();
  if (high) out += (is_high_open ? ")" : "]") + high->canonical();
  for (const Decimal& multiple : multiples) out += "*" + multiple.canonical();
  if (has_values) out += "=";
  for (const Decimal& value : values) out += value.canonical() + ",";
  return out;
}

void NumberSet::raise_low(const Decimal& bound, bool is_open) {
  const int order = low ? compare(bound, *low) : 1;
  if (order > 0) {
    low = bound;
    is_low_open = is_open;
  } else if (order == 0) {
    is_low_open |= is_open;
  }
}

void NumberSet::lower_high(const Decimal& bound, bool is_open) {
  const int order = high ? compare(bound, *high) : -1;
  if (order < 0) {
    high = bound;
    is_high_open = is_open;
  } else if (order == 0) {
    is_high_open |= is_open;
  }
}

bool NumberSet::contains(const Decimal& value) const {
  if (!(value.is_integer() ? has_integers : has_fractions)) return false;
  if (low && compare(value, *low) < (is_low_open ? 1 : 0)) return false;
  if (high && compare(value, *high) > (is_high_open ? -1 : 0)) return false;
  if (!std::all_of(multiples.begin(), multiples.end(),
                   [&](const Decimal& multiple) { return value.is_multiple_of(multiple); })) {
    return false;
  }
  return !has_values || std::find(values.begin(), values.end(), value) != values.end();
}

std::optional<std::vector<Decimal>> NumberSet::members(std::size_t max) const {
  std::vector<Decimal> out;
  if (has_values) {
    for (const Decimal& value : values) {
      if (contains(value)) out.push_back(value);
    }
    return out.size() <= max ? std::optional(out) : std::nullopt;
  }
  if (!has_integers && !has_fractions) return out;
  if (!low || !high) return std::nullopt;
  const int order = compare(*low, *high);
  if (order > 0) return out;
  if (order == 0) {
    if (contains(*low)) out.push_back(*low);
    return out;
  }
  if (has_fractions && multiples.empty()) return std::nullopt;
  // Every member is an integer times `step` * 10^exponent.
  std::optional<std::int64_t> exponent;
  if (!has_fractions) exponent = 0;
  for (const Decimal& multiple : multiples) {
    exponent = std::max(exponent.value_or(multiple.exponent), multiple.exponent);
  }
  std::int64_t step = 1;
  for (const Decimal& multiple : multiples) {
    if (multiple.exponent != *exponent) continue;
    if (const auto size = multiple.digits_value()) step = std::max(step, *size);
  }
  // The bounds in that unit, cut towards zero: the loop starts and ends one step further out.
  const auto scaled = [&exponent](Decimal bound) -> std::optional<std::int64_t> {
    if (bound.is_zero()) return 0;
    bound.exponent -= *exponent;
    if (bound.magnitude() > 17) return std::nullopt;
    if (bound.magnitude() <= 0) return 0;
    if (bound.is_integer()) return bound.small_integer();
    bound.digits.resize(static_cast<std::size_t>(bound.magnitude()));
    bound.exponent = 0;
    const auto value = bound.digits_value();
    return bound.negative ? -*value : *value;
  };
  const auto first = scaled(*low);
  const auto last = scaled(*high);
  if (!first || !last) return std::nullopt;
  const std::int64_t begin = (*first - 1) / step - 1;
  const std::int64_t end = (*last + 1) / step + 1;
  constexpr std::int64_t kMaxCandidates = 100'000;
  if (end - begin > kMaxCandidates) return std::nullopt;
  for (std::int64_t i = begin; i <= end; ++i) {
    Decimal candidate = Decimal::of(i * step);
    if (!candidate.is_zero()) candidate.exponent += *exponent;
    if (!contains(candidate)) continue;
    if (out.size() == max) return std::nullopt;
    out.push_back(std::move(candidate));
  }
  return out;
}

bool NumberSet::is_empty() const {
  const auto few = members(1);
  return few && few->empty();
}

}  // namespace sluice::grammar
