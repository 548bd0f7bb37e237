// One table of keywords with the drafts that know them, and a function for each.
#include "text/grammar/schema/schema_keywords.h"

#include <algorithm>
#include <array>
#include <unordered_set>

namespace sluice::grammar {
namespace {

using MaybeFault = std::optional<Fault>;
using Draft = SchemaDraft;

class Reader {
 public:
  Reader(SchemaBuilder& builder, const ExactJson& json, Draft draft, Schema& schema)
      : builder_(builder), json_(json), draft_(draft), schema_(schema) {}

  MaybeFault read();

 private:
  struct Row {
    std::string_view name;
    Draft first;
    Draft last;
    MaybeFault (Reader::*read)(JsonId);
  };
  struct Table;

  MaybeFault fail(JsonId at, std::string_view what) const {
    return schema_fault("invalid_json_schema", json_.pointer(at), what);
  }
  NumberKeywords& number() {
    if (!schema_.number) schema_.number = std::make_unique<NumberKeywords>();
    return *schema_.number;
  }
  StringKeywords& string() {
    if (!schema_.string) schema_.string = std::make_unique<StringKeywords>();
    return *schema_.string;
  }
  ArrayKeywords& array() {
    if (!schema_.array) schema_.array = std::make_unique<ArrayKeywords>();
    return *schema_.array;
  }
  ObjectKeywords& object() {
    if (!schema_.object) schema_.object = std::make_unique<ObjectKeywords>();
    return *schema_.object;
  }
  JsonId sibling(std::string_view key) const { return json_.member(schema_.at, key); }

  // A schema, or a fault where the value is none.
  MaybeFault one(JsonId at, SchemaId& out) {
    if (!json_.is(at, JsonKind::kObject) && !json_.is_boolean(at)) {
      return fail(at, "a schema must be an object, true or false");
    }
    out = builder_.schema_at(at);
    return std::nullopt;
  }
  MaybeFault list(JsonId at, std::vector<SchemaId>& out, bool may_be_empty = false) {
    if (!json_.is(at, JsonKind::kArray)) return fail(at, "it must be a list of schemas");
    if (json_.count(at) == 0 && !may_be_empty) {
      return fail(at, "the list is empty; give at least one schema");
    }
    for (JsonId item = json_.first(at); item != kNoJson; item = json_.next(item)) {
      if (auto fault = one(item, out.emplace_back())) return fault;
    }
    return std::nullopt;
  }
  MaybeFault map(JsonId at, std::vector<NamedSchema>& out) {
    if (!json_.is(at, JsonKind::kObject)) return fail(at, "it must be an object of schemas");
    for (JsonId item = json_.first(at); item != kNoJson; item = json_.next(item)) {
      SchemaId id = kNoSchema;
      if (auto fault = one(item, id)) return fault;
      out.emplace_back(json_.key(item), id);
    }
    return std::nullopt;
  }
  MaybeFault names(JsonId at, std::vector<std::string>& out) {
    if (!json_.is(at, JsonKind::kArray)) return fail(at, "it must be a list of names");
    std::unordered_set<std::string_view> seen(out.begin(), out.end());
    std::vector<std::string> added;
    for (JsonId item = json_.first(at); item != kNoJson; item = json_.next(item)) {
      if (!json_.is(item, JsonKind::kString)) return fail(item, "a name must be a string");
      if (seen.insert(json_.text(item)).second) added.emplace_back(json_.text(item));
    }
    out.insert(out.end(), added.begin(), added.end());
    return std::nullopt;
  }
  MaybeFault decimal(JsonId at, std::optional<Decimal>& out) {
    if (!json_.is(at, JsonKind::kNumber)) return fail(at, "it must be a number");
    out = Decimal::parse(json_.text(at));
    return std::nullopt;
  }
  MaybeFault count(JsonId at, std::uint64_t& out) {
    std::optional<Decimal> value;
    if (json_.is(at, JsonKind::kNumber)) value = Decimal::parse(json_.text(at));
    if (!value || value->negative || !value->is_integer()) {
      return fail(at, fmt::format("it must be an integer of at least 0, not {}",
                                  json_.dump(at).substr(0, 60)));
    }
    // What no text can reach counts as the largest.
    const auto small = value->small_integer();
    out = small ? static_cast<std::uint64_t>(*small) : std::uint64_t{1} << 62;
    return std::nullopt;
  }
  MaybeFault count(JsonId at, std::optional<std::uint64_t>& out) {
    return count(at, out.emplace());
  }

  MaybeFault type(JsonId at);
  MaybeFault enumeration(JsonId at);
  MaybeFault constant(JsonId at);
  void allow_values(const std::vector<JsonId>& values);
  MaybeFault minimum(JsonId at);
  MaybeFault maximum(JsonId at);
  MaybeFault exclusive_minimum(JsonId at);
  MaybeFault exclusive_maximum(JsonId at);
  MaybeFault multiple_of(JsonId at);
  MaybeFault min_length(JsonId at) { return count(at, string().min_length); }
  MaybeFault max_length(JsonId at) { return count(at, string().max_length); }
  MaybeFault pattern(JsonId at);
  MaybeFault format(JsonId at);
  MaybeFault items(JsonId at);
  MaybeFault additional_items(JsonId at);
  MaybeFault prefix_items(JsonId at) { return list(at, array().prefix); }
  MaybeFault contains(JsonId at) { return one(at, array().contains); }
  MaybeFault min_contains(JsonId at) { return count(at, array().min_contains); }
  MaybeFault max_contains(JsonId at) { return count(at, array().max_contains); }
  MaybeFault min_items(JsonId at) { return count(at, array().min_items); }
  MaybeFault max_items(JsonId at) { return count(at, array().max_items); }
  MaybeFault unique_items(JsonId at);
  MaybeFault unevaluated_items(JsonId at) {
    schema_.has_unevaluated = true;
    return one(at, array().unevaluated);
  }
  MaybeFault properties(JsonId at) { return map(at, object().properties); }
  MaybeFault pattern_properties(JsonId at);
  MaybeFault additional_properties(JsonId at) { return one(at, object().additional); }
  MaybeFault property_names(JsonId at) { return one(at, object().names); }
  MaybeFault unevaluated_properties(JsonId at) {
    schema_.has_unevaluated = true;
    return one(at, object().unevaluated);
  }
  MaybeFault required(JsonId at) { return names(at, object().required); }
  MaybeFault min_properties(JsonId at) { return count(at, object().min_properties); }
  MaybeFault max_properties(JsonId at) { return count(at, object().max_properties); }
  MaybeFault dependent_required(JsonId at);
  MaybeFault dependent_schemas(JsonId at) { return map(at, object().dependent_schemas); }
  MaybeFault dependencies(JsonId at);
  MaybeFault ref(JsonId at);
  MaybeFault dynamic_ref(JsonId at);
  MaybeFault all_of(JsonId at) { return list(at, schema_.all_of); }
  MaybeFault any_of(JsonId at) { return list(at, schema_.any_of.emplace_back()); }
  MaybeFault one_of(JsonId at) { return list(at, schema_.one_of); }
  MaybeFault negation(JsonId at) { return one(at, schema_.not_); }
  MaybeFault condition(JsonId at) { return one(at, schema_.if_); }
  MaybeFault consequence(JsonId at) { return one(at, schema_.then_); }
  MaybeFault alternative(JsonId at) { return one(at, schema_.else_); }
  MaybeFault nothing(JsonId) { return std::nullopt; }  // constrains nothing by its meaning
  MaybeFault nullable(JsonId at);

  SchemaBuilder& builder_;
  const ExactJson& json_;
  Draft draft_;
  Schema& schema_;
  bool is_nullable_ = false;
};

struct Reader::Table {
  static constexpr std::array kRows = {
      Row{"type", Draft::k4, Draft::k2020, &Reader::type},
      Row{"enum", Draft::k4, Draft::k2020, &Reader::enumeration},
      Row{"const", Draft::k6, Draft::k2020, &Reader::constant},
      Row{"minimum", Draft::k4, Draft::k2020, &Reader::minimum},
      Row{"maximum", Draft::k4, Draft::k2020, &Reader::maximum},
      Row{"exclusiveMinimum", Draft::k4, Draft::k2020, &Reader::exclusive_minimum},
      Row{"exclusiveMaximum", Draft::k4, Draft::k2020, &Reader::exclusive_maximum},
      Row{"multipleOf", Draft::k4, Draft::k2020, &Reader::multiple_of},
      Row{"minLength", Draft::k4, Draft::k2020, &Reader::min_length},
      Row{"maxLength", Draft::k4, Draft::k2020, &Reader::max_length},
      Row{"pattern", Draft::k4, Draft::k2020, &Reader::pattern},
      Row{"format", Draft::k4, Draft::k2020, &Reader::format},
      Row{"items", Draft::k4, Draft::k2020, &Reader::items},
      Row{"additionalItems", Draft::k4, Draft::k2019, &Reader::additional_items},
      Row{"prefixItems", Draft::k2020, Draft::k2020, &Reader::prefix_items},
      Row{"contains", Draft::k6, Draft::k2020, &Reader::contains},
      Row{"minContains", Draft::k2019, Draft::k2020, &Reader::min_contains},
      Row{"maxContains", Draft::k2019, Draft::k2020, &Reader::max_contains},
      Row{"minItems", Draft::k4, Draft::k2020, &Reader::min_items},
      Row{"maxItems", Draft::k4, Draft::k2020, &Reader::max_items},
      Row{"uniqueItems", Draft::k4, Draft::k2020, &Reader::unique_items},
      Row{"unevaluatedItems", Draft::k2019, Draft::k2020, &Reader::unevaluated_items},
      Row{"properties", Draft::k4, Draft::k2020, &Reader::properties},
      Row{"patternProperties", Draft::k4, Draft::k2020, &Reader::pattern_properties},
      Row{"additionalProperties", Draft::k4, Draft::k2020, &Reader::additional_properties},
      Row{"propertyNames", Draft::k6, Draft::k2020, &Reader::property_names},
      Row{"unevaluatedProperties", Draft::k2019, Draft::k2020, &Reader::unevaluated_properties},
      Row{"required", Draft::k4, Draft::k2020, &Reader::required},
      Row{"minProperties", Draft::k4, Draft::k2020, &Reader::min_properties},
      Row{"maxProperties", Draft::k4, Draft::k2020, &Reader::max_properties},
      Row{"dependentRequired", Draft::k2019, Draft::k2020, &Reader::dependent_required},
      Row{"dependentSchemas", Draft::k2019, Draft::k2020, &Reader::dependent_schemas},
      Row{"dependencies", Draft::k4, Draft::k7, &Reader::dependencies},
      Row{"$ref", Draft::k4, Draft::k2020, &Reader::ref},
      Row{"$dynamicRef", Draft::k2020, Draft::k2020, &Reader::dynamic_ref},
      Row{"$recursiveRef", Draft::k2019, Draft::k2019, &Reader::dynamic_ref},
      Row{"allOf", Draft::k4, Draft::k2020, &Reader::all_of},
      Row{"anyOf", Draft::k4, Draft::k2020, &Reader::any_of},
      Row{"oneOf", Draft::k4, Draft::k2020, &Reader::one_of},
      Row{"not", Draft::k4, Draft::k2020, &Reader::negation},
      Row{"if", Draft::k7, Draft::k2020, &Reader::condition},
      Row{"then", Draft::k7, Draft::k2020, &Reader::consequence},
      Row{"else", Draft::k7, Draft::k2020, &Reader::alternative},
      Row{"nullable", Draft::k4, Draft::k2020, &Reader::nullable},
      Row{"$schema", Draft::k4, Draft::k2020, &Reader::nothing},
      Row{"id", Draft::k4, Draft::k4, &Reader::nothing},
      Row{"$id", Draft::k6, Draft::k2020, &Reader::nothing},
      Row{"$anchor", Draft::k2019, Draft::k2020, &Reader::nothing},
      Row{"$dynamicAnchor", Draft::k2020, Draft::k2020, &Reader::nothing},
      Row{"$recursiveAnchor", Draft::k2019, Draft::k2019, &Reader::nothing},
      Row{"$vocabulary", Draft::k2019, Draft::k2020, &Reader::nothing},
      Row{"$comment", Draft::k4, Draft::k2020, &Reader::nothing},
      Row{"$defs", Draft::k4, Draft::k2020, &Reader::nothing},
      Row{"definitions", Draft::k4, Draft::k2020, &Reader::nothing},
      Row{"title", Draft::k4, Draft::k2020, &Reader::nothing},
      Row{"description", Draft::k4, Draft::k2020, &Reader::nothing},
      Row{"default", Draft::k4, Draft::k2020, &Reader::nothing},
      Row{"examples", Draft::k4, Draft::k2020, &Reader::nothing},
      Row{"deprecated", Draft::k4, Draft::k2020, &Reader::nothing},
      Row{"readOnly", Draft::k4, Draft::k2020, &Reader::nothing},
      Row{"writeOnly", Draft::k4, Draft::k2020, &Reader::nothing},
      Row{"contentEncoding", Draft::k4, Draft::k2020, &Reader::nothing},
      Row{"contentMediaType", Draft::k4, Draft::k2020, &Reader::nothing},
      Row{"contentSchema", Draft::k4, Draft::k2020, &Reader::nothing},
  };
};

MaybeFault Reader::read() {
  if (!json_.is(schema_.at, JsonKind::kObject)) {
    return fail(schema_.at, "a schema must be an object, true or false");
  }
  if (draft_ <= Draft::k7) {
    // Up to draft 7 a reference hides its siblings.
    const JsonId reference = sibling("$ref");
    if (reference != kNoJson && json_.is(reference, JsonKind::kString)) return ref(reference);
  }
  for (JsonId at = json_.first(schema_.at); at != kNoJson; at = json_.next(at)) {
    const auto row = std::find_if(Table::kRows.begin(), Table::kRows.end(),
                                  [&](const Row& r) { return r.name == json_.key(at); });
    if (row == Table::kRows.end() || draft_ < row->first || draft_ > row->last) {
      builder_.ignore(at);
    } else if (auto fault = (this->*row->read)(at)) {
      return fault;
    }
  }
  if (is_nullable_) schema_.types |= kNullType;
  return std::nullopt;
}

MaybeFault Reader::type(JsonId at) {
  struct Name {
    std::string_view name;
    std::uint8_t types;
  };
  static constexpr std::array kNames = {
      Name{"null", kNullType},       Name{"boolean", kBooleanType}, Name{"number", kNumberTypes},
      Name{"string", kStringType},   Name{"array", kArrayType},     Name{"object", kObjectType},
      Name{"integer", kIntegerType},
  };
  std::vector<JsonId> names;
  if (json_.is(at, JsonKind::kArray)) {
    for (JsonId item = json_.first(at); item != kNoJson; item = json_.next(item)) {
      names.push_back(item);
    }
  } else {
    names.push_back(at);
  }
  std::uint8_t types = 0;
  bool is_integer = false;
  for (const JsonId name : names) {
    const auto found = std::find_if(kNames.begin(), kNames.end(), [&](const Name& row) {
      return json_.is(name, JsonKind::kString) && row.name == json_.text(name);
    });
    if (found == kNames.end()) {
      return fail(name, fmt::format("{} is no type; the types are null, boolean, integer, number, "
                                    "string, array, object",
                                    json_.dump(name).substr(0, 60)));
    }
    types |= found->types;
    is_integer |= found->types == kIntegerType;
  }
  schema_.types = types;
  schema_.integer_is_spelling = draft_ == Draft::k4 && is_integer && (types & kFractionType) == 0;
  return std::nullopt;
}

MaybeFault Reader::nullable(JsonId at) {
  // OpenAPI 3.0, which has no $schema: null joins the types that `type` names.
  if (json_.member(0, "$schema") != kNoJson || sibling("type") == kNoJson ||
      !json_.is_boolean(at)) {
    builder_.ignore(at);
  } else {
    is_nullable_ = json_.is(at, JsonKind::kTrue);
  }
  return std::nullopt;
}

void Reader::allow_values(const std::vector<JsonId>& values) {
  if (!schema_.has_values) {
    schema_.has_values = true;
    schema_.values = values;
    return;
  }
  std::unordered_set<std::string> texts;
  for (const JsonId value : values) texts.insert(json_.canonical(value));
  std::erase_if(schema_.values,
                [&](JsonId value) { return !texts.contains(json_.canonical(value)); });
}

MaybeFault Reader::enumeration(JsonId at) {
  if (!json_.is(at, JsonKind::kArray)) return fail(at, "it must be a list of values");
  std::vector<JsonId> values;
  for (JsonId item = json_.first(at); item != kNoJson; item = json_.next(item)) {
    values.push_back(item);
  }
  allow_values(values);
  return std::nullopt;
}

MaybeFault Reader::constant(JsonId at) {
  allow_values({at});
  return std::nullopt;
}

MaybeFault Reader::minimum(JsonId at) {
  if (draft_ == Draft::k4) {
    const JsonId exclusive = sibling("exclusiveMinimum");
    if (exclusive != kNoJson && json_.is(exclusive, JsonKind::kTrue)) {
      return decimal(at, number().exclusive_minimum);
    }
  }
  return decimal(at, number().minimum);
}

MaybeFault Reader::maximum(JsonId at) {
  if (draft_ == Draft::k4) {
    const JsonId exclusive = sibling("exclusiveMaximum");
    if (exclusive != kNoJson && json_.is(exclusive, JsonKind::kTrue)) {
      return decimal(at, number().exclusive_maximum);
    }
  }
  return decimal(at, number().maximum);
}

MaybeFault Reader::exclusive_minimum(JsonId at) {
  if (draft_ != Draft::k4) return decimal(at, number().exclusive_minimum);
  if (!json_.is_boolean(at)) return fail(at, "it must be true or false in draft 4");
  return std::nullopt;
}

MaybeFault Reader::exclusive_maximum(JsonId at) {
  if (draft_ != Draft::k4) return decimal(at, number().exclusive_maximum);
  if (!json_.is_boolean(at)) return fail(at, "it must be true or false in draft 4");
  return std::nullopt;
}

MaybeFault Reader::multiple_of(JsonId at) {
  if (auto fault = decimal(at, number().multiple_of)) return fault;
  const Decimal& value = *number().multiple_of;
  if (value.is_zero() || value.negative) return fail(at, "it must be above 0");
  if (!value.has_small_digits()) {
    return schema_fault("unsupported_json_schema", json_.pointer(at),
                        "it has more than 18 significant digits");
  }
  return std::nullopt;
}

MaybeFault Reader::pattern(JsonId at) {
  if (!json_.is(at, JsonKind::kString)) return fail(at, "it must be a string");
  string().pattern = builder_.pattern_at(at, json_.text(at));
  return std::nullopt;
}

MaybeFault Reader::format(JsonId at) {
  if (!json_.is(at, JsonKind::kString)) return fail(at, "it must be a string");
  string().format = json_.text(at);
  return std::nullopt;
}

MaybeFault Reader::items(JsonId at) {
  if (draft_ == Draft::k2020 || !json_.is(at, JsonKind::kArray)) return one(at, array().items);
  return list(at, array().prefix, true);
}

MaybeFault Reader::additional_items(JsonId at) {
  // It says something only beside a list of items.
  const JsonId items = sibling("items");
  if (items != kNoJson && json_.is(items, JsonKind::kArray)) return one(at, array().items);
  return std::nullopt;
}

MaybeFault Reader::unique_items(JsonId at) {
  if (!json_.is_boolean(at)) return fail(at, "it must be true or false");
  if (json_.is(at, JsonKind::kTrue)) array().unique = true;
  return std::nullopt;
}

MaybeFault Reader::pattern_properties(JsonId at) {
  std::vector<NamedSchema> schemas;
  if (auto fault = map(at, schemas)) return fault;
  JsonId item = json_.first(at);
  for (const auto& [text, id] : schemas) {
    object().patterns.emplace_back(builder_.pattern_at(item, text), id);
    item = json_.next(item);
  }
  return std::nullopt;
}

MaybeFault Reader::dependent_required(JsonId at) {
  if (!json_.is(at, JsonKind::kObject)) return fail(at, "it must be an object of lists of names");
  for (JsonId item = json_.first(at); item != kNoJson; item = json_.next(item)) {
    std::vector<std::string> required;
    if (auto fault = names(item, required)) return fault;
    object().dependent_required.emplace_back(json_.key(item), std::move(required));
  }
  return std::nullopt;
}

MaybeFault Reader::dependencies(JsonId at) {
  if (!json_.is(at, JsonKind::kObject)) return fail(at, "it must be an object");
  for (JsonId item = json_.first(at); item != kNoJson; item = json_.next(item)) {
    if (json_.is(item, JsonKind::kArray)) {
      std::vector<std::string> required;
      if (auto fault = names(item, required)) return fault;
      object().dependent_required.emplace_back(json_.key(item), std::move(required));
    } else {
      SchemaId id = kNoSchema;
      if (auto fault = one(item, id)) return fault;
      object().dependent_schemas.emplace_back(json_.key(item), id);
    }
  }
  return std::nullopt;
}

MaybeFault Reader::ref(JsonId at) {
  if (!json_.is(at, JsonKind::kString)) return fail(at, "it must be a string");
  return builder_.reference(at, schema_.all_of.emplace_back());
}

MaybeFault Reader::dynamic_ref(JsonId at) {
  if (!json_.is(at, JsonKind::kString)) return fail(at, "it must be a string");
  return builder_.dynamic_reference(at, schema_.all_of.emplace_back());
}

}  // namespace

std::optional<Fault> read_keywords(SchemaBuilder& builder, const ExactJson& json, SchemaDraft draft,
                                   Schema& schema) {
  return Reader(builder, json, draft, schema).read();
}

}  // namespace sluice::grammar
