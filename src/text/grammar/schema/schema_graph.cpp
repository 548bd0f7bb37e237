// Resolves `$ref` and builds the nodes, each in schema_keywords.cpp; refuses cycles of `$ref`.
#include "text/grammar/schema/schema_graph.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "text/grammar/schema/schema_keywords.h"
#include "text/grammar/schema/schema_places.h"

namespace sluice::grammar {
namespace {

constexpr std::size_t kMaxSchemas = 200'000;
constexpr std::size_t kMaxDynamicAnchors = 32;

using DynamicScope = std::map<std::string, JsonId>;  // by name of $dynamicAnchor

class Builder : public SchemaBuilder {
 public:
  Builder(SchemaGraph& graph, const SchemaPlaces& places) : graph_(graph), places_(places) {}

  std::optional<Fault> build() {
    graph_.draft = places_.draft;
    graph_.schemas.resize(2);
    scope_of_.resize(2);
    if (places_.dynamic_anchors.size() > kMaxDynamicAnchors) {
      return schema_fault(
          "json_schema_too_large", "",
          fmt::format("it has more than {} names of $dynamicAnchor", kMaxDynamicAnchors));
    }
    graph_.schemas[kFalseSchema].is_false = true;
    graph_.root = schema_at(0);
    for (std::size_t at = 2; at < graph_.schemas.size(); ++at) {
      if (graph_.schemas.size() > kMaxSchemas) {
        return schema_fault("json_schema_too_large", "",
                            fmt::format("it has more than {} subschemas", kMaxSchemas));
      }
      // A node is built apart, since its subschemas grow the list.
      Schema schema;
      schema.at = graph_.schemas[at].at;
      scope_ = scope_of_[at];
      if (auto fault = read_keywords(*this, graph_.json, graph_.draft, schema)) return fault;
      graph_.has_unevaluated |= schema.has_unevaluated;
      graph_.schemas[at] = std::move(schema);
    }
    return find_cycle();
  }

  SchemaId schema_at(JsonId at) override {
    if (graph_.json.is(at, JsonKind::kTrue)) return kTrueSchema;
    if (graph_.json.is(at, JsonKind::kFalse)) return kFalseSchema;
    const std::uint64_t scope = enter(at);
    const auto [found, is_new] =
        schemas_.try_emplace((scope << 32) | static_cast<std::uint64_t>(at),
                             static_cast<SchemaId>(graph_.schemas.size()));
    if (is_new) {
      graph_.schemas.emplace_back();
      graph_.schemas.back().at = at;
      scope_of_.resize(graph_.schemas.size());
      scope_of_.back() = scope;
    }
    return found->second;
  }

  int pattern_at(JsonId at, std::string_view text) override {
    const auto [found, is_new] =
        patterns_.try_emplace(std::string(text), static_cast<int>(graph_.patterns.size()));
    if (is_new) graph_.patterns.push_back({std::string(text), at});
    return found->second;
  }

  void ignore(JsonId at) override { graph_.ignored.push_back(graph_.json.pointer(at)); }

  std::optional<Fault> reference(JsonId keyword, SchemaId& target) override {
    const std::string_view text = graph_.json.text(keyword);
    const JsonId at = places_.resolve(graph_.json, graph_.json.parent(keyword), text);
    if (at == kNoJson) {
      return schema_fault("unsupported_json_schema", graph_.json.pointer(keyword),
                          fmt::format("{} names nothing in this document, and other documents are "
                                      "not fetched; put the schema into $defs",
                                      quote_json(text.substr(0, 200))));
    }
    target = schema_at(at);
    return std::nullopt;
  }

  std::optional<Fault> dynamic_reference(JsonId keyword, SchemaId& target) override {
    const ExactJson& json = graph_.json;
    if (json.key(keyword) == "$recursiveRef") {
      target =
          schema_at(places_.root_recurses ? 0 : places_.resolve(json, json.parent(keyword), "#"));
      return std::nullopt;
    }
    if (auto fault = reference(keyword, target)) return fault;
    const std::string_view text = json.text(keyword);
    const std::size_t hash = text.find('#');
    const std::string name(hash == std::string_view::npos ? "" : text.substr(hash + 1));
    const auto anchors = places_.dynamic_anchors.find(name);
    if (anchors == places_.dynamic_anchors.end()) return std::nullopt;
    const JsonId first = graph_[target].at;
    const auto& all = anchors->second;
    if (std::find(all.begin(), all.end(), first) == all.end()) return std::nullopt;
    const auto outermost = scopes_[scope_].find(name);
    if (outermost != scopes_[scope_].end()) target = schema_at(outermost->second);
    return std::nullopt;
  }

 private:
  // A schema that applies to the same value as itself has no meaning.
  std::optional<Fault> find_cycle() const {
    enum State : std::uint8_t { kNew, kOpen, kDone };
    std::vector<State> states(graph_.schemas.size(), kNew);
    struct Frame {
      SchemaId id;
      std::vector<SchemaId> children;
    };
    for (std::size_t start = 0; start < states.size(); ++start) {
      if (states[start] != kNew) continue;
      std::vector<Frame> stack;
      const auto open = [&](SchemaId id) {
        states[static_cast<std::size_t>(id)] = kOpen;
        stack.push_back({id, {}});
        append_in_place(graph_[id], stack.back().children);
      };
      open(static_cast<SchemaId>(start));
      while (!stack.empty()) {
        if (stack.back().children.empty()) {
          states[static_cast<std::size_t>(stack.back().id)] = kDone;
          stack.pop_back();
          continue;
        }
        const SchemaId child = stack.back().children.back();
        stack.back().children.pop_back();
        const State state = states[static_cast<std::size_t>(child)];
        if (state == kOpen) {
          return schema_fault("invalid_json_schema", graph_.pointer(child),
                              "a $ref cycle: the schema applies to the same value as itself, so it "
                              "says nothing");
        }
        if (state == kNew) open(child);
      }
    }
    return std::nullopt;
  }

  // The dynamic scope inside the resource of `at`: of each $dynamicAnchor name the outermost. A
  // schema that is reached with two scopes becomes two nodes, so every target is static.
  std::uint64_t enter(JsonId at) {
    if (places_.dynamic_anchors.empty()) return 0;
    DynamicScope scope = scopes_[scope_];
    const std::string& base = places_.base(graph_.json, at);
    for (const auto& [name, anchors] : places_.dynamic_anchors) {
      if (scope.contains(name)) continue;
      for (const JsonId anchor : anchors) {
        if (places_.base(graph_.json, anchor) == base) scope.emplace(name, anchor);
      }
    }
    const auto [found, is_new] = scope_ids_.try_emplace(scope, scopes_.size());
    if (is_new) scopes_.push_back(std::move(scope));
    return found->second;
  }

  SchemaGraph& graph_;
  const SchemaPlaces& places_;
  std::unordered_map<std::uint64_t, SchemaId> schemas_;  // by scope and place
  std::vector<DynamicScope> scopes_{{}};
  std::map<DynamicScope, std::uint64_t> scope_ids_{{{}, 0}};
  std::vector<std::uint64_t> scope_of_;  // of each schema
  std::uint64_t scope_ = 0;              // of the schema that is read
  std::unordered_map<std::string, int> patterns_;
};

}  // namespace

Fault schema_fault(std::string_view code, std::string_view where, std::string_view what) {
  const std::string_view place = where.substr(0, 500);
  return {400, std::string(code), "",
          fmt::format("JSON schema, {}: {}", place.empty() ? "at the root" : place, what)};
}

void append_in_place(const Schema& schema, std::vector<SchemaId>& out) {
  out.insert(out.end(), schema.all_of.begin(), schema.all_of.end());
  for (const auto& list : schema.any_of) out.insert(out.end(), list.begin(), list.end());
  out.insert(out.end(), schema.one_of.begin(), schema.one_of.end());
  for (const SchemaId id : {schema.not_, schema.if_, schema.then_, schema.else_}) {
    if (id != kNoSchema) out.push_back(id);
  }
  if (schema.object) {
    for (const auto& [name, id] : schema.object->dependent_schemas) out.push_back(id);
  }
}

Result<SchemaGraph> SchemaGraph::parse(std::string_view text) {
  Result<ExactJson> json = ExactJson::parse(text, {});
  if (!json) return json.fault();
  SchemaGraph graph;
  graph.json = std::move(*json);
  const Result<SchemaPlaces> places = find_schema_places(graph.json);
  if (!places) return places.fault();
  if (auto fault = Builder(graph, *places).build()) return *std::move(fault);
  return graph;
}

}  // namespace sluice::grammar
