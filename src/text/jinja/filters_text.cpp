// Filters of text and numbers (jinja2/filters.py; tojson as transformers replaces it).
#include "text/jinja/filters_text.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/markup.h"
#include "text/jinja/operations.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja::filters {
namespace {

std::string soft_text(Interpreter& in, const Value& value) {
  return to_text(value, in.budget());
}

bool flag(const Value* value, bool otherwise) {
  return value ? truthy(*value) : otherwise;
}

// Filters built on methods of str fail on other values; an undefined value counts as empty text.
void need_text(const Value& value) {
  if (value.is_string() || value.is_undefined()) return;
  if (value.is_sequence() && value.sequence().kind == SequenceKind::kList)
    raise_python("AttributeError", "'list' object has no attribute 'splitlines'");
  raise_type_error("can only concatenate str to str, not \"" + type_name(value) + "\"");
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t at = pos;
    const std::uint32_t code = next_code_point(text, pos);
    if (!is_line_end(code)) continue;
    if (code == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.emplace_back(text.substr(begin, at - begin));
    begin = pos;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string_view first_code_points(std::string_view text, std::int64_t count) {
  return text.substr(0,
                     byte_offset(text, static_cast<std::size_t>(std::max<std::int64_t>(0, count))));
}

}  // namespace

Value upper(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_upper", {});
  return text_like(v, to_upper(soft_text(in, v)));
}
Value lower(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_lower", {});
  return text_like(v, to_lower(soft_text(in, v)));
}
Value capitalize(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_capitalize", {});
  return text_like(v, jinja::capitalize(soft_text(in, v)));
}

// A word begins after space, - ( { [ <, unlike in str.title.
Value title(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_title", {});
  const std::string text = soft_text(in, v);
  std::string out;
  std::size_t begin = 0;
  const auto word = [&](std::size_t end) {
    if (begin == end) return;
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    std::size_t first = 0;
    next_code_point(part, first);
    out += to_upper(part.substr(0, first)) + to_lower(part.substr(first));
  };
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t at = pos;
    const std::uint32_t code = next_code_point(text, pos);
    const bool boundary =
        is_space(code) || (code < 128 && std::string_view("-({[<").find(static_cast<char>(code)) !=
                                             std::string_view::npos);
    if (!boundary) continue;
    word(at);
    out += text.substr(at, pos - at);
    begin = pos;
  }
  word(text.size());
  return Value(std::move(out));
}

Value trim(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_trim", {"chars"});
  const Value* chars = a.find(0, "chars");
  const std::string text = soft_text(in, v);
  if (!chars || chars->is_none()) return text_like(v, std::string(strip(text)));
  const std::string& set = as_string(*chars, "strip arg");
  return text_like(v, set.empty() ? text : std::string(strip(text, set, true, true)));
}

Value center(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_center", {"width"});
  const Value* width = a.find(0, "width");
  Callable method("center", find_string_method("center"), Value(soft_text(in, v)));
  Arguments args;
  args.positional.push_back(width ? *width : Value(80));
  return text_like(v, method.call(in, args).text());
}

Value replace(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_replace", {"old", "new", "count"});
  const Value *old = a.find(0, "old"), *with = a.find(1, "new"), *count = a.find(2, "count");
  if (!old || !with)
    raise_type_error("do_replace() missing 2 required positional arguments: 'old' and 'new'");
  const std::int64_t limit = count && !count->is_none() ? as_index(*count) : -1;
  std::string text = soft_text(in, v), replacement = soft_text(in, *with);
  const bool escapes = in.autoescape() && (is_markup(v) || is_markup(*old) || is_markup(*with));
  if (escapes) {
    text = escaped_text(v, in.budget());
    replacement = escaped_text(*with, in.budget());
  }
  text = replace_text(text, soft_text(in, *old), replacement, limit, in.budget());
  return escapes ? Value::markup(std::move(text)) : Value(std::move(text));
}

Value indent(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_indent", {"width", "first", "blank"});
  const Value* width = a.find(0, "width");
  const bool first = flag(a.find(1, "first"), false), blank = flag(a.find(2, "blank"), false);
  if (v.is_undefined()) v.fail_undefined();
  need_text(v);
  std::string prefix = "    ";
  if (width && width->is_string()) {
    prefix = width->text();
  } else if (width) {
    const std::int64_t spaces = std::max<std::int64_t>(0, as_index(*width));
    in.budget().charge_bytes(static_cast<std::size_t>(spaces));
    prefix.assign(static_cast<std::size_t>(spaces), ' ');
  }
  // A final newline starts a last, empty line.
  const std::vector<std::string> lines = lines_of(soft_text(in, v) + "\n");
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    const bool indented = i == 0 ? first : blank || !lines[i].empty();
    if (indented) out += prefix;
    out += lines[i];
    in.budget().charge_bytes(prefix.size() + lines[i].size());
  }
  return text_like(v, std::move(out));
}

Value truncate(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_truncate", {"length", "killwords", "end", "leeway"});
  const Value *l = a.find(0, "length"), *e = a.find(2, "end"), *w = a.find(3, "leeway");
  const std::int64_t length = l ? as_index(*l) : 255,
                     leeway = w && !w->is_none() ? as_index(*w) : 5;
  const std::string text = soft_text(in, v), end = e ? as_string(*e, "end") : "...";
  const auto end_length = static_cast<std::int64_t>(count_code_points(end));
  if (length < end_length)
    raise_python("AssertionError", "expected length >= " + std::to_string(end_length) + ", got " +
                                       std::to_string(length));
  if (leeway < 0)
    raise_python("AssertionError", "expected leeway >= 0, got " + std::to_string(leeway));
  if (static_cast<std::int64_t>(length_of(v)) <= length + leeway) return v;
  if (!v.is_string()) raise_type_error("'" + type_name(v) + "' object is no text");
  std::string cut(first_code_points(text, length - end_length));
  if (!flag(a.find(1, "killwords"), false)) {
    const std::size_t space = cut.rfind(' ');
    if (space != std::string::npos) cut.resize(space);
  }
  return text_like(v, cut + (is_markup(v) && e ? escaped_text(*e, in.budget()) : end));
}

Value wordcount(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_wordcount", {});
  const std::string text = soft_text(in, v);
  int words = 0;
  bool inside = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::uint32_t code = next_code_point(text, pos);
    const bool letter = code == '_' || is_alpha(code) || is_numeric(code);
    words += letter && !inside;
    inside = letter;
  }
  return words;
}

Value string(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("soft_str", {});
  return v.is_string() ? v : Value(soft_text(in, v));
}

Value format(Interpreter& in, const Value& v, const Arguments& a) {
  if (!a.positional.empty() && !a.named.empty())
    raise_python("FilterArgumentError",
                 "can't handle positional and keyword arguments at the same time");
  DictData named;
  for (const auto& [key, value] : a.named) named.set(Value(key), value, in.budget());
  const Value arguments =
      a.named.empty() ? Value::tuple(a.positional) : Value::dict(std::move(named));
  return text_like(v, percent_format(soft_text(in, v), arguments, in.budget(), is_markup(v)));
}

Value filesizeformat(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_filesizeformat", {"binary"});
  const bool binary_units = flag(a.find(0, "binary"), false);
  const auto parsed = v.is_string() ? parse_float(v.text()) : std::nullopt;
  if (v.is_undefined()) v.fail_undefined();
  if (v.is_string() && !parsed)
    raise_value_error("could not convert string to float: " + to_repr(v, in.budget()));
  if (!v.is_number() && !parsed)
    raise_type_error("float() argument must be a string or a real number, not '" + type_name(v) +
                     "'");
  const double bytes = v.is_number() ? v.real() : *parsed, base = binary_units ? 1024 : 1000;
  if (bytes == 1) return Value("1 Byte");
  if (bytes < base) return Value(integer_text(truncate_to_int(bytes)) + " Bytes");
  static constexpr std::string_view kUnits = "kMGTPEZY";
  double unit = base * base;
  std::size_t i = 0;
  for (; i + 1 < kUnits.size() && bytes >= unit; ++i) unit *= base;
  const char letter = binary_units && i == 0 ? 'K' : kUnits[i];
  return Value(format_real(base * bytes / unit, 'f', 1) + " " + letter +
               (binary_units ? "iB" : "B"));
}

Value tojson(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = flag(a.find(0, "ensure_ascii"), false);
  style.sort_keys = flag(a.find(3, "sort_keys"), false);
  const Value* indent = a.find(1, "indent");
  if (indent && indent->is_string()) {
    style.indent = indent->text();
  } else if (indent && !indent->is_none() && !v.is_string()) {
    const std::int64_t spaces = std::max<std::int64_t>(0, as_index(*indent));
    in.budget().charge_bytes(static_cast<std::size_t>(spaces));
    style.indent = std::string(static_cast<std::size_t>(spaces), ' ');
  }
  if (style.indent) style.item_separator = ",";
  const Value* separators = a.find(2, "separators");
  if (separators && !separators->is_none()) {
    const std::vector<Value> both = iterate(*separators, in.budget());
    if (both.size() != 2) raise_value_error("separators must be a pair");
    if (!v.is_string()) {  // json.dumps of a text looks at neither
      style.item_separator = as_string(both[0], "separator");
      style.key_separator = as_string(both[1], "separator");
    }
  }
  return Value(to_json(v, style, in.budget()));
}

Value abs(Interpreter&, const Value& v, const Arguments& a) {
  a.check("abs", {});
  if (v.is_integer() && v.integer() < 0) return negate(v);
  if (v.is_integer()) return v.is_big() ? v : Value(v.integer());
  if (!v.is_number()) raise_type_error("bad operand type for abs(): '" + type_name(v) + "'");
  return std::fabs(v.real());
}

Value to_int(Interpreter&, const Value& v, const Arguments& a) {
  a.check("do_int", {"default", "base"});
  const Value *otherwise = a.find(0, "default"), *base = a.find(1, "base");
  const Value fallback = otherwise ? *otherwise : Value(0);
  if (v.is_undefined()) v.fail_undefined();
  if (v.is_integer()) return v.is_big() ? v : Value(v.integer());
  if (v.is(Type::kFloat)) {
    if (std::isnan(v.real())) return fallback;
    return truncate_to_int(v.real());
  }
  if (!v.is_string()) return fallback;
  if (const auto whole = parse_int(v.text(), base ? static_cast<int>(as_index(*base)) : 10))
    return *whole;
  const auto real = parse_float(v.text());
  if (!real || std::isnan(*real)) return fallback;
  if (std::isinf(*real)) return fallback;
  return truncate_to_int(*real);
}

Value to_float(Interpreter&, const Value& v, const Arguments& a) {
  a.check("do_float", {"default"});
  const Value* otherwise = a.find(0, "default");
  if (v.is_undefined()) v.fail_undefined();
  if (v.is_number()) return v.real();
  const auto real = v.is_string() ? parse_float(v.text()) : std::nullopt;
  return real ? Value(*real) : otherwise ? *otherwise : Value(0.0);
}

Value round(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_round", {"precision", "method"});
  const Value *p = a.find(0, "precision"), *m = a.find(1, "method");
  const bool whole = p && p->is_none();  // round(x, none) is an integer
  const std::int64_t precision =
      p && !whole ? std::clamp<std::int64_t>(as_index(*p), -300, 300) : 0;
  const std::string method = !m ? "common" : m->is_string() ? m->text() : "";
  if (method != "common" && method != "ceil" && method != "floor")
    raise_python("FilterArgumentError", "method must be common, ceil or floor");
  if (v.is_undefined() && method != "common") v.fail_undefined();
  if (!v.is_number()) raise_type_error("type " + type_name(v) + " doesn't define __round__ method");
  if (method != "common" && whole)
    raise_type_error("unsupported operand type(s) for ** or pow(): 'int' and 'NoneType'");
  if (method != "common") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = v.real() * scale;
    // Python's ceil and floor are integers: there is no -0.0.
    return (truncate_to_int(method == "ceil" ? std::ceil(scaled) : std::floor(scaled)).real()) /
           scale;
  }
  if (v.is_integer() && precision >= 0) return v.is_big() ? v : Value(v.integer());
  if (v.is_integer()) return round_integer(v, -precision, in.budget());
  const double number = v.real();
  double rounded = number;
  if (precision >= 0) {
    rounded =
        std::isfinite(number)
            ? parse_float(format_real(number, 'f', static_cast<int>(precision))).value_or(number)
            : number;
  } else {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    rounded = std::nearbyint(number / scale) * scale;
  }
  return whole ? truncate_to_int(rounded) : Value(rounded);
}

}  // namespace sluice::jinja::filters
