#include "text/parsers/literal_arguments.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

// The JSON of the arguments; "!" and what came before a fault; "..." for unfinished ones.
std::string read(std::string_view text, LiteralArguments::Style style,
                 std::string_view quote = {}) {
  LiteralArguments literals(style, quote);
  std::string json;
  for (const char c : text) {
    switch (literals.push(c, json)) {
      case LiteralArguments::Status::kMore:
        break;
      case LiteralArguments::Status::kDone:
        return json;
      case LiteralArguments::Status::kInvalid:
        return "!";
    }
  }
  return json + "...";
}

std::string keywords(std::string_view text) {
  return read(text, LiteralArguments::Style::kKeywords);
}

std::string braces(std::string_view text) {
  return read(text, LiteralArguments::Style::kBraces, "<q>");
}

TEST(LiteralArguments, PythonBecomesJson) {
  EXPECT_EQ(keywords(")"), "{}");
  EXPECT_EQ(keywords("a='x', b=[1, None], c = {'k': True,} ,)"),
            R"({"a": "x", "b": [1, null], "c": {"k": true}})");
  EXPECT_EQ(keywords("a=true, b=null)"), R"({"a": true, "b": null})");
  EXPECT_EQ(keywords("a=12345678901234567890, b=1.50, c=-1E3, d=1_000, e=.5, f=2.)"),
            R"({"a": 12345678901234567890, "b": 1.50, "c": -1E3, "d": 1000, "e": 0.5, "f": 2.0})");
}

TEST(LiteralArguments, StringsOfPython) {
  EXPECT_EQ(keywords(R"(a='say "hi"', b="it's", c='it\'s'))"),
            R"({"a": "say \"hi\"", "b": "it's", "c": "it's"})");
  EXPECT_EQ(keywords(R"(a="\n\\d\d\x41\u00e9\U0001F600\101"))"),
            R"({"a": "\n\\d\\d\u0041\u00e9\ud83d\ude00\u0041"})");
  EXPECT_EQ(keywords("a='')"), R"({"a": ""})");
  EXPECT_EQ(keywords("a=\"\"\"two\n\"lines\" here\"\"\", b='')"),
            R"({"a": "two\n\"lines\" here", "b": ""})");
}

TEST(LiteralArguments, NothingIsEvaluated) {
  for (const char* text :
       {"1 + 2)", "a=1 + 2)", "a=open('x'))", "\"Oslo\")", "a=b)", "a=nan)", "a=01)", "a=(1, 2))",
        "a='x' 'y')", "a=f'x')", "1)", "a)", "a=]", "a='\\xZZ')", "a='\\UFFFFFFFF')"})
    EXPECT_EQ(keywords(text), "!") << text;
  EXPECT_EQ(keywords("a='x"), "{\"a\": \"x...");
}

TEST(LiteralArguments, DepthIsBounded) {
  std::string deep = "a=";
  for (int i = 0; i < 100; ++i) deep += '[';
  EXPECT_EQ(keywords(deep), "!");
}

TEST(LiteralArguments, BracesHaveMarkedStrings) {
  EXPECT_EQ(braces("}"), "{}");
  EXPECT_EQ(braces("city:<q>a \"b\" {c}, <x<q>,days:3,deep:{k:[<q>x<q>,null,{y:-1.5}]}}"),
            R"({"city": "a \"b\" {c}, <x", "days": 3, "deep": {"k": ["x", null, {"y": -1.5}]}})");
  EXPECT_EQ(braces("{ a b: true }"), "!");
  EXPECT_EQ(braces(" a b: true }"), R"({"a b": true})");
  EXPECT_EQ(braces("city:Oslo}"), "!");
  EXPECT_EQ(braces("a:<q>Oslo}"), "{\"a\": \"Oslo}...");
}

}  // namespace
}  // namespace sluice
