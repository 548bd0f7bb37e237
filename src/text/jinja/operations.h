// Operators, subscripts and formatting with Python's results and messages.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/values/callable.h"
#include "text/jinja/values/value.h"

namespace sluice::jinja {

Value binary(BinaryOp op, const Value& a, const Value& b, Budget& budget);
// The same for two integers (integers.cpp).
Value integer_binary(BinaryOp op, const Value& a, const Value& b, Budget& budget);
Value negate(const Value& value);

// obj.name and obj[index] as in Jinja's sandbox: each falls back to the other form, and a missing
// value is undefined.
Value get_attribute(Interpreter& interpreter, const Value& object, const std::string& name);
Value get_item(Interpreter& interpreter, const Value& object, const Value& index);
// obj[start:stop:step]; omitted parts are None.
Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step,
                Budget& budget);

// A method or property of a value's own type; nothing if the type has none of that name.
std::optional<Value> own_attribute(Interpreter& interpreter, const Value& object,
                                   std::string_view name);
Callable::Function find_string_method(std::string_view name);

// 'format' % arguments, 'format'.format(arguments), and a number or text in str.format's
// mini-language. `escapes`: the format is Markup, so that values are escaped.
std::string percent_format(std::string_view format, const Value& arguments, Budget& budget,
                           bool escapes = false);
std::string brace_format(Interpreter& interpreter, std::string_view format,
                         const Arguments& arguments, bool escapes = false);
std::string format_spec(const Value& value, std::string_view spec, Budget& budget);
// A double with C's conversion `kind` (e, f, g) and precision.
std::string format_real(double value, char kind, int precision, bool alternate = false);

// json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

// Reads int(text, base) and float(text); nothing when the text is no number.
std::optional<Value> parse_int(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);
// The digits of an integer without its sign.
std::string magnitude_text(const Value& value, int base, bool upper);
// round(value, -digits) of an integer.
Value round_integer(const Value& value, std::int64_t digits, Budget& budget);
// int(x) of a float; raises for NaN and infinities.
Value truncate_to_int(double value);
// An argument that must be an integer.
std::int64_t as_index(const Value& value);
const std::string& as_string(const Value& value, std::string_view what);

// str.replace; a negative limit means no limit.
std::string replace_text(std::string_view text, std::string_view old, std::string_view with,
                         std::int64_t limit, Budget& budget);
// str.isupper, str.islower.
bool has_case(std::string_view text, bool upper);

}  // namespace sluice::jinja
