#include "text/grammar/schema/unsatisfiable.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "text/grammar/node.h"
#include "text/grammar/program.h"
#include "text/grammar/schema/lowering.h"

namespace sluice::grammar {
namespace {

// What one question may cost, and how many are asked.
constexpr std::uint64_t kMaxWork = 2'000'000;
constexpr std::size_t kMaxQuestions = 64;
constexpr std::size_t kMaxBytes = 64 << 10;

struct Keyword {
  std::string_view name;
  std::function<void(Schema&)> remove;
};

template <class Part, class Reset>
std::function<void(Schema&)> in(std::unique_ptr<Part> Schema::* part, Reset reset) {
  return [=](Schema& schema) {
    if (schema.*part) reset(*(schema.*part));
  };
}

const std::vector<Keyword>& keywords() {
  static const std::vector<Keyword> kAll = [] {
    const auto number = [](auto member) {
      return in(&Schema::number, [=](NumberKeywords& part) { (part.*member).reset(); });
    };
    const auto listed = [](Schema& schema) {
      schema.has_values = false;
      schema.values.clear();
    };
    const auto in_place = [](Schema& schema) { schema.all_of.clear(); };
    return std::vector<Keyword>{
        {"type", [](Schema& schema) { schema.types = kAllTypes; }},
        {"enum", listed},
        {"const", listed},
        {"minimum", number(&NumberKeywords::minimum)},
        {"maximum", number(&NumberKeywords::maximum)},
        {"exclusiveMinimum", number(&NumberKeywords::exclusive_minimum)},
        {"exclusiveMaximum", number(&NumberKeywords::exclusive_maximum)},
        {"multipleOf", number(&NumberKeywords::multiple_of)},
        {"minLength", in(&Schema::string, [](StringKeywords& part) { part.min_length = 0; })},
        {"maxLength", in(&Schema::string, [](StringKeywords& part) { part.max_length.reset(); })},
        {"pattern", in(&Schema::string, [](StringKeywords& part) { part.pattern = -1; })},
        {"format", in(&Schema::string, [](StringKeywords& part) { part.format.clear(); })},
        {"prefixItems", in(&Schema::array, [](ArrayKeywords& part) { part.prefix.clear(); })},
        {"items", in(&Schema::array, [](ArrayKeywords& part) { part.items = kNoSchema; })},
        {"minItems", in(&Schema::array, [](ArrayKeywords& part) { part.min_items = 0; })},
        {"maxItems", in(&Schema::array, [](ArrayKeywords& part) { part.max_items.reset(); })},
        {"uniqueItems", in(&Schema::array, [](ArrayKeywords& part) { part.unique = false; })},
        {"contains", in(&Schema::array, [](ArrayKeywords& part) { part.contains = kNoSchema; })},
        {"minContains", in(&Schema::array, [](ArrayKeywords& part) { part.min_contains = 1; })},
        {"maxContains", in(&Schema::array, [](ArrayKeywords& part) { part.max_contains.reset(); })},
        {"properties", in(&Schema::object, [](ObjectKeywords& part) { part.properties.clear(); })},
        {"patternProperties",
         in(&Schema::object, [](ObjectKeywords& part) { part.patterns.clear(); })},
        {"additionalProperties",
         in(&Schema::object, [](ObjectKeywords& part) { part.additional = kNoSchema; })},
        {"propertyNames",
         in(&Schema::object, [](ObjectKeywords& part) { part.names = kNoSchema; })},
        {"required", in(&Schema::object, [](ObjectKeywords& part) { part.required.clear(); })},
        {"minProperties",
         in(&Schema::object, [](ObjectKeywords& part) { part.min_properties = 0; })},
        {"maxProperties",
         in(&Schema::object, [](ObjectKeywords& part) { part.max_properties.reset(); })},
        {"dependentRequired",
         in(&Schema::object, [](ObjectKeywords& part) { part.dependent_required.clear(); })},
        {"dependentSchemas",
         in(&Schema::object, [](ObjectKeywords& part) { part.dependent_schemas.clear(); })},
        {"$ref", in_place},
        {"allOf", in_place},
        {"anyOf", [](Schema& schema) { schema.any_of.clear(); }},
        {"oneOf", [](Schema& schema) { schema.one_of.clear(); }},
        {"not", [](Schema& schema) { schema.not_ = kNoSchema; }},
        {"if", [](Schema& schema) { schema.if_ = kNoSchema; }},
    };
  }();
  return kAll;
}

class Contradiction {
 public:
  Contradiction(std::string_view text, const SchemaOptions& options)
      : text_(text), options_(options) {}

  Fault fault() {
    const Result<SchemaGraph> graph = SchemaGraph::parse(text_);
    if (!graph || text_.size() > kMaxBytes) return told("", {});
    std::vector<SchemaId> path{graph->root};
    while (const std::optional<SchemaId> part = impossible_part(*graph, path))
      path.push_back(*part);
    const SchemaId last = path.back();
    const std::string where = graph->pointer(last);
    const Schema& schema = (*graph)[last];
    if (schema.is_false)
      return schema_fault("unsatisfiable_json_schema", where, "false allows no value");
    std::vector<std::string_view> reasons;
    for (const Keyword& keyword : keywords()) {
      if (schema.at < 0 || !graph->json.is(schema.at, JsonKind::kObject)) break;
      if (graph->json.member(schema.at, keyword.name) == kNoJson) continue;
      if (has_value(last, keyword.remove) == true) reasons.push_back(keyword.name);
    }
    // Keywords of one type bind no other type, so that `type` alone is no news beside them.
    if (reasons.size() > 2 && reasons.front() == "type") reasons.erase(reasons.begin());
    Fault fault = told(where, reasons);
    if (reasons.size() == 1 && (reasons[0] == "const" || reasons[0] == "enum") &&
        std::ranges::any_of(schema.values,
                            [&](JsonId at) { return is_too_large(graph->json, at); }))
      fault.message += ", since its number is larger than a double holds (1.8e308)";
    return fault;
  }

 private:
  static bool is_too_large(const ExactJson& json, JsonId at) {
    constexpr std::int64_t kMaxMagnitude = 309;  // of a double
    return json.is(at, JsonKind::kNumber) &&
           Decimal::parse(json.text(at))->magnitude() > kMaxMagnitude;
  }

  // A subschema that each value of the last one on the path needs, and that has no value itself.
  std::optional<SchemaId> impossible_part(const SchemaGraph& graph,
                                          const std::vector<SchemaId>& path) {
    const Schema& schema = graph[path.back()];
    std::vector<SchemaId> parts = schema.all_of;
    for (const auto& list : schema.any_of)
      if (list.size() == 1) parts.push_back(list.front());
    if (schema.one_of.size() == 1) parts.push_back(schema.one_of.front());
    if (const ObjectKeywords* object = schema.object.get(); object && schema.types == kObjectType)
      for (const auto& [key, part] : object->properties)
        if (std::ranges::find(object->required, key) != object->required.end())
          parts.push_back(part);
    if (const ArrayKeywords* array = schema.array.get(); array && schema.types == kArrayType) {
      for (std::size_t i = 0; i < array->prefix.size() && i < array->min_items; ++i)
        parts.push_back(array->prefix[i]);
      if (array->items != kNoSchema && array->min_items > array->prefix.size())
        parts.push_back(array->items);
      if (array->contains != kNoSchema && array->min_contains > 0) parts.push_back(array->contains);
    }
    for (const SchemaId part : parts) {
      const bool is_known = part == kTrueSchema || part == kFalseSchema ||
                            std::ranges::find(path, part) != path.end();
      if (!is_known && has_value(part, {}) == false) return part;
    }
    return std::nullopt;
  }

  // Whether a finite value fulfils the subschema, after a change; nothing where that is not known.
  std::optional<bool> has_value(SchemaId id, const std::function<void(Schema&)>& change) {
    if (++num_questions_ > kMaxQuestions) return std::nullopt;
    Result<SchemaGraph> graph = SchemaGraph::parse(text_);
    if (!graph) return std::nullopt;
    graph->root = id;
    if (change) change(graph->schemas[static_cast<std::size_t>(id)]);
    Budget budget;
    budget.max_work = kMaxWork;
    Grammar grammar(budget);
    const auto host = std::make_shared<SchemaHost>(std::move(*graph), options_.assert_formats);
    const Result<SchemaLanguages> strings =
        SchemaLanguages::compile(host->graph(), grammar.languages(), options_.assert_formats);
    if (!strings) return std::nullopt;
    const Result<NodeId> root = Lowering(grammar, host, *strings, options_).lower();
    if (!root || grammar.is_exhausted()) return std::nullopt;
    const std::vector<bool> known = find_satisfiable(grammar);
    if (grammar.is_exhausted()) return std::nullopt;
    return known[index_of(*root)];
  }

  static Fault told(std::string_view where, const std::vector<std::string_view>& reasons) {
    std::string what = "no value of finite length fulfils it: ";
    if (reasons.empty()) {
      what += "its keywords exclude each other, or a value needs itself inside";
    } else if (reasons.size() == 1) {
      what += fmt::format("`{}` leaves none", reasons.front());
    } else {
      for (std::size_t i = 0; i < reasons.size(); ++i)
        what += fmt::format("{}`{}`",
                            i == 0                    ? ""
                            : i + 1 == reasons.size() ? " and "
                                                      : ", ",
                            reasons[i]);
      what += " exclude each other";
    }
    return schema_fault("unsatisfiable_json_schema", where, what);
  }

  std::string_view text_;
  const SchemaOptions& options_;
  std::size_t num_questions_ = 0;
};

}  // namespace

Fault unsatisfiable_fault(std::string_view schema, const SchemaOptions& options) {
  return Contradiction(schema, options).fault();
}

}  // namespace sluice::grammar
