#include "text/grammar/schema/number_automaton.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace sluice::grammar {
namespace {

constexpr std::string_view kAlphabet = "01579.eE+-";

Decimal number(std::string_view text) {
  return *Decimal::parse(text);
}

// The state behind a text; empty: the text was given up.
std::string state_behind(const NumberAutomaton& automaton, std::string_view text) {
  std::string state = automaton.begin();
  for (const char c : text) {
    if (state.empty()) break;
    state = automaton.step(state, c);
  }
  return state;
}

bool holds(const NumberAutomaton& automaton, std::string_view text) {
  const std::string state = state_behind(automaton, text);
  return !state.empty() && automaton.accepts(state);
}

std::vector<NumberSet> sets() {
  std::vector<NumberSet> out;
  for (const char* low : {"", "-7.5", "0", "0.15", "1", "50", "-0.01", "900"}) {
    for (const char* high : {"", "-5", "0", "0.2", "9", "75", "110", "1050"}) {
      for (int kind = 0; kind < 16; ++kind) {
        NumberSet set;
        if (*low != '\0') set.raise_low(number(low), (kind & 1) != 0);
        if (*high != '\0') set.lower_high(number(high), (kind & 2) != 0);
        set.has_fractions = kind % 3 != 1;
        if (kind == 7) set.has_integers = false;
        if (kind == 8 || kind == 9) set.multiples = {number("0.7")};
        if (kind == 10 || kind == 11) set.multiples = {number("5")};
        if (kind == 12) set.multiples = {number("0.01")};
        if (kind == 13) set.multiples = {number("1.5"), number("2")};
        if (kind == 14) set.multiples = {number("75e1")};
        if (kind == 15) {
          set.has_fractions = false;
          set.is_plain_integer = true;
          set.multiples = {number("3")};
        }
        out.push_back(set);
      }
    }
  }
  for (const bool has_zero : {false, true}) {
    NumberSet values;
    values.has_values = true;
    values.values = {number("15"), number("-0.07"), number("1500"), number("10.5"), number("1")};
    if (has_zero) values.values.push_back(number("0"));
    out.push_back(values);
  }
  return out;
}

// Every JSON number of at most `size` of the characters.
std::vector<std::string> spellings(std::size_t size) {
  std::vector<std::string> out;
  std::vector<std::string> texts{""};
  for (std::size_t i = 0; i < size; ++i) {
    std::vector<std::string> longer;
    for (const std::string& text : texts)
      for (const char c : kAlphabet) longer.push_back(text + c);
    for (const std::string& text : longer)
      if (Decimal::parse(text)) out.push_back(text);
    texts = std::move(longer);
  }
  return out;
}

bool is_member(const NumberSet& set, std::string_view text) {
  if (set.is_plain_integer && text.find_first_of(".eE") != std::string_view::npos) return false;
  return set.contains(number(text));
}

TEST(NumberAutomaton, HoldsTheSpellingsOfTheSetOnly) {
  const std::vector<std::string> all = spellings(4);
  int num_members = 0;
  for (const NumberSet& set : sets()) {
    const NumberAutomaton automaton(set);
    for (const std::string& text : all) {
      const bool expected = is_member(set, text);
      num_members += expected ? 1 : 0;
      ASSERT_EQ(holds(automaton, text), expected) << text << " of " << set.canonical();
    }
  }
  EXPECT_GT(num_members, 20'000);
}

TEST(NumberAutomaton, HoldsLongSpellingsOfTheSetOnly) {
  std::mt19937 random(7);
  const auto digits = [&](std::size_t most) {
    std::string out;
    for (std::size_t left = random() % most + 1; left > 0; --left)
      out += random() % 3 == 0 ? '0' : static_cast<char>('0' + random() % 10);
    return out;
  };
  int num_members = 0;
  for (const NumberSet& set : sets()) {
    const NumberAutomaton automaton(set);
    for (int i = 0; i < 60; ++i) {
      std::string text = random() % 4 == 0 ? "-" : "";
      text += random() % 3 == 0 ? "0" : std::to_string(random() % 9 + 1) + digits(6);
      if (random() % 2 == 0) text += "." + digits(8);
      if (random() % 2 == 0) text += "e" + std::string(random() % 2 == 0 ? "-" : "") + digits(2);
      const bool expected = is_member(set, text);
      num_members += expected ? 1 : 0;
      ASSERT_EQ(holds(automaton, text), expected) << text << " of " << set.canonical();
    }
  }
  EXPECT_GT(num_members, 3'000);
}

TEST(NumberAutomaton, BeginningsWithoutAnEndAreGivenUp) {
  NumberSet set;
  set.has_fractions = false;
  set.raise_low(number("1"), false);
  set.lower_high(number("6"), false);
  const NumberAutomaton few(set);
  for (const char* text : {"-", "7", "7e", "25", "2e5", "60e-2", "0.01e1", "1e9"})
    EXPECT_TRUE(state_behind(few, text).empty()) << text;
  for (const char* text : {"6", "6e", "60", "60e-", "0.", "0.0", "0.06", "0.06e", "600e-", "6e+0"})
    EXPECT_FALSE(state_behind(few, text).empty()) << text;

  NumberSet port;
  port.has_fractions = false;
  port.raise_low(number("1024"), false);
  port.lower_high(number("65535"), false);
  const NumberAutomaton ports(port);
  for (const char* text : {"65536", "7000.1", "102351", "123456", "1023e2", "0.1e1"})
    EXPECT_TRUE(state_behind(ports, text).empty()) << text;
  for (const char* text : {"65535", "80", "1", "1023", "6553500000", "102350", "0.000102", "2e+"})
    EXPECT_FALSE(state_behind(ports, text).empty()) << text;

  NumberSet sevens;
  sevens.multiples = {number("7")};
  EXPECT_TRUE(state_behind(NumberAutomaton(sevens), "5e").empty());
  EXPECT_FALSE(state_behind(NumberAutomaton(sevens), "14.7e").empty());
}

TEST(NumberAutomaton, StatesOfLongNumbersAreFew) {
  NumberSet price;
  price.multiples = {number("0.01")};
  price.raise_low(number("0"), false);
  const NumberAutomaton prices(price);
  EXPECT_EQ(state_behind(prices, "12.34"), state_behind(prices, "98761.55"));
  EXPECT_EQ(prices.horizon_form(state_behind(prices, "12"), 16),
            prices.horizon_form(state_behind(prices, "98765"), 16));
  EXPECT_TRUE(state_behind(prices, "1" + std::string(80, '2')).empty());  // too long for any text
  EXPECT_FALSE(state_behind(prices, "1" + std::string(64, '2')).empty());
}

TEST(NumberAutomaton, ALongFractionEnds) {
  NumberSet share;
  share.raise_low(number("0.3"), true);
  share.lower_high(number("0.5"), false);
  const NumberAutomaton shares(share);
  // 24 digits, and as many as the bounds have
  EXPECT_FALSE(state_behind(shares, "0.3" + std::string(24, '7')).empty());
  EXPECT_TRUE(state_behind(shares, "0.3" + std::string(30, '7')).empty());
  // no digit is taken behind which nothing of the set may come
  std::string text = "0.3";
  while (!state_behind(shares, text + "0").empty()) text += "0";
  EXPECT_GT(text.size(), 24u);
  EXPECT_TRUE(holds(shares, text + "1"));
}

TEST(NumberAutomaton, FreeDigitsMayFollowWhicheverTheyAre) {
  std::mt19937 random(3);
  int num_free = 0;
  for (const NumberSet& set : sets()) {
    const NumberAutomaton automaton(set);
    for (const char* begin : {"0", "7", "12", "-9", "0.3", "15.07", "-1."}) {
      std::string state = state_behind(automaton, begin);
      if (state.empty()) continue;
      const std::uint64_t count = automaton.free_digits(state);
      num_free += count > 0 ? 1 : 0;
      for (std::uint64_t i = 0; i < count; ++i) {
        state = automaton.step(state, static_cast<char>('0' + random() % 10));
        ASSERT_FALSE(state.empty()) << begin << " and " << i << " digits of " << set.canonical();
      }
    }
  }
  EXPECT_GT(num_free, 500);
}

TEST(NumberAutomaton, AHorizonFormGoesOnWithTheSameTexts) {
  std::vector<std::string> texts{""};
  for (std::size_t first = 0, i = 0; i < 2; ++i) {
    const std::size_t last = texts.size();
    for (; first < last; ++first)
      for (const char c : kAlphabet) texts.push_back(texts[first] + c);
  }
  const std::string sevens(60, '7');
  for (const NumberSet& set : sets()) {
    const NumberAutomaton automaton(set);
    for (const std::string& begin :
         {std::string("12"), std::string("0.7"), "1." + sevens, "1." + sevens.substr(0, 25),
          "7" + sevens, std::string("1e")}) {
      const std::string state = state_behind(automaton, begin);
      if (state.empty()) continue;
      const std::string form = automaton.horizon_form(state, 2);
      for (const std::string& text : texts) {
        std::string a = state, b = form;
        for (const char c : text) {
          if (!a.empty()) a = automaton.step(a, c);
          if (!b.empty()) b = automaton.step(b, c);
        }
        ASSERT_EQ(a.empty(), b.empty()) << begin << text << " of " << set.canonical();
        if (a.empty()) continue;
        ASSERT_EQ(automaton.accepts(a), automaton.accepts(b)) << begin << text;
      }
    }
  }
}

// Zero and the numbers from 1e-323 to below 1e308, unless the schema speaks of others.
TEST(NumberAutomaton, NumbersAreThoseThatADoubleHolds) {
  NumberSet positive, steps, tiny, huge, doubles, integers;
  positive.raise_low(number("0.5"), true);
  steps.multiples = {number("0.01")};
  tiny.raise_low(number("1e-320"), false);
  tiny.lower_high(number("1e-310"), false);
  huge.raise_low(number("1e400"), false);
  doubles.raise_low(number("-1.7976931348623157e308"), false);
  doubles.lower_high(number("1.7976931348623157e308"), false);
  integers.has_fractions = false;
  integers.raise_low(number("2"), false);
  for (const char* text : {"1e307", "12.5e306", "0.7e308", "99e306", "1e200"})
    EXPECT_TRUE(holds(NumberAutomaton(positive), text)) << text;
  for (const char* text : {"1e308", "10e307", "0.07e310", "1e4417", "1e9999"})
    EXPECT_FALSE(holds(NumberAutomaton(positive), text)) << text;
  for (const char* text : {"1e307", "12e240", "-7e200", "0e9999", "12.5"})
    EXPECT_TRUE(holds(NumberAutomaton(steps), text)) << text;
  for (const char* text : {"1e308", "12e308", "-7e9999"})
    EXPECT_FALSE(holds(NumberAutomaton(steps), text)) << text;
  EXPECT_TRUE(holds(NumberAutomaton(tiny), "5e-315"));
  EXPECT_TRUE(holds(NumberAutomaton(huge), "2e400"));
  EXPECT_FALSE(holds(NumberAutomaton(huge), "2e500"));
  for (const char* text : {"1.7e308", "-1.7e308", "1e-323", "0"})
    EXPECT_TRUE(holds(NumberAutomaton(doubles), text)) << text;
  for (const char* text : {"1.8e308", "1e-4417", "-1e-324"})
    EXPECT_FALSE(holds(NumberAutomaton(doubles), text)) << text;
  for (const char* text : {"1.25e307", "3e307", "20e-1"})
    EXPECT_TRUE(holds(NumberAutomaton(integers), text)) << text;
  for (const char* text : {"1e308", "1.5e4417"})
    EXPECT_FALSE(holds(NumberAutomaton(integers), text)) << text;
}

// Each beginning that is not given up has an end, also where bounds allow hundreds of digits.
TEST(NumberAutomaton, LongBeginningsHaveAnEnd) {
  std::mt19937 random(11);
  for (const char* low : {"", "-1e300", "2", "1e-300", "1e400"}) {
    for (const bool has_fractions : {false, true}) {
      NumberSet set;
      set.has_fractions = has_fractions;
      if (*low != '\0') set.raise_low(number(low), false);
      if (*low == '\0') set.multiples = {number("0.5")};
      const NumberAutomaton automaton(set);
      for (int round = 0; round < 40; ++round) {
        std::string state = automaton.begin();
        std::string text;
        while (true) {
          // digits as long as any is taken, then an exponent
          std::vector<std::pair<char, std::string>> digits, others;
          for (const char c : automaton.alphabet()) {
            std::string next = automaton.step(state, c);
            if (next.empty()) continue;
            (c >= '0' && c <= '9' ? digits : others).emplace_back(c, std::move(next));
          }
          const bool takes_other = digits.empty() || (random() % 100 == 0 && !others.empty());
          const auto& options = takes_other ? others : digits;
          if (options.empty()) break;
          const auto& [c, next] = options[random() % options.size()];
          text += c;
          state = next;
        }
        EXPECT_TRUE(automaton.accepts(state)) << text << " of " << set.canonical();
      }
    }
  }
}

}  // namespace
}  // namespace sluice::grammar
