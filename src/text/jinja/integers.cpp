// Arithmetic of integers of any size.
#include <cmath>

#include "text/jinja/operations.h"

namespace sluice::jinja {
namespace {

// Results larger than this are never of use, and cost too much.
constexpr std::size_t kMaxBits = std::size_t{1} << 24;

Value float_of(double value) {
  if (std::isinf(value))
    raise_python("OverflowError", "integer division result too large for a float");
  return value;
}

[[noreturn]] void divided_by_zero(BinaryOp op) {
  raise_python("ZeroDivisionError", op == BinaryOp::kDivide ? "division by zero"
                                    : op == BinaryOp::kModulo
                                        ? "integer modulo by zero"
                                        : "integer division or modulo by zero");
}

Value power(const Value& a, const Value& b, Budget& budget) {
  if (b.integer() < 0) {
    if (a.integer() == 0)
      raise_python("ZeroDivisionError", "0.0 cannot be raised to a negative power");
    return std::pow(a.real(), b.real());
  }
  BigInt base = a.big();
  if (base.bits() <= 1) {  // 0, 1, -1
    if (b.integer() == 0) return Value(1);
    return base.is_negative() && !b.big().is_odd() ? Value(1) : Value(std::move(base));
  }
  if (b.integer() > static_cast<Int>(kMaxBits / base.bits())) budget.charge(~std::size_t{0} >> 1);
  auto exponent = static_cast<std::uint64_t>(b.integer());
  BigInt result(Int{1});
  for (;;) {
    budget.charge(1 + (base.size() + result.size()) * base.size() / 8);
    if (exponent & 1) result = result * base;
    exponent >>= 1;
    if (exponent == 0) return Value(std::move(result));
    base = base * base;
  }
}

Value big_binary(BinaryOp op, const Value& a, const Value& b, Budget& budget) {
  const BigInt x = a.big(), y = b.big();
  budget.charge(1 + (x.size() + y.size()) / 8);
  switch (op) {
    case BinaryOp::kAdd:
      return Value(x + y);
    case BinaryOp::kSubtract:
      return Value(x - y);
    case BinaryOp::kMultiply:
      budget.charge(x.size() * y.size() / 8);
      return Value(x * y);
    case BinaryOp::kDivide:
      budget.charge(x.size() * y.size() / 8);
      return float_of(BigInt::quotient(x, y));
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo: {
      budget.charge(x.size() * y.size() / 8);
      auto [quotient, rest] = BigInt::divide(x, y);
      return op == BinaryOp::kModulo ? Value(std::move(rest)) : Value(std::move(quotient));
    }
    case BinaryOp::kPower:
      break;
  }
  return {};
}

bool is_exact_real(Int value) {
  return value <= (Int{1} << 53) && value >= -(Int{1} << 53);
}

}  // namespace

Value integer_binary(BinaryOp op, const Value& left, const Value& right, Budget& budget) {
  if (op == BinaryOp::kPower) return power(left, right, budget);
  const Int a = left.integer(), b = right.integer();
  Int result = 0;
  const bool divides =
      op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
  if (divides && b == 0) divided_by_zero(op);
  if (left.is_big() || right.is_big()) return big_binary(op, left, right, budget);
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return big_binary(op, left, right, budget);
      return result;
    case BinaryOp::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return big_binary(op, left, right, budget);
      return result;
    case BinaryOp::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return big_binary(op, left, right, budget);
      return result;
    case BinaryOp::kDivide:
      if (!is_exact_real(a) || !is_exact_real(b)) return big_binary(op, left, right, budget);
      return static_cast<double>(a) / static_cast<double>(b);
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo: {
      if (b == -1)
        return op == BinaryOp::kModulo
                   ? Value(0)
                   : integer_binary(BinaryOp::kSubtract, Value(0), left, budget);
      Int quotient = a / b, rest = a % b;
      if (rest != 0 && (rest < 0) != (b < 0)) {
        --quotient;
        rest += b;
      }
      return op == BinaryOp::kModulo ? rest : quotient;
    }
    case BinaryOp::kPower:
      break;
  }
  return {};
}

std::string magnitude_text(const Value& value, int base, bool upper) {
  if (base == 10) {
    std::string text = integer_text(value);
    return text[0] == '-' ? text.substr(1) : text;
  }
  const BigInt big = value.big();
  return (big.is_negative() ? -big : big).text(base, upper);
}

// Ties go to the even multiple.
Value round_integer(const Value& value, std::int64_t digits, Budget& budget) {
  const BigInt number = value.big();
  if (digits > static_cast<std::int64_t>(number.bits())) return Value(0);
  const Value unit = power(Value(10), Value(digits), budget);
  auto [quotient, rest] = BigInt::divide(number, unit.big());
  const int half = BigInt::compare(rest + rest, unit.big());
  if (half > 0 || (half == 0 && quotient.is_odd())) quotient = quotient + BigInt(Int{1});
  return Value(quotient * unit.big());
}

}  // namespace sluice::jinja
