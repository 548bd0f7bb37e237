// text/grammar/schema: the front end of JSON schemas. A schema is refused with a reason, or its
// grammar and the validator agree on texts: what the grammar accepts is valid, and what is valid is
// accepted in any order of keys.
#include <array>
#include <functional>

#include "fuzz_support.h"
#include "fuzz_target.h"
#include "text/grammar/schema/schema_strings.h"
#include "text/grammar/schema/testing/accept.h"
#include "text/grammar/schema/validator.h"

namespace sluice::fuzz {
namespace {

constexpr std::array kTexts = {
    "null",
    "true",
    "0",
    "-1.50",
    "7",
    "12e-1",
    "\"\"",
    "\"a\"",
    "\"2024-02-29\"",
    "\"ab\\u00e9\\\"\"",
    "[]",
    "[1]",
    "[1, 1.0]",
    "[\"a\", 2, null]",
    "{}",
    R"({"a": 1})",
    R"({"a": "x", "b": [1]})",
    R"({"b": 2, "a": {"a": {"b": null}}})",
    R"({"foo": 3, "bar": "b", "c": false})",
};

constexpr std::uint64_t kMaxShortWork = 2048;

}  // namespace

void run_one(std::string_view input) {
  using namespace grammar;
  if (input.size() > 20'000) return;
  const Result<SchemaGraph> graph = SchemaGraph::parse(input);
  const auto is_refused = [](const SchemaAcceptor& acceptor) {
    must_hold(acceptor.ok() || (acceptor.fault.status == 400 && !acceptor.fault.code.empty() &&
                                !acceptor.fault.message.empty()),
              "a refused schema has a status, a code and a reason");
    return !acceptor.ok();
  };
  // The budget of a compile may end anywhere.
  const std::uint64_t work = std::hash<std::string_view>{}(input) % kMaxShortWork;
  is_refused(SchemaAcceptor(input, {.max_space = 8}, {.max_work = work}));
  SchemaAcceptor acceptor(input, {.any_order = true});
  if (is_refused(acceptor)) return;
  must_hold(graph.ok(), "an accepted schema is read");
  Languages languages;
  const Result<SchemaLanguages> strings = SchemaLanguages::compile(*graph, languages, true);
  must_hold(strings.ok(), "patterns of an accepted schema compile");
  SchemaValidator validator(*graph, *strings);
  for (const char* text : kTexts) {
    const Result<ExactJson> instance = ExactJson::parse(text, {});
    const std::optional<bool> is_valid = validator.is_valid(graph->root, *instance, 0);
    const bool is_accepted = acceptor.accepts(text);
    if (acceptor.is_exhausted() || languages.is_exhausted() || !is_valid) return;
    must_hold(!is_accepted || *is_valid, "what the grammar accepts is valid");
    must_hold(is_accepted || !*is_valid, "what is valid is accepted");
  }
}

std::vector<std::string> seeds() {
  return {
      R"({"type":"object","properties":{"a":{"type":"integer","minimum":0},)"
      R"("b":{"enum":[1,"x"]}},)"
      R"("required":["a"],"additionalProperties":false})",
      R"({"anyOf":[{"type":"string","pattern":"^a+$"},{"type":"integer"}],"maxLength":2,)"
      R"("maximum":9})",
      R"({"oneOf":[{"required":["a"]},{"required":["b"]}],"not":{"maxProperties":0}})",
      R"({"type":"array","items":{"type":["number","null"]},"uniqueItems":true,"minItems":1})",
      R"({"prefixItems":[{"const":1}],"contains":{"type":"string"},"unevaluatedItems":false})",
      R"({"$ref":"#/$defs/n","$defs":{"n":{"properties":{"a":{"$ref":"#/$defs/n"}}}}})",
      R"({"patternProperties":{"^b":{"type":"string"},"o":{"minimum":3}},"propertyNames":)"
      R"({"maxLength":3},"unevaluatedProperties":{"type":"integer"}})",
      R"({"if":{"properties":{"a":{"const":1}}},"then":{"required":["b"]},)"
      R"("else":{"minProperties":1}})",
      R"({"dependentRequired":{"a":["b"]},"dependentSchemas":{"foo":{"required":["bar"]}}})",
      R"({"$schema":"http://json-schema.org/draft-04/schema#","minimum":1,)"
      R"("exclusiveMinimum":true,)"
      R"("items":[{}],"additionalItems":false,"dependencies":{"a":["b"],"b":{"type":"object"}}})",
      R"({"type":"number","multipleOf":0.05,"exclusiveMaximum":7.5})",
      R"({"type":"string","format":"date","minLength":1})",
      R"({"$dynamicAnchor":"n","properties":{"a":{"$dynamicRef":"#n"}},)"
      R"("additionalProperties":false})",
  };
}

}  // namespace sluice::fuzz
