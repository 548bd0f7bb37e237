// The keywords of one schema object.
#pragma once

#include <optional>
#include <string_view>

#include "text/grammar/schema/schema_graph.h"

namespace sluice::grammar {

// What the reader of keywords needs of the graph under construction.
class SchemaBuilder {
 public:
  virtual ~SchemaBuilder() = default;
  virtual SchemaId schema_at(JsonId at) = 0;
  virtual int pattern_at(JsonId at, std::string_view text) = 0;
  virtual void ignore(JsonId at) = 0;
  virtual std::optional<Fault> reference(JsonId keyword, SchemaId& target) = 0;
  virtual std::optional<Fault> dynamic_reference(JsonId keyword, SchemaId& target) = 0;
};

// Reads the value at `schema.at` into `schema`. The fault names the keyword by its pointer.
std::optional<Fault> read_keywords(SchemaBuilder& builder, const ExactJson& json, SchemaDraft draft,
                                   Schema& schema);

}  // namespace sluice::grammar
