// Python's 'a %s' % x.
#include <algorithm>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/markup.h"
#include "text/jinja/operations.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja {

// ascii(): other code points of a repr as escapes.
std::string ascii_only(std::string_view repr) {
  std::string out;
  for (std::size_t pos = 0; pos < repr.size();) {
    const std::size_t begin = pos;
    const std::uint32_t code = next_code_point(repr, pos);
    if (code < 0x80) {
      out += repr.substr(begin, pos - begin);
      continue;
    }
    const int digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
    out += code < 0x100 ? "\\x" : code < 0x10000 ? "\\u" : "\\U";
    for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4)
      out += "0123456789abcdef"[code >> shift & 15];
  }
  return out;
}

int bounded_width(std::int64_t width) {
  if (width > kMaxWidth || width < -kMaxWidth) raise_value_error("width too big");
  return static_cast<int>(width);
}

namespace {

struct PercentSpec {
  bool left = false, zero = false, plus = false, space = false, alternate = false;
  int width = 0, precision = -1;
};

std::string percent_number(const PercentSpec& spec, std::string sign, std::string digits) {
  const int length = static_cast<int>(sign.size() + digits.size());
  if (spec.zero && !spec.left && length < spec.width)
    digits.insert(0, static_cast<std::size_t>(spec.width - length), '0');
  return sign + digits;
}

std::string percent_integer(const PercentSpec& spec, char kind, const Value& value) {
  Value n;
  if (value.is_undefined()) value.fail_undefined();
  if (value.is_integer()) {
    n = value;
  } else if (value.is(Type::kFloat) && kind == 'd') {
    n = truncate_to_int(value.real());
  } else if (kind == 'd') {
    raise_type_error("%d format: a real number is required, not " + type_name(value));
  } else {
    raise_type_error(std::string("%") + kind + " format: an integer is required, not " +
                     type_name(value));
  }
  const int base = kind == 'd' ? 10 : kind == 'o' ? 8 : 16;
  std::string digits = magnitude_text(n, base, kind == 'X');
  if (spec.precision > static_cast<int>(digits.size()))
    digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
  std::string sign = n.integer() < 0 ? "-" : spec.plus ? "+" : spec.space ? " " : "";
  if (spec.alternate && base != 10) sign += kind == 'o' ? "0o" : kind == 'x' ? "0x" : "0X";
  return percent_number(spec, sign, digits);
}

// What Markup puts in the place of a value that is formatted as a number: int() or float() of it.
Value number_of(const Value& value, bool real) {
  if (!value.is_string()) return value;
  const auto whole = real ? std::nullopt : parse_int(value.text(), 10);
  const auto fraction = real ? parse_float(value.text()) : std::nullopt;
  if (!whole && !fraction) raise_value_error("the text is no number");
  return whole ? *whole : Value(*fraction);
}

std::string percent_value(const PercentSpec& spec, char kind, Value value, Budget& budget,
                          bool escapes) {
  if (escapes) {
    const bool real = std::string_view("eEfFgG").find(kind) != std::string_view::npos;
    if (real || kind == 'd' || kind == 'i' || kind == 'u') value = number_of(value, real);
    if (kind == 'x' || kind == 'X' || kind == 'o' || kind == 'c')
      raise_type_error(std::string("%") + kind + " format: an integer is required");
  }
  switch (kind) {
    case 's':
    case 'r':
    case 'a': {
      std::string text = kind == 's' ? to_text(value, budget) : to_repr(value, budget);
      if (kind == 'a') text = ascii_only(text);
      if (escapes && !(kind == 's' && is_markup(value))) text = escape_html(text);
      return spec.precision < 0
                 ? text
                 : text.substr(0, byte_offset(text, static_cast<std::size_t>(spec.precision)));
    }
    case 'd':
    case 'i':
    case 'u':
      return percent_integer(spec, 'd', value);
    case 'x':
    case 'X':
    case 'o':
      return percent_integer(spec, kind, value);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': {
      if (value.is_undefined()) value.fail_undefined();
      if (!value.is_number()) raise_type_error("must be real number, not " + type_name(value));
      const double number = value.real();
      const std::string sign = std::signbit(number) ? "-" : spec.plus ? "+" : spec.space ? " " : "";
      return percent_number(spec, sign,
                            format_real(std::fabs(number), kind,
                                        spec.precision < 0 ? 6 : spec.precision, spec.alternate));
    }
    case 'c': {
      if (value.is_string() && value.string().length == 1) return value.text();
      if (!value.is_integer() || value.integer() < 0 || value.integer() > 0x10FFFF)
        raise_type_error("%c requires int or char");
      std::string text;
      append_code_point(text, static_cast<std::uint32_t>(value.integer()));
      return text;
    }
    default:
      raise_value_error(std::string("unsupported format character '") + kind + "'");
  }
}

}  // namespace

std::string percent_format(std::string_view format, const Value& arguments, Budget& budget,
                           bool escapes) {
  const bool tuple = arguments.is_sequence() && arguments.sequence().kind == SequenceKind::kTuple;
  const std::vector<Value> values = tuple ? arguments.items() : std::vector<Value>{arguments};
  std::size_t used = 0, pos = 0;
  bool keyed = false;
  const auto take = [&]() -> const Value& {
    if (used >= values.size()) raise_type_error("not enough arguments for format string");
    return values[used++];
  };
  const auto peek = [&]() -> char {
    if (pos >= format.size()) raise_value_error("incomplete format");
    return format[pos];
  };
  const auto number = [&]() -> int {
    if (peek() == '*') {
      ++pos;
      return bounded_width(as_index(take()));
    }
    std::int64_t n = 0;
    while (peek() >= '0' && peek() <= '9')
      n = std::min<std::int64_t>(n * 10 + (format[pos++] - '0'), kMaxWidth + 1);
    return bounded_width(n);
  };
  std::string out;
  while (pos < format.size()) {
    budget.charge();
    if (format[pos] != '%') {
      const std::size_t end = std::min(format.find('%', pos), format.size());
      out += format.substr(pos, end - pos);
      budget.charge_bytes(end - pos);
      pos = end;
      continue;
    }
    ++pos;
    PercentSpec spec;
    Value named;
    bool has_name = false;
    if (peek() == '(') {
      const std::size_t close = format.find(')', pos);
      if (close == std::string_view::npos) raise_value_error("incomplete format key");
      if (!arguments.is_dict()) raise_type_error("format requires a mapping");
      const Value key(std::string(format.substr(pos + 1, close - pos - 1)));
      const Value* found = arguments.dict().find(key, budget);
      if (!found) raise_python("KeyError", to_repr(key, budget));
      named = *found;
      has_name = keyed = true;
      pos = close + 1;
    }
    for (bool flags = true; flags;) {
      switch (peek()) {
        case '-':
          spec.left = true;
          break;
        case '0':
          spec.zero = true;
          break;
        case '+':
          spec.plus = true;
          break;
        case ' ':
          spec.space = true;
          break;
        case '#':
          spec.alternate = true;
          break;
        default:
          flags = false;
      }
      if (flags) ++pos;
    }
    spec.width = number();
    if (spec.width < 0) {
      spec.left = true;
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++pos;
      spec.precision = std::max(0, number());
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++pos;
    const char kind = format[pos++];
    std::string text =
        kind == '%' ? "%" : percent_value(spec, kind, has_name ? named : take(), budget, escapes);
    const int length = static_cast<int>(count_code_points(text));
    const std::string padding(static_cast<std::size_t>(std::max(0, spec.width - length)), ' ');
    out += spec.left ? text + padding : padding + text;
    budget.charge_bytes(text.size() + padding.size());
  }
  const bool subscripted =
      arguments.is_dict() || arguments.is(Type::kRange) || arguments.is_undefined() ||
      (arguments.is_sequence() && arguments.sequence().kind == SequenceKind::kList);
  if (used < values.size() && !keyed && !subscripted)
    raise_type_error("not all arguments converted during string formatting");
  return out;
}

}  // namespace sluice::jinja
