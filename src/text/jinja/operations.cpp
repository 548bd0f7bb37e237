#include "text/jinja/operations.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/markup.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void unsupported(BinaryOp op, const Value& a, const Value& b) {
  raise_type_error("unsupported operand type(s) for " +
                   std::string(kSymbols[static_cast<int>(op)]) + ": '" + type_name(a) + "' and '" +
                   type_name(b) + "'");
}

Value reals(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSubtract:
      return a - b;
    case BinaryOp::kMultiply:
      return a * b;
    case BinaryOp::kDivide:
      if (b == 0) raise_python("ZeroDivisionError", "float division by zero");
      return a / b;
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo: {
      if (b == 0)
        raise_python("ZeroDivisionError",
                     op == BinaryOp::kModulo ? "float modulo" : "float floor division by zero");
      double rest = std::fmod(a, b);
      if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
      if (rest == 0) rest = std::copysign(0.0, b);
      if (op == BinaryOp::kModulo) return rest;
      const double quotient = (a - rest) / b;
      if (quotient == 0) return std::copysign(0.0, a / b);
      const double floor = std::floor(quotient);
      return quotient - floor > 0.5 ? floor + 1.0 : floor;
    }
    case BinaryOp::kPower:
      if (a == 0 && b < 0)
        raise_python("ZeroDivisionError", "0.0 cannot be raised to a negative power");
      if (a < 0 && std::floor(b) != b) raise_value_error("complex numbers are not offered");
      {
        const double result = std::pow(a, b);
        if (std::isinf(result) && !std::isinf(a) && !std::isinf(b))
          raise_python("OverflowError", "(34, 'Numerical result out of range')");
        return result;
      }
  }
  return {};
}

// A group is a tuple.
SequenceKind plain_kind(const Value& v) {
  const SequenceKind kind = v.sequence().kind;
  return kind == SequenceKind::kGroup ? SequenceKind::kTuple : kind;
}

bool repeatable(const Value& v) {
  return v.is_string() || (v.is_sequence() && (plain_kind(v) == SequenceKind::kList ||
                                               plain_kind(v) == SequenceKind::kTuple));
}

Value add(const Value& a, const Value& b, Budget& budget) {
  if (a.is_string()) {
    if (!b.is_string())
      raise_type_error("can only concatenate str (not \"" + type_name(b) + "\") to str");
    budget.charge_bytes(a.text().size() + b.text().size());
    if (!a.string().markup && !b.string().markup) return Value(a.text() + b.text());
    return Value::markup((a.string().markup ? a.text() : escape_html(a.text())) +
                         (b.string().markup ? b.text() : escape_html(b.text())));
  }
  if (!repeatable(a)) unsupported(BinaryOp::kAdd, a, b);
  if (!b.is_sequence() || plain_kind(a) != plain_kind(b))
    raise_type_error("can only concatenate " + type_name(a) + " (not \"" + type_name(b) +
                     "\") to " + type_name(a));
  budget.charge(a.items().size() + b.items().size());
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return Value::list(std::move(items), plain_kind(a));
}

Value repeat(const Value& value, Int times, Budget& budget) {
  if (times != static_cast<std::int64_t>(times))
    raise_python("OverflowError", "cannot fit 'int' into an index-sized integer");
  const std::size_t size = value.is_sequence() ? value.items().size() : value.text().size();
  if (times < 0) times = 0;
  if (size == 0) times = 0;
  const Int limit = static_cast<Int>(budget.limits().fuel) * 64;
  const Int total = times > limit ? limit : times * static_cast<Int>(size);
  const auto count = static_cast<std::size_t>(times > limit ? limit : times);
  if (value.is_sequence()) {
    budget.charge(static_cast<std::size_t>(total > limit ? limit : total) * 2);
    std::vector<Value> items;
    for (std::size_t i = 0; i < count; ++i)
      items.insert(items.end(), value.items().begin(), value.items().end());
    return Value::list(std::move(items), plain_kind(value));
  }
  budget.charge_bytes(static_cast<std::size_t>(total > limit ? limit : total));
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += value.text();
  return value.string().markup ? Value::markup(std::move(text)) : Value(std::move(text));
}

}  // namespace

Value binary(BinaryOp op, const Value& a, const Value& b, Budget& budget) {
  if (a.is_undefined()) a.fail_undefined();
  if (op == BinaryOp::kModulo && a.is_string())
    return text_like(a, percent_format(a.text(), b, budget, is_markup(a)));
  if (b.is_undefined()) b.fail_undefined();
  if (a.is_integer() && b.is_integer()) return integer_binary(op, a, b, budget);
  if (a.is_number() && b.is_number()) return reals(op, a.real(), b.real());
  if (op == BinaryOp::kAdd) return add(a, b, budget);
  if (op == BinaryOp::kMultiply) {
    if (repeatable(a) && b.is_integer()) return repeat(a, b.integer(), budget);
    if (repeatable(b) && a.is_integer()) return repeat(b, a.integer(), budget);
    if (repeatable(a))
      raise_type_error("can't multiply sequence by non-int of type '" + type_name(b) + "'");
  }
  unsupported(op, a, b);
}

Value negate(const Value& value) {
  if (value.is_undefined()) value.fail_undefined();
  if (value.is_integer())
    return value.is_big() ? Value(-value.big()) : Value(-BigInt(value.integer()));
  if (value.is(Type::kFloat)) return -value.real();
  raise_type_error("bad operand type for unary -: '" + type_name(value) + "'");
}

std::int64_t as_index(const Value& value) {
  if (!value.is_integer())
    raise_type_error("'" + type_name(value) + "' object cannot be interpreted as an integer");
  if (value.integer() != static_cast<std::int64_t>(value.integer()))
    raise_python("OverflowError", "Python int too large to convert to C ssize_t");
  const Int limit = std::numeric_limits<std::int64_t>::max() / 4;
  const Int n = value.integer();
  return static_cast<std::int64_t>(n > limit ? limit : n < -limit ? -limit : n);
}

const std::string& as_string(const Value& value, std::string_view what) {
  if (!value.is_string())
    raise_type_error(std::string(what) + " must be str, not " + type_name(value));
  return value.text();
}

namespace {

// An index of a slice: beyond the range it is the end of the range.
std::int64_t clamped_index(const Value& value) {
  const Int limit = std::numeric_limits<std::int64_t>::max() / 4;
  return static_cast<std::int64_t>(std::clamp(value.integer(), -limit, limit));
}

}  // namespace

Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step,
                Budget& budget) {
  if (object.is_undefined()) object.fail_undefined();
  const bool view = object.is_sequence() && object.sequence().kind != SequenceKind::kList &&
                    object.sequence().kind != SequenceKind::kTuple &&
                    object.sequence().kind != SequenceKind::kGroup;
  const bool sliceable =
      object.is_string() || (object.is_sequence() && !view) || object.is(Type::kRange);
  if (!sliceable) {
    if (object.is_dict()) raise_type_error("unhashable type: 'slice'");
    raise_type_error("'" + type_name(object) + "' object is not subscriptable");
  }
  for (const Value* part : {&start, &stop, &step})
    if (!part->is_none() && !part->is_integer())
      raise_type_error("slice indices must be integers or None or have an __index__ method");
  const std::int64_t by = step.is_none() ? 1 : clamped_index(step);
  if (by == 0) raise_value_error("slice step cannot be zero");
  const auto size = static_cast<std::int64_t>(length_of(object));
  const std::int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
  const auto clamp = [&](const Value& part, std::int64_t otherwise) {
    if (part.is_none()) return otherwise;
    std::int64_t i = clamped_index(part);
    if (i < 0) i += size;
    return i < low ? low : i > high ? high : i;
  };
  const std::int64_t from = clamp(start, by > 0 ? low : high),
                     to = clamp(stop, by > 0 ? high : low);
  const std::int64_t count = RangeData{from, to, by}.size();
  if (object.is_string()) {
    const StringData& data = object.string();
    std::string text;
    budget.charge_bytes(data.text.size());
    if (by == 1) {
      const std::size_t begin = data.ascii()
                                    ? static_cast<std::size_t>(from)
                                    : byte_offset(data.text, static_cast<std::size_t>(from));
      const std::string_view rest = std::string_view(data.text).substr(begin);
      if (count > 0)
        text = rest.substr(0, data.ascii() ? static_cast<std::size_t>(count)
                                           : byte_offset(rest, static_cast<std::size_t>(count)));
    } else {
      std::vector<std::size_t> offsets;
      for (std::size_t pos = 0; pos < data.text.size(); next_code_point(data.text, pos))
        offsets.push_back(pos);
      offsets.push_back(data.text.size());
      budget.charge(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(from + i * by);
        text += data.text.substr(offsets[at], offsets[at + 1] - offsets[at]);
      }
    }
    return data.markup ? Value::markup(std::move(text)) : Value(std::move(text));
  }
  budget.charge(static_cast<std::size_t>(count) + 1);
  if (object.is(Type::kRange)) {
    const RangeData& range = object.range();
    return Value::range(range.at(from), range.at(from) + count * by * range.step, range.step * by);
  }
  std::vector<Value> items;
  items.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    items.push_back(object.items()[static_cast<std::size_t>(from + i * by)]);
  return Value::list(std::move(items), object.sequence().kind == SequenceKind::kList
                                           ? SequenceKind::kList
                                           : SequenceKind::kTuple);
}

}  // namespace sluice::jinja
