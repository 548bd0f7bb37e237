// Integers against 128-bit arithmetic, and identities where they are larger.
#include "text/jinja/values/big_int.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace sluice::jinja {
namespace {

BigInt random_integer(std::mt19937_64& random, int limbs) {
  BigInt out;
  for (int i = 0; i < limbs; ++i) {
    std::uint64_t part = random() & 0xFFFFFFFF;
    if (random() % 4 == 0)
      part = random() % 2 == 0 ? 0 : 0xFFFFFFFF;  // what division guesses wrong
    out = out.shifted_left(32) + BigInt(static_cast<__int128>(part));
  }
  return random() % 2 == 0 ? out : -out;
}

TEST(BigInt, SmallOnesAreThoseOfTheMachine) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20'000; ++round) {
    const auto a = static_cast<__int128>(static_cast<std::int64_t>(random()) >> random() % 60);
    const auto b = static_cast<__int128>(static_cast<std::int64_t>(random()) >> random() % 60);
    ASSERT_TRUE((BigInt(a) + BigInt(b)).small() == a + b);
    ASSERT_TRUE((BigInt(a) - BigInt(b)).small() == a - b);
    ASSERT_TRUE((BigInt(a) * BigInt(b)).small() == a * b);
    ASSERT_EQ(BigInt::compare(BigInt(a), BigInt(b)), a < b ? -1 : a > b ? 1 : 0);
    if (b == 0) continue;
    const auto [quotient, rest] = BigInt::divide(BigInt(a), BigInt(b));
    __int128 whole = a / b, left = a % b;
    if (left != 0 && (left < 0) != (b < 0)) --whole, left += b;
    ASSERT_TRUE(quotient.small() == whole && rest.small() == left);
    const double x = static_cast<double>(a), y = static_cast<double>(b);
    if (std::fabs(x) < 9e15 && std::fabs(y) < 9e15) {  // exact, so one rounding
      ASSERT_EQ(BigInt::quotient(BigInt(a), BigInt(b)), x / y);
    }
  }
}

TEST(BigInt, LargeOnesDivideAndAreReadAsTheyAreWritten) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 3'000; ++round) {
    const BigInt a = random_integer(random, 1 + static_cast<int>(random() % 12)),
                 b = random_integer(random, 1 + static_cast<int>(random() % 6));
    for (const int base : {2, 8, 10, 16}) {
      const std::string text = a.text(base);
      const bool negative = text[0] == '-';
      const BigInt read = BigInt::parse(std::string_view(text).substr(negative ? 1 : 0), base);
      ASSERT_EQ(BigInt::compare(negative ? -read : read, a), 0) << text;
    }
    if (b.is_zero()) continue;
    const auto [quotient, rest] = BigInt::divide(a, b);
    ASSERT_EQ(BigInt::compare(quotient * b + rest, a), 0);
    ASSERT_TRUE(rest.is_zero() || rest.is_negative() == b.is_negative());
    const BigInt size = rest.is_negative() ? -rest : rest, bound = b.is_negative() ? -b : b;
    ASSERT_LT(BigInt::compare(size, bound), 0);
  }
}

TEST(BigInt, DoublesAreTheNearestAndExactOnesComeBack) {
  EXPECT_EQ(BigInt::parse("9007199254740993", 10).real(), 9007199254740992.0);  // a tie, to even
  EXPECT_EQ(BigInt::parse("9007199254740995", 10).real(), 9007199254740996.0);
  EXPECT_EQ(BigInt::parse("123456789012345678901234567890", 10).real(),
            123456789012345678901234567890.0);
  EXPECT_TRUE(std::isinf(BigInt(__int128{1}).shifted_left(1024).real()));
  EXPECT_EQ(BigInt::quotient(BigInt(__int128{1}), BigInt(__int128{1}).shifted_left(1074)), 5e-324);
  EXPECT_EQ(BigInt::quotient(BigInt(__int128{1}), BigInt(__int128{1}).shifted_left(1075)), 0.0);
  EXPECT_EQ(BigInt::quotient(BigInt(__int128{3}), BigInt(__int128{1}).shifted_left(1075)), 1e-323);
  for (const double value : {0.0, 1.0, -2.0, 1e15, 1e22, -1e300, 4503599627370497.0, 0.75})
    EXPECT_EQ(BigInt::from_real(value).real(), std::trunc(value));
}

}  // namespace
}  // namespace sluice::jinja
