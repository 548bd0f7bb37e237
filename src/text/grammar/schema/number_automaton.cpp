#include "text/grammar/schema/number_automaton.h"

#include <algorithm>
#include <cstdlib>

namespace sluice::grammar {
namespace {

// No document has more digits than these, but a model may write on without an end: before the
// point, and behind it. A double is written with up to 23 digits behind the point, where it has no
// exponent. Numbers of a schema that are longer add theirs. Steps need room to be reached.
constexpr std::uint32_t kMaxWholeDigits = 64;
constexpr std::uint32_t kMaxFractionDigits = 24;
constexpr std::uint32_t kMaxStepDigits = 64;
constexpr std::uint32_t kMaxExponentDigits = 4;
constexpr std::int32_t kMaxExponent = 9999;
// Magnitudes of the numbers from 1e-323 to below 1e308. The largest doubles have one more.
constexpr std::int64_t kMinMagnitude = -322;
constexpr std::int64_t kMaxMagnitude = 308;
constexpr std::string_view kMaxDouble = "1.7976931348623157e308";
// Steps of numbers larger than this may leave no multiple among the doubles.
constexpr std::int64_t kMaxStepMagnitude = 100;
constexpr std::int64_t kFar = 1'000'000'000'000'000;

std::uint64_t multiply_mod(std::uint64_t a, std::uint64_t b, std::uint64_t modulus) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(static_cast<Wide>(a) * b % modulus);
}

// The least shift s with rest * 10^s = 0 by the modulus; nothing where there is none.
std::optional<std::int64_t> shift_to_zero(std::uint64_t rest, std::uint64_t modulus) {
  constexpr int kMaxShift = 64;  // a power of two or of five below 10^18 has fewer factors
  for (int shift = 0; shift <= kMaxShift; ++shift) {
    if (rest == 0) return shift;
    rest = multiply_mod(rest, 10, modulus);
  }
  return std::nullopt;
}

std::int32_t clamped(std::int64_t exponent) {
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(exponent, -kMaxExponent - 1, kMaxExponent + 1));
}

std::int32_t power_of_ten(std::uint32_t power) {
  std::int32_t value = 1;
  for (; power > 0; --power) value *= 10;
  return value;
}

int order_of(int a, int b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

int digit_at(const Decimal& value, std::size_t place) {
  return place < value.digits.size() ? value.digits[place] - '0' : 0;
}

}  // namespace

NumberAutomaton::NumberAutomaton(const NumberSet& set)
    : has_zero_(set.contains(Decimal{})),
      has_values_(set.has_values),
      has_integers_(set.has_integers),
      has_fractions_(set.has_fractions),
      is_plain_integer_(set.is_plain_integer) {
  std::int64_t longest = 0;
  const auto count = [&](const Decimal& value) {
    const std::int64_t places = std::max(std::abs(value.magnitude()), std::abs(value.exponent));
    longest = std::max(longest, static_cast<std::int64_t>(value.digits.size()) + places);
  };
  for (const bool is_negative : {false, true}) {
    Side& side = sides_[is_negative ? 1 : 0];
    side.low = is_negative ? set.high : set.low;
    side.high = is_negative ? set.low : set.high;
    side.is_low_open = is_negative ? set.is_high_open : set.is_low_open;
    side.is_high_open = is_negative ? set.is_low_open : set.is_high_open;
    for (auto* bound : {&side.low, &side.high}) {
      if (!*bound) continue;
      count(**bound);
      if (is_negative && !(*bound)->is_zero()) (*bound)->negative = !(*bound)->negative;
    }
    // zero is looked at by itself
    if (side.low && (side.low->negative || side.low->is_zero())) side.low.reset();
    if (side.high && (side.high->negative || side.high->is_zero())) side.is_possible = false;
    side.min_magnitude = kMinMagnitude;
    side.max_magnitude = kMaxMagnitude;
    if (side.low) {
      side.min_magnitude = std::min(side.min_magnitude, side.low->magnitude());
      side.max_magnitude = std::max(side.max_magnitude, side.low->magnitude() + 1);
    }
    if (side.high) {
      side.min_magnitude = std::min(side.min_magnitude, side.high->magnitude() - 1);
      if (compare(*side.high, *Decimal::parse(kMaxDouble)) <= 0)
        side.max_magnitude = std::max(side.max_magnitude, side.high->magnitude());
    }
    for (const Decimal& step : set.multiples)
      if (step.magnitude() > kMaxStepMagnitude) side.max_magnitude = kFar;
    if (side.low && side.high) {
      const int order = compare(*side.low, *side.high);
      if (order > 0 || (order == 0 && (side.is_low_open || side.is_high_open)))
        side.is_possible = false;
    }
    for (const Decimal& value : set.values) {
      count(value);
      if (value.is_zero() || value.negative != is_negative || !set.contains(value)) continue;
      side.values.emplace_back(value.digits, value.exponent);
    }
    std::ranges::sort(side.values);
    if (has_values_ && side.values.empty()) side.is_possible = false;
    if (has_values_) {  // the values obey the bounds
      side.low.reset();
      side.high.reset();
    }
  }
  if (!has_values_) {
    for (const Decimal& step : set.multiples) {
      count(step);
      steps_.push_back(
          {static_cast<std::uint64_t>(step.digits_value().value_or(1)), step.exponent});
    }
  }
  const auto more = static_cast<std::uint32_t>(std::min<std::int64_t>(longest, 1 << 20));
  max_whole_ = kMaxWholeDigits + more;
  max_fraction_ = (steps_.empty() ? kMaxFractionDigits : kMaxStepDigits) + more;
  const std::int64_t max_magnitude = std::max(sides_[0].max_magnitude, sides_[1].max_magnitude);
  if (!has_values_ && max_whole_ >= max_magnitude)  // one digit more is not counted
    max_whole_ = static_cast<std::uint32_t>(max_magnitude - 1);
  uses_places_ = has_values_ || !steps_.empty() || !has_integers_ || !has_fractions_;
}

std::string NumberAutomaton::pack(const State& state) {
  std::string out;
  const auto add = [&](std::int64_t number) {  // seven bits a byte, the sign in the first
    auto bits = static_cast<std::uint64_t>(number) << 1 ^ static_cast<std::uint64_t>(number >> 63);
    for (; bits >= 0x80; bits >>= 7) out += static_cast<char>(bits | 0x80);
    out += static_cast<char>(bits);
  };
  add(state.phase);
  add((state.is_negative ? 1 : 0) | (state.has_digits ? 2 : 0) | (state.has_sign ? 4 : 0) |
      (state.is_free ? 8 : 0) | (state.low_order + 1) << 4 | (state.high_order + 1) << 6);
  for (const std::uint32_t number : {state.whole, state.fraction, state.zeros, state.num_exponent})
    add(number);
  for (const std::int32_t number : {state.magnitude, state.exponent, state.from, state.to})
    add(number);
  add(static_cast<std::int64_t>(state.rests.size()));
  for (const std::uint64_t rest : state.rests) add(static_cast<std::int64_t>(rest));
  add(static_cast<std::int64_t>(state.listed.size()));
  for (const std::int32_t exponent : state.listed) add(exponent);
  return out + state.digits;
}

NumberAutomaton::State NumberAutomaton::unpack(std::string_view bytes) {
  State state;
  std::size_t at = 0;
  const auto next = [&] {
    std::uint64_t bits = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      bits |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) break;
    }
    return static_cast<std::int64_t>(bits >> 1 ^ (~(bits & 1) + 1));
  };
  state.phase = static_cast<std::uint8_t>(next());
  const std::int64_t flags = next();
  state.is_negative = (flags & 1) != 0;
  state.has_digits = (flags & 2) != 0;
  state.has_sign = (flags & 4) != 0;
  state.is_free = (flags & 8) != 0;
  state.low_order = static_cast<std::int8_t>((flags >> 4 & 3) - 1);
  state.high_order = static_cast<std::int8_t>((flags >> 6 & 3) - 1);
  for (std::uint32_t* number : {&state.whole, &state.fraction, &state.zeros, &state.num_exponent})
    *number = static_cast<std::uint32_t>(next());
  for (std::int32_t* number : {&state.magnitude, &state.exponent, &state.from, &state.to})
    *number = static_cast<std::int32_t>(next());
  state.rests.resize(static_cast<std::size_t>(next()));
  for (std::uint64_t& rest : state.rests) rest = static_cast<std::uint64_t>(next());
  state.listed.resize(static_cast<std::size_t>(next()));
  for (std::int32_t& exponent : state.listed) exponent = static_cast<std::int32_t>(next());
  state.digits = bytes.substr(at);
  return state;
}

std::string NumberAutomaton::begin() const {
  State state;
  state.rests.resize(steps_.size());
  return pack(state);
}

bool NumberAutomaton::Exponents::has(std::int64_t exponent) const {
  if (from <= exponent && exponent <= to) return true;
  return std::ranges::any_of(listed, [&](std::int32_t one) { return one == exponent; });
}

bool NumberAutomaton::Exponents::is_any() const {
  return !listed.empty() ||
         std::max<std::int64_t>(from, -kMaxExponent) <= std::min<std::int64_t>(to, kMaxExponent);
}

bool NumberAutomaton::add_digit(State& state, int digit) const {
  const bool is_whole = state.phase == kStart || state.phase == kMinus || state.phase == kWhole;
  std::uint32_t& count = is_whole ? state.whole : state.fraction;
  // the first digit before the point is not counted
  if (++count > (is_whole ? max_whole_ + 1 : max_fraction_)) return false;
  if (state.phase == kStart || state.phase == kMinus)
    state.phase = digit == 0 ? kZero : kWhole;
  else if (state.phase == kPoint)
    state.phase = kFraction;
  if (!state.has_digits && digit == 0) return true;
  if (is_whole)
    state.magnitude = static_cast<std::int32_t>(state.whole);
  else if (!state.has_digits)
    state.magnitude = 1 - static_cast<std::int32_t>(state.fraction);
  state.has_digits = true;
  const Side& side = side_of(state);
  const auto place =
      static_cast<std::size_t>(state.magnitude + static_cast<std::int64_t>(state.fraction) - 1);
  if (side.low && state.low_order == 0)
    state.low_order = static_cast<std::int8_t>(order_of(digit, digit_at(*side.low, place)));
  if (side.high && state.high_order == 0)
    state.high_order = static_cast<std::int8_t>(order_of(digit, digit_at(*side.high, place)));
  if (digit == 0) {
    ++state.zeros;
    return true;
  }
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const std::uint64_t modulus = steps_[i].modulus;
    std::uint64_t rest = state.rests[i];
    for (std::uint32_t k = 0; k <= state.zeros; ++k) rest = multiply_mod(rest, 10, modulus);
    state.rests[i] = (rest + static_cast<std::uint64_t>(digit)) % modulus;
  }
  if (has_values_) {
    state.digits.append(state.zeros, '0');
    state.digits += static_cast<char>('0' + digit);
  }
  state.zeros = 0;
  return true;
}

// Whether digits that begin so, with a magnitude of at least so much, meet the bounds.
bool NumberAutomaton::may_reach_bounds(const State& state, std::int64_t least_magnitude) const {
  const Side& side = side_of(state);
  const std::int64_t places = state.magnitude + static_cast<std::int64_t>(state.fraction);
  const bool reaches_low = state.low_order >= 0;
  // more digits only make them larger
  const bool is_high = side.high && state.high_order == 0 && side.is_high_open &&
                       places >= static_cast<std::int64_t>(side.high->digits.size());
  const bool reaches_high = state.high_order < 0 || (state.high_order == 0 && !is_high);
  std::int64_t first = side.low ? side.low->magnitude() : -kFar;
  std::int64_t last = side.high ? side.high->magnitude() : kFar;
  if (side.low && !reaches_low) ++first;
  if (side.high && !reaches_high) --last;
  return std::max(first, least_magnitude) <= last;
}

bool NumberAutomaton::is_viable(const State& state) const {
  const Side& side = side_of(state);
  if (!state.has_digits) {
    const bool may_go_on = !(is_plain_integer_ && state.phase == kZero);
    return has_zero_ || (side.is_possible && may_go_on);
  }
  if (!side.is_possible) return false;
  if (has_values_) {
    const auto least = std::ranges::lower_bound(side.values, state.digits, {},
                                                [](const auto& value) { return value.first; });
    // zeros may be a part of the digits, or behind all of them
    const auto begins = [&](const std::string& digits) {
      if (!digits.starts_with(state.digits)) return false;
      const std::size_t more = digits.size() - state.digits.size();
      return more == 0 ||
             (state.zeros < more && digits.find_first_not_of('0', state.digits.size()) >=
                                        state.digits.size() + state.zeros);
    };
    for (auto it = least; it != side.values.end() && it->first.starts_with(state.digits); ++it) {
      if (begins(it->first)) return true;
    }
    return false;
  }
  // an integer's exponent moves all its digits in front of the point
  if (!has_fractions_ &&
      static_cast<std::int64_t>(state.fraction) - static_cast<std::int64_t>(state.zeros) >
          finite_exponents(state).second)
    return false;
  if (!side.has_bounds()) return true;
  std::int64_t least_magnitude = is_plain_integer_ ? state.magnitude : -kFar;
  // A multiple of 10^place has all its digits above that place.
  std::int64_t place = has_fractions_ ? -kFar : 0;
  for (const Step& step : steps_) place = std::max(place, step.exponent);
  if (place > -kFar) {
    const std::int64_t used = state.magnitude + static_cast<std::int64_t>(state.fraction) -
                              static_cast<std::int64_t>(state.zeros);
    least_magnitude = std::max(least_magnitude, place + used);
  }
  return may_reach_bounds(state, least_magnitude);
}

std::pair<std::int64_t, std::int64_t> NumberAutomaton::finite_exponents(const State& state) const {
  const Side& side = side_of(state);
  std::int64_t least = state.magnitude, most = state.magnitude;
  if (!side.has_bounds()) {
    if (state.magnitude <= 0) least = 1 - static_cast<std::int64_t>(max_fraction_);
    if (state.magnitude > 1) most = static_cast<std::int64_t>(max_whole_) + 1;
  }
  return {std::min<std::int64_t>(side.min_magnitude - least, 0),
          std::max<std::int64_t>(side.max_magnitude - most, 0)};
}

NumberAutomaton::Exponents NumberAutomaton::exponents_of(const State& state) const {
  if (!state.has_digits) {
    if (!has_zero_) return {};
    return {.from = -kFar, .to = kFar, .listed = {}};
  }
  const Side& side = side_of(state);
  if (!side.is_possible) return {};
  // the number is its digits without the zeros at their end, times 10^place
  const std::int64_t place =
      static_cast<std::int64_t>(state.zeros) - static_cast<std::int64_t>(state.fraction);
  Exponents out;
  if (has_values_) {
    const auto [begin, end] = std::ranges::equal_range(
        side.values, state.digits, {}, [](const auto& value) { return value.first; });
    for (auto it = begin; it != end; ++it) {
      const std::int64_t exponent = it->second - place;
      if (std::abs(exponent) <= kMaxExponent)
        out.listed.push_back(static_cast<std::int32_t>(exponent));
    }
    std::ranges::sort(out.listed);
    return out;
  }
  const auto [first, last] = finite_exponents(state);
  out.from = first;
  out.to = last;
  const std::int64_t places = state.magnitude + static_cast<std::int64_t>(state.fraction);
  const auto equals = [&](const Decimal& bound, int order) {
    return order == 0 && places >= static_cast<std::int64_t>(bound.digits.size());
  };
  if (side.low) {
    const bool is_equal = equals(*side.low, state.low_order);
    const bool reaches = state.low_order > 0 || (is_equal && !side.is_low_open);
    out.from = std::max(out.from, side.low->magnitude() + (reaches ? 0 : 1) - state.magnitude);
  }
  if (side.high) {
    const bool is_equal = equals(*side.high, state.high_order);
    const bool reaches =
        state.high_order < 0 || (state.high_order == 0 && (!is_equal || !side.is_high_open));
    out.to = std::min(out.to, side.high->magnitude() - (reaches ? 0 : 1) - state.magnitude);
  }
  if (!has_fractions_) out.from = std::max(out.from, -place);
  if (!has_integers_) out.to = std::min(out.to, -place - 1);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const auto shift = shift_to_zero(state.rests[i], steps_[i].modulus);
    if (!shift) return {};
    out.from = std::max(out.from, steps_[i].exponent - place + *shift);
  }
  return out;
}

bool NumberAutomaton::add_exponent(State& state, char c) const {
  if (c == '+' || c == '-') {
    if (state.phase != kE || state.has_sign) return false;
    state.has_sign = true;
    if (c == '-') {
      state.from = -std::exchange(state.to, -state.from);
      for (std::int32_t& exponent : state.listed) exponent = -exponent;
      std::ranges::sort(state.listed);
    }
  } else {
    if (c < '0' || c > '9' || state.num_exponent == kMaxExponentDigits) return false;
    state.phase = kExponent;
    ++state.num_exponent;
    if (!state.is_free) state.exponent = state.exponent * 10 + (c - '0');
  }
  if (state.is_free) {
    state.has_sign = state.has_sign && state.phase == kE;
    return true;
  }
  // the sizes that the digits so far may become
  const std::uint32_t left = kMaxExponentDigits - state.num_exponent;
  const auto reaches = [&](std::int32_t from, std::int32_t to) {
    for (std::uint32_t more = state.num_exponent == 0 ? 1 : 0; more <= left; ++more) {
      const std::int32_t scale = power_of_ten(more);
      if (state.exponent * scale <= to && state.exponent * scale + scale - 1 >= from) return true;
    }
    return false;
  };
  std::erase_if(state.listed, [&](std::int32_t one) { return one < 0 || !reaches(one, one); });
  state.from = std::max(state.from, 0);
  if (state.from > state.to || !reaches(state.from, state.to)) {
    state.from = 0;
    state.to = -1;
  }
  if (state.listed.empty() && state.from > state.to) return false;
  const std::int32_t scale = power_of_ten(left);
  const bool is_free = state.from <= state.exponent &&
                       state.exponent * scale + scale - 1 <= state.to &&
                       (state.num_exponent > 0 || state.from == 0);
  if (is_free) {
    state.is_free = true;
    state.exponent = state.from = state.to = 0;
    state.listed.clear();
  }
  state.has_sign = state.has_sign && state.phase == kE;
  return true;
}

std::string NumberAutomaton::step(std::string_view bytes, char c) const {
  State state = unpack(bytes);
  if (state.phase == kE || state.phase == kExponent)
    return add_exponent(state, c) ? pack(state) : std::string();
  if (c >= '0' && c <= '9') {
    if (state.phase == kZero || !add_digit(state, c - '0')) return {};
  } else if (c == '-') {
    if (state.phase != kStart) return {};
    state.phase = kMinus;
    state.is_negative = true;
  } else if (c == '.') {
    if ((state.phase != kZero && state.phase != kWhole) || is_plain_integer_) return {};
    state.phase = kPoint;
  } else if (c == 'e' || c == 'E') {
    const bool has_number =
        state.phase == kZero || state.phase == kWhole || state.phase == kFraction;
    if (!has_number || is_plain_integer_) return {};
    const Exponents exponents = exponents_of(state);
    State behind;
    behind.phase = kE;
    behind.from = clamped(std::max<std::int64_t>(exponents.from, -kMaxExponent));
    behind.to = clamped(std::min<std::int64_t>(exponents.to, kMaxExponent));
    behind.listed = exponents.listed;
    if (behind.from > behind.to) {
      behind.from = 0;
      behind.to = -1;
      if (behind.listed.empty()) return {};
    }
    if (behind.from == -kMaxExponent && behind.to == kMaxExponent) {
      behind.is_free = true;
      behind.from = behind.to = 0;
    }
    return pack(behind);
  } else {
    return {};
  }
  if (!is_viable(state)) return {};
  // behind the last digit an end or an exponent must be possible
  if (state.phase == kFraction && state.fraction == max_fraction_ && !exponents_of(state).is_any())
    return {};
  tidy(state);
  return pack(state);
}

void NumberAutomaton::tidy(State& state) const {
  if (!side_of(state).has_bounds()) state.magnitude = std::clamp(state.magnitude, 0, 2);
  if (!uses_places_) state.zeros = 0;
  if (state.phase == kPoint || state.phase == kFraction) state.whole = 1;
}

bool NumberAutomaton::accepts(std::string_view bytes) const {
  const State state = unpack(bytes);
  switch (state.phase) {
    case kZero:
    case kWhole:
    case kFraction:
      return exponents_of(state).has(0);
    case kExponent:
      if (state.is_free) return true;
      return (state.from <= state.exponent && state.exponent <= state.to) ||
             std::ranges::binary_search(state.listed, state.exponent);
    default:
      return false;
  }
}

std::uint64_t NumberAutomaton::free_digits(std::string_view bytes) const {
  const State state = unpack(bytes);
  const Side& side = side_of(state);
  if (has_values_ || side.high || !side.is_possible || !state.has_digits) return 0;
  // an end must be possible behind the last digit of a fraction
  if (state.phase == kFraction) return max_fraction_ - std::min(max_fraction_, state.fraction + 1);
  return state.phase == kWhole ? max_whole_ - std::min(max_whole_, state.whole) : 0;
}

// Far from the most digits their number does not matter, but for what it says of places.
std::string NumberAutomaton::horizon_form(std::string_view bytes, std::uint64_t horizon) const {
  State state = unpack(bytes);
  const Side& side = side_of(state);
  if (state.phase == kWhole && !side.has_bounds() && state.whole + horizon <= max_whole_) {
    state.whole = 1;
    return pack(state);
  }
  const bool is_decided =
      (!side.low || state.low_order != 0) && (!side.high || state.high_order != 0);
  if (state.phase == kFraction && !uses_places_ && is_decided && state.has_digits &&
      state.fraction + horizon <= max_fraction_) {
    state.fraction = 1;
    return pack(state);
  }
  return std::string(bytes);
}

}  // namespace sluice::grammar
