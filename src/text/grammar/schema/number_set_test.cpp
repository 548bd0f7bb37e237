#include "text/grammar/schema/number_set.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace sluice::grammar {
namespace {

Decimal number(std::string_view text) {
  return *Decimal::parse(text);
}

// Every JSON number of at most `size` of these characters.
std::vector<std::string> spellings(std::size_t size) {
  std::vector<std::string> out;
  std::vector<std::string> texts{""};
  for (std::size_t i = 0; i < size; ++i) {
    std::vector<std::string> longer;
    for (const std::string& text : texts) {
      for (const char c : std::string_view("01579.e-")) longer.push_back(text + c);
    }
    for (const std::string& text : longer) {
      if (Decimal::parse(text)) out.push_back(text);
    }
    texts = std::move(longer);
  }
  return out;
}

std::vector<NumberSet> sets() {
  std::vector<NumberSet> out;
  for (const char* low : {"", "-7.5", "0", "0.15", "1", "50", "-0.01"}) {
    for (const char* high : {"", "-5", "0", "0.2", "9", "75", "110"}) {
      for (int kind = 0; kind < 12; ++kind) {
        NumberSet set;
        if (*low != '\0') set.raise_low(number(low), (kind & 1) != 0);
        if (*high != '\0') set.lower_high(number(high), (kind & 2) != 0);
        set.has_fractions = kind % 3 != 1;
        if (kind >= 8) set.multiples = {number(kind >= 10 ? "5" : "0.7")};
        out.push_back(set);
      }
    }
  }
  NumberSet values;
  values.has_values = true;
  values.values = {number("15"), number("-0.07"), number("0"), number("1500")};
  out.push_back(values);
  return out;
}

TEST(Decimal, ReadsEverySpellingOfAValueAlike) {
  for (const char* text : {"15", "15.0", "1.5e1", "0.15E+2", "1500e-2", "15.000e0"}) {
    EXPECT_EQ(number(text), number("15")) << text;
  }
  EXPECT_EQ(number("-0.0e7"), number("0"));
  for (const char* text : {"", "-", "01", "1.", ".5", "+1", "1e", "1e+", "1 ", "0x1"}) {
    EXPECT_FALSE(Decimal::parse(text)) << text;
  }
}

TEST(Decimal, ComparesBeyondDoubles) {
  EXPECT_LT(compare(number("9007199254740992"), number("9007199254740993")), 0);
  EXPECT_LT(compare(number("-9007199254740993"), number("-9007199254740992")), 0);
  EXPECT_GT(compare(number("1e400"), number("1e399")), 0);
  EXPECT_EQ(compare(number("0.1"), number("1e-1")), 0);
  EXPECT_GT(compare(number("0.30000000000000000000001"), number("0.3")), 0);
}

TEST(Decimal, DividesExactly) {
  EXPECT_TRUE(number("0.3").is_multiple_of(number("0.1")));
  EXPECT_TRUE(number("1e300").is_multiple_of(number("64")));
  EXPECT_FALSE(number("1e308").is_multiple_of(number("0.123456789")));
  EXPECT_TRUE(number("0.0075").is_multiple_of(number("0.0001")));
  EXPECT_FALSE(number("0.00751").is_multiple_of(number("0.0001")));
  EXPECT_TRUE(number("0").is_multiple_of(number("7")));
}

TEST(NumberSet, IsEmptyOnlyWithoutMembers) {
  const std::vector<std::string> all = spellings(4);
  for (const NumberSet& set : sets()) {
    if (!set.is_empty()) continue;
    for (const std::string& text : all) ASSERT_FALSE(set.contains(number(text))) << text;
  }
  NumberSet set;
  set.has_fractions = false;
  set.raise_low(number("1"), false);
  set.lower_high(number("6"), false);
  set.multiples = {number("7")};
  EXPECT_TRUE(set.is_empty());
  set.lower_high(number("7"), false);
  EXPECT_TRUE(set.is_empty());
  set.high.reset();
  EXPECT_FALSE(set.is_empty());
  set.lower_high(number("7.5"), false);
  EXPECT_FALSE(set.is_empty());
}

TEST(NumberNode, HasTheSpellingsWithoutExponentOfTheSetOnly) {
  const std::vector<std::string> all = spellings(4);
  for (const NumberSet& set : sets()) {
    Languages languages;
    const std::optional<LanguageId> plain = plain_numbers(languages, set);
    if (!plain) continue;
    for (const std::string& text : all) {
      const bool expected = text.find('e') == std::string::npos && set.contains(number(text));
      ASSERT_EQ(languages.contains(*plain, text), expected) << text;
    }
  }
}

TEST(NumberNode, HasTheSpellingsWithExponentOfASignOnly) {
  const std::vector<std::string> all = spellings(5);
  int num_regular = 0;
  for (const char* low : {"", "0", "1", "-1"}) {
    for (const char* high : {"", "0", "-1", "1"}) {
      for (int kind = 0; kind < 4; ++kind) {
        NumberSet set;
        if (*low != '\0') set.raise_low(number(low), (kind & 1) != 0);
        if (*high != '\0') set.lower_high(number(high), (kind & 1) != 0);
        set.has_fractions = (kind & 2) != 0;
        Languages languages;
        const std::optional<LanguageId> language = exponent_numbers(languages, set);
        if (!language) continue;
        ++num_regular;
        for (const std::string& text : all) {
          const Decimal value = number(text);
          const bool is_finite =
              value.is_zero() || (value.magnitude() >= -322 && value.magnitude() <= 308);
          const bool expected =
              text.find('e') != std::string::npos && is_finite && set.contains(value);
          ASSERT_EQ(languages.contains(*language, text), expected) << text << low << ".." << high;
        }
      }
    }
  }
  EXPECT_EQ(num_regular, 14);  // 4 without a bound, 2 x 4 by zero, 2 integers by one
}

// What a client reads is neither infinite nor a zero that the schema excludes.
TEST(NumberNode, NumbersAreThoseThatADoubleHolds) {
  for (const bool is_bounded : {false, true}) {
    NumberSet set;
    if (is_bounded) set.raise_low(number("0"), true);
    Languages languages;
    const LanguageId language = *exponent_numbers(languages, set);
    for (const char* text :
         {"1e307", "1.7976931348623157e+308", "1e0308", "5e-324", "12e244", "123.5e-299",
          "0.001e-299", "2.2250738585072014e-308", "1.79e308", "0.001e244", "1E-7", "64e0"})
      EXPECT_TRUE(languages.contains(language, text)) << text;
    for (const char* text : {"2e308", "1.7976931348623158e308", "1E+4417", "1.9E-4417", "2e-324",
                             "12e245", "0.1e-300", "1e00001", "1e9999"})
      EXPECT_FALSE(languages.contains(language, text)) << text;
    for (const char* text : {"0e9999", "0.0E-4417"})
      EXPECT_EQ(languages.contains(language, text), !is_bounded) << text;
  }
  NumberSet integers;
  integers.has_fractions = false;
  Languages languages;
  const LanguageId language = *exponent_numbers(languages, integers);
  for (const char* text : {"1e308", "1.25e9", "1.25E+244", "100e-2", "0e9999"})
    EXPECT_TRUE(languages.contains(language, text)) << text;
  for (const char* text : {"2e308", "12e245", "1.25E+4417"})
    EXPECT_FALSE(languages.contains(language, text)) << text;
}

}  // namespace
}  // namespace sluice::grammar
