// Attributes and methods of int, bool and float.
#include "text/jinja/number_methods.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"

namespace sluice::jinja {
namespace {

Value as_int(const Value& value) {
  return value.is_big() ? value : Value(value.integer());
}

Value conjugate(Interpreter&, Callable& c, const Arguments& a) {
  a.check("conjugate", {});
  return c.self().is_integer() ? as_int(c.self()) : c.self();
}

Value bit_length(Interpreter&, Callable& c, const Arguments& a) {
  a.check("bit_length", {});
  return c.self().big().bits();
}

Value bit_count(Interpreter&, Callable& c, const Arguments& a) {
  a.check("bit_count", {});
  const std::string bits = magnitude_text(c.self(), 2, false);
  std::size_t count = 0;
  for (const char bit : bits) count += bit == '1';
  return count;
}

Value is_integer(Interpreter&, Callable& c, const Arguments& a) {
  a.check("is_integer", {});
  const double value = c.self().real();
  return std::isfinite(value) && std::floor(value) == value;
}

Value as_integer_ratio(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("as_integer_ratio", {});
  if (c.self().is_integer()) return Value::tuple({as_int(c.self()), Value(1)});
  const double value = c.self().real();
  if (std::isnan(value)) raise_value_error("cannot convert NaN to integer ratio");
  if (std::isinf(value)) raise_python("OverflowError", "cannot convert Infinity to integer ratio");
  int exponent = 0;
  double fraction = std::frexp(value, &exponent);
  while (fraction != std::floor(fraction)) {
    fraction *= 2;
    --exponent;
  }
  const Value whole(BigInt::from_real(fraction));
  const Value power = binary(BinaryOp::kPower, Value(2), Value(std::abs(exponent)), in.budget());
  if (exponent < 0) return Value::tuple({whole, power});
  return Value::tuple({binary(BinaryOp::kMultiply, whole, power, in.budget()), Value(1)});
}

Value hex(Interpreter&, Callable& c, const Arguments& a) {
  a.check("hex", {});
  const double value = c.self().real();
  if (!std::isfinite(value)) return Value(format_float(value));
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  const int raw = static_cast<int>(bits >> 52 & 0x7FF);
  std::string out = bits >> 63 ? "-0x" : "0x";
  if (value == 0) return Value(out + "0.0p+0");
  out += raw == 0 ? "0." : "1.";
  for (int shift = 48; shift >= 0; shift -= 4) out += "0123456789abcdef"[mantissa >> shift & 15];
  const int exponent = raw == 0 ? -1022 : raw - 1023;
  return Value(out + (exponent < 0 ? "p-" : "p+") + std::to_string(std::abs(exponent)));
}

Value to_bytes(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("to_bytes", {"length", "byteorder", "signed"});
  const Value *length = a.find(0, "length"), *order = a.find(1, "byteorder");
  const std::int64_t size = length ? as_index(*length) : 1;
  const std::string byteorder = order ? as_string(*order, "byteorder") : "big";
  if (byteorder != "big" && byteorder != "little")
    raise_value_error("byteorder must be either 'little' or 'big'");
  if (size < 0) raise_value_error("length argument must be non-negative");
  if (a.positional.size() > 2) raise_type_error("to_bytes() takes at most 2 positional arguments");
  const bool is_signed = a.find(2, "signed") && truthy(*a.find(2, "signed"));
  const bool negative = c.self().integer() < 0;
  if (negative && !is_signed)
    raise_python("OverflowError", "can't convert negative int to unsigned");
  in.budget().charge_bytes(static_cast<std::size_t>(size));
  BigInt value = c.self().big();
  if (negative) value = value + BigInt(Int{1}).shifted_left(static_cast<std::size_t>(size) * 8);
  const std::size_t limit = static_cast<std::size_t>(size) * 8 - (is_signed && !negative ? 1 : 0);
  if (value.is_negative() || (size > 0 ? value.bits() > limit : !value.is_zero()))
    raise_python("OverflowError", "int too big to convert");
  std::string digits = value.is_zero() ? "" : value.text(16);
  digits.insert(0, static_cast<std::size_t>(size) * 2 - digits.size(), '0');
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return Value::bytes(byteorder == "big" ? bytes : std::string(bytes.rbegin(), bytes.rend()));
}

struct Row {
  std::string_view name;
  Callable::Function function;
};

constexpr Row kIntMethods[] = {{"conjugate", conjugate},
                               {"bit_length", bit_length},
                               {"bit_count", bit_count},
                               {"as_integer_ratio", as_integer_ratio},
                               {"to_bytes", to_bytes}};
constexpr Row kFloatMethods[] = {{"conjugate", conjugate},
                                 {"is_integer", is_integer},
                                 {"as_integer_ratio", as_integer_ratio},
                                 {"hex", hex}};

}  // namespace

std::optional<Value> number_property(const Value& number, std::string_view name) {
  const bool integer = number.is_integer();
  if (name == "real") return integer ? as_int(number) : number;
  if (name == "imag") return integer ? Value(0) : Value(0.0);
  if (integer && name == "numerator") return as_int(number);
  if (integer && name == "denominator") return Value(1);
  return std::nullopt;
}

Callable::Function find_number_method(const Value& number, std::string_view name) {
  if (number.is_integer()) {
    for (const Row& row : kIntMethods)
      if (row.name == name) return row.function;
    return nullptr;
  }
  for (const Row& row : kFloatMethods)
    if (row.name == name) return row.function;
  return nullptr;
}

}  // namespace sluice::jinja
