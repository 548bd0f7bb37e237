// Python's two ways to format text: 'a %s' % x and 'a {}'.format(x).
#include <algorithm>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace sluice::jinja {
namespace {

constexpr int kMaxWidth = 100'000;

std::string repeat_text(std::string_view text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

int bounded_width(std::int64_t width) {
  if (width > kMaxWidth || width < -kMaxWidth) raise_value_error("width too big");
  return static_cast<int>(width);
}

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

std::string percent_value(const PercentSpec& spec, char kind, const Value& value, Budget& budget) {
  switch (kind) {
    case 's':
    case 'r':
    case 'a': {
      const std::string text = kind == 's' ? to_text(value, budget) : to_repr(value, budget);
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

std::string percent_format(std::string_view format, const Value& arguments, Budget& budget) {
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
        kind == '%' ? "%" : percent_value(spec, kind, has_name ? named : take(), budget);
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

namespace {

struct BraceSpec {
  std::string fill = " ";
  char align = 0, sign = 0, grouping = 0, kind = 0;
  bool alternate = false, zero = false;
  int width = 0, precision = -1;
};

BraceSpec read_spec(std::string_view text) {
  BraceSpec spec;
  std::size_t pos = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    std::size_t after = 0;
    next_code_point(text, after);
    if (after < text.size() && is_align(text[after])) {
      spec.fill = std::string(text.substr(0, after));
      spec.align = text[after];
      pos = after + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      pos = 1;
    }
  }
  const auto at = [&](char c) { return pos < text.size() && text[pos] == c; };
  if (at('+') || at('-') || at(' ')) spec.sign = text[pos++];
  if (at('#')) spec.alternate = true, ++pos;
  if (at('0')) {
    spec.zero = true;
    ++pos;
  }
  const auto number = [&](int& out) {
    bool any = false;
    std::int64_t n = 0;
    for (; pos < text.size() && text[pos] >= '0' && text[pos] <= '9'; ++pos, any = true)
      n = std::min<std::int64_t>(n * 10 + (text[pos] - '0'), kMaxWidth + 1);
    if (any) out = bounded_width(n);
    return any;
  };
  number(spec.width);
  if (at(',') || at('_')) spec.grouping = text[pos++];
  if (at('.')) {
    ++pos;
    if (!number(spec.precision)) raise_value_error("Format specifier missing precision");
  }
  if (pos < text.size()) spec.kind = text[pos++];
  if (pos < text.size()) raise_value_error("Invalid format specifier '" + std::string(text) + "'");
  return spec;
}

std::string group_digits(const std::string& text, char separator, std::size_t every) {
  const std::size_t whole = std::min(text.find_first_of(".e%"), text.size());
  std::string out;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % every == 0) out += separator;
    out += text[i];
  }
  return out + text.substr(whole);
}

std::string pad(const BraceSpec& spec, const std::string& sign, const std::string& body,
                char default_align) {
  const auto length = static_cast<int>(count_code_points(sign) + count_code_points(body));
  const auto missing = static_cast<std::size_t>(std::max(0, spec.width - length));
  const char align = spec.align ? spec.align : spec.zero ? '=' : default_align;
  const std::string fill = spec.zero && spec.fill == " " ? "0" : spec.fill;
  switch (align) {
    case '<':
      return sign + body + repeat_text(fill, missing);
    case '^':
      return repeat_text(fill, missing / 2) + sign + body +
             repeat_text(fill, missing - missing / 2);
    case '=':
      return sign + repeat_text(fill, missing) + body;
    default:
      return repeat_text(fill, missing) + sign + body;
  }
}

[[noreturn]] void unknown_code(char kind, const Value& value) {
  raise_value_error(std::string("Unknown format code '") + kind + "' for object of type '" +
                    type_name(value) + "'");
}

std::string real_body(const BraceSpec& spec, const Value& value) {
  const double number = std::fabs(value.real());
  switch (spec.kind) {
    case 0:
      if (spec.precision < 0) return format_float(number);
      return format_real(number, 'g', std::max(1, spec.precision));
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      return format_real(number, spec.kind, spec.precision < 0 ? 6 : spec.precision,
                         spec.alternate);
    case 'n':
      return format_real(number, 'g', spec.precision < 0 ? 6 : spec.precision);
    case '%':
      return format_real(number * 100, 'f', spec.precision < 0 ? 6 : spec.precision) + "%";
    default:
      unknown_code(spec.kind, value);
  }
}

}  // namespace

std::string format_spec(const Value& value, std::string_view text, Budget& budget) {
  if (text.empty()) return to_text(value, budget);
  const BraceSpec spec = read_spec(text);
  budget.charge_bytes(static_cast<std::size_t>(spec.width));
  if (value.is_string()) {
    if (spec.kind != 0 && spec.kind != 's') unknown_code(spec.kind, value);
    if (spec.grouping)
      raise_value_error(std::string("Cannot specify '") + spec.grouping + "' with 's'.");
    if (spec.sign) raise_value_error("Sign not allowed in string format specifier");
    if (spec.align == '=')
      raise_value_error("'=' alignment not allowed in string format specifier");
    BraceSpec plain = spec;
    if (spec.zero && !spec.align) plain.align = '<';
    const std::string& s = value.text();
    return pad(plain, {},
               spec.precision < 0
                   ? s
                   : s.substr(0, byte_offset(s, static_cast<std::size_t>(spec.precision))),
               '<');
  }
  if (!value.is_number())
    raise_type_error("unsupported format string passed to " + type_name(value) + ".__format__");
  std::string sign, body;
  const bool negative = value.is_integer() ? value.integer() < 0 : std::signbit(value.real());
  sign = negative ? "-" : spec.sign == '+' || spec.sign == ' ' ? std::string(1, spec.sign) : "";
  if (value.is_integer() &&
      (spec.kind == 0 || std::string_view("dnbxXoc").find(spec.kind) != std::string_view::npos)) {
    if (spec.precision >= 0) raise_value_error("Precision not allowed in integer format specifier");
    if (spec.kind == 'c') {
      if (value.integer() < 0 || value.integer() > 0x10FFFF)
        raise_python("OverflowError", "%c arg not in range(0x110000)");
      append_code_point(body, static_cast<std::uint32_t>(value.integer()));
    } else {
      const int base = spec.kind == 'b'                       ? 2
                       : spec.kind == 'o'                     ? 8
                       : spec.kind == 'x' || spec.kind == 'X' ? 16
                                                              : 10;
      body = magnitude_text(value, base, spec.kind == 'X');
      if (spec.grouping) body = group_digits(body, spec.grouping, base == 10 ? 3 : 4);
      if (spec.alternate && base != 10) sign += std::string("0") + spec.kind;
    }
  } else {
    body = real_body(spec, value);
    if (spec.grouping) body = group_digits(body, spec.grouping, 3);
  }
  return pad(spec, sign, body, '>');
}

namespace {

// One {...} of a format: `name[.attribute|[item]]*[!conversion][:spec]`.
class Field {
 public:
  Field(Interpreter& in, const Arguments& arguments, std::size_t& automatic)
      : in_(in), arguments_(arguments), automatic_(automatic) {}

  Value resolve(std::string_view path) {
    const std::size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = first(path.substr(0, end));
    for (std::size_t pos = end; pos < path.size();) {
      if (path[pos] == '.') {
        const std::size_t stop = std::min(path.find_first_of(".[", pos + 1), path.size());
        value = get_attribute(in_, value, std::string(path.substr(pos + 1, stop - pos - 1)));
        pos = stop;
      } else {
        const std::size_t close = path.find(']', pos);
        if (close == std::string_view::npos) raise_value_error("Missing ']' in format string");
        const std::string key(path.substr(pos + 1, close - pos - 1));
        const auto number = key.find_first_not_of("0123456789") == std::string::npos
                                ? parse_int(key, 10)
                                : std::nullopt;
        value = get_item(in_, value, number ? *number : Value(key));
        pos = close + 1;
      }
    }
    return value;
  }

 private:
  Value first(std::string_view name) {
    const bool number = name.find_first_not_of("0123456789") == std::string_view::npos;
    if (number) {
      std::size_t index = automatic_;
      if (name.empty()) {
        ++automatic_;
      } else {
        const auto parsed = parse_int(name, 10);
        index = static_cast<std::size_t>(as_index(*parsed));
      }
      if (index >= arguments_.positional.size())
        raise_python("IndexError", "Replacement index " + std::to_string(index) +
                                       " out of range for positional args tuple");
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named)
      if (key == name) return value;
    raise_python("KeyError", "'" + std::string(name) + "'");
  }

  Interpreter& in_;
  const Arguments& arguments_;
  std::size_t& automatic_;
};

std::string brace_format_at(Interpreter& in, std::string_view format, const Arguments& arguments,
                            std::size_t& automatic, int depth) {
  if (depth > 1) raise_value_error("Max string recursion exceeded");
  std::string out;
  for (std::size_t pos = 0; pos < format.size();) {
    in.budget().charge();
    const char c = format[pos];
    if (c != '{' && c != '}') {
      const std::size_t end = std::min(format.find_first_of("{}", pos), format.size());
      out += format.substr(pos, end - pos);
      pos = end;
    } else if (pos + 1 < format.size() && format[pos + 1] == c) {
      out += c;
      pos += 2;
    } else if (c == '}') {
      raise_value_error("Single '}' encountered in format string");
    } else {
      std::size_t end = pos + 1;
      for (int open = 1; end < format.size(); ++end) {
        if (format[end] == '{') ++open;
        if (format[end] == '}' && --open == 0) break;
      }
      if (end >= format.size())
        raise_value_error(pos + 1 == format.size() ? "Single '{' encountered in format string"
                                                   : "expected '}' before end of string");
      const std::string_view field = format.substr(pos + 1, end - pos - 1);
      const std::size_t mark = std::min(field.find_first_of("!:"), field.size());
      Value value = Field(in, arguments, automatic).resolve(field.substr(0, mark));
      std::string_view rest = field.substr(mark);
      if (rest.starts_with('!')) {
        const char conversion = rest.size() > 1 ? rest[1] : '\0';
        if (conversion == 's') {
          value = Value(to_text(value, in.budget()));
        } else if (conversion == 'r' || conversion == 'a') {
          value = Value(to_repr(value, in.budget()));
        } else {
          raise_value_error("Unknown conversion specifier");
        }
        rest.remove_prefix(2);
      }
      if (rest.starts_with(':')) rest.remove_prefix(1);
      const std::string spec = brace_format_at(in, rest, arguments, automatic, depth + 1);
      out += format_spec(value, spec, in.budget());
      pos = end + 1;
    }
    in.budget().charge_bytes(out.size() / 64);
  }
  return out;
}

}  // namespace

std::string brace_format(Interpreter& in, std::string_view format, const Arguments& arguments) {
  std::size_t automatic = 0;
  std::string out = brace_format_at(in, format, arguments, automatic, 0);
  in.budget().charge_bytes(out.size());
  return out;
}

}  // namespace sluice::jinja
