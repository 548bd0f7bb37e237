// The spellings of a NumberSet: expressions where they are short, an automaton for the others.
#include <algorithm>

#include "text/grammar/json_text.h"
#include "text/grammar/regex.h"
#include "text/grammar/schema/number_automaton.h"
#include "text/grammar/schema/number_set.h"

namespace sluice::grammar {
namespace {

// Above this many digits a bound is left to the check.
constexpr std::int64_t kMaxPlainDigits = 400;

// No document has more digits than these, but a model may write on without an end: before the
// point, behind it. Bounds of a schema that are longer add theirs.
constexpr std::size_t kMaxWholeDigits = 64;
constexpr std::size_t kMaxFractionDigits = 24;
constexpr std::size_t kMaxFiniteDigits = 308;  // what a double holds, unless a bound is longer
constexpr const char* kZeroFraction = "(\\.0{1,24})?";
constexpr const char* kZeros = "0{0,24}";
constexpr const char* kFewZeros = "0{0,3}";
constexpr const char* kExponent = "[0-9]{1,4}";

// The digits of a magnitude before and behind the point.
struct Plain {
  std::string whole = "0";
  std::string fraction;
};

Plain plain(const Decimal& value) {
  Plain out;
  if (value.is_zero()) return out;
  if (value.exponent >= 0) {
    out.whole = value.digits + std::string(static_cast<std::size_t>(value.exponent), '0');
  } else if (value.magnitude() > 0) {
    const auto size = static_cast<std::size_t>(value.magnitude());
    out.whole = value.digits.substr(0, size);
    out.fraction = value.digits.substr(size);
  } else {
    out.fraction = std::string(static_cast<std::size_t>(-value.magnitude()), '0') + value.digits;
  }
  return out;
}

bool is_short(const Decimal& value) {
  return value.magnitude() <= kMaxPlainDigits && value.exponent >= -kMaxPlainDigits;
}

std::string digits(std::size_t count) {
  return count == 0 ? "" : "[0-9]{" + std::to_string(count) + "}";
}

void add(std::string& pattern, const std::string& option) {
  if (!pattern.empty()) pattern += "|";
  pattern += option;
}

// Languages of magnitudes as they are spelled: 0 or no zero in front, point, digits. `text` is
// followed by a digit of a range and `count` digits more.
LanguageId with_digit(Languages& languages, std::string_view text, char first, char last,
                      std::uint64_t min, std::uint64_t max) {
  const CodeRange range{static_cast<char32_t>(first), static_cast<char32_t>(last)};
  const CodeRange all{U'0', U'9'};
  return languages.concat({languages.literal(text), languages.chars(std::span(&range, 1)),
                           languages.repeat(languages.chars(std::span(&all, 1)), min, max)});
}

LanguageId at_least(Languages& languages, const Decimal& bound, bool is_open) {
  const Plain p = plain(bound);
  const std::size_t size = p.whole.size();
  std::vector<LanguageId> wholes, out;  // wholes: with any fraction
  wholes.push_back(with_digit(languages, "", '1', '9', size, kUnbounded));
  for (std::size_t i = 0; i < size; ++i) {
    if (p.whole[i] == '9') continue;
    wholes.push_back(with_digit(languages, std::string_view(p.whole).substr(0, i),
                                static_cast<char>(p.whole[i] + 1), '9', size - i - 1,
                                size - i - 1));
  }
  if (p.fraction.empty() && !is_open) wholes.push_back(languages.literal(p.whole));
  out.push_back(
      languages.concat({languages.alternate(wholes), own_regex(languages, "(\\.[0-9]+)?")}));
  const std::string begin = p.whole + ".";
  for (std::size_t i = 0; i < p.fraction.size(); ++i) {
    if (p.fraction[i] == '9') continue;
    out.push_back(with_digit(languages, begin + p.fraction.substr(0, i),
                             static_cast<char>(p.fraction[i] + 1), '9', 0, kUnbounded));
  }
  if (!p.fraction.empty() || is_open)
    out.push_back(
        languages.concat({languages.literal(begin + p.fraction),
                          own_regex(languages, is_open ? "[0-9]*[1-9][0-9]*" : "[0-9]*")}));
  return languages.alternate(out);
}

LanguageId at_most(Languages& languages, const Decimal& bound, bool is_open) {
  const Plain p = plain(bound);
  const std::size_t size = p.whole.size();
  std::vector<LanguageId> wholes, out;
  if (size > 1) {
    wholes.push_back(languages.literal("0"));
    wholes.push_back(with_digit(languages, "", '1', '9', 0, size - 2));
  }
  for (std::size_t i = 0; i < size; ++i) {
    const char least = i == 0 && size > 1 ? '1' : '0';
    if (p.whole[i] <= least) continue;
    wholes.push_back(with_digit(languages, std::string_view(p.whole).substr(0, i), least,
                                static_cast<char>(p.whole[i] - 1), size - i - 1, size - i - 1));
  }
  if (!wholes.empty())
    out.push_back(
        languages.concat({languages.alternate(wholes), own_regex(languages, "(\\.[0-9]+)?")}));
  if (p.fraction.empty()) {
    if (!is_open)
      out.push_back(
          languages.concat({languages.literal(p.whole), own_regex(languages, "(\\.0+)?")}));
    return languages.alternate(out);
  }
  const std::string begin = p.whole + ".";
  out.push_back(languages.literal(p.whole));
  for (std::size_t i = 0; i < p.fraction.size(); ++i) {
    const std::string text = begin + p.fraction.substr(0, i);
    if (i > 0) out.push_back(languages.literal(text));
    if (p.fraction[i] == '0') continue;
    out.push_back(
        with_digit(languages, text, '0', static_cast<char>(p.fraction[i] - 1), 0, kUnbounded));
  }
  if (!is_open)
    out.push_back(
        languages.concat({languages.literal(begin + p.fraction), own_regex(languages, "0*")}));
  return languages.alternate(out);
}

// Magnitudes that are multiples; empty where no short expression is known.
std::string multiples_of(const Decimal& step) {
  const std::string last = step.digits == "1"   ? "0"
                           : step.digits == "2" ? "[02468]"
                           : step.digits == "5" ? "[05]"
                                                : "";
  if (last.empty() || !is_short(step)) return "";
  const bool is_power = step.digits == "1";
  if (step.exponent >= 0) {
    const std::string zeros(static_cast<std::size_t>(step.exponent), '0');
    return "(0|[0-9]*" + (is_power ? "[0-9]" : last) + zeros + ")(\\.0+)?";
  }
  const auto places = static_cast<std::size_t>(-step.exponent);
  std::string fraction = digits(places - 1) + (is_power ? "[0-9]" : last) + "0*";
  if (places > 1) fraction += "|[0-9]{1," + std::to_string(places - 1) + "}";
  return "[0-9]+(\\.(" + fraction + "))?";
}

// Digits behind the first one: so many that each bound can be written with as many again.
std::string more_digits(const std::optional<Decimal>& low, const std::optional<Decimal>& high) {
  std::size_t count = kMaxWholeDigits;
  for (const auto* bound : {&low, &high})
    if (*bound) {
      const std::size_t own = plain(**bound).whole.size();
      const std::size_t most = std::max(kMaxFiniteDigits, own + 1);
      count = std::max(count, std::min(kMaxWholeDigits + own, most));
    }
  return "[0-9]{0," + std::to_string(count - 1) + "}";
}
std::string fraction_digits(const std::optional<Decimal>& low, const std::optional<Decimal>& high) {
  std::size_t count = kMaxFractionDigits;
  for (const auto* bound : {&low, &high})
    if (*bound) count = std::max(count, kMaxFractionDigits + plain(**bound).fraction.size());
  return "{1," + std::to_string(count) + "}";
}

// The magnitudes of one sign.
LanguageId magnitudes(Languages& languages, const NumberSet& set, bool is_negative) {
  std::optional<Decimal> low = is_negative ? set.high : set.low;
  std::optional<Decimal> high = is_negative ? set.low : set.high;
  const bool is_low_open = is_negative ? set.is_high_open : set.is_low_open;
  const bool is_high_open = is_negative ? set.is_low_open : set.is_high_open;
  for (auto* bound : {&low, &high}) {
    if (is_negative && *bound && !(*bound)->is_zero()) (*bound)->negative = !(*bound)->negative;
  }
  if (high && high->negative) return languages.none();
  std::vector<LanguageId> all{own_regex(
      languages,
      "(0|[1-9]" + more_digits(low, high) + ")(\\.[0-9]" + fraction_digits(low, high) + ")?")};
  if (low && !low->negative) all.push_back(at_least(languages, *low, is_low_open));
  if (high) all.push_back(at_most(languages, *high, is_high_open));
  if (!set.has_fractions) {
    all.push_back(own_regex(languages, set.is_plain_integer ? "[0-9]+" : "[0-9]+(\\.0+)?"));
  }
  if (!set.has_integers) all.push_back(own_regex(languages, "[0-9]+\\.[0-9]*[1-9][0-9]*"));
  for (const Decimal& step : set.multiples) all.push_back(own_regex(languages, multiples_of(step)));
  return languages.intersect(all);
}

LanguageId plain_values(Languages& languages, const NumberSet& set) {
  std::vector<std::string> wholes;
  std::vector<std::string> fractions;
  for (const Decimal& value : set.values) {
    if (!is_short(value)) continue;
    const Plain p = plain(value);
    std::string text = (value.negative ? "-" : "") + p.whole;
    if (!p.fraction.empty()) {
      fractions.push_back(text + "." + p.fraction);
    } else {
      if (value.is_zero()) wholes.push_back("-0");
      wholes.push_back(std::move(text));
    }
  }
  std::vector<LanguageId> options;
  if (!wholes.empty()) {
    const LanguageId whole = languages.literals(wholes);
    options.push_back(set.is_plain_integer
                          ? whole
                          : languages.concat({whole, own_regex(languages, kZeroFraction)}));
  }
  if (!fractions.empty()) {
    options.push_back(
        languages.concat({languages.literals(fractions), own_regex(languages, kZeros)}));
  }
  return languages.alternate(options);
}

}  // namespace

std::optional<LanguageId> plain_numbers(Languages& languages, const NumberSet& set) {
  if (set.has_values) return plain_values(languages, set);
  if ((set.low && !is_short(*set.low)) || (set.high && !is_short(*set.high)) ||
      std::any_of(set.multiples.begin(), set.multiples.end(),
                  [](const Decimal& step) { return multiples_of(step).empty(); })) {
    return std::nullopt;
  }
  return languages.alternate(
      {magnitudes(languages, set, false),
       languages.concat({languages.literal("-"), magnitudes(languages, set, true)})});
}

std::optional<LanguageId> exponent_numbers(Languages& languages, const NumberSet& set) {
  if (set.has_values || !set.multiples.empty() || !set.has_integers || (set.low && set.high)) {
    return std::nullopt;
  }
  // Zero itself is a member, or every number of the sign but zero is one.
  bool has_zero = true;
  const std::optional<Decimal>& bound = set.low ? set.low : set.high;
  if (bound) {
    const bool is_open = set.low ? set.is_low_open : set.is_high_open;
    Decimal size = *bound;
    size.negative = false;
    const bool is_one = size == Decimal::of(1) && bound->negative == !set.low;
    has_zero = bound->is_zero() && !is_open;
    const bool is_sign = bound->is_zero() || (is_one && !is_open && !set.has_fractions);
    if (!is_sign) return std::nullopt;
  }
  const std::string whole = kAnyWhole, exponent = kExponent, zeros = kZeroFraction;
  std::string forms;
  if (set.has_fractions) {
    forms = exponent_magnitude();
  } else {
    constexpr int kMaxShift = 9;
    add(forms, whole + zeros + "[eE]\\+?" + exponent);
    add(forms, "0" + zeros + "[eE]-" + exponent);
    for (int shift = 1; shift <= kMaxShift; ++shift) {
      const std::string count = std::to_string(shift);
      // So many digits behind the point need at least that exponent, so many zeros at most it.
      add(forms, whole + "\\.[0-9]{" + count + "}" + kZeros + "[eE]\\+?" + kFewZeros + "([" +
                     count + "-9]|[1-9]" + exponent + ")");
      add(forms,
          "[1-9][0-9]{0,63}0{" + count + "}" + zeros + "[eE]-" + kFewZeros + "[0-" + count + "]");
    }
    add(forms, whole + zeros + "[eE]-0{1,4}");
  }
  const LanguageId all = set.has_fractions
                             ? own_regex(languages, forms)
                             : languages.intersect({own_regex(languages, forms),
                                                    own_regex(languages, exponent_magnitude())});
  const LanguageId zero = own_regex(languages, "0" + zeros + "[eE][+-]?" + exponent);
  const LanguageId minus = languages.literal("-");
  if (!bound) return languages.alternate({all, languages.concat({minus, all})});
  const LanguageId sized =
      has_zero
          ? all
          : languages.intersect({all, own_regex(languages, "[0.]*[1-9][0-9.]*[eE][+-]?[0-9]+")});
  const LanguageId no_zero = languages.none();
  if (set.low) {
    return languages.alternate({sized, languages.concat({minus, has_zero ? zero : no_zero})});
  }
  return languages.alternate({has_zero ? zero : no_zero, languages.concat({minus, sized})});
}

NodeId number_node(Grammar& grammar, const NumberSet& all) {
  constexpr std::size_t kMaxListed = 2000;
  NumberSet set = all;
  if (!set.multiples.empty() && !set.has_values) {
    // Steps between bounds: a list knows which beginnings lead to a member.
    if (auto values = set.members(kMaxListed)) {
      set = NumberSet{};
      set.has_values = true;
      set.values = *std::move(values);
      set.is_plain_integer = all.is_plain_integer;
    }
  }
  if (set.is_empty()) return grammar.none();
  const bool is_free = !set.low && !set.high && set.multiples.empty() && !set.has_values;
  if (is_free && set.has_integers && set.has_fractions) return grammar.any_json_number();
  Languages& languages = grammar.languages();
  if (set.is_plain_integer) {
    if (const auto plain = plain_numbers(languages, set)) return grammar.text(*plain);
  } else if (const auto with_exponent = exponent_numbers(languages, set)) {
    if (const auto plain = plain_numbers(languages, set))
      return grammar.text(languages.alternate({*plain, *with_exponent}));
  }
  return grammar.text(languages.automaton(std::make_shared<const NumberAutomaton>(set)));
}

}  // namespace sluice::grammar
