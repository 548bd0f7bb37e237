// Integers of any size, for the values beyond 128 bits (text/jinja/values/value.h).
//
//   BigInt a = BigInt::parse("123456789012345678901234567890", 10);
//   std::string text = (a * a).text(10);
//
// Division and remainder round down, as Python's. Callers pay for the work (`Budget`): a product
// and a quotient cost the product of the sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::jinja {

class BigInt {
 public:
  BigInt() = default;
  BigInt(__int128 value);                                  // NOLINT: implicit by intent
  static BigInt parse(std::string_view digits, int base);  // digits alone, all below `base`
  static BigInt from_real(double value);                   // finite; drops the fraction

  bool is_negative() const { return negative_; }
  bool is_zero() const { return limbs_.empty(); }
  bool is_odd() const { return !limbs_.empty() && (limbs_[0] & 1) != 0; }
  bool fits() const;                                     // in 128 bits
  __int128 small() const;                                // requires fits()
  std::size_t size() const { return limbs_.size(); }     // 32-bit limbs
  std::size_t bits() const;                              // of the magnitude
  std::string text(int base, bool upper = false) const;  // bases 2 to 16
  // The nearest double, ties to even; infinite beyond the range.
  double real() const;
  // a / b, correctly rounded. `b` is not zero.
  static double quotient(const BigInt& a, const BigInt& b);

  BigInt operator-() const;
  friend BigInt operator+(const BigInt& a, const BigInt& b);
  friend BigInt operator-(const BigInt& a, const BigInt& b);
  friend BigInt operator*(const BigInt& a, const BigInt& b);
  // Rounded down: the quotient and the remainder. `b` is not zero.
  static std::pair<BigInt, BigInt> divide(const BigInt& a, const BigInt& b);
  BigInt shifted_left(std::size_t bits) const;

  // Negative, zero or positive.
  static int compare(const BigInt& a, const BigInt& b);

 private:
  using Limbs = std::vector<std::uint32_t>;
  static void trim(Limbs& limbs);
  static int compare_limbs(const Limbs& a, const Limbs& b);
  static Limbs add(const Limbs& a, const Limbs& b);
  static Limbs subtract(const Limbs& a, const Limbs& b);  // a >= b
  static std::pair<Limbs, Limbs> divide_limbs(const Limbs& a, const Limbs& b);
  static std::uint32_t divide_small(Limbs& limbs, std::uint32_t by);  // returns the remainder
  BigInt(Limbs limbs, bool negative);

  Limbs limbs_;  // little endian, without leading zeros
  bool negative_ = false;
};

}  // namespace sluice::jinja
