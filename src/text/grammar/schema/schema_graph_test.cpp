#include "text/grammar/schema/schema_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "text/grammar/schema/uri.h"

namespace sluice::grammar {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string message(std::string_view text) {
  const Result<SchemaGraph> graph = SchemaGraph::parse(text);
  return graph.ok() ? "" : graph.fault().message;
}

TEST(SchemaGraph, FaultsNameTheKeyword) {
  struct Row {
    const char* schema;
    const char* where;
  };
  for (const Row& row : {
           Row{"[]", "at the root"},
           Row{"null", "at the root"},
           Row{R"({"type":"strnig"})", "/type:"},
           Row{R"({"type":5})", "/type:"},
           Row{R"({"properties":[]})", "/properties:"},
           Row{R"({"properties":{"a":1}})", "/properties/a:"},
           Row{R"({"required":"a"})", "/required:"},
           Row{R"({"items":{"minLength":-1}})", "/items/minLength:"},
           Row{R"({"maxLength":2.5})", "/maxLength:"},
           Row{R"({"multipleOf":0})", "/multipleOf:"},
           Row{R"({"format":{}})", "/format:"},
           Row{R"({"anyOf":[]})", "/anyOf:"},
           Row{R"({"$ref":"#/$defs/none"})", "/$ref:"},
           Row{R"({"$ref":"http://127.0.0.1:9/schema.json"})", "/$ref:"},
           Row{R"({"$schema":"http://json-schema.org/draft-03/schema#"})", "/$schema:"},
           Row{R"({"exclusiveMinimum":true})", "/exclusiveMinimum:"},
       }) {
    EXPECT_THAT(message(row.schema), HasSubstr(row.where)) << row.schema;
  }
}

TEST(SchemaGraph, ASchemaThatAppliesToTheSameValueAsItselfIsRefused) {
  for (const char* schema : {
           R"({"$ref":"#"})",
           R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})",
           R"({"anyOf":[{"type":"string"},{"not":{"$ref":"#"}}]})",
       }) {
    EXPECT_THAT(message(schema), HasSubstr("cycle")) << schema;
  }
  EXPECT_EQ(message(R"({"properties":{"next":{"$ref":"#"}}})"), "");
}

TEST(SchemaGraph, ReferencesFindTheirTargets) {
  for (const char* schema : {
           R"({"$ref":"#/$defs/a~1b%25","$defs":{"a/b%":{"type":"null"}}})",
           R"({"$ref":"#/prefixItems/1","prefixItems":[true,{"type":"null"}]})",
           R"({"$id":"http://x.org/root","$ref":"leaf","$defs":{"l":{"$id":"leaf",)"
           R"("type":"null"}}})",
           R"({"$ref":"#here","$defs":{"l":{"$anchor":"here","type":"null"}}})",
           R"({"$ref":"urn:a:b#here","$defs":{"l":{"$id":"urn:a:b","$anchor":"here"}}})",
       }) {
    EXPECT_EQ(message(schema), "") << schema;
  }
  // An identifier inside a constant identifies nothing.
  EXPECT_NE(message(R"({"$ref":"leaf","const":{"$id":"leaf"}})"), "");
}

TEST(SchemaGraph, DraftsKnowTheirKeywords) {
  const auto ignored = [](std::string_view text) {
    Result<SchemaGraph> graph = SchemaGraph::parse(text);
    EXPECT_TRUE(graph.ok());
    return graph.ok() ? graph->ignored : std::vector<std::string>();
  };
  EXPECT_THAT(ignored(R"({"$schema":"http://json-schema.org/draft-04/schema#","const":1})"),
              ElementsAre("/const"));
  EXPECT_THAT(ignored(R"({"dependencies":{},"items":{"requird":[]},"title":"t"})"),
              ElementsAre("/dependencies", "/items/requird"));
  const Result<SchemaGraph> graph = SchemaGraph::parse(
      R"({"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a",)"
      R"("maxLength":1,"definitions":{"a":{"type":"string"}}})");
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ((*graph)[graph->root].string, nullptr);  // a sibling of $ref
}

TEST(SchemaGraph, DynamicReferencesFollowTheOutermostAnchor) {
  // The list of the root is one of strings, though its own default allows anything.
  const Result<SchemaGraph> graph =
      SchemaGraph::parse(R"({"$id":"http://x.org/root","$ref":"list","$defs":{)"
                         R"("item":{"$dynamicAnchor":"item","type":"string"},)"
                         R"("list":{"$id":"list","type":"array","items":{"$dynamicRef":"#item"},)"
                         R"("$defs":{"any":{"$dynamicAnchor":"item"}}}}})");
  ASSERT_TRUE(graph.ok()) << graph.fault().message;
  const SchemaId list = (*graph)[graph->root].all_of.at(0);
  const SchemaId items = (*graph)[list].array->items;
  const SchemaId item = (*graph)[items].all_of.at(0);
  EXPECT_EQ((*graph)[item].types, kStringType);
}

TEST(Uri, ResolvesByRfc3986) {
  const char* base = "http://a/b/c/d;p?q";
  EXPECT_EQ(resolve_uri(base, "g"), "http://a/b/c/g");
  EXPECT_EQ(resolve_uri(base, "./g"), "http://a/b/c/g");
  EXPECT_EQ(resolve_uri(base, "/g"), "http://a/g");
  EXPECT_EQ(resolve_uri(base, "//g"), "http://g");
  EXPECT_EQ(resolve_uri(base, "?y"), "http://a/b/c/d;p?y");
  EXPECT_EQ(resolve_uri(base, "#s"), "http://a/b/c/d;p?q");
  EXPECT_EQ(resolve_uri(base, "../../../g"), "http://a/g");
  EXPECT_EQ(resolve_uri(base, "g:h"), "g:h");
  EXPECT_EQ(resolve_uri("", "list"), "list");
}

}  // namespace
}  // namespace sluice::grammar
