// Every keyword: the verdicts of the validator and of the grammar, in every spelling of a text.
#include "text/grammar/schema/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/grammar/schema/schema_strings.h"
#include "text/grammar/schema/testing/accept.h"
#include "text/grammar/schema/validator.h"
#include "text/unicode.h"

namespace sluice::grammar {
namespace {

using testing::HasSubstr;

struct Row {
  std::string schema;
  std::vector<std::string> valid;
  std::vector<std::string> invalid;
};

// The text with each character of its strings as \uXXXX.
std::string escaped(const std::string& text) {
  std::string out;
  bool is_string = false;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      is_string = !is_string;
      out += text[i++];
    } else if (!is_string || text[i] == '\\') {
      const std::size_t size = is_string ? (text[i + 1] == 'u' ? 6U : 2U) : 1U;
      out += text.substr(i, size);
      i += size;
    } else {
      int size = 0;
      const char32_t code = decode_utf8(std::string_view(text).substr(i), size);
      if (code < 0x10000) {
        out += fmt::format("\\u{:04x}", static_cast<unsigned>(code));
      } else {
        out += fmt::format("\\u{:04X}\\u{:04X}",
                           static_cast<unsigned>(0xD800 + ((code - 0x10000) >> 10)),
                           static_cast<unsigned>(0xDC00 + ((code - 0x10000) & 0x3FF)));
      }
      i += static_cast<std::size_t>(size);
    }
  }
  return out;
}

// The text with a line for each token.
std::string spaced(const std::string& text) {
  std::string out;
  bool is_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && (i == 0 || text[i - 1] != '\\')) is_string = !is_string;
    const bool is_mark = !is_string && std::string_view("[]{},:").find(c) != std::string_view::npos;
    if (is_mark && (c == ']' || c == '}')) out += "\n  ";
    out += c;
    if (is_mark && c != ']' && c != '}') out += "\n  ";
  }
  return out;
}

void check_rows(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    const Result<SchemaGraph> graph = SchemaGraph::parse(row.schema);
    ASSERT_TRUE(graph.ok()) << row.schema << ": " << graph.fault().message;
    Languages languages;
    const Result<SchemaLanguages> strings = SchemaLanguages::compile(*graph, languages, true);
    ASSERT_TRUE(strings.ok()) << row.schema << ": " << strings.fault().message;
    SchemaValidator validator(*graph, *strings);
    SchemaAcceptor grammar(row.schema);
    ASSERT_TRUE(grammar.ok()) << row.schema << ": " << grammar.fault.message;
    for (const bool is_valid : {true, false}) {
      for (const std::string& text : is_valid ? row.valid : row.invalid) {
        const Result<ExactJson> instance = ExactJson::parse(text, {});
        ASSERT_TRUE(instance.ok()) << text;
        EXPECT_EQ(validator.is_valid(graph->root, *instance, 0), is_valid)
            << row.schema << " validates " << text;
        for (const std::string& spelling : {text, spaced(text), escaped(text)}) {
          EXPECT_EQ(grammar.accepts(spelling), is_valid) << row.schema << " accepts " << spelling;
        }
      }
    }
  }
}

TEST(Schema, Types) {
  check_rows({
      {"true", {"1", "null", "[{}]"}, {}},
      {R"({"type":"integer"})",
       {"1", "-0", "1.0", "10e-1", "1.5e1", "0e5"},
       {"1.5", "\"1\"", "15e-1"}},
      {R"({"type":["null","boolean"]})", {"null", "true", "false"}, {"0", "\"\"", "[]"}},
      {R"({"type":"number"})", {"1", "-1.5e-7"}, {"null"}},
      {R"({"type":"string","nullable":true})", {"null", "\"a\""}, {"1"}},
  });
}

TEST(Schema, Values) {
  check_rows({
      {R"({"enum":[1,"a",null,{"x":[1,{}]}]})",
       {"1", "1.0", "0.1e1", "\"a\"", "null", R"({"x":[1,{}]})"},
       {"2", "\"b\"", "true", R"({"x":[1]})", R"({"x":[1,{}],"y":1})"}},
      {R"({"type":"string","enum":["a",1]})", {"\"a\""}, {"1"}},
      {R"({"const":{"a":1,"b":2}})", {R"({"a":1,"b":2})", R"({"b":2,"a":1})"}, {R"({"a":1})"}},
      {R"({"enum":["é","\ud83d\ude00\"/\\\n"]})", {"\"é\"", R"("😀\"/\\\n")"}, {"\"e\""}},
      {R"({"const":1.25})", {"1.25", "1.250", "125e-2"}, {"1.2", "1.251", "125"}},
  });
}

TEST(Schema, Numbers) {
  check_rows({
      {R"({"minimum":1,"maximum":6})",
       {"1", "6", "6.0", "3.5", "60e-1", "\"x\""},
       {"0", "7", "6.1", "0.9", "-3", "7e0"}},
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
       {"0.5", "5e-9"},
       {"0", "1", "-0.0", "1e0"}},
      {R"({"type":"integer","minimum":-9007199254740993,"maximum":9007199254740993})",
       {"9007199254740993", "-9007199254740993"},
       {"9007199254740994", "-9007199254740994"}},
      {R"({"type":"number","multipleOf":0.01})", {"1.25", "3", "125e-2", "0"}, {"1.255", "1e-3"}},
      {R"({"type":"integer","multipleOf":7,"maximum":50,"minimum":1})",
       {"7", "49", "21.0"},
       {"1", "56", "9", "0"}},
      {R"({"type":"integer","multipleOf":12})", {"144", "0", "-24", "12e2"}, {"13", "6"}},
      {R"({"not":{"minimum":3},"type":"number"})", {"2", "2.9"}, {"3", "4"}},
      {R"({"$schema":"http://json-schema.org/draft-04/schema#","minimum":3,)"
       R"("exclusiveMinimum":true})",
       {"4", "3.1"},
       {"3", "3.0"}},
      {R"({"$schema":"http://json-schema.org/draft-04/schema#","type":"integer"})",
       {"4"},
       {"4.0", "4e0", "4.5"}},
  });
  SchemaAcceptor range(R"({"type":"integer","minimum":10,"maximum":42})");
  for (const char* text : {"-", "5", "43", "9e", "430"})
    EXPECT_FALSE(range.may_begin(text)) << text;
  for (const char* text : {"1", "42", "40e", "4"}) EXPECT_TRUE(range.may_begin(text)) << text;
}

TEST(Schema, Strings) {
  check_rows({
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {"\"éé\"", "\"😀😀😀\""},
       {"\"é\"", "\"abcd\"", "\"\""}},
      {R"({"pattern":"b"})", {"\"abc\"", "\"b\"", "1"}, {"\"ac\""}},
      {R"({"type":"string","pattern":"^a+$","minLength":3,"maxLength":5})",
       {"\"aaa\"", "\"aaaaa\""},
       {"\"aa\"", "\"aaaaaa\"", "\"aab\""}},
      {R"({"type":"string","not":{"pattern":"^a"}})", {"\"ba\"", "\"\""}, {"\"a\"", "\"ab\""}},
      {R"({"type":"string","not":{"enum":["a","b"]}})", {"\"c\"", "\"ab\""}, {"\"a\"", "\"b\""}},
      {R"({"type":"string","allOf":[{"pattern":"x"},{"pattern":"y"}]})",
       {"\"xy\"", "\"y-x\""},
       {"\"x\"", "\"y\""}},
      {R"({"type":"string","format":"date"})",
       {"\"2024-02-29\""},
       {"\"2023-02-29\"", "\"2024-13-01\""}},
      {R"({"type":"string","format":"no-such-format"})", {"\"x\""}, {"1"}},
      {R"({"type":"string","maxLength":1000000000})", {"\"\"", "\"abc\""}, {"1"}},
  });
}

TEST(Schema, Arrays) {
  check_rows({
      {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
       {"[1]", "[1,2,3]"},
       {"[]", "[1,2,3,4]", "[\"a\"]"}},
      {R"({"prefixItems":[{"type":"integer"},{"type":"string"}],"items":false})",
       {"[]", "[1]", "[1,\"a\"]", "1"},
       {"[\"a\"]", "[1,\"a\",2]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"null"},)"
       R"("minItems":2})",
       {"[1,null]", "[1,null,null]"},
       {"[1]", "[1,2]"}},
      {R"({"type":"array","uniqueItems":true})",
       {"[1,2]", "[{\"a\":1},{\"a\":2}]", "[1,true,\"1\"]"},
       {"[1,1.0]", "[1,2,1]", "[{\"a\":1,\"b\":2},{\"b\":2,\"a\":1}]"}},
      {R"({"type":"array","contains":{"type":"integer"},"minContains":2,"maxContains":2})",
       {"[1,\"a\",2]"},
       {"[1]", "[1,2,3]", "[]"}},
      {R"({"type":"array","prefixItems":[true],"unevaluatedItems":false})",
       {"[]", "[1]"},
       {"[1,2]"}},
      {R"({"type":"array","items":{"not":{"type":"string"}}})", {"[1,null]"}, {"[\"a\"]"}},
      {R"({"type":"array","not":{"items":{"type":"integer"}}})",
       {"[\"a\"]", "[1,\"a\"]"},
       {"[]", "[1]"}},
  });
  SchemaAcceptor unique(R"({"type":"array","items":{"enum":[1,2,3]},"uniqueItems":true})");
  EXPECT_TRUE(unique.may_begin("[1, 2, "));
  EXPECT_FALSE(unique.may_begin("[1, 1]"));
  EXPECT_FALSE(unique.may_begin("[1, 1,"));
}

// A model that repeats a value, or a comma, must not reach a text without an end.
TEST(Schema, ListedValuesComeOnceInUniqueItemsAndKeys) {
  check_rows({
      {R"({"type":"array","items":{"enum":["red","green",1,null,{"a":1}]},"uniqueItems":true,)"
       R"("minItems":2,"maxItems":3})",
       {R"(["green","red"])", R"([1,null,"red"])", R"([{"a":1},1.0])"},
       {"[]", R"(["red"])", R"(["red","red"])", "[1,1.0]", R"(["red","green",1,null])"}},
      {R"({"type":"array","items":{"anyOf":[{"type":["boolean","null"]},{"type":"integer",)"
       R"("minimum":0,"maximum":2}]},"uniqueItems":true})",
       {"[]", "[true,0,null,2,false,1]"},
       {"[0,0]", "[true,false,true]", "[3]"}},
      {R"({"type":"array","items":{"enum":["a","b"]},"uniqueItems":true,"contains":)"
       R"({"const":"b"}})",
       {R"(["b"])", R"(["a","b"])"},
       {"[]", R"(["a"])"}},
      {R"({"type":"object","propertyNames":{"enum":["a","b",3]},"minProperties":1,)"
       R"("properties":{"b":{"type":"null"}},"additionalProperties":{"type":"integer"}})",
       {R"({"a":1})", R"({"b":null,"a":1})"},
       {"{}", R"({"c":1})", R"({"b":1})", R"({"a":null})"}},
      {R"({"type":"object","propertyNames":{"const":"a"},"patternProperties":)"
       R"({"^a":{"type":"integer"}}})",
       {"{}", R"({"a":1})"},
       {R"({"a":"x"})", R"({"ab":1})"}},
  });
  SchemaAcceptor items(R"({"type":"array","items":{"enum":["red","rose"]},"uniqueItems":true})");
  EXPECT_TRUE(items.may_begin(R"(["red", "ro)"));
  EXPECT_FALSE(items.may_begin(R"(["red", "re)"));
  EXPECT_FALSE(items.may_begin(R"(["red", "rose",)"));
  SchemaAcceptor keys(R"({"type":"object","propertyNames":{"enum":["ab","ac"]}})");
  EXPECT_TRUE(keys.may_begin(R"({"ac": 1, "ab)"));
  EXPECT_FALSE(keys.may_begin(R"({"ab": 1, "ab)"));
  EXPECT_FALSE(keys.may_begin(R"({"ab": 1, "ac": 2,)"));
  SchemaAcceptor none(R"({"type":"array","items":{"enum":[1,2]},"uniqueItems":true,"minItems":3})");
  EXPECT_FALSE(none.ok());
}

TEST(Schema, ContainedItemsAreCounted) {
  check_rows({
      {R"({"type":"array","contains":{"const":7}})", {"[7]", "[1,7,2,7]"}, {"[]", "[1]"}},
      {R"({"type":"array","items":{"type":"integer"},"contains":{"minimum":5},"maxItems":3})",
       {"[5]", "[1,2,9]", "[5,6,7]"},
       {"[]", "[1,2,3]", R"(["a",5])", "[1,2,3,5]"}},
      {R"({"type":"array","items":{"enum":["a","b"]},"contains":{"const":"b"},"minContains":2,)"
       R"("maxContains":3,"minItems":3})",
       {R"(["b","a","b"])", R"(["a","a","b","b","b"])"},
       {R"(["b","b"])", R"(["a","a","b"])", R"(["b","b","b","b"])"}},
      {R"({"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"contains":)"
       R"({"type":"integer"},"maxContains":1})",
       {R"(["a",1])", R"(["a",1,"x"])"},
       {R"(["a"])", R"(["a",1,2])", "[]"}},
      {R"({"type":"array","contains":{"type":"null"},"minContains":0,"maxContains":0})",
       {"[]", "[1,2]"},
       {"[null]", "[1,null]"}},
      {R"({"type":"array","contains":true,"maxContains":2})", {"[1]", "[1,2]"}, {"[]", "[1,2,3]"}},
      {R"({"contains":{"type":"null"},"not":{"maxItems":1}})",
       {"[null,1]"},
       {"[null]", "[1,2]", "1"}},
  });
  SchemaAcceptor last(R"({"items":{"enum":[1,2]},"contains":{"const":2},"maxItems":2})");
  EXPECT_TRUE(last.may_begin("[1, 2"));
  EXPECT_FALSE(last.may_begin("[1, 1"));
  SchemaAcceptor most(R"({"items":{"enum":["a","b"]},"contains":{"const":"b"},"maxContains":1})");
  EXPECT_TRUE(most.may_begin(R"(["b", "a)"));
  EXPECT_FALSE(most.may_begin(R"(["b", "b)"));
}

TEST(Schema, Objects) {
  check_rows({
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},)"
       R"("required":["a"]})",
       {R"({"a":1})", R"({"a":1,"b":"x"})", R"({"a":1,"c":[]})"},
       {"{}", R"({"b":"x"})", R"({"a":"x"})", R"({"a":1,"b":1})"}},
      {R"({"type":"object","properties":{"a":{}},"additionalProperties":false})",
       {"{}", R"({"a":null})"},
       {R"({"b":1})"}},
      {R"({"type":"object","properties":{"a\"\u0000/é":{"type":"integer"}},)"
       R"("additionalProperties":false})",
       {R"({"a\"\u0000/é":1})"},
       {R"({"a":1})"}},
      {R"({"patternProperties":{"^n_":{"type":"integer"}},)"
       R"("additionalProperties":{"type":"string"}})",
       {R"({"n_a":1,"s":"x"})", "{}"},
       {R"({"n_a":"x"})", R"({"s":1})"}},
      {R"({"properties":{"foo":{"maximum":9}},)"
       R"("patternProperties":{"f":{"type":"integer"},"o$":{"minimum":3}}})",
       {R"({"foo":5})", R"({"fab":1,"bo":3.5})"},
       {R"({"foo":2})", R"({"foo":10})", R"({"foo":"x"})", R"({"fo":2})"}},
      {R"({"propertyNames":{"pattern":"^[a-z]+$","maxLength":2}})",
       {R"({"ab":1})"},
       {R"({"A":1})", R"({"abc":1})"}},
      {R"({"type":"object","minProperties":1,"maxProperties":2})",
       {R"({"a":1})", R"({"a":1,"b":2})"},
       {"{}", R"({"a":1,"b":2,"c":3})"}},
      {R"({"type":"object","properties":{"a":{},"b":{}},"dependentRequired":{"a":["b"]}})",
       {R"({"b":1})", R"({"a":1,"b":1})"},
       {R"({"a":1})"}},
      {R"({"dependentSchemas":{"a":{"required":["b"],"properties":{"b":{"type":"null"}}}}})",
       {R"({"b":1})", R"({"a":1,"b":null})"},
       {R"({"a":1})", R"({"a":1,"b":1})"}},
      {R"({"required":["x"],"properties":{"x":{"type":"array"}}})",
       {"1", R"({"x":[]})"},
       {"{}", R"({"x":1})"}},
      {R"({"properties":{"a":{}},"unevaluatedProperties":false})",
       {R"({"a":1})"},
       {R"({)"
        R"("b":1})"}},
      {R"({"allOf":[{"properties":{"a":{}}}],"properties":{"b":{}},)"
       R"("unevaluatedProperties":{"type":"null"}})",
       {R"({"a":1,"b":2,"c":null})"},
       {R"({"c":1})"}},
      {R"({"anyOf":[{"properties":{"a":{"const":1}},"required":["a"]},)"
       R"({"properties":{"b":{}}}],"unevaluatedProperties":false,"type":"object"})",
       {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":1})"},
       {R"({"a":2})", R"({"c":1})"}},
      {R"({"type":"object","properties":{"k":{"enum":["a","b"]}},"required":["k"],)"
       R"("if":{"properties":{"k":{"const":"a"}}},"then":{"properties":{"x":{}}},)"
       R"("else":{"properties":{"y":{}}},"unevaluatedProperties":false})",
       {R"({"k":"a"})", R"({"k":"a","x":1})", R"({"k":"b","y":1})"},
       {R"({"k":"a","y":1})", R"({"k":"b","x":1})", R"({"x":1})"}},
      {R"({"type":"object","oneOf":[{"properties":{"a":{}},"required":["a"]},)"
       R"({"properties":{"b":{}},"required":["b"]}],"unevaluatedProperties":false})",
       {R"({"a":1})", R"({"b":1})"},
       {R"({"a":1,"b":1})", "{}", R"({"a":1,"c":1})"}},
      {R"({"type":"object","anyOf":[{"properties":{"a":{"type":"null"}}},{"properties":)"
       R"({"b":{"type":"null"}},"allOf":[{"properties":{"c":{}}}]}],)"
       R"("unevaluatedProperties":{"type":"integer"}})",
       {"{}", R"({"a":1,"b":null,"c":"x"})", R"({"a":null,"b":1,"d":2})"},
       {R"({"a":"x","b":"y"})", R"({"b":1,"c":"x"})"}},
      {R"({"type":"object","$defs":{"s":{"properties":{"a":{}}}},"$ref":"#/$defs/s",)"
       R"("allOf":[{"dependentSchemas":{"b":{"$ref":"#/$defs/s"}},"properties":{"b":{}},)"
       R"("unevaluatedProperties":false}]})",
       {R"({"b":1,"a":1})", R"({"b":1})"},
       {R"({"a":1})", R"({"b":1,"c":1})"}},
      {R"({"type":"object","$defs":{"t":{"properties":{"a":{}}}},"anyOf":[{"$ref":"#/$defs/t"},)"
       R"(true],"allOf":[{"if":{"required":["z"]},"then":{"$ref":"#/$defs/t"},)"
       R"("properties":{"z":{}},"unevaluatedProperties":false}]})",
       {R"({"z":1,"a":1})", R"({"z":1})", "{}"},
       {R"({"a":1})", R"({"z":1,"b":1})"}},
  });
  SchemaAcceptor branches(
      R"({"type":"object","properties":{"k":{"enum":["a","b"]}},"required":["k"],)"
      R"("if":{"properties":{"k":{"const":"a"}}},"then":{"properties":{"x":{}}},)"
      R"("else":{"properties":{"y":{}}},"unevaluatedProperties":false})");
  EXPECT_TRUE(branches.may_begin(R"({"k":"a","x)"));
  EXPECT_FALSE(branches.may_begin(R"({"k":"a","y)"));
}

TEST(Schema, Combinations) {
  check_rows({
      {R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},)"
       R"({"properties":{"b":{"type":"string"}},"required":["b"]}],"type":"object"})",
       {R"({"a":1,"b":"x"})", R"({"b":"x","a":1})"},
       {R"({"a":1})", R"({"b":"x"})", R"({"a":"x","b":"x"})"}},
      {R"({"anyOf":[{"type":"string"},{"type":"integer"}],"maxLength":2,"maximum":9})",
       {"\"ab\"", "9"},
       {"\"abc\"", "10", "1.5"}},
      {R"({"oneOf":[{"type":"integer"},{"minimum":2}]})", {"1", "2.5", "\"x\""}, {"3", "1.5"}},
      {R"({"oneOf":[{"required":["a"]},{"required":["b"]}],"type":"object"})",
       {R"({"a":1})", R"({"b":1,"c":1})"},
       {"{}", R"({"a":1,"b":1})"}},
      {R"({"not":{"type":"object","required":["a"]}})",
       {"1", "{}", R"({"b":1})"},
       {R"({)"
        R"("a":1})"}},
      {R"({"type":"object","properties":{"k":{"enum":["a","b"]},"v":{}},"required":["k",)"
       R"("v"],"if":{"properties":{"k":{"const":"a"}}},)"
       R"("then":{"properties":{"v":{"type":"integer"}}},)"
       R"("else":{"properties":{"v":{"type":"null"}}}})",
       {R"({"k":"a","v":1})", R"({"k":"b","v":null})"},
       {R"({"k":"a","v":null})", R"({"k":"b","v":1})", R"({"k":"c","v":1})"}},
      {R"({"type":"object","properties":{"v":{"type":"integer"},"next":{"$ref":"#"}},)"
       R"("additionalProperties":false})",
       {R"({"v":1,"next":{"next":{}}})"},
       {R"({"next":{"v":"x"}})", R"({"next":{"w":1}})"}},
      {R"({"$ref":"#/$defs/s","maxLength":2,"$defs":{"s":{"type":"string"}}})",
       {"\"ab\""},
       {"\"abc\"", "1"}},
      {R"({"$dynamicAnchor":"n","type":"object","properties":{"c":{"$dynamicRef":"#n"}},)"
       R"("additionalProperties":false})",
       {R"({"c":{}})"},
       {R"({"c":1})", R"({"c":{"d":1}})"}},
  });
}

TEST(Schema, AnyOrderOfKeysIsAnOption) {
  const char* schema = R"({"type":"object","properties":{"a":{},"b":{}},"required":["a"]})";
  SchemaAcceptor declared(schema);
  SchemaAcceptor any(schema, {.any_order = true});
  EXPECT_TRUE(declared.accepts(R"({"a":1,"b":2,"c":3})"));
  EXPECT_FALSE(declared.accepts(R"({"b":2,"a":1})"));
  for (const char* text : {R"({"b":2,"a":1})", R"({"c":3,"b":2,"a":1})", R"({"a":1,"b":2})"}) {
    EXPECT_TRUE(any.accepts(text)) << text;
  }
  EXPECT_FALSE(any.accepts(R"({"b":2})"));
  EXPECT_FALSE(any.accepts(R"({"a":2,"a":1})"));
}

TEST(Schema, CompactTextsHaveNoSpace) {
  SchemaAcceptor compact(R"({"type":"object","properties":{"a":{"type":"array"}}})",
                         {.max_space = 0});
  EXPECT_TRUE(compact.accepts(R"({"a":[1,{"b":2}]})"));
  for (const char* text :
       {R"({ "a":[]})", R"({"a": []})", R"({"a":[1, 2]})", R"({"a":[{"b": 2}]})"}) {
    EXPECT_FALSE(compact.accepts(text)) << text;
  }
}

TEST(Schema, WhatNoValueFulfilsIsRefused) {
  for (const char* schema : {
           "false",
           R"({"type":"string","minLength":5,"maxLength":2})",
           R"({"type":"number","minimum":2,"maximum":1})",
           R"({"type":"integer","minimum":1,"maximum":6,"multipleOf":7})",
           R"({"type":"object","required":["a","b"],"maxProperties":1})",
           R"({"type":"object","properties":{"a":false},"required":["a"]})",
           R"({"allOf":[{"type":"string"},{"type":"integer"}]})",
           R"({"type":"integer","enum":["a","b"]})",
           R"({"enum":[]})",
           R"({"type":"string","pattern":"^[a-z]{10}$","maxLength":3})",
           R"({"type":"object","properties":{"next":{"$ref":"#"}},"required":["next"]})",
           R"({"type":"array","items":{"$ref":"#"},"minItems":1})",
       }) {
    EXPECT_FALSE(SchemaAcceptor(schema).ok()) << schema;
  }
}

TEST(Schema, ABadPatternIsNamedByItsPointer) {
  SchemaAcceptor bad(R"({"properties":{"a":{"pattern":"([a-z"}}})");
  EXPECT_THAT(bad.fault.message, HasSubstr("/properties/a/pattern"));
}

TEST(Schema, SizesAreBoundedAndDoNotCost) {
  std::string many = "{\"enum\":[";
  for (int i = 0; i < 10'000; ++i) many += fmt::format("{}\"value_{:06}\"", i > 0 ? "," : "", i);
  SchemaAcceptor values(many + "]}");
  ASSERT_TRUE(values.ok()) << values.fault.message;
  EXPECT_TRUE(values.accepts("\"value_009999\""));
  EXPECT_FALSE(values.accepts("\"value_010000\""));
  // 2^30 schemas where each use is followed anew.
  std::string doubling = "{\"$ref\":\"#/$defs/d0\",\"$defs\":{\"d30\":{\"type\":\"string\"}";
  for (int i = 0; i < 30; ++i) {
    doubling += fmt::format(
        R"(,"d{0}":{{"allOf":[{{"$ref":"#/$defs/d{1}"}},{{"$ref":"#/$defs/d{1}"}}]}})", i, i + 1);
  }
  SchemaAcceptor shared(doubling + "}}");
  ASSERT_TRUE(shared.ok()) << shared.fault.message;
  EXPECT_TRUE(shared.accepts("\"a\""));
  EXPECT_FALSE(shared.accepts("1"));
}

// A search whose automaton outgrows its budget has no answer, so `not` of it has none either.
TEST(Schema, TextsBeyondTheBudgetAreNotAcceptedByNot) {
  const Result<SchemaGraph> graph = SchemaGraph::parse(R"({"not": {"pattern": "a(a|b){26}c"}})");
  ASSERT_TRUE(graph.ok());
  std::string text;
  std::uint32_t random = 1;
  for (int i = 0; i < 600'000; ++i)
    text += (random = random * 1664525 + 1013904223) >> 31 != 0 ? 'a' : 'b';
  for (const bool ends_early : {false, true}) {
    const LazySchemaStrings strings(*graph, true);
    SchemaValidator validator(*graph, strings);
    const std::string tail = text.substr(ends_early ? text.size() - 400 : 0);
    for (const bool has_match : {false, true}) {
      const std::string value = '"' + tail + (has_match ? "a" : "b") + tail.substr(0, 26) + "c\"";
      const std::optional<bool> found =
          validator.is_valid(graph->root, *ExactJson::parse(value, {}), 0);
      if (ends_early)
        EXPECT_EQ(found, !has_match);
      else
        EXPECT_EQ(found, std::nullopt);
    }
  }
}

// Numbers between near bounds are checked when the schema is compiled.
TEST(Schema, NoDigitLeadsToNoneOfFewCheckedNumbers) {
  SchemaAcceptor odd(
      R"({"type": "integer", "not": {"multipleOf": 2}, "minimum": 10, "maximum": 13})");
  ASSERT_TRUE(odd.ok()) << odd.fault.message;
  for (const char* text : {"11", "13", "1.1e1", "130e-1"}) EXPECT_TRUE(odd.accepts(text)) << text;
  for (const char* text : {"10", "12", "9", "2", "1.2"}) EXPECT_FALSE(odd.may_begin(text)) << text;
  EXPECT_FALSE(
      SchemaAcceptor(R"({"type": "integer", "not": {"multipleOf": 1}, "minimum": 1, "maximum": 2})")
          .ok());
}

}  // namespace
}  // namespace sluice::grammar
