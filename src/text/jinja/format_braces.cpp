// Python's 'a {}'.format(x), as the sandbox of Jinja offers it.
#include <algorithm>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/markup.h"
#include "text/jinja/operations.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja {
namespace {

std::string repeat_text(std::string_view text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

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

// Fields are numbered by themselves, or all have numbers.
struct Numbering {
  std::size_t next = 0;
  bool manual = false;
};

// One {...} of a format: `name[.attribute|[item]]*[!conversion][:spec]`.
class Field {
 public:
  Field(Interpreter& in, const Arguments& arguments, Numbering& numbering)
      : in_(in), arguments_(arguments), numbering_(numbering) {}

  Value resolve(std::string path) {
    if (path.empty()) {
      if (numbering_.manual)
        raise_value_error(
            "cannot switch from manual field specification to automatic field numbering");
      path = std::to_string(numbering_.next++);
    } else if (path.find_first_not_of("0123456789") == std::string::npos) {
      if (numbering_.next > 0)
        raise_value_error(
            "cannot switch from automatic field numbering to manual field specification");
      numbering_.manual = true;
    }
    return follow(path);
  }

 private:
  Value follow(std::string_view path) {
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

  Value first(std::string_view name) {
    const bool number =
        !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
    if (number) {
      const auto parsed = parse_int(name, 10);
      const auto index = static_cast<std::size_t>(as_index(*parsed));
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
  Numbering& numbering_;
};

// Where the field that begins at `pos` ends, and where its name does: braces and marks between
// brackets belong to an index.
std::pair<std::size_t, std::size_t> field_at(std::string_view format, std::size_t pos) {
  std::size_t name = std::string_view::npos;
  bool index = false;
  int open = 1;
  for (std::size_t at = pos; at < format.size(); ++at) {
    const char c = format[at];
    if (name == std::string_view::npos && (c == '[' || c == ']')) index = c == '[';
    if (index) continue;
    if (name == std::string_view::npos && (c == '!' || c == ':')) name = at;
    if (c == '{') ++open;
    if (c == '}' && --open == 0) return {at, std::min(name, at)};
  }
  raise_value_error(pos == format.size() ? "Single '{' encountered in format string"
                                         : "expected '}' before end of string");
}

struct Formatting {
  Interpreter& in;
  const Arguments& arguments;
  bool escapes;
  Numbering numbering = {};
};

// The text of a value, escaped where the format is Markup.
std::string formatted(Formatting& f, const Value& value, const std::string& spec) {
  Budget& budget = f.in.budget();
  if (!f.escapes) return format_spec(value, spec, budget);
  if (!is_markup(value)) return escape_html(format_spec(value, spec, budget));
  if (!spec.empty()) raise_value_error("Unsupported format specification for Markup.");
  return value.text();
}

std::string brace_format_at(Formatting& f, std::string_view format, int depth) {
  Interpreter& in = f.in;
  if (depth > 2) raise_value_error("Max string recursion exceeded");
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
      const auto [end, mark] = field_at(format, pos + 1);
      const std::string name(format.substr(pos + 1, mark - pos - 1));
      if (name.find('{') != std::string::npos) raise_value_error("unexpected '{' in field name");
      Value value = Field(in, f.arguments, f.numbering).resolve(name);
      std::string_view rest = format.substr(mark, end - mark);
      if (rest.starts_with('!')) {
        const char conversion = rest.size() > 1 ? rest[1] : '\0';
        if (conversion == 's') {
          value = Value(to_text(value, in.budget()));
        } else if (conversion == 'r' || conversion == 'a') {
          const std::string text = to_repr(value, in.budget());
          value = Value(conversion == 'a' ? ascii_only(text) : text);
        } else {
          raise_value_error("Unknown conversion specifier");
        }
        rest.remove_prefix(2);
        if (!rest.empty() && rest[0] != ':')
          raise_value_error("expected ':' after conversion specifier");
      }
      if (rest.starts_with(':')) rest.remove_prefix(1);
      const std::string spec = brace_format_at(f, rest, depth + 1);
      out += formatted(f, value, spec);
      pos = end + 1;
    }
    in.budget().charge_bytes(out.size() / 64);
  }
  return out;
}

}  // namespace

std::string brace_format(Interpreter& in, std::string_view format, const Arguments& arguments,
                         bool escapes) {
  Formatting f{in, arguments, escapes};
  std::string out = brace_format_at(f, format, 0);
  in.budget().charge_bytes(out.size());
  return out;
}

}  // namespace sluice::jinja
