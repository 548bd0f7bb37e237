// Equality, order, membership and hashes of values, by Python's rules.
#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "base/hash.h"
#include "text/jinja/values/value.h"

namespace sluice::jinja {
namespace {

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!equal(a[i], b[i], budget)) return false;
  return true;
}

bool is_tuple(const Value& v) {
  return v.sequence().kind == SequenceKind::kTuple || v.sequence().kind == SequenceKind::kGroup;
}

template <class T>
bool holds(const T& a, const T& b, Order order) {
  switch (order) {
    case Order::kLess:
      return a < b;
    case Order::kLessEqual:
      return a <= b;
    case Order::kGreater:
      return a > b;
    case Order::kGreaterEqual:
      return a >= b;
  }
  return false;
}

const char* symbol(Order order) {
  switch (order) {
    case Order::kLess:
      return "<";
    case Order::kLessEqual:
      return "<=";
    case Order::kGreater:
      return ">";
    case Order::kGreaterEqual:
      return ">=";
  }
  return "";
}

// The sign of an integer minus a finite double.
int compare_exactly(const Value& integer, double real) {
  if (!integer.is_big() && std::fabs(real) < 9e15) {  // both are exact as doubles, or far apart
    const Int whole = integer.integer();
    const auto floor = static_cast<Int>(std::floor(real));
    if (whole != floor) return whole < floor ? -1 : 1;
    return real == std::floor(real) ? 0 : -1;
  }
  return BigInt::compare(integer.big(), BigInt::from_real(real));
}

// The sign of a - b; nothing if one is NaN.
std::optional<int> compare_numbers(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) {
    if (a.is_big() || b.is_big()) return BigInt::compare(a.big(), b.big());
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer() ? 1 : 0;
  }
  if (a.is(Type::kFloat) && b.is(Type::kFloat)) {
    if (std::isnan(a.real()) || std::isnan(b.real())) return std::nullopt;
    return a.real() < b.real() ? -1 : a.real() > b.real() ? 1 : 0;
  }
  const bool swapped = a.is(Type::kFloat);
  const double real = swapped ? a.real() : b.real();
  if (std::isnan(real)) return std::nullopt;
  const int sign = std::isinf(real) ? (real > 0 ? -1 : 1) : compare_exactly(swapped ? b : a, real);
  return swapped ? -sign : sign;
}

}  // namespace

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.charge();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return true;
    case Type::kString:
    case Type::kBytes:
      if (a.text().size() != b.text().size()) return false;
      budget.charge_bytes(a.text().size());
      return a.text() == b.text();
    case Type::kSequence:
      if (a.identity() == b.identity()) return true;
      if (is_tuple(a) != is_tuple(b)) return false;
      return equal_items(a.items(), b.items(), budget);
    case Type::kDict: {
      if (a.identity() == b.identity()) return true;
      if (a.dict().entries.size() != b.dict().entries.size()) return false;
      for (const auto& [key, value] : a.dict().entries) {
        const Value* other = b.dict().find(key, budget);
        if (!other || !equal(value, *other, budget)) return false;
      }
      return true;
    }
    case Type::kRange: {
      const RangeData &x = a.range(), &y = b.range();
      if (x.size() != y.size()) return false;
      return x.size() == 0 || (x.start == y.start && (x.size() == 1 || x.step == y.step));
    }
    default:
      return a.identity() == b.identity();
  }
}

bool ordered(const Value& a, const Value& b, Order order, Budget& budget) {
  budget.charge();
  if (a.is_undefined()) a.fail_undefined();
  if (b.is_undefined()) b.fail_undefined();
  if (a.is_number() && b.is_number()) {
    const auto sign = compare_numbers(a, b);
    return sign && holds(*sign, 0, order);
  }
  if (a.type() == b.type() && (a.is_string() || a.is(Type::kBytes))) {
    budget.charge_bytes(std::min(a.text().size(), b.text().size()));
    return holds(a.text(), b.text(), order);  // UTF-8 sorts in the order of its code points
  }
  if (a.is_sequence() && b.is_sequence() && is_tuple(a) == is_tuple(b) &&
      (is_tuple(a) || a.sequence().kind == b.sequence().kind)) {
    const std::size_t common = std::min(a.items().size(), b.items().size());
    for (std::size_t i = 0; i < common; ++i)
      if (!equal(a.items()[i], b.items()[i], budget))
        return ordered(a.items()[i], b.items()[i], order, budget);
    return holds(a.items().size(), b.items().size(), order);
  }
  raise_type_error(std::string("'") + symbol(order) + "' not supported between instances of '" +
                   type_name(a) + "' and '" + type_name(b) + "'");
}

std::uint64_t hash_value(const Value& value, Budget& budget) {
  budget.charge();
  switch (value.type()) {
    case Type::kUndefined:
      return 1;
    case Type::kNone:
      return 2;
    case Type::kBool:
    case Type::kInt:
      // An integer beyond 60 bits that equals a double has the double's hash.
      if (!value.is_big() && value.integer() == static_cast<std::int64_t>(value.integer()) &&
          std::fabs(static_cast<double>(value.integer())) < 1e18)
        return mix64(static_cast<std::uint64_t>(value.integer()));
      return mix64(std::bit_cast<std::uint64_t>(value.big().real()));
    case Type::kFloat: {
      const double real = value.real();
      if (std::floor(real) == real && std::fabs(real) < 1e18)
        return mix64(static_cast<std::uint64_t>(static_cast<std::int64_t>(real)));
      return mix64(std::bit_cast<std::uint64_t>(real));
    }
    case Type::kString:
    case Type::kBytes:
      budget.charge_bytes(value.text().size());
      return hash_bytes(value.text(), 3);
    case Type::kSequence:
      if (is_tuple(value)) {
        std::uint64_t hash = 4;
        for (const Value& item : value.items()) hash = hash_combine(hash, hash_value(item, budget));
        return hash;
      }
      [[fallthrough]];
    case Type::kDict:
      raise_type_error("unhashable type: '" + type_name(value) + "'");
    case Type::kRange:
      return hash_combine(5, static_cast<std::uint64_t>(value.range().size()));
    default:
      return mix64(reinterpret_cast<std::uintptr_t>(value.identity()));
  }
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  switch (container.type()) {
    case Type::kString:
      if (item.is_undefined())
        raise_type_error("'in <string>' requires string as left operand, not Undefined");
      if (!item.is_string())
        raise_type_error("'in <string>' requires string as left operand, not " + type_name(item));
      budget.charge_bytes(container.text().size());
      return container.text().find(item.text()) != std::string::npos;
    case Type::kDict:
      return container.dict().find(item, budget) != nullptr;
    case Type::kSequence:
      for (const Value& candidate : container.items())
        if (equal(candidate, item, budget)) return true;
      return false;
    case Type::kRange: {
      const RangeData& range = container.range();
      if (!item.is_number() || item.is_big() || std::floor(item.real()) != item.real() ||
          std::fabs(item.real()) > 9e15)
        return false;
      const auto wanted = static_cast<std::int64_t>(item.real());
      const std::int64_t offset = wanted - range.start;
      return range.size() > 0 && offset % range.step == 0 && offset / range.step >= 0 &&
             offset / range.step < range.size();
    }
    case Type::kUndefined:
    case Type::kIterator:
    case Type::kBytes: {
      for (const Value& candidate : iterate(container, budget))
        if (equal(candidate, item, budget)) return true;
      return false;
    }
    default:
      raise_type_error("argument of type '" + type_name(container) + "' is not iterable");
  }
}

}  // namespace sluice::jinja
