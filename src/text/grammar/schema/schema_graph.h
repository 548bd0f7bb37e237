// A JSON Schema as a graph: every subschema that the root reaches, with `$ref` resolved.
//
//   Result<SchemaGraph> graph = SchemaGraph::parse(text);
//   if (!graph) return graph.fault();              // names the keyword by its JSON pointer
//   const Schema& root = (*graph)[graph->root];
//
// Drafts 4, 6, 7, 2019-09 and 2020-12 by `$schema`; 2020-12 where it is absent. Nothing is fetched:
// a `$ref` that leaves the document is a fault. The graph is immutable and may be read from any
// thread. Nothing recurses on the text (R10).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/grammar/schema/decimal.h"
#include "text/grammar/schema/exact_json.h"

namespace sluice::grammar {

enum class SchemaDraft : std::uint8_t { k4, k6, k7, k2019, k2020 };

using SchemaId = std::int32_t;
inline constexpr SchemaId kNoSchema = -1;
inline constexpr SchemaId kTrueSchema = 0;   // of every graph
inline constexpr SchemaId kFalseSchema = 1;  // of every graph

// Types of values, with numbers split by whether the value is an integer.
enum ValueType : std::uint8_t {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kFractionType = 8,
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kNumberTypes = kIntegerType | kFractionType,
  kAllTypes = 127,
};

using NamedSchema = std::pair<std::string, SchemaId>;

struct NumberKeywords {
  std::optional<Decimal> minimum, maximum, exclusive_minimum, exclusive_maximum, multiple_of;
};

struct StringKeywords {
  std::uint64_t min_length = 0;
  std::optional<std::uint64_t> max_length;
  int pattern = -1;    // a place in SchemaGraph::patterns
  std::string format;  // empty: none
};

struct ArrayKeywords {
  std::vector<SchemaId> prefix;
  SchemaId items = kNoSchema;  // of the items behind the prefix
  SchemaId contains = kNoSchema;
  SchemaId unevaluated = kNoSchema;
  std::uint64_t min_items = 0;
  std::optional<std::uint64_t> max_items;
  std::uint64_t min_contains = 1;
  std::optional<std::uint64_t> max_contains;
  bool unique = false;
};

struct ObjectKeywords {
  std::vector<NamedSchema> properties;
  std::vector<std::pair<int, SchemaId>> patterns;  // places in SchemaGraph::patterns
  SchemaId additional = kNoSchema;
  SchemaId names = kNoSchema;
  SchemaId unevaluated = kNoSchema;
  std::vector<std::string> required;
  std::uint64_t min_properties = 0;
  std::optional<std::uint64_t> max_properties;
  std::vector<std::pair<std::string, std::vector<std::string>>> dependent_required;
  std::vector<NamedSchema> dependent_schemas;
};

// One subschema. A missing part means that none of its keywords is there.
struct Schema {
  JsonId at = kNoJson;
  bool is_false = false;             // the schema `false`
  bool has_unevaluated = false;      // unevaluatedItems or unevaluatedProperties stand here
  bool integer_is_spelling = false;  // draft 4: 1.0 is no integer
  std::uint8_t types = kAllTypes;
  bool has_values = false;     // enum or const
  std::vector<JsonId> values;  // what both allow
  std::unique_ptr<NumberKeywords> number;
  std::unique_ptr<StringKeywords> string;
  std::unique_ptr<ArrayKeywords> array;
  std::unique_ptr<ObjectKeywords> object;
  std::vector<SchemaId> all_of;  // with the target of $ref
  std::vector<std::vector<SchemaId>> any_of;
  std::vector<SchemaId> one_of;
  SchemaId not_ = kNoSchema;
  SchemaId if_ = kNoSchema;
  SchemaId then_ = kNoSchema;
  SchemaId else_ = kNoSchema;
};

// A `pattern` or a key of `patternProperties`.
struct SchemaPattern {
  std::string text;
  JsonId at;  // where it stands first
};

struct SchemaGraph {
  ExactJson json;
  std::vector<Schema> schemas;
  std::vector<SchemaPattern> patterns;
  SchemaId root = kNoSchema;
  SchemaDraft draft = SchemaDraft::k2020;
  bool has_unevaluated = false;
  // Pointers of keywords that constrain nothing: unknown ones and annotations of other drafts.
  std::vector<std::string> ignored;

  const Schema& operator[](SchemaId id) const { return schemas[static_cast<std::size_t>(id)]; }
  std::string pointer(SchemaId id) const {
    return (*this)[id].at < 0 ? "" : json.pointer((*this)[id].at);
  }

  // Faults: 400 with code invalid_json_schema (a keyword has a bad value), unsupported_json_schema
  // (a remote reference), json_schema_too_large, or a code of ExactJson::parse.
  static Result<SchemaGraph> parse(std::string_view text);
};

// The subschemas that apply to the same value: $ref, allOf, anyOf, oneOf, not, if,
// dependentSchemas.
void append_in_place(const Schema& schema, std::vector<SchemaId>& out);

// A fault of a schema: `where` is a JSON pointer, "" the root.
Fault schema_fault(std::string_view code, std::string_view where, std::string_view what);

}  // namespace sluice::grammar
