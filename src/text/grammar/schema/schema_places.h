// Where schemas of a document are, under which URIs and anchors: what `$ref` needs.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/grammar/schema/schema_graph.h"

namespace sluice::grammar {

struct SchemaPlaces {
  SchemaDraft draft = SchemaDraft::k2020;
  std::unordered_map<std::string, JsonId> resources;  // by URI without fragment
  std::unordered_map<std::string, JsonId> anchors;    // by URI#name, dynamic ones too
  std::unordered_map<std::string, std::vector<JsonId>> dynamic_anchors;  // by name
  std::unordered_map<JsonId, std::string> bases;  // of schemas that begin a resource
  bool root_recurses = false;                     // "$recursiveAnchor": true at the root

  // The base URI at a value: that of the nearest resource around it.
  const std::string& base(const ExactJson& json, JsonId at) const;
  // What a reference at `at` names; kNoJson where it leaves the document or names nothing.
  JsonId resolve(const ExactJson& json, JsonId at, std::string_view reference) const;
};

// Visits every schema of the document, `$defs` too. Faults: an unknown `$schema`.
Result<SchemaPlaces> find_schema_places(const ExactJson& json);

}  // namespace sluice::grammar
