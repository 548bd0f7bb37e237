#include "text/grammar/schema/exact_json.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::grammar {
namespace {

ExactJson parse(std::string_view text) {
  Result<ExactJson> json = ExactJson::parse(text, {});
  EXPECT_TRUE(json.ok()) << text << ": " << (json.ok() ? "" : json.fault().message);
  return json.ok() ? std::move(*json) : ExactJson();
}

std::string code(std::string_view text, const ExactJsonLimits& limits = {}) {
  const Result<ExactJson> json = ExactJson::parse(text, limits);
  return json.ok() ? "" : json.fault().code;
}

TEST(ExactJson, KeepsNumbersAsWrittenAndKeysInOrder) {
  const std::string text = R"({"z":1.50e400,"a":[true,null,{}],"":"\ud83d\ude00/"})";
  const ExactJson json = parse(text);
  EXPECT_EQ(json.dump(0), R"({"z":1.50e400,"a":[true,null,{}],"":"😀/"})");
  EXPECT_EQ(json.text(json.member(0, "z")), "1.50e400");
  EXPECT_EQ(json.length(json.member(0, "")), 2U);
  EXPECT_EQ(json.count(json.member(0, "a")), 3U);
  EXPECT_EQ(json.member(0, "b"), kNoJson);
}

TEST(ExactJson, RefusesWhatIsNotStrictJson) {
  for (const char* text : {"",
                           " ",
                           "[1,]",
                           "{\"a\":1,}",
                           "{a:1}",
                           "[1 2]",
                           "01",
                           "1.",
                           "nul",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\ud800\"",
                           "\"\\udc00\"",
                           "\"\\ud800\\u0041\"",
                           "\"a",
                           "\"\x01\"",
                           "\"\xff\"",
                           "[",
                           "]",
                           "{\"a\"}",
                           "{\"a\":}",
                           "1 1",
                           "{\"a\":1]",
                           "NaN",
                           "+1",
                           "'a'"}) {
    EXPECT_EQ(code(text), "invalid_json") << text;
  }
  EXPECT_EQ(code(R"({"a":1,"\u0061":2})"), "duplicate_key");
  EXPECT_EQ(code(R"({"a":1,"a":2})", {.repeated_keys = true}), "");
}

TEST(ExactJson, BoundsDepthBytesAndValues) {
  EXPECT_EQ(code(std::string(512, '[') + std::string(512, ']')), "");
  EXPECT_EQ(code(std::string(513, '[') + std::string(513, ']')), "json_too_deep");
  EXPECT_EQ(code(std::string(1'000'000, '[')), "json_too_deep");
  EXPECT_EQ(code("[1,2,3]", {.max_values = 3}), "json_too_large");
  EXPECT_EQ(code("[1,2,3]", {.max_bytes = 6}), "json_too_large");
}

TEST(ExactJson, PointersNameValues) {
  const ExactJson json = parse(R"({"a/b":[10,{"~":true}],"0":{"":5}})");
  for (const char* pointer : {"", "/a~1b", "/a~1b/0", "/a~1b/1/~0", "/0", "/0/"}) {
    const JsonId id = json.find(0, pointer);
    ASSERT_NE(id, kNoJson) << pointer;
    EXPECT_EQ(json.pointer(id), pointer);
  }
  for (const char* pointer :
       {"a", "/b", "/a~1b/2", "/a~1b/01", "/a~1b/-", "/a~2b", "/0/x", "/a/b"}) {
    EXPECT_EQ(json.find(0, pointer), kNoJson) << pointer;
  }
}

TEST(ExactJson, CanonicalTextsAreEqualForEqualValuesOnly) {
  const auto canonical = [](std::string_view text) { return parse(text).canonical(0); };
  EXPECT_EQ(canonical(R"({"a":1.0,"b":"\u00e9"})"), canonical(R"({ "b" : "é", "a" : 10e-1 })"));
  EXPECT_NE(canonical("[1,2]"), canonical("[2,1]"));
  EXPECT_NE(canonical("[[1],2]"), canonical("[[1,2]]"));
  EXPECT_NE(canonical("1"), canonical("\"1\""));
  EXPECT_NE(canonical("false"), canonical("0"));
  EXPECT_NE(canonical("9007199254740992"), canonical("9007199254740993"));
  EXPECT_NE(canonical(R"(["a,b"])"), canonical(R"(["a","b"])"));
}

}  // namespace
}  // namespace sluice::grammar
