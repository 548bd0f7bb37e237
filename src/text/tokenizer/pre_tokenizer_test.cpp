#include "text/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "base/error.h"
#include "text/unicode.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> split(const PreTokenizerStep& step, std::string_view text) {
  SplitRegex::Scratch scratch;
  Pieces pieces;
  PreTokenizer({step}).split(text, true, scratch, pieces);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < pieces.spans.size(); ++i) out.emplace_back(pieces[i]);
  return out;
}

PreTokenizerStep literal(std::string text, SplitBehavior behavior, bool invert = false) {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::kSplitLiteral;
  step.literal = std::move(text);
  step.behavior = behavior;
  step.invert = invert;
  return step;
}

PreTokenizerStep regex(std::string_view pattern,
                       SplitBehavior behavior = SplitBehavior::kIsolated) {
  PreTokenizerStep step;
  step.regex = std::make_shared<SplitRegex>(pattern, "test");
  step.behavior = behavior;
  return step;
}

TEST(SplitBehavior, EveryBehaviorOnRunsOfDelimiters) {
  const std::string text = "-the-final--countdown";
  EXPECT_THAT(split(literal("-", SplitBehavior::kRemoved), text),
              ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(split(literal("-", SplitBehavior::kIsolated), text),
              ElementsAre("-", "the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(split(literal("-", SplitBehavior::kMergedWithPrevious), text),
              ElementsAre("-", "the-", "final-", "-", "countdown"));
  EXPECT_THAT(split(literal("-", SplitBehavior::kMergedWithNext), text),
              ElementsAre("-the", "-final", "-", "-countdown"));
  EXPECT_THAT(split(literal("-", SplitBehavior::kContiguous), text),
              ElementsAre("-", "the", "-", "final", "--", "countdown"));
  EXPECT_THAT(split(literal("-", SplitBehavior::kRemoved, /*invert=*/true), text),
              ElementsAre("-", "-", "-", "-"));
}

TEST(SplitRegex, SpeaksTheDialectOfTokenizerFiles) {
  // U+180E is not white space; PCRE2 by default treats it as white space.
  EXPECT_THAT(split(regex("\\s+"), "a\u180E \u3000b"), ElementsAre("a\u180E", " \u3000", "b"));
  // U+3001 is used with Han text, but its script is Common.
  EXPECT_THAT(split(regex("\\p{Han}+"), "\u4E00\u3001\u4E8C"),
              ElementsAre("\u4E00", "\u3001", "\u4E8C"));
  EXPECT_THAT(split(regex("[\\p{L}&&[^\\p{Han}]]+"), "ab\u4E00cd"),
              ElementsAre("ab", "\u4E00", "cd"));
  EXPECT_THAT(split(regex("[a-z&&[^aeiou]]+"), "bcade"), ElementsAre("bc", "a", "d", "e"));
  EXPECT_THAT(split(regex("[^a-z&&[^aeiou]]+"), "bcaA1d"), ElementsAre("bc", "aA1", "d"));
  EXPECT_THAT(split(regex("[a[0-9]]+"), "a1b2"), ElementsAre("a1", "b", "2"));
  EXPECT_THAT(split(regex("\\s+$"), "a \nb  "),
              ElementsAre("a", " ", "\nb", "  "));                       // $ at every line
  EXPECT_THAT(split(regex("\\h+"), "xyz1F"), ElementsAre("xyz", "1F"));  // hexadecimal digits
  EXPECT_THAT(split(regex("\\u4E00"), "a\u4E00"), ElementsAre("a", "\u4E00"));
  EXPECT_THAT(split(regex("(?=b)"), "abab"),
              ElementsAre("a", "ba", "b"));  // empty matches split without consuming text
}

TEST(SplitRegex, KnownPatternsAreLinear) {
  for (const char* pattern : {
           R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
           R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| )"
           R"(?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
           R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|)"
           R"('t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll})"
           R"(\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| )"
           R"(?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
           "[!\"#$%&'()*+,\\-./"
           ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
           "?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
       })
    EXPECT_FALSE(SplitRegex(pattern, "test").is_superlinear()) << pattern;
}

TEST(SplitRegex, CatastrophicPatternsAreRefusedAtLoad) {
  for (const char* pattern :
       {"(a+)+$", "(a|aa)+$", "(.*)*x", "([a-zA-Z]+)*9$", "(\\s+)+z", "a*a*a*a*a*b"}) {
    try {
      SplitRegex(pattern, "tokenizer.json.pre_tokenizer.pattern.Regex");
      ADD_FAILURE() << pattern << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_THAT(error.message(), HasSubstr("tokenizer.json.pre_tokenizer.pattern.Regex"))
          << pattern;
      EXPECT_THAT(error.message(), HasSubstr("catastrophic")) << pattern;
    }
  }
}

TEST(SplitRegex, InvalidPatternsAreRefusedAtLoad) {
  for (const char* pattern :
       {"(", "[a", "a{2,1}", "\\p{Nothing}", "\\p{L", "[a&&[b&&c]]", "\\", "(?<n", "\\C", "\xFF"})
    EXPECT_THROW(SplitRegex(pattern, "test"), Error) << pattern;
  EXPECT_THROW(SplitRegex(std::string(100'000, 'a'), "test"), Error);
  EXPECT_THROW(SplitRegex(std::string(2'000, '('), "test"), Error);
}

TEST(SplitRegex, AQuadraticPatternStopsAtItsDeadline) {
  const SplitRegex trailing("\\s+$", "test");
  EXPECT_TRUE(trailing.is_superlinear());
  SplitRegex::Scratch scratch;
  SplitRegex::Match match;
  EXPECT_TRUE(trailing.find(std::string(10'000, ' ') + "x \u3000", 0, scratch, match));
  EXPECT_EQ(match.begin, 10'001u);
  const std::clock_t begun = std::clock();
  EXPECT_THROW(trailing.find(std::string(2'000'000, ' ') + "x", 0, scratch, match), Error);
  EXPECT_LT(std::clock() - begun, 6 * CLOCKS_PER_SEC);
}

TEST(PreTokenizer, AByteMapAtTheEndIsLeftToTheModel) {
  PreTokenizerStep map;
  map.kind = PreTokenizerStep::kByteAlphabet;
  PreTokenizer pre_tokenizer({map});
  EXPECT_TRUE(pre_tokenizer.ends_in_byte_alphabet());
  SplitRegex::Scratch scratch;
  Pieces pieces;
  pre_tokenizer.split("a b", true, scratch, pieces);
  EXPECT_EQ(pieces.text, "a b");
  pre_tokenizer.keep_byte_alphabet();
  EXPECT_FALSE(pre_tokenizer.ends_in_byte_alphabet());
  pre_tokenizer.split("a b", true, scratch, pieces);
  EXPECT_EQ(pieces.text, "a\u0120b");
}

TEST(PreTokenizer, MetaspaceIsPutInFrontAsTheSchemeSays) {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::kMetaspace;
  step.literal = "\u2581";
  for (const auto& [scheme, at_start, elsewhere] :
       {std::tuple{PreTokenizerStep::kAlways, "\u2581a\u2581b", "\u2581a\u2581b"},
        std::tuple{PreTokenizerStep::kFirst, "\u2581a\u2581b", "a\u2581b"},
        std::tuple{PreTokenizerStep::kNever, "a\u2581b", "a\u2581b"}}) {
    step.prepend = scheme;
    SplitRegex::Scratch scratch;
    Pieces pieces;
    PreTokenizer({step}).split("a b", true, scratch, pieces);
    EXPECT_EQ(pieces.text, at_start);
    PreTokenizer({step}).split("a b", false, scratch, pieces);
    EXPECT_EQ(pieces.text, elsewhere);
  }
}

// The sets are those of the `tokenizers` library, character by character.
TEST(SplitRegex, ClassesAreThoseOfOniguruma) {
  const std::tuple<const char*, const char32_t*, const char32_t*> rows[] = {
      {R"(\w)", U"a²½ⒶⅣः_٣", U"-৴ \u200D"},
      {R"(\W)", U"-৴ \u200D", U"a²½ⒶⅣः_٣"},
      {R"([[:word:]])", U"aⒶⅣः_", U"²½-"},
      {R"([[:alpha:]])", U"aªⒶ", U"1_²"},
      {R"([[:^alpha:]])", U"1_²", U"aªⒶ"},
      {R"([[:upper:]])", U"AⅣⒶ", U"aªǅ"},
      {R"([[:lower:]])", U"aªⓐ", U"Aǅ"},
      {R"([[:alnum:]])", U"a1٣", U"²_"},
      {R"([[:punct:]])", U"!$¢", U"a "},
      {R"([[:graph:]])", U"a\u061C", U"\u00A0 \n"},
      {R"([[:space:]])", U"\u00A0 \n", U"\u180Ea"},
      {R"([\W])", U"- ", U"a²"},
      {R"([\W_])", U"_-", U"a²"},
      {R"([^\W_])", U"a²", U"_-"},
      {R"([\S\n])", U"a\n", U" "},
      {R"([\H])", U"g-", U"aF0"}};
  SplitRegex::Scratch scratch;
  for (const auto& [pattern, inside, outside] : rows) {
    const SplitRegex regex(pattern, "test");
    const auto matches = [&](char32_t code) {
      std::string text;
      append_utf8(text, code);
      SplitRegex::Match match;
      return regex.find(text, 0, scratch, match) && match.end == text.size();
    };
    for (const char32_t* c = inside; *c != 0; ++c)
      EXPECT_TRUE(matches(*c)) << pattern << " " << static_cast<unsigned>(*c);
    for (const char32_t* c = outside; *c != 0; ++c)
      EXPECT_FALSE(matches(*c)) << pattern << " " << static_cast<unsigned>(*c);
  }
  EXPECT_THROW(SplitRegex("[[:no:]]", "test"), Error);
}

}  // namespace
}  // namespace sluice
