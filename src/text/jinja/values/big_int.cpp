#include "text/jinja/values/big_int.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace sluice::jinja {
namespace {

constexpr std::uint64_t kBase = std::uint64_t{1} << 32;

// A chunk of digits that fits in 32 bits: the count, and base ** count.
std::pair<int, std::uint32_t> chunk_of(int base) {
  int digits = 0;
  std::uint64_t power = 1;
  while (power * static_cast<std::uint64_t>(base) < kBase) {
    power *= static_cast<std::uint64_t>(base);
    ++digits;
  }
  return {digits, static_cast<std::uint32_t>(power)};
}

int digit_of(char c) {
  return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
}

}  // namespace

BigInt::BigInt(__int128 value) : negative_(value < 0) {
  auto rest =
      negative_ ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
  for (; rest != 0; rest >>= 32) limbs_.push_back(static_cast<std::uint32_t>(rest));
}

BigInt::BigInt(Limbs limbs, bool negative) : limbs_(std::move(limbs)), negative_(negative) {
  trim(limbs_);
  if (limbs_.empty()) negative_ = false;
}

BigInt BigInt::parse(std::string_view digits, int base) {
  const auto [count, power] = chunk_of(base);
  Limbs limbs;
  for (std::size_t pos = 0; pos < digits.size();) {
    std::uint64_t chunk = 0, scale = 1;
    for (int i = 0; i < count && pos < digits.size(); ++i, ++pos) {
      chunk = chunk * static_cast<std::uint64_t>(base) +
              static_cast<std::uint64_t>(digit_of(digits[pos]));
      scale *= static_cast<std::uint64_t>(base);
    }
    for (std::uint32_t& limb : limbs) {
      chunk += limb * scale;
      limb = static_cast<std::uint32_t>(chunk);
      chunk >>= 32;
    }
    if (chunk != 0) limbs.push_back(static_cast<std::uint32_t>(chunk));
  }
  (void)power;
  return {std::move(limbs), false};
}

BigInt BigInt::from_real(double value) {
  int exponent = 0;
  const double fraction = std::frexp(std::trunc(std::fabs(value)), &exponent);
  const auto mantissa = static_cast<std::int64_t>(std::ldexp(fraction, 53));
  BigInt out;
  if (exponent <= 53) {
    out = BigInt(static_cast<__int128>(mantissa >> (53 - exponent)));
  } else {
    out = BigInt(static_cast<__int128>(mantissa))
              .shifted_left(static_cast<std::size_t>(exponent - 53));
  }
  return value < 0 ? -out : out;
}

bool BigInt::fits() const {
  return bits() <= 127 || (negative_ && bits() == 128 && limbs_[3] == 0x80000000u &&
                           limbs_[0] == 0 && limbs_[1] == 0 && limbs_[2] == 0);
}

__int128 BigInt::small() const {
  unsigned __int128 value = 0;
  for (std::size_t i = limbs_.size(); i-- > 0;) value = value << 32 | limbs_[i];
  return static_cast<__int128>(negative_ ? -value : value);
}

std::size_t BigInt::bits() const {
  return limbs_.empty()
             ? 0
             : limbs_.size() * 32 - static_cast<std::size_t>(std::countl_zero(limbs_.back()));
}

std::string BigInt::text(int base, bool upper) const {
  if (limbs_.empty()) return "0";
  const std::string_view digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  const auto [count, power] = chunk_of(base);
  std::string out;
  for (Limbs rest = limbs_; !rest.empty();) {
    std::uint32_t chunk = divide_small(rest, power);
    for (int i = 0; i < count && (chunk != 0 || !rest.empty()); ++i) {
      out += digits[chunk % static_cast<std::uint32_t>(base)];
      chunk /= static_cast<std::uint32_t>(base);
    }
  }
  if (negative_) out += '-';
  return {out.rbegin(), out.rend()};
}

double BigInt::real() const {
  return quotient(*this, BigInt(__int128{1}));
}

// The quotient of the magnitudes is scaled to at least 64 bits. Bits that the division drops only
// matter as "not zero", so they go into the lowest bit, below the rounding.
double BigInt::quotient(const BigInt& a, const BigInt& b) {
  if (a.is_zero()) return b.negative_ ? -0.0 : 0.0;
  const auto shift = static_cast<std::int64_t>(b.bits()) - static_cast<std::int64_t>(a.bits()) + 65;
  const BigInt top(shift > 0 ? a.shifted_left(static_cast<std::size_t>(shift)).limbs_ : a.limbs_,
                   false);
  const BigInt below(shift < 0 ? b.shifted_left(static_cast<std::size_t>(-shift)).limbs_ : b.limbs_,
                     false);
  const auto [whole, rest] = divide(top, below);
  const unsigned __int128 bits = static_cast<unsigned __int128>(whole.small());  // 65 or 66 bits
  bool sticky = !rest.is_zero();
  // Keep 55 bits above the sticky one, fewer for a subnormal result.
  std::int64_t exponent = -shift;
  const auto width = static_cast<std::int64_t>(whole.bits());
  std::int64_t drop = width - 55;
  if (exponent + width < -1021) drop = std::max(drop, -1076 - exponent);
  if (drop > 100) return (a.negative_ != b.negative_) ? -0.0 : 0.0;
  const unsigned __int128 low = bits & ((static_cast<unsigned __int128>(1) << drop) - 1);
  sticky = sticky || low != 0;
  auto mantissa = static_cast<std::uint64_t>(bits >> drop);
  exponent += drop;
  // Two bits below the result's last one: round to nearest, ties to even.
  const std::uint64_t tail = (mantissa & 3) << 1 | (sticky ? 1 : 0);
  mantissa >>= 2;
  if (tail > 4 || (tail == 4 && (mantissa & 1) != 0)) ++mantissa;
  const double size = std::ldexp(static_cast<double>(mantissa), static_cast<int>(exponent + 2));
  return a.negative_ != b.negative_ ? -size : size;
}

BigInt BigInt::operator-() const {
  return {limbs_, !negative_};
}

BigInt operator+(const BigInt& a, const BigInt& b) {
  if (a.negative_ == b.negative_) return {BigInt::add(a.limbs_, b.limbs_), a.negative_};
  if (BigInt::compare_limbs(a.limbs_, b.limbs_) >= 0)
    return {BigInt::subtract(a.limbs_, b.limbs_), a.negative_};
  return {BigInt::subtract(b.limbs_, a.limbs_), b.negative_};
}

BigInt operator-(const BigInt& a, const BigInt& b) {
  return a + -b;
}

BigInt operator*(const BigInt& a, const BigInt& b) {
  BigInt::Limbs out(a.limbs_.size() + b.limbs_.size());
  for (std::size_t i = 0; i < a.limbs_.size(); ++i) {
    std::uint64_t carry = 0;
    for (std::size_t k = 0; k < b.limbs_.size(); ++k) {
      carry += out[i + k] + static_cast<std::uint64_t>(a.limbs_[i]) * b.limbs_[k];
      out[i + k] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    out[i + b.limbs_.size()] = static_cast<std::uint32_t>(carry);
  }
  return {std::move(out), a.negative_ != b.negative_};
}

std::pair<BigInt, BigInt> BigInt::divide(const BigInt& a, const BigInt& b) {
  auto [whole, rest] = divide_limbs(a.limbs_, b.limbs_);
  BigInt quotient(std::move(whole), a.negative_ != b.negative_);
  BigInt remainder(std::move(rest), a.negative_);
  if (!remainder.is_zero() && a.negative_ != b.negative_)
    return {quotient - BigInt(__int128{1}), remainder + b};
  return {std::move(quotient), std::move(remainder)};
}

BigInt BigInt::shifted_left(std::size_t bits) const {
  if (limbs_.empty()) return *this;
  Limbs out(limbs_.size() + bits / 32 + 1);
  const std::size_t small = bits % 32;
  for (std::size_t i = 0; i < limbs_.size(); ++i) {
    const std::uint64_t wide = static_cast<std::uint64_t>(limbs_[i]) << small;
    out[i + bits / 32] |= static_cast<std::uint32_t>(wide);
    out[i + bits / 32 + 1] |= static_cast<std::uint32_t>(wide >> 32);
  }
  return {std::move(out), negative_};
}

int BigInt::compare(const BigInt& a, const BigInt& b) {
  if (a.negative_ != b.negative_) return a.negative_ ? -1 : 1;
  const int order = compare_limbs(a.limbs_, b.limbs_);
  return a.negative_ ? -order : order;
}

void BigInt::trim(Limbs& limbs) {
  while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
}

int BigInt::compare_limbs(const Limbs& a, const Limbs& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  for (std::size_t i = a.size(); i-- > 0;)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

BigInt::Limbs BigInt::add(const Limbs& a, const Limbs& b) {
  const Limbs &more = a.size() < b.size() ? b : a, &less = a.size() < b.size() ? a : b;
  Limbs out;
  out.reserve(more.size() + 1);
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < more.size(); ++i) {
    carry += static_cast<std::uint64_t>(more[i]) + (i < less.size() ? less[i] : 0);
    out.push_back(static_cast<std::uint32_t>(carry));
    carry >>= 32;
  }
  out.push_back(static_cast<std::uint32_t>(carry));
  return out;
}

BigInt::Limbs BigInt::subtract(const Limbs& a, const Limbs& b) {
  Limbs out = a;
  std::int64_t borrow = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::int64_t difference = static_cast<std::int64_t>(out[i]) - borrow -
                              (i < b.size() ? static_cast<std::int64_t>(b[i]) : 0);
    borrow = difference < 0 ? 1 : 0;
    if (difference < 0) difference += static_cast<std::int64_t>(kBase);
    out[i] = static_cast<std::uint32_t>(difference);
  }
  return out;
}

std::uint32_t BigInt::divide_small(Limbs& limbs, std::uint32_t by) {
  std::uint64_t rest = 0;
  for (std::size_t i = limbs.size(); i-- > 0;) {
    rest = rest << 32 | limbs[i];
    limbs[i] = static_cast<std::uint32_t>(rest / by);
    rest %= by;
  }
  trim(limbs);
  return static_cast<std::uint32_t>(rest);
}

// Knuth, The Art of Computer Programming, volume 2, 4.3.1, algorithm D.
std::pair<BigInt::Limbs, BigInt::Limbs> BigInt::divide_limbs(const Limbs& a, const Limbs& b) {
  if (compare_limbs(a, b) < 0) return {{}, a};
  if (b.size() == 1) {
    Limbs quotient = a;
    const std::uint32_t rest = divide_small(quotient, b[0]);
    return {std::move(quotient), Limbs{rest}};
  }
  const auto shift = static_cast<std::size_t>(std::countl_zero(b.back()));
  const Limbs divisor = BigInt(b, false).shifted_left(shift).limbs_;
  Limbs rest = BigInt(a, false).shifted_left(shift).limbs_;
  rest.resize(a.size() + 1);
  const std::size_t size = divisor.size();
  Limbs quotient(rest.size() - size);
  for (std::size_t k = quotient.size(); k-- > 0;) {
    const std::uint64_t top = static_cast<std::uint64_t>(rest[k + size]) << 32 | rest[k + size - 1];
    std::uint64_t guess = top / divisor[size - 1], left = top % divisor[size - 1];
    while (guess >= kBase || guess * divisor[size - 2] > (left << 32 | rest[k + size - 2])) {
      --guess;
      left += divisor[size - 1];
      if (left >= kBase) break;
    }
    std::uint64_t carry = 0;
    std::int64_t borrow = 0;
    for (std::size_t i = 0; i < size; ++i) {
      carry += guess * divisor[i];
      const std::int64_t difference = static_cast<std::int64_t>(rest[k + i]) - borrow -
                                      static_cast<std::int64_t>(carry & 0xFFFFFFFFu);
      rest[k + i] = static_cast<std::uint32_t>(difference);
      borrow = difference < 0 ? 1 : 0;
      carry >>= 32;
    }
    const std::int64_t difference =
        static_cast<std::int64_t>(rest[k + size]) - borrow - static_cast<std::int64_t>(carry);
    rest[k + size] = static_cast<std::uint32_t>(difference);
    if (difference < 0) {  // the guess was one too large
      --guess;
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < size; ++i) {
        sum += static_cast<std::uint64_t>(rest[k + i]) + divisor[i];
        rest[k + i] = static_cast<std::uint32_t>(sum);
        sum >>= 32;
      }
      rest[k + size] += static_cast<std::uint32_t>(sum);
    }
    quotient[k] = static_cast<std::uint32_t>(guess);
  }
  trim(rest);
  for (std::size_t i = 0; shift != 0 && i < rest.size(); ++i)
    rest[i] = rest[i] >> shift | (i + 1 < rest.size() ? rest[i + 1] << (32 - shift) : 0);
  return {std::move(quotient), std::move(rest)};
}

}  // namespace sluice::jinja
