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
       {"1 + 2)",   "a=1 + 2)", "a=open('x'))", "\"Oslo\")",       "a=b)",     "a=nan)",
        "a=01)",    "a=0x)",    "a=0xg)",       "a=0b12)",         "a=(1 2))", "a=('x') 'y')",
        "a='x' 5)", "a='x' r)", "a=b'x')",      "a=f'x')",         "(a=1))",   "1)",
        "a)",       "a=]",      "a='\\xZZ')",   "a='\\UFFFFFFFF')"})
    EXPECT_EQ(keywords(text), "!") << text;
  EXPECT_EQ(keywords("a='x"), "{\"a\": \"x...");
  EXPECT_EQ(keywords("a='x'"), "{\"a\": \"x...");
}

TEST(LiteralArguments, StringsSideBySideAreOne) {
  EXPECT_EQ(keywords(R"(a='x' 'y', b="1" '2'"3", c=['p' "q", 'r']))"),
            R"({"a": "xy", "b": "123", "c": ["pq", "r"]})");
  EXPECT_EQ(keywords("a='' \"\" 'z', b='' )"), R"({"a": "z", "b": ""})");
  EXPECT_EQ(keywords(R"(a=r"a\d\"" 'b\n', b=u'x', c={'k': R'\n'}))"),
            R"({"a": "a\\d\\\"b\n", "b": "x", "c": {"k": "\\n"}})");
}

TEST(LiteralArguments, NumbersOfOtherBasesBecomeDecimal) {
  EXPECT_EQ(keywords("a=0x10, b=-0XfF, c=0o17, d=0b1_01, e=0xFFFFFFFFFFFFFFFFFFFF)"),
            R"({"a": 16, "b": -255, "c": 15, "d": 5, "e": 1208925819614629174706175})");
}

TEST(LiteralArguments, TuplesAreLists) {
  EXPECT_EQ(keywords("a=(1, 2), b=(), c=(1,), d=((1, 2), ('x', [3])))"),
            R"({"a": [1, 2], "b": [], "c": [1], "d": [[1, 2], ["x", [3]]]})");
  // A parenthesis without a comma is none.
  EXPECT_EQ(keywords("a=(1), b=('x' 'y'), c=((2)), d=({'k': (3,)}))"),
            R"({"a": 1, "b": "xy", "c": 2, "d": {"k": [3]}})");
}

TEST(LiteralArguments, DepthIsBounded) {
  for (const char bracket : {'[', '('}) EXPECT_EQ(keywords("a=" + std::string(100, bracket)), "!");
}

TEST(LiteralArguments, BracesHaveMarkedStrings) {
  EXPECT_EQ(braces("}"), "{}");
  EXPECT_EQ(braces("city:<q>a \"b\" {c}, <x<q>,days:3,deep:{k:[<q>x<q>,null,{y:-1.5}]}}"),
            R"({"city": "a \"b\" {c}, <x", "days": 3, "deep": {"k": ["x", null, {"y": -1.5}]}})");
  EXPECT_EQ(braces("{ a b: true }"), "!");
  EXPECT_EQ(braces(" a b: true }"), R"({"a b": true})");
  EXPECT_EQ(braces("a:<q>Oslo}"), "{\"a\": \"Oslo}...");
}

TEST(LiteralArguments, BracesHaveBareStrings) {
  EXPECT_EQ(braces("city:Oslo}"), R"({"city": "Oslo"})");
  EXPECT_EQ(braces("s: plain text ,n:5,u:https://a.b/c?d=1,l:[red, it's]}"),
            R"({"s": "plain text", "n": 5, "u": "https://a.b/c?d=1", "l": ["red", "it's"]})");
  EXPECT_EQ(braces("a:None,b:true,c:1.50,d:+49 30}"),
            R"({"a": null, "b": true, "c": 1.50, "d": "+49 30"})");
  for (const char* text : {"a:x<q>}", "a:x<q", "a:b{c}}", "a:,b:1}", "a:'x'}", "a:x, y}"})
    EXPECT_EQ(braces(text), "!") << text;
}

}  // namespace
}  // namespace sluice
