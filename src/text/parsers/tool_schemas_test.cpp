#include "text/parsers/tool_schemas.h"

#include <gtest/gtest.h>

#include <chrono>

namespace sluice {
namespace {

ToolSchemas schemas_of(const char* parameters) {
  return ToolSchemas(Json::array(
      {Json{{"type", "function"},
            {"function", {{"name", "t"}, {"parameters", parse_json(parameters).value()}}}}}));
}

TEST(ToolSchemas, StringsAreFoundWhereverTheyAreStated) {
  const ToolSchemas schemas = schemas_of(R"({
    "properties": {
      "plain": {"type": "string"}, "python": {"type": "str"},
      "same": {"$ref": "#/properties/plain"},
      "deep": {"$ref": "#/$defs/a~1b"},
      "encoded": {"$ref": "#/%24defs/an%20A~01"}, "joined": {"allOf": [{"type": "string"}]},
      "chosen": {"enum": ["1", "2"]}, "number": {"type": "int"}, "lost": {"$ref": "#/nowhere"}},
    "allOf": [{"properties": {"inherited": {"type": "string"}}}],
    "patternProperties": {"^x-": {"type": "string"}},
    "$defs": {"a/b": {"$ref": "#/$defs/c"}, "c": {"type": "string"},
              "an A~1": {"type": "string"}}})");
  for (const char* name :
       {"plain", "python", "same", "deep", "encoded", "joined", "chosen", "inherited", "x-other"})
    EXPECT_EQ(schemas.typed_value("t", name, "1"), "\"1\"") << name;
  EXPECT_EQ(schemas.typed_value("t", "number", "1"), "1");
  EXPECT_EQ(schemas.typed_value("t", "lost", "1"), "1");
  EXPECT_EQ(schemas_of(R"({"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"z": {"type":
                       "string"}}}}})")
                .typed_value("t", "z", "1"),
            "\"1\"");
  EXPECT_EQ(
      schemas_of(R"({"additionalProperties": {"type": "string"}})").typed_value("t", "z", "1"),
      "\"1\"");
}

// A hundred references to a schema that has a hundred, and so on.
TEST(ToolSchemas, ReferencesTakeBoundedTime) {
  std::string choices;
  for (int i = 0; i < 100; ++i) choices += R"({"$ref": "#/$defs/A"},)";
  choices.pop_back();
  const std::string schema = R"({"$ref": "#/$defs/A", "properties": {"x": {"$ref": "#/$defs/A"}},
                                "$defs": {"A": {"anyOf": [)" +
                             choices + "]}}}";
  const auto start = std::chrono::steady_clock::now();
  schemas_of(schema.c_str());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace sluice
