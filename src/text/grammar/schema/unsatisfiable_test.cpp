#include "text/grammar/schema/unsatisfiable.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::grammar {
namespace {

std::string told(const std::string& schema) {
  const Fault fault = unsatisfiable_fault(schema, {});
  EXPECT_EQ(fault.code, "unsatisfiable_json_schema");
  return fault.message;
}

std::string at(const std::string& place, const std::string& reason) {
  return "JSON schema, " + place + ": no value of finite length fulfils it: " + reason;
}

std::string in_required(const std::string& schema) {
  return R"({"type": "object", "properties": {"a/b": )" + schema + R"(}, "required": ["a/b"]})";
}

TEST(Unsatisfiable, NamesTheKeywordsThatExcludeEachOther) {
  struct Row {
    const char* schema;
    const char* reason;
  };
  const Row rows[] = {
      {R"({"type": "string", "minLength": 5, "maxLength": 2})",
       "`minLength` and `maxLength` exclude each other"},
      {R"({"type": "integer", "minimum": 5, "exclusiveMaximum": 5})",
       "`minimum` and `exclusiveMaximum` exclude each other"},
      {R"({"type": "integer", "enum": ["a"]})", "`type` and `enum` exclude each other"},
      {R"({"enum": []})", "`enum` leaves none"},
      {R"({"type": "array", "minItems": 3, "maxItems": 2})",
       "`minItems` and `maxItems` exclude each other"},
      {R"({"type": "object", "required": ["a"], "additionalProperties": false})",
       "`additionalProperties` and `required` exclude each other"},
      {R"({"type": "object", "required": ["a", "b"], "maxProperties": 1})",
       "`required` and `maxProperties` exclude each other"},
      {R"({"type": "string", "not": {"type": "string"}})", "`type` and `not` exclude each other"},
      {R"({"type": "string", "anyOf": [{"type": "null"}, {"type": "integer"}]})",
       "`type` and `anyOf` exclude each other"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(told(row.schema), at("at the root", row.reason)) << row.schema;
    EXPECT_EQ(told(in_required(row.schema)), at("/properties/a~1b", row.reason)) << row.schema;
    EXPECT_EQ(told(R"({"type": "array", "minItems": 1, "items": )" + std::string(row.schema) + "}"),
              at("/items", row.reason))
        << row.schema;
    EXPECT_EQ(told(R"({"$ref": "#/$defs/x", "$defs": {"x": )" + std::string(row.schema) + "}}"),
              at("/$defs/x", row.reason))
        << row.schema;
  }
}

TEST(Unsatisfiable, NamesTheLimitOfDoubles) {
  const SchemaOptions options{.plain_integers = true};
  for (const std::string keyword : {"const", "enum"})
    for (const char* number : {"1e400", "-1e400", "1e5000"}) {
      const std::string value = keyword == "enum" ? "[" + std::string(number) + "]" : number;
      const Fault fault = unsatisfiable_fault("{\"" + keyword + "\": " + value + "}", options);
      EXPECT_EQ(fault.message, at("at the root", "`" + keyword +
                                                     "` leaves none, since its number is larger "
                                                     "than a double holds (1.8e308)"));
    }
}

TEST(Unsatisfiable, NamesTheReferenceThatNeverEnds) {
  const std::string text =
      told(R"({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]})");
  EXPECT_EQ(text, at("/properties/next", "`$ref` leaves none"));
}

// What is not found is not claimed.
TEST(Unsatisfiable, LargeSchemasAreToldWithoutAPlace) {
  const std::string title(70 << 10, 'a');
  EXPECT_EQ(told(R"({"title": ")" + title + R"(", "type": "string", "enum": [1]})"),
            at("at the root", "its keywords exclude each other, or a value needs itself inside"));
}

}  // namespace
}  // namespace sluice::grammar
