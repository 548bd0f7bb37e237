#include "text/unicode.h"

#include <gtest/gtest.h>

#include <ctime>

#include "base/build.h"

namespace sluice {
namespace {

TEST(Utf8, InvalidTextBecomesOneReplacementForEachMaximalSubpart) {
  const struct {
    const char* name;
    std::string bytes;
    std::string text;
  } rows[] = {
      {"ascii", "abc", "abc"},
      {"stray continuation", "a\x80\x80z", "a\uFFFD\uFFFDz"},
      {"overlong", "\xC0\xAF", "\uFFFD\uFFFD"},
      {"surrogate", "\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"above U+10FFFF", "\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"cut before the last byte", "\xF0\x9F\x98", "\uFFFD"},
      {"cut, then ascii", "\xF0\x9F\x98z", "\uFFFDz"},
      {"cut, then a character", "\xE4\xBD\xC3\xA9", "\uFFFD\u00e9"},
      {"no such lead", "\xFF\xFE", "\uFFFD\uFFFD"},
      {"last code point", "\xF4\x8F\xBF\xBF", "\U0010FFFF"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(to_valid_utf8(row.bytes), row.text) << row.name;
    EXPECT_EQ(is_valid_utf8(row.bytes), row.bytes == row.text) << row.name;
  }
}

TEST(Utf8, EveryCodePointSurvives) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, code);
    int size = 0;
    ASSERT_EQ(decode_utf8(text, size), code);
    ASSERT_EQ(static_cast<std::size_t>(size), text.size());
    ASSERT_EQ(last_character("x" + text), code);
    ASSERT_EQ(next_utf8(text).kind, Utf8Step::kCharacter);
    ASSERT_EQ(next_utf8(text).code, code);
    if (size > 1) {
      ASSERT_EQ(next_utf8(std::string_view(text).substr(0, text.size() - 1)).kind,
                Utf8Step::kIncomplete);
    }
  }
}

TEST(Properties, CharactersAreWhereUnicodePutsThem) {
  const struct {
    char32_t code;
    bool space, word, numeric, punctuation;
  } rows[] = {
      {' ', true, false, false, false},     {'\n', true, false, false, false},
      {0x1F, false, false, false, false},   {0x85, true, false, false, false},
      {0xA0, true, false, false, false},    {0x180E, false, false, false, false},
      {0x200B, false, false, false, false}, {0x3000, true, false, false, false},
      {'a', false, true, false, false},     {'_', false, true, false, true},
      {'9', false, true, true, false},      {0xB2, false, false, true, false},
      {0x2167, false, true, true, false},   {0xBD, false, false, true, false},
      {'$', false, false, false, true},     {0x20AC, false, false, false, false},
      {0x3002, false, false, false, true},  {0x4F60, false, true, false, false},
      {0x301, false, true, false, false},   {0x200D, false, true, false, false},
      {0x24B6, false, true, false, false},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(is_white_space(row.code), row.space) << std::hex << static_cast<unsigned>(row.code);
    EXPECT_EQ(is_word(row.code), row.word) << std::hex << static_cast<unsigned>(row.code);
    EXPECT_EQ(is_numeric(row.code), row.numeric) << std::hex << static_cast<unsigned>(row.code);
    EXPECT_EQ(is_punctuation(row.code), row.punctuation)
        << std::hex << static_cast<unsigned>(row.code);
  }
}

TEST(Normalize, FormsOfKnownTexts) {
  EXPECT_EQ(normalize("e\u0301", NormalForm::kNfc), "\u00e9");
  EXPECT_EQ(normalize("\u00e9", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(normalize("\uFB01 \u2460", NormalForm::kNfkc), "fi 1");
  EXPECT_EQ(normalize("\uFB01", NormalForm::kNfc), "\uFB01");
  EXPECT_EQ(normalize("\u1112\u1161\u11AB", NormalForm::kNfc), "\uD55C");
  EXPECT_EQ(normalize("\uD55C", NormalForm::kNfd), "\u1112\u1161\u11AB");
  EXPECT_EQ(normalize("q\u0307\u0323", NormalForm::kNfc),
            "q\u0323\u0307");  // marks are ordered by class
  EXPECT_EQ(normalize("a\u0300\u0301", NormalForm::kNfc), "\u00e0\u0301");  // an equal class blocks
  EXPECT_EQ(normalize("\u2126\u212B", NormalForm::kNfc), "\u03A9\u00C5");   // singletons
  EXPECT_EQ(normalize("\u0958", NormalForm::kNfc), "\u0915\u093C");  // a composition exclusion
  EXPECT_EQ(normalize("a\u08D0\u0301", NormalForm::kNfc),
            "a\u08D0\u0301");  // younger than Unicode 9: blocks
  EXPECT_EQ(lowercase("A\u0130\u00C5\u1E9E"), "ai\u0307\u00E5\u00DF");
}

TEST(Normalize, ALongRunOfMarksTakesNoQuadraticTime) {
  std::string text = "a";
  for (int i = 0; i < 250'000; ++i)
    text += "\u0301\u0323";  // classes 230 and 220: each pair is out of order
  const std::clock_t begun = std::clock();
  const std::string normal = normalize(text, NormalForm::kNfc);
  EXPECT_LT(std::clock() - begun, (kTimedBuild ? 2 : 20) * CLOCKS_PER_SEC);
  EXPECT_TRUE(normal.starts_with("\u1EA1\u0323"));
}

TEST(ByteAlphabet, MapsEveryByteAndBack) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  const std::string text = to_byte_alphabet(bytes);
  EXPECT_TRUE(is_valid_utf8(text));
  std::string back;
  EXPECT_TRUE(from_byte_alphabet(text, back));
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(to_byte_alphabet(" a\n"), "\u0120a\u010A");
  EXPECT_FALSE(from_byte_alphabet("a b", back));
  EXPECT_EQ(back, bytes);
}

}  // namespace
}  // namespace sluice
