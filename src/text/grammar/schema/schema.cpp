#include "text/grammar/schema/schema.h"

#include "text/grammar/schema/formats.h"
#include "text/grammar/schema/lowering.h"

namespace sluice::grammar {
namespace {

void keep_objects(SchemaGraph& graph) {
  if (graph.root == kFalseSchema) return;
  if (graph.root == kTrueSchema) {
    graph.root = static_cast<SchemaId>(graph.schemas.size());
    graph.schemas.emplace_back().at = 0;
  }
  Schema& root = graph.schemas[static_cast<std::size_t>(graph.root)];
  if ((root.types & kObjectType) != 0) root.types = kObjectType;
}

}  // namespace

Result<SchemaRoot> add_json_schema(Grammar& grammar, std::string_view schema,
                                   const SchemaOptions& options) {
  Result<SchemaGraph> graph = SchemaGraph::parse(schema);
  if (!graph) return graph.fault();
  if (options.only_objects) keep_objects(*graph);
  SchemaRoot out;
  out.ignored = std::move(graph->ignored);
  for (const Schema& one : graph->schemas) {
    if (!one.string || one.string->format.empty()) continue;
    if (options.assert_formats && is_asserted_format(one.string->format)) continue;
    out.ignored.push_back(graph->json.pointer(one.at) + "/format");
  }
  const auto host = std::make_shared<SchemaHost>(std::move(*graph), options.assert_formats);
  const Result<SchemaLanguages> strings =
      SchemaLanguages::compile(host->graph(), grammar.languages(), options.assert_formats);
  if (!strings) return strings.fault();
  if (host->graph().root == kFalseSchema) {
    return schema_fault("unsatisfiable_json_schema", "", "false allows no value");
  }
  const Result<NodeId> root = Lowering(grammar, host, *strings, options).lower();
  if (!root) return root.fault();
  out.node = *root;
  return out;
}

}  // namespace sluice::grammar
