#include "text/grammar/languages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::grammar {
namespace {

using testing::HasSubstr;

bool full(std::string_view pattern, std::string_view text) {
  Languages languages;
  const Result<LanguageId> id = languages.regex(pattern);
  EXPECT_TRUE(id.ok()) << pattern << ": " << (id.ok() ? "" : id.fault().message);
  return id.ok() && languages.contains(id.value(), text);
}

bool search(std::string_view pattern, std::string_view text) {
  Languages languages;
  const Result<LanguageId> id = languages.regex(pattern, {.match = RegexMatch::kSearch});
  EXPECT_TRUE(id.ok()) << pattern << ": " << (id.ok() ? "" : id.fault().message);
  return id.ok() && languages.contains(id.value(), text);
}

std::string refusal(std::string_view pattern) {
  Languages languages;
  const Result<LanguageId> id = languages.regex(pattern);
  return id.ok() ? "" : id.fault().code + ": " + id.fault().message;
}

TEST(Regex, MatchesWholeTexts) {
  EXPECT_TRUE(full("a(b|cd)*e?", "abcdbe"));
  EXPECT_FALSE(full("a(b|cd)*e?", "abce"));
  EXPECT_TRUE(full("[^\\d-]{2}", "\u00e9x"));
  EXPECT_TRUE(full("\\u4e00|\\x41|\\u{1F600}", "\U0001F600"));
  EXPECT_TRUE(full("x{2,}", "xxxx"));
  EXPECT_FALSE(full("x{2,3}", "xxxx"));
  EXPECT_TRUE(full("(?i)stra\u00dfe", "STRA\u00dfE"));
  EXPECT_TRUE(full("\\p{Lu}\\p{L}+", "\u0416abc"));
  EXPECT_TRUE(full("[a-c\\]x-]+", "]-abcx"));
  EXPECT_TRUE(full("a{,b}", "a{,b}"));
  EXPECT_TRUE(full("", ""));
}

TEST(Regex, SearchFindsPartsAndHonoursAnchors) {
  EXPECT_TRUE(search("b", "abc"));
  EXPECT_FALSE(search("^b", "abc"));
  EXPECT_TRUE(search("^a|c$", "xxc"));
  EXPECT_TRUE(search("^$|^x", ""));
  EXPECT_FALSE(search("^$|^x", "y"));
  EXPECT_TRUE(search("(^a|b)c", "xbc"));
  EXPECT_FALSE(search("(^a|b)c", "xac"));
  EXPECT_TRUE(full("(a|$)", ""));
  EXPECT_FALSE(search("a$b", "ab"));
}

TEST(Regex, AnchorsInRepetitionsAreExact) {
  const char* path = "^(\\/?([.]{2}|[a-z]*)($|\\/))*$";
  EXPECT_TRUE(search(path, "/ab/../c"));
  EXPECT_TRUE(search(path, "/ab/"));
  EXPECT_FALSE(search(path, "/ab.c/"));
  EXPECT_TRUE(search("^([^,]+(,|$)){3,}$", "a,b,c"));
  EXPECT_TRUE(search("^([^,]+(,|$)){3,}$", "a,b,c,"));
  EXPECT_FALSE(search("^([^,]+(,|$)){3,}$", "a,b"));
  EXPECT_TRUE(full("(?:^x|a|b$)*", "xaab"));
  EXPECT_FALSE(full("(?:^x|a|b$)*", "axb"));
  EXPECT_FALSE(full("(?:^x|a|b$)*", "xaba"));
  EXPECT_TRUE(full("(?:$){20}", ""));
  EXPECT_FALSE(full("(?:a$){20}", "a"));
}

TEST(Regex, LooksAheadAtEachCharacterOfARepetition) {
  const char* tempered = "^((?!mode)(?!Mode).)*$";
  EXPECT_TRUE(search(tempered, "mod and Mod"));
  EXPECT_TRUE(search(tempered, ""));
  EXPECT_FALSE(search(tempered, "a mode"));
  EXPECT_FALSE(search(tempered, "Mode"));
  EXPECT_TRUE(full("(?:(?!--)[a-z-]){2,}", "a-b-"));
  EXPECT_FALSE(full("(?:(?!--)[a-z-]){2,}", "a--b"));
  EXPECT_FALSE(full("(?:(?!--)[a-z-]){2,}", "a"));
  EXPECT_TRUE(full("(?:(?!a$)[ab])*", "aab"));
  EXPECT_FALSE(full("(?:(?!a$)[ab])*", "ba"));
}

TEST(Regex, StartsBesideLookAroundsAreExact) {
  EXPECT_TRUE(search("^(?!.*/)^(.*[^.]+.*)$", "a.b"));
  EXPECT_FALSE(search("^(?!.*/)^(.*[^.]+.*)$", "a/b"));
  EXPECT_FALSE(search("^(?!.*/)^(.*[^.]+.*)$", ".."));
  EXPECT_TRUE(search("^(?!^lucene\\.|mongodb\\.).*", "lucenes"));
  EXPECT_FALSE(search("^(?!^lucene\\.|mongodb\\.).*", "lucene.x"));
  EXPECT_FALSE(search("^(?!^lucene\\.|mongodb\\.).*", "mongodb.x"));
  EXPECT_TRUE(search("(?!ab)^b?", "b"));
  EXPECT_FALSE(search("(?!ab)^b?", "ab"));
  EXPECT_FALSE(full("(?!^a)a", "a"));
  EXPECT_THAT(refusal("b(?!^a)a"), HasSubstr("'^' inside a look-around at character 5"));
}

TEST(Regex, LookAroundIsExact) {
  EXPECT_TRUE(full("(?=a)[a-z]+", "abc"));
  EXPECT_FALSE(full("(?=a)[a-z]+", "bc"));
  EXPECT_FALSE(full("^(?!foo)[a-z]*$", "foox"));
  EXPECT_TRUE(full("^(?!foo)[a-z]*$", "fo"));
  EXPECT_TRUE(search("\\bfoo\\b", "a foo."));
  EXPECT_FALSE(search("\\bfoo\\b", "afoo."));
  EXPECT_FALSE(search("\\bfoo\\b", "foob"));
  EXPECT_TRUE(search("\\bfoo\\b", "foo"));
  EXPECT_TRUE(search("(?<=x)y", "axy"));
  EXPECT_FALSE(search("(?<!x)y", "xy"));
  EXPECT_TRUE(full("^(?=.*\\d)(?=.*[a-z]).{4,8}$", "ab1xx"));
  EXPECT_FALSE(full("^(?=.*\\d)(?=.*[a-z]).{4,8}$", "abcdx"));
}

TEST(Regex, RefusesByNameAndPosition) {
  EXPECT_THAT(refusal("(a|b)\\1"), HasSubstr("a back reference at character 5"));
  EXPECT_THAT(refusal("a++"), HasSubstr("possessive"));
  EXPECT_THAT(refusal("((?=a)b)*"), HasSubstr("inside a repetition"));
  for (const char* wrong :
       {"(a", "a)", "*a", "a\\", "\\xZZ", "\\p{NoSuch}", "a{5,2}", "[a-", "[b-a]"})
    EXPECT_THAT(refusal(wrong), HasSubstr("invalid_regex")) << wrong;
  for (const char* name : {"Script=Greek", "sc=Grek", "scx=Greek", "Alphabetic", "White_Space"}) {
    const std::string refused = refusal("^\\p{" + std::string(name) + "}{3}$");
    EXPECT_THAT(refused, HasSubstr("unsupported_regex"));
    EXPECT_THAT(refused, HasSubstr(name));
    EXPECT_THAT(refused, HasSubstr("character 1"));
  }
}

TEST(Languages, SetsOfLiteralsAndTheirComplement) {
  Languages languages;
  const std::string words[] = {"name", "na", "age", ""};
  const LanguageId set = languages.literals(words);
  const LanguageId others = languages.complement(set);
  for (const std::string& word : words) {
    EXPECT_TRUE(languages.contains(set, word));
    EXPECT_FALSE(languages.contains(others, word));
  }
  for (const char* word : {"nam", "names", "x"}) {
    EXPECT_FALSE(languages.contains(set, word));
    EXPECT_TRUE(languages.contains(others, word));
  }
  EXPECT_TRUE(languages.is_empty(languages.intersect({set, others})).value());
}

TEST(Languages, QuestionsAreExact) {
  Languages languages;
  const LanguageId even = languages.repeat(languages.literal("ab"), 0, kUnbounded);
  const LanguageId both =
      languages.intersect({even, languages.regex("[ab]{5}|[ab]{9,10}").value()});
  EXPECT_FALSE(languages.is_empty(both).value());
  EXPECT_EQ(languages.shortest(both).value(), 10u);
  EXPECT_EQ(languages.example(both).value(), "ababababab");
  EXPECT_TRUE(languages.has_length(even, 7, 8).value());
  EXPECT_FALSE(languages.has_length(even, 7, 7).value());
  EXPECT_TRUE(languages.has_length(even, 1'000'000'000, 1'000'000'001).value());
  EXPECT_FALSE(languages.has_length(both, 11, kUnbounded).value());
}

TEST(Languages, LargeCountsCostNothing) {
  Languages languages;
  const LanguageId big = languages.regex("[a-z]{100,2000000}").value();
  EXPECT_FALSE(languages.contains(big, std::string(99, 'x')));
  EXPECT_TRUE(languages.contains(big, std::string(5000, 'x')));
  EXPECT_LT(languages.bytes(), 8u << 20);
}

}  // namespace
}  // namespace sluice::grammar
