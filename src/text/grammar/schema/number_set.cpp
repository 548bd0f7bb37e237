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

NumberCheck::NumberCheck(NumberSet set) : set_(std::move(set)) {
  if (!set_.has_values) return;
  for (const Decimal& value : set_.values) values_.insert(value.canonical());
}

bool NumberCheck::passes(std::string_view value) const {
  const auto number = Decimal::parse(value);
  if (!number) return false;
  return set_.has_values ? values_.contains(number->canonical()) : set_.contains(*number);
}

bool NumberCheck::is_viable(std::string_view prefix) const {
  return is_viable_number(set_, prefix);
}

namespace {

// A number as far as it is written.
struct Written {
  bool is_negative = false;
  bool has_exponent = false;
  std::string digits;      // of the mantissa, without zeros in front
  std::int64_t point = 0;  // digits behind the point
  bool is_exponent_negative = false;
  bool has_exponent_sign = false;
  std::string exponent;  // digits, without zeros in front
  bool has_exponent_zero = false;
};

Written read_prefix(std::string_view text) {
  Written out;
  bool is_fraction = false;
  for (const char c : text) {
    if (out.has_exponent) {
      if (c == '+' || c == '-') {
        out.has_exponent_sign = true;
        out.is_exponent_negative = c == '-';
      } else if (c != '0' || !out.exponent.empty()) {
        out.exponent += c;
      } else {
        out.has_exponent_zero = true;
      }
    } else if (c == '-') {
      out.is_negative = true;
    } else if (c == '.') {
      is_fraction = true;
    } else if (c == 'e' || c == 'E') {
      out.has_exponent = true;
    } else {
      if (is_fraction) ++out.point;
      if (c != '0' || !out.digits.empty()) out.digits += c;
    }
  }
  return out;
}

constexpr std::int64_t kFar = 1'000'000'000'000'000;

// Magnitudes of one sign: from low to high, both absent for no bound (low: zero).
struct Side {
  bool is_open = false;  // false: nothing of this sign is in the set
  std::optional<Decimal> low, high;
  bool is_low_open = false, is_high_open = false;
};

Side side_of(const NumberSet& set, bool is_negative) {
  Side side{true, set.low, set.high, set.is_low_open, set.is_high_open};
  if (is_negative) {
    std::swap(side.low, side.high);
    std::swap(side.is_low_open, side.is_high_open);
    for (auto* bound : {&side.low, &side.high}) {
      if (*bound && !(*bound)->is_zero()) (*bound)->negative = !(*bound)->negative;
    }
  }
  if (side.low && (side.low->negative || (side.low->is_zero() && !side.is_low_open))) {
    side.low.reset();
  }
  if (side.high && side.high->negative) side.is_open = false;
  return side;
}

// Whether digits that begin with `start` (not empty) may name a magnitude of the side.
bool may_start(const Side& side, const std::string& start, bool is_integer) {
  if (side.high && side.high->is_zero()) return false;
  if (is_integer && side.high) {
    std::string significant = start;
    while (significant.ends_with('0')) significant.pop_back();
    if (static_cast<std::int64_t>(significant.size()) > side.high->magnitude()) return false;
  }
  if (!side.low || side.low->is_zero() || !side.high) return true;
  if (side.high->magnitude() - side.low->magnitude() >= 2) return true;
  const Decimal first = *Decimal::parse(start);
  std::string next = start;
  std::size_t at = next.size();
  while (at > 0 && next[at - 1] == '9') next[--at] = '0';
  if (at > 0) {
    ++next[at - 1];
  } else {
    next.insert(next.begin(), '1');
  }
  const Decimal after = *Decimal::parse(next);  // behind all that begin with `start`
  const std::int64_t base = first.magnitude();
  for (std::int64_t m = side.low->magnitude(); m <= side.high->magnitude(); ++m) {
    Decimal a = first;
    Decimal b = after;
    a.exponent += m - base;
    b.exponent += m - base;
    // [a, b) meets the side.
    const bool is_below = side.low && compare(b, *side.low) <= 0;
    const bool is_above = side.high && compare(a, *side.high) > (side.is_high_open ? -1 : 0);
    if (!is_below && !is_above) return true;
  }
  return false;
}

// Whether an exponent that begins as written lies within [low, high].
bool may_have_exponent(const Written& written, std::int64_t low, std::int64_t high) {
  const auto check_sign = [&](bool is_negative) {
    std::int64_t from = is_negative ? -high : low;
    const std::int64_t to = is_negative ? -low : high;
    from = std::max<std::int64_t>(from, 0);
    if (from > to) return false;
    if (written.exponent.empty()) return true;
    if (written.exponent.size() > 17) return to >= kFar / 2;
    std::int64_t first = std::stoll(written.exponent);
    std::int64_t width = 1;
    while (first <= kFar) {
      if (first <= to && first + width - 1 >= from) return true;
      first *= 10;
      width *= 10;
    }
    return to >= kFar / 2;
  };
  if (written.has_exponent_sign) return check_sign(written.is_exponent_negative);
  const bool has_digits = !written.exponent.empty() || written.has_exponent_zero;
  return check_sign(false) || (!has_digits && check_sign(true));
}

bool may_start_value(const NumberSet& set, const Written& written) {
  return std::any_of(set.values.begin(), set.values.end(), [&](const Decimal& value) {
    if (value.is_zero()) return written.digits.empty();
    if (value.negative != written.is_negative) return false;
    std::string digits = written.digits;
    if (digits.size() > value.digits.size()) {
      if (digits.find_first_not_of('0', value.digits.size()) != std::string::npos) return false;
      digits.resize(value.digits.size());
    }
    return value.digits.starts_with(digits);
  });
}

}  // namespace

bool is_viable_number(const NumberSet& set, std::string_view prefix) {
  const Written written = read_prefix(prefix);
  if (set.has_values && !may_start_value(set, written)) return false;
  const Side side = side_of(set, written.is_negative);
  if (!side.is_open) return false;
  const bool is_integer = !set.has_fractions;
  if (!written.has_exponent) {
    return written.digits.empty() || may_start(side, written.digits, is_integer);
  }
  if (written.digits.empty()) return set.contains(Decimal{});
  Decimal mantissa = *Decimal::parse(written.digits);
  mantissa.exponent -= written.point;
  std::int64_t low = -kFar;
  std::int64_t high = kFar;
  const auto scaled = [&mantissa](std::int64_t exponent) {
    Decimal value = mantissa;
    value.exponent += exponent;
    return value;
  };
  if (side.low && !side.low->is_zero()) {
    low = side.low->magnitude() - mantissa.magnitude() - 1;
    while (side.low && compare(scaled(low), *side.low) < (side.is_low_open ? 1 : 0)) ++low;
  }
  if (side.high) {
    if (side.high->is_zero()) return false;
    high = side.high->magnitude() - mantissa.magnitude() + 1;
    while (compare(scaled(high), *side.high) > (side.is_high_open ? -1 : 0)) --high;
  }
  if (is_integer) low = std::max(low, -mantissa.exponent);
  for (const Decimal& multiple : set.multiples) {
    low = std::max(low, multiple.exponent - mantissa.exponent);
  }
  if (set.has_values) {
    return std::any_of(set.values.begin(), set.values.end(), [&](const Decimal& value) {
      if (value.is_zero() || value.negative != written.is_negative) return false;
      if (value.digits != mantissa.digits) return false;
      const std::int64_t exponent = value.exponent - mantissa.exponent;
      return may_have_exponent(written, exponent, exponent);
    });
  }
  return low <= high && may_have_exponent(written, low, high);
}

}  // namespace sluice::grammar
