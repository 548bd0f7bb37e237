// The spellings of a NumberSet: a regular language for those without an exponent, a checked node
// for the others.
#include <algorithm>

#include "text/grammar/schema/number_set.h"

namespace sluice::grammar {
namespace {

// Above this many digits a bound is left to the check.
constexpr std::int64_t kMaxPlainDigits = 400;

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

std::string digit_range(char first, char last) {
  return std::string("[") + first + "-" + last + "]";
}

std::string digits(std::size_t count) {
  return count == 0 ? "" : "[0-9]{" + std::to_string(count) + "}";
}

void add(std::string& pattern, const std::string& option) {
  if (!pattern.empty()) pattern += "|";
  pattern += option;
}

// Expressions over magnitudes as they are spelled: 0 or no zero in front, point, digits.
std::string at_least(const Decimal& bound, bool is_open) {
  const Plain p = plain(bound);
  std::string out;
  add(out, "[1-9][0-9]{" + std::to_string(p.whole.size()) + ",}(\\.[0-9]+)?");
  for (std::size_t i = 0; i < p.whole.size(); ++i) {
    if (p.whole[i] == '9') continue;
    add(out, p.whole.substr(0, i) + digit_range(static_cast<char>(p.whole[i] + 1), '9') +
                 digits(p.whole.size() - i - 1) + "(\\.[0-9]+)?");
  }
  if (p.fraction.empty()) {
    add(out, p.whole + (is_open ? "\\.[0-9]*[1-9][0-9]*" : "(\\.[0-9]+)?"));
    return out;
  }
  for (std::size_t i = 0; i < p.fraction.size(); ++i) {
    if (p.fraction[i] == '9') continue;
    add(out, p.whole + "\\." + p.fraction.substr(0, i) +
                 digit_range(static_cast<char>(p.fraction[i] + 1), '9') + "[0-9]*");
  }
  add(out, p.whole + "\\." + p.fraction + (is_open ? "[0-9]*[1-9][0-9]*" : "[0-9]*"));
  return out;
}

std::string at_most(const Decimal& bound, bool is_open) {
  const Plain p = plain(bound);
  std::string out;
  if (p.whole.size() > 1) {
    add(out, "(0|[1-9][0-9]{0," + std::to_string(p.whole.size() - 2) + "})(\\.[0-9]+)?");
  }
  for (std::size_t i = 0; i < p.whole.size(); ++i) {
    const char least = i == 0 && p.whole.size() > 1 ? '1' : '0';
    if (p.whole[i] <= least) continue;
    add(out, p.whole.substr(0, i) + digit_range(least, static_cast<char>(p.whole[i] - 1)) +
                 digits(p.whole.size() - i - 1) + "(\\.[0-9]+)?");
  }
  if (p.fraction.empty()) {
    if (!is_open) add(out, p.whole + "(\\.0+)?");
    return out;
  }
  add(out, p.whole);
  for (std::size_t i = 0; i < p.fraction.size(); ++i) {
    if (i > 0) add(out, p.whole + "\\." + p.fraction.substr(0, i));
    if (p.fraction[i] == '0') continue;
    add(out, p.whole + "\\." + p.fraction.substr(0, i) +
                 digit_range('0', static_cast<char>(p.fraction[i] - 1)) + "[0-9]*");
  }
  if (!is_open) add(out, p.whole + "\\." + p.fraction + "0*");
  return out;
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

class Builder {
 public:
  Builder(Grammar& grammar, const NumberSet& set) : grammar_(grammar), set_(set) {}

  NodeId node() {
    const bool is_free = !set_.low && !set_.high && set_.multiples.empty() && !set_.has_values;
    if (is_free && set_.has_integers && set_.has_fractions) return grammar_.any_json_number();
    const bool is_regular = set_.has_values || has_regular_form();
    const auto check = std::make_shared<const NumberCheck>(set_);
    std::vector<NodeId> options;
    if (is_regular) options.push_back(grammar_.text(set_.has_values ? values() : plain_forms()));
    if (!is_regular || !set_.is_plain_integer) {
      options.push_back(grammar_.checked(guarded(is_regular), check));
    }
    return grammar_.any_of(options);
  }

 private:
  LanguageId regex(const std::string& pattern) {
    const Result<LanguageId> language = grammar_.languages().regex(pattern);
    check(language.ok(), "the expression {} of a number is wrong: {}", pattern,
          language.ok() ? "" : language.fault().message);
    return *language;
  }

  bool has_regular_form() const {
    if ((set_.low && !is_short(*set_.low)) || (set_.high && !is_short(*set_.high))) return false;
    return std::none_of(set_.multiples.begin(), set_.multiples.end(),
                        [](const Decimal& step) { return multiples_of(step).empty(); });
  }

  // Every number without an exponent.
  LanguageId plain_forms() {
    Languages& languages = grammar_.languages();
    std::vector<LanguageId> both;
    for (const bool is_negative : {false, true}) {
      std::optional<Decimal> low = is_negative ? set_.high : set_.low;
      std::optional<Decimal> high = is_negative ? set_.low : set_.high;
      bool is_low_open = is_negative ? set_.is_high_open : set_.is_low_open;
      const bool is_high_open = is_negative ? set_.is_low_open : set_.is_high_open;
      for (auto* bound : {&low, &high}) {
        if (is_negative && *bound && !(*bound)->is_zero()) {
          (*bound)->negative = !(*bound)->negative;
        }
      }
      if (high && high->negative) continue;
      if (low && low->negative) {
        low.reset();
        is_low_open = false;
      }
      std::vector<LanguageId> all{regex("(0|[1-9][0-9]*)(\\.[0-9]+)?")};
      if (low) all.push_back(regex(at_least(*low, is_low_open)));
      if (high) {
        const std::string expression = at_most(*high, is_high_open);
        all.push_back(expression.empty() ? languages.none() : regex(expression));
      }
      if (!set_.has_fractions) {
        all.push_back(regex(set_.is_plain_integer ? "[0-9]+" : "[0-9]+(\\.0+)?"));
      }
      if (!set_.has_integers) all.push_back(regex("[0-9]+\\.[0-9]*[1-9][0-9]*"));
      for (const Decimal& step : set_.multiples) all.push_back(regex(multiples_of(step)));
      const LanguageId magnitudes = languages.intersect(all);
      both.push_back(is_negative ? languages.concat({languages.literal("-"), magnitudes})
                                 : magnitudes);
    }
    return languages.alternate(both);
  }

  // The values of the set without an exponent.
  LanguageId values() {
    Languages& languages = grammar_.languages();
    std::vector<std::string> wholes;
    std::vector<std::string> fractions;
    for (const Decimal& value : set_.values) {
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
      options.push_back(set_.is_plain_integer
                            ? whole
                            : languages.concat({whole, regex("(\\.0+)?")}));
    }
    if (!fractions.empty()) {
      options.push_back(languages.concat({languages.literals(fractions), regex("0*")}));
    }
    return languages.alternate(options);
  }

  // A JSON number with a guard behind each character; with an exponent where `needs_exponent`.
  NodeId guarded(bool needs_exponent) {
    const NodeId guard = grammar_.guard();
    const auto chars = [&](const char* pattern) {
      return grammar_.sequence({grammar_.text(regex(pattern)), guard});
    };
    const NodeId more = grammar_.repeat(chars("[0-9]"), 0, kUnbounded);
    const NodeId whole = grammar_.any_of(
        {chars("0"), grammar_.sequence({chars("[1-9]"), more})});
    const NodeId fraction = grammar_.sequence({chars("\\."), chars("[0-9]"), more});
    const NodeId exponent = grammar_.sequence(
        {chars("[eE]"), grammar_.optional(chars("[+-]")), chars("[0-9]"), more});
    const bool is_plain = set_.is_plain_integer;
    std::vector<NodeId> parts{grammar_.optional(chars("-")), whole};
    if (!is_plain) {
      parts.push_back(grammar_.optional(fraction));
      parts.push_back(needs_exponent ? exponent : grammar_.optional(exponent));
    }
    return grammar_.sequence(parts);
  }

  Grammar& grammar_;
  const NumberSet& set_;
};

}  // namespace

NodeId number_node(Grammar& grammar, const NumberSet& set) {
  if (set.is_empty()) return grammar.none();
  return Builder(grammar, set).node();
}

}  // namespace sluice::grammar
