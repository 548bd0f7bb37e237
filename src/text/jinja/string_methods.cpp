// The methods of Python's str.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/markup.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_coding.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja {
namespace {

constexpr std::size_t kNone = std::string::npos;

const std::string& self(Interpreter& in, Callable& c) {
  in.budget().charge_bytes(c.self().text().size());
  return c.self().text();
}

const std::string& text_argument(const Arguments& a, std::size_t at, std::string_view name,
                                 std::string_view method) {
  const Value* value = a.find(at, name);
  if (!value)
    raise_type_error(std::string(method) + "() takes at least " + std::to_string(at + 1) +
                     " argument");
  return as_string(*value, std::string(method) + "() argument");
}

template <std::string (*F)(std::string_view)>
Value mapped(Interpreter& in, Callable& c, const Arguments& a) {
  a.check(c.name(), {});
  return Value(F(self(in, c)));
}

template <bool Left, bool Right>
Value stripped(Interpreter& in, Callable& c, const Arguments& a) {
  a.check(c.name(), {"chars"});
  std::string_view chars;
  if (!a.positional.empty() && !a.positional[0].is_none()) {
    chars = as_string(a.positional[0], c.name() + " arg");
    if (chars.empty()) return c.self();
  }
  in.budget().charge(1 + chars.size());
  return Value(strip(self(in, c), chars, Left, Right));
}

std::int64_t limit_argument(const Arguments& a, std::size_t at, std::string_view name) {
  const Value* value = a.find(at, name);
  return value ? as_index(*value) : -1;
}

std::vector<Value> split_space(std::string_view text, std::int64_t limit, bool from_right) {
  std::vector<Value> parts;
  std::string_view rest = strip(text, {}, !from_right, from_right);
  while (!rest.empty()) {
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) == limit) {
      parts.emplace_back(rest);
      break;
    }
    std::size_t begin = 0, end = 0;
    if (from_right) {
      end = rest.size();
      for (begin = end; begin > 0;) {
        std::size_t start = begin - 1;
        while (start > 0 && (static_cast<unsigned char>(rest[start]) & 0xC0) == 0x80) --start;
        std::size_t at = start;
        if (is_space(next_code_point(rest, at))) break;
        begin = start;
      }
      parts.emplace_back(rest.substr(begin));
      rest = strip(rest.substr(0, begin), {}, false, true);
    } else {
      while (end < rest.size()) {
        std::size_t at = end;
        if (is_space(next_code_point(rest, at))) break;
        end = at;
      }
      parts.emplace_back(rest.substr(0, end));
      rest = strip(rest.substr(end), {}, true, false);
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool FromRight>
Value split(Interpreter& in, Callable& c, const Arguments& a) {
  a.check(c.name(), {"sep", "maxsplit"});
  std::string_view text = self(in, c);
  const Value* separator = a.find(0, "sep");
  const std::int64_t limit = limit_argument(a, 1, "maxsplit");
  std::vector<Value> parts;
  if (!separator || separator->is_none()) {
    parts = split_space(text, limit, FromRight);
  } else {
    const std::string& mark = as_string(*separator, "must be str or None");
    if (mark.empty()) raise_value_error("empty separator");
    while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
      const std::size_t at = FromRight ? text.rfind(mark) : text.find(mark);
      if (at == kNone) break;
      in.budget().charge(3);
      parts.emplace_back(FromRight ? text.substr(at + mark.size()) : text.substr(0, at));
      text = FromRight ? text.substr(0, at) : text.substr(at + mark.size());
    }
    parts.emplace_back(text);
    if (FromRight) std::reverse(parts.begin(), parts.end());
  }
  in.budget().charge(parts.size() * 3);
  return Value::list(std::move(parts));
}

Value split_lines(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("splitlines", {"keepends"});
  const Value* keep = a.find(0, "keepends");
  const std::string& text = self(in, c);
  std::vector<Value> lines;
  std::size_t begin = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t at = pos;
    const std::uint32_t code = next_code_point(text, pos);
    if (!is_line_end(code)) continue;
    if (code == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.emplace_back(text.substr(begin, (keep && truthy(*keep) ? pos : at) - begin));
    begin = pos;
    in.budget().charge(3);
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return Value::list(std::move(lines));
}

template <bool FromRight>
Value partition(Interpreter& in, Callable& c, const Arguments& a) {
  a.check(c.name(), {"sep"});
  const std::string& mark = text_argument(a, 0, "sep", c.name());
  if (mark.empty()) raise_value_error("empty separator");
  const std::string& text = self(in, c);
  const std::size_t at = FromRight ? text.rfind(mark) : text.find(mark);
  if (at == kNone)
    return FromRight ? Value::tuple({Value(""), Value(""), c.self()})
                     : Value::tuple({c.self(), Value(""), Value("")});
  return Value::tuple(
      {Value(text.substr(0, at)), Value(mark), Value(text.substr(at + mark.size()))});
}

// The part of the text that the arguments start and stop (from index `at` on) select.
struct Window {
  std::string_view text;
  std::size_t first;  // its first code point
  bool valid;         // start lies in the text
};

Window window(const StringData& data, const Arguments& a, std::size_t at) {
  if (a.positional.size() > at + 2)
    raise_type_error("at most " + std::to_string(at + 2) + " arguments expected, got " +
                     std::to_string(a.positional.size()));
  if (!a.named.empty()) raise_type_error("the method takes no keyword arguments");
  const auto size = static_cast<std::int64_t>(data.length);
  const auto bound = [&](std::size_t i, std::int64_t otherwise) {
    if (a.positional.size() <= i || a.positional[i].is_none()) return otherwise;
    const std::int64_t v = as_index(a.positional[i]);
    return std::max<std::int64_t>(0, v < 0 ? v + size : v);
  };
  const std::int64_t start = bound(at, 0), stop = std::min(bound(at + 1, size), size);
  if (start > size || stop < start) return {{}, 0, false};
  const auto from = static_cast<std::size_t>(start), to = static_cast<std::size_t>(stop);
  const std::size_t begin = data.ascii() ? from : byte_offset(data.text, from);
  const std::size_t end = data.ascii() ? to : byte_offset(data.text, to);
  return {std::string_view(data.text).substr(begin, end - begin), from, true};
}

template <bool FromRight, bool MustExist>
Value find(Interpreter& in, Callable& c, const Arguments& a) {
  const std::string& wanted = text_argument(a, 0, "sub", c.name());
  self(in, c);
  const Window w = window(c.self().string(), a, 1);
  const std::size_t at = !w.valid ? kNone : FromRight ? w.text.rfind(wanted) : w.text.find(wanted);
  if (at != kNone) return w.first + count_code_points(w.text.substr(0, at));
  if (MustExist) raise_value_error("substring not found");
  return -1;
}

Value count(Interpreter& in, Callable& c, const Arguments& a) {
  const std::string& wanted = text_argument(a, 0, "sub", "count");
  self(in, c);
  const Window w = window(c.self().string(), a, 1);
  if (!w.valid) return 0;
  if (wanted.empty()) return count_code_points(w.text) + 1;
  int n = 0;
  for (std::size_t at = 0; (at = w.text.find(wanted, at)) != kNone; at += wanted.size()) ++n;
  return n;
}

template <bool AtEnd>
Value starts_or_ends(Interpreter& in, Callable& c, const Arguments& a) {
  if (a.positional.empty()) raise_type_error(c.name() + "() takes at least 1 argument (0 given)");
  const Value& wanted = a.positional[0];
  if (wanted.is_undefined()) wanted.fail_undefined();
  const bool many = wanted.is_sequence() && wanted.sequence().kind == SequenceKind::kTuple;
  if (!wanted.is_string() && !many)
    raise_type_error(c.name() + " first arg must be str or a tuple of str, not " +
                     type_name(wanted));
  const Window w = window(c.self().string(), a, 1);
  if (!w.valid) return false;
  const auto fits = [&](const Value& v) {
    const std::string& part = as_string(v, "tuple for " + c.name() + " must only contain str");
    in.budget().charge_bytes(part.size());
    return AtEnd ? w.text.ends_with(part) : w.text.starts_with(part);
  };
  if (!many) return fits(wanted);
  return std::any_of(wanted.items().begin(), wanted.items().end(), fits);
}

Value replace(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("replace", {"old", "new", "count"});
  const std::string& old = text_argument(a, 0, "old", "replace");
  const std::string& with = text_argument(a, 1, "new", "replace");
  return Value(replace_text(self(in, c), old, with, limit_argument(a, 2, "count"), in.budget()));
}

Value join(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("join", {"iterable"});
  if (a.positional.empty()) raise_type_error("join() takes exactly one argument (0 given)");
  std::string out;
  std::size_t index = 0;
  if (!is_iterable(a.positional[0])) raise_type_error("can only join an iterable");
  for (const Value& item : iterate(a.positional[0], in.budget())) {
    if (!item.is_string())
      raise_type_error("sequence item " + std::to_string(index) + ": expected str instance, " +
                       type_name(item) + " found");
    if (index++ > 0) out += c.self().text();
    out += item.text();
    in.budget().charge_bytes(item.text().size() + c.self().text().size());
  }
  return Value(std::move(out));
}

Value format(Interpreter& in, Callable& c, const Arguments& a) {
  return Value(brace_format(in, c.self().text(), a, is_markup(c.self())));
}

Value format_map(Interpreter& in, Callable& c, const Arguments& a) {
  Arguments named;
  if (a.positional.size() != 1 || !a.positional[0].is_dict())
    raise_type_error("format_map() takes a mapping");
  for (const auto& [key, value] : a.positional[0].dict().entries)
    if (key.is_string()) named.named.emplace_back(key.text(), value);
  return Value(brace_format(in, c.self().text(), named, is_markup(c.self())));
}

// Pads to a width; `left` of `total` missing code points go before the text.
template <int Side>
Value justify(Interpreter& in, Callable& c, const Arguments& a) {
  a.check(c.name(), {"width", "fillchar"});
  if (a.positional.empty()) raise_type_error(c.name() + " expected at least 1 argument, got 0");
  const std::string fill =
      a.positional.size() > 1 ? as_string(a.positional[1], "fill character") : " ";
  if (count_code_points(fill) != 1)
    raise_type_error("The fill character must be exactly one character long");
  const std::int64_t width = as_index(a.positional[0]),
                     length = static_cast<std::int64_t>(c.self().string().length);
  const std::int64_t missing = std::max<std::int64_t>(0, width - length);
  in.budget().charge_bytes(static_cast<std::size_t>(missing) * fill.size());
  const std::int64_t left = Side < 0 ? 0 : Side > 0 ? missing : missing / 2 + (missing & width & 1);
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += self(in, c);
  for (std::int64_t i = left; i < missing; ++i) out += fill;
  return Value(std::move(out));
}

Value zero_fill(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("zfill", {"width"});
  if (a.positional.empty()) raise_type_error("zfill() takes exactly one argument (0 given)");
  std::string text = self(in, c);
  const std::int64_t missing =
      as_index(a.positional[0]) - static_cast<std::int64_t>(c.self().string().length);
  if (missing <= 0) return c.self();
  in.budget().charge_bytes(static_cast<std::size_t>(missing));
  const std::size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return Value(text.insert(sign, static_cast<std::size_t>(missing), '0'));
}

Value remove_prefix(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("removeprefix", {"prefix"});
  const std::string& part = text_argument(a, 0, "prefix", "removeprefix");
  const std::string& text = self(in, c);
  return text.starts_with(part) ? Value(text.substr(part.size())) : c.self();
}

Value remove_suffix(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("removesuffix", {"suffix"});
  const std::string& part = text_argument(a, 0, "suffix", "removesuffix");
  const std::string& text = self(in, c);
  return text.ends_with(part) ? Value(text.substr(0, text.size() - part.size())) : c.self();
}

Value expand_tabs(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("expandtabs", {"tabsize"});
  const Value* given = a.find(0, "tabsize");
  const std::int64_t size = given ? as_index(*given) : 8;
  const std::string& text = self(in, c);
  std::string out;
  std::int64_t column = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t begin = pos;
    const std::uint32_t code = next_code_point(text, pos);
    if (code == '\t') {
      if (size <= 0) continue;
      const std::int64_t spaces = size - column % size;
      in.budget().charge_bytes(static_cast<std::size_t>(spaces));
      out.append(static_cast<std::size_t>(spaces), ' ');
      column += spaces;
    } else {
      out += text.substr(begin, pos - begin);
      column = code == '\n' || code == '\r' ? 0 : column + 1;
    }
  }
  return Value(std::move(out));
}

template <bool (*F)(std::uint32_t)>
Value all_of(Interpreter& in, Callable& c, const Arguments& a) {
  a.check(c.name(), {});
  const std::string& text = self(in, c);
  for (std::size_t pos = 0; pos < text.size();)
    if (!F(next_code_point(text, pos))) return false;
  return !text.empty();
}

bool is_alnum(std::uint32_t code) {
  return is_alpha(code) || is_numeric(code);
}
bool is_ascii(std::uint32_t code) {
  return code < 128;
}

// All cased letters have the given case, and there is at least one.
template <bool Upper>
Value is_case(Interpreter& in, Callable& c, const Arguments& a) {
  a.check(c.name(), {});
  return has_case(self(in, c), Upper);
}

template <bool (*F)(std::uint32_t)>
Value all_or_empty(Interpreter& in, Callable& c, const Arguments& a) {
  return c.self().text().empty() ? Value(true) : all_of<F>(in, c, a);
}

Value is_title_case(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("istitle", {});
  const std::string& text = self(in, c);
  return has_case(to_upper(text), true) && to_title(text) == text;
}

Value is_identifier(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("isidentifier", {});
  const std::string& text = self(in, c);
  for (std::size_t pos = 0; pos < text.size();) {
    const bool first = pos == 0;
    const std::uint32_t code = next_code_point(text, pos);
    if (!(first ? is_name_start(code) : is_name_part(code))) return false;
  }
  return !text.empty();
}

struct Row {
  std::string_view name;
  Callable::Function function;
};

constexpr Row kRows[] = {{"strip", stripped<true, true>},
                         {"lstrip", stripped<true, false>},
                         {"rstrip", stripped<false, true>},
                         {"split", split<false>},
                         {"rsplit", split<true>},
                         {"splitlines", split_lines},
                         {"partition", partition<false>},
                         {"rpartition", partition<true>},
                         {"startswith", starts_or_ends<false>},
                         {"endswith", starts_or_ends<true>},
                         {"find", find<false, false>},
                         {"rfind", find<true, false>},
                         {"index", find<false, true>},
                         {"rindex", find<true, true>},
                         {"count", count},
                         {"replace", replace},
                         {"join", join},
                         {"format", format},
                         {"format_map", format_map},
                         {"upper", mapped<to_upper>},
                         {"lower", mapped<to_lower>},
                         {"title", mapped<to_title>},
                         {"capitalize", mapped<capitalize>},
                         {"swapcase", mapped<swap_case>},
                         {"casefold", mapped<fold_case>},
                         {"ljust", justify<-1>},
                         {"rjust", justify<1>},
                         {"center", justify<0>},
                         {"zfill", zero_fill},
                         {"removeprefix", remove_prefix},
                         {"removesuffix", remove_suffix},
                         {"expandtabs", expand_tabs},
                         {"encode", encode_text},
                         {"translate", translate},
                         {"maketrans", make_translation},
                         {"isdigit", all_of<is_digit>},
                         {"isdecimal", all_of<is_decimal>},
                         {"isnumeric", all_of<is_numeric>},
                         {"isalpha", all_of<is_alpha>},
                         {"isalnum", all_of<is_alnum>},
                         {"isspace", all_of<is_space>},
                         {"isupper", is_case<true>},
                         {"islower", is_case<false>},
                         {"istitle", is_title_case},
                         {"isprintable", all_or_empty<is_printable>},
                         {"isascii", all_or_empty<is_ascii>},
                         {"isidentifier", is_identifier}};

}  // namespace

bool has_case(std::string_view text, bool upper) {
  bool any = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::uint32_t code = next_code_point(text, pos);
    if (is_title(code) || (upper ? is_lower(code) : is_upper(code))) return false;
    any |= upper ? is_upper(code) : is_lower(code);
  }
  return any;
}

std::string replace_text(std::string_view text, std::string_view old, std::string_view with,
                         std::int64_t limit, Budget& budget) {
  std::string out;
  std::size_t pos = 0;
  if (old.empty()) {
    for (std::int64_t done = 0; limit < 0 || done < limit; ++done) {
      out += with;
      budget.charge_bytes(with.size());
      if (pos >= text.size()) return out;
      const std::size_t begin = pos;
      next_code_point(text, pos);
      out += text.substr(begin, pos - begin);
    }
    return out += text.substr(pos);
  }
  for (std::int64_t done = 0; limit < 0 || done < limit; ++done) {
    const std::size_t at = text.find(old, pos);
    if (at == kNone) break;
    budget.charge_bytes(at - pos + with.size());
    out += text.substr(pos, at - pos);
    out += with;
    pos = at + old.size();
  }
  return out += text.substr(pos);
}

Callable::Function find_string_method(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.function;
  return nullptr;
}

}  // namespace sluice::jinja
