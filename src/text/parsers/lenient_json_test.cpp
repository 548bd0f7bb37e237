#include "text/parsers/lenient_json.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(LenientJson, StrictTextStays) {
  for (const char* text :
       {"{}", "[]", "1", "-0.0", "1.50", "1E+3", "1e400", "12345678901234567890123", "true", "null",
        R"("\u00e9\/\ud83d\ude00 é")", R"({"a":[1,{"b":null}],"c":"}"})", R"({"a": 1, "a": 2})"}) {
    const auto read = read_json_text(std::string("\n ") + text + " ");
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(read->text, text);
    EXPECT_TRUE(read->is_strict);
  }
  EXPECT_EQ(read_json_text("7")->kind, JsonKind::kInteger);
  EXPECT_EQ(read_json_text("7.0")->kind, JsonKind::kNumber);
}

TEST(LenientJson, ClearMeaningsAreMended) {
  const std::pair<const char*, const char*> rows[] = {
      {"{'a': [1, None, True,],}", R"({"a": [1, null, true]})"},
      {"'it\\'s \"x\" \\x41'", R"("it's \"x\" \u0041")"},
      {"\"a\nb\tc\"", R"("a\u000ab\u0009c")"},
      {"\"it\\'s\"", R"("it's")"},
      {"[False, 1.50, 12345678901234567890123]", "[false, 1.50, 12345678901234567890123]"},
  };
  for (const auto& [text, wanted] : rows) {
    const auto read = read_json_text(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(read->text, wanted);
    EXPECT_FALSE(read->is_strict);
  }
}

TEST(LenientJson, OtherTextIsRefused) {
  for (const char* text :
       {"",          " ",         "{",         "}",       "{a: 1}",      "[1 2]",     "[,]",
        "{\"a\" 1}", "{\"a\": }", "NaN",       "-",       "01",          "1.",        ".5",
        "1e",        "+1",        "'a",        "\"a",     "\"\\q\"",     "\"\\u12\"", "nul",
        "1 2",       "{} x",      "undefined", "// c\n1", "{\"a\": 1,,}"})
    EXPECT_FALSE(read_json_text(text)) << text;
  EXPECT_FALSE(read_json_text(std::string(100, '[') + std::string(100, ']')));
}

TEST(LenientJson, Members) {
  JsonMembers members;
  ASSERT_EQ(read_json_members(R"( {"a": {"x":1}, 'b': [1,], "c": "</t>"}} rest)", members),
            MembersStatus::kWhole);
  EXPECT_TRUE(members.is_closed);
  EXPECT_EQ(members.find("a")->text, R"({"x":1})");
  EXPECT_EQ(members.find("b")->text, "[1]");
  EXPECT_EQ(members.find("d"), nullptr);
  JsonMembers open;
  EXPECT_EQ(read_json_members(R"({"a": {"x": 1})", open), MembersStatus::kWhole);
  EXPECT_FALSE(open.is_closed);
  JsonMembers none;
  EXPECT_EQ(read_json_members(R"({"a": "x)", none), MembersStatus::kOpenString);
  EXPECT_EQ(read_json_members(R"({"a": {"b": "x\)", none), MembersStatus::kOpenString);
  EXPECT_EQ(read_json_members(R"({"a": {"x": 1)", none), MembersStatus::kBroken);
  EXPECT_EQ(read_json_members("[1]", none), MembersStatus::kBroken);
}

}  // namespace
}  // namespace sluice
