// What two schemas have to do with each other, told from a bounded look at them: types, values, and
// members that tell branches of `oneOf` apart. And which members and items a schema evaluates.
#include <algorithm>
#include <unordered_set>

#include "text/grammar/schema/alternatives.h"

namespace sluice::grammar {
namespace {

constexpr std::size_t kMaxConjuncts = 64;

std::uint8_t type_of(const ExactJson& json, JsonId value) {
  switch (json.kind(value)) {
    case JsonKind::kNull:
      return kNullType;
    case JsonKind::kFalse:
    case JsonKind::kTrue:
      return kBooleanType;
    case JsonKind::kString:
      return kStringType;
    case JsonKind::kArray:
      return kArrayType;
    case JsonKind::kObject:
      return kObjectType;
    case JsonKind::kNumber:
      break;
  }
  return Decimal::parse(json.text(value))->is_integer() ? kIntegerType : kFractionType;
}

}  // namespace

std::vector<SchemaId> Expander::conjuncts(SchemaId id) const {
  std::vector<SchemaId> out{id};
  for (std::size_t i = 0; i < out.size() && out.size() < kMaxConjuncts; ++i) {
    const auto& more = graph_[out[i]].all_of;
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

std::uint8_t Expander::types_within(SchemaId id, int depth) {
  const Schema& schema = graph_[id];
  if (schema.is_false) return 0;
  if (const auto found = types_.find(id); found != types_.end()) return found->second;
  std::uint8_t types = schema.types;
  if (schema.has_values) {
    std::uint8_t of_values = 0;
    for (const JsonId value : schema.values) of_values |= type_of(graph_.json, value);
    types &= of_values;
  }
  if (depth == 0) return types;
  for (const SchemaId more : schema.all_of) types &= types_within(more, depth - 1);
  const auto any = [&](const std::vector<SchemaId>& list) {
    std::uint8_t all = 0;
    for (const SchemaId more : list) {
      all |= types_within(more, depth - 1);
      if (all == kAllTypes) break;
    }
    types &= all;
  };
  for (const auto& list : schema.any_of) any(list);
  if (!schema.one_of.empty()) any(schema.one_of);
  types_.emplace(id, types);  // less deep is looser, so it holds for every depth
  return types;
}

bool Expander::have_disjoint_values(SchemaId a, SchemaId b) {
  if ((types(a) & types(b)) == 0) return true;
  const auto values = [&](SchemaId id) -> const Schema* {
    for (const SchemaId one : conjuncts(id)) {
      if (graph_[one].has_values) return &graph_[one];
    }
    return nullptr;
  };
  const Schema* of_a = values(a);
  const Schema* of_b = values(b);
  if (of_a == nullptr || of_b == nullptr) return false;
  const auto& texts_a = texts_of(*of_a);
  const auto& texts_b = texts_of(*of_b);
  const auto& fewer = texts_a.size() < texts_b.size() ? texts_a : texts_b;
  const auto& more = &fewer == &texts_a ? texts_b : texts_a;
  return std::none_of(fewer.begin(), fewer.end(),
                      [&](const std::string& text) { return more.contains(text); });
}

const std::unordered_set<std::string>& Expander::texts_of(const Schema& schema) {
  const auto [found, is_new] = texts_.try_emplace(&schema);
  if (is_new) {
    for (const JsonId value : schema.values) found->second.insert(graph_.json.canonical(value));
  }
  return found->second;
}

bool Expander::is_impossible(Literal a, Literal b) {
  if (is_negative(a) && is_negative(b)) return false;
  if (is_negative(a)) std::swap(a, b);
  if (!is_negative(b)) return have_disjoint_values(schema_of(a), schema_of(b));
  // b excludes a list of values that holds all values of a.
  const Schema& excluded = graph_[schema_of(b)];
  const bool is_list =
      excluded.has_values && excluded.types == kAllTypes && !excluded.number && !excluded.string &&
      !excluded.array && !excluded.object && excluded.all_of.empty() && excluded.any_of.empty() &&
      excluded.one_of.empty() && excluded.not_ == kNoSchema && excluded.if_ == kNoSchema;
  const Schema& allowed = graph_[schema_of(a)];
  if (!is_list || !allowed.has_values) return false;
  const auto& texts = texts_of(allowed);
  return std::all_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return texts_of(excluded).contains(text); });
}

bool Expander::has_impossible_member(const Alternative& one) {
  if (one.members.size() < 2 || one.required.empty() || (one.types & kObjectType) == 0) {
    return false;
  }
  const std::unordered_set<std::string_view> required(one.required.begin(), one.required.end());
  std::unordered_map<std::string_view, std::vector<Literal>> literals;
  for (const MemberLayer& layer : one.members) {
    for (const auto& [name, literal] : layer.names) {
      if (!required.contains(name)) continue;
      if (literal == positive(kFalseSchema)) return true;
      std::vector<Literal>& before = literals[name];
      for (const Literal other : before) {
        if (literal == opposite(other) || is_impossible(literal, other)) return true;
      }
      before.push_back(literal);
    }
  }
  return false;
}

bool Expander::excludes_member(const std::vector<SchemaId>& schemas, const std::string& key) const {
  return std::any_of(schemas.begin(), schemas.end(), [&](SchemaId id) {
    const ObjectKeywords* object = graph_[id].object.get();
    if (object == nullptr) return false;
    for (const auto& [name, schema] : object->properties) {
      if (name == key) return schema == kFalseSchema;
    }
    return object->additional == kFalseSchema && object->patterns.empty();
  });
}

bool Expander::are_disjoint(SchemaId a, SchemaId b) {
  if (have_disjoint_values(a, b)) return true;
  if ((types(a) & types(b)) != kObjectType) return false;
  const std::vector<SchemaId> of_a = conjuncts(a);
  const std::vector<SchemaId> of_b = conjuncts(b);
  std::unordered_set<std::string> required;
  for (const auto* schemas : {&of_a, &of_b}) {
    for (const SchemaId id : *schemas) {
      const ObjectKeywords* object = graph_[id].object.get();
      if (object != nullptr) required.insert(object->required.begin(), object->required.end());
    }
  }
  const auto members = [&](const std::vector<SchemaId>& schemas, const std::string& key) {
    std::vector<SchemaId> out;
    for (const SchemaId id : schemas) {
      if (graph_[id].object == nullptr) continue;
      for (const auto& [name, schema] : graph_[id].object->properties) {
        if (name == key) out.push_back(schema);
      }
    }
    return out;
  };
  // A value of both has every member that either requires.
  return std::any_of(required.begin(), required.end(), [&](const std::string& key) {
    if (excludes_member(of_a, key) || excludes_member(of_b, key)) return true;
    for (const SchemaId one : members(of_a, key)) {
      for (const SchemaId other : members(of_b, key)) {
        if (have_disjoint_values(one, other)) return true;
      }
    }
    return false;
  });
}

// Whether `part`, a subschema of `one` in place, is known to add nothing to what `one` evaluates.
bool Expander::is_left_out(const Goal& known, const Schema& one, SchemaId part) {
  const auto holds = [&](Literal literal) {
    return std::binary_search(known.begin(), known.end(), literal);
  };
  if (part == one.not_ || holds(negative(part))) return true;
  if (one.if_ != kNoSchema && part == one.then_ && holds(negative(one.if_))) return true;
  if (one.if_ != kNoSchema && part == one.else_ && holds(positive(one.if_))) return true;
  const auto& list = one.one_of;
  return std::ranges::find(list, part) != list.end() && !holds(positive(part)) &&
         std::ranges::any_of(list, [&](SchemaId other) { return holds(positive(other)); });
}

// Whether `part` is known to accept the value, so that `one` evaluates what `part` does.
bool Expander::is_counted(const Goal& known, const Schema& one, SchemaId part) {
  const auto holds = [&](Literal literal) {
    return std::binary_search(known.begin(), known.end(), literal);
  };
  if (std::ranges::find(one.all_of, part) != one.all_of.end()) return true;
  if (one.object) {  // of a key that may be absent
    for (const auto& [key, schema] : one.object->dependent_schemas)
      if (schema == part) return false;
  }
  if (part == one.then_ && !holds(positive(one.if_))) return false;
  if (part == one.else_ && !holds(negative(one.if_))) return false;
  return holds(positive(part));
}

void Expander::add_unevaluated(State& state, SchemaId id) {
  // Everything that an in-place subschema may evaluate. Where that depends on the value
  // (`is_certain`), the constraint is looser than the keyword and the value is checked.
  struct Visit {
    SchemaId id;
    bool is_certain;
  };
  const Schema& schema = graph_[id];
  MemberLayer members;
  std::vector<std::pair<std::string, SchemaId>> named;
  std::unordered_map<std::string, int> num_named;
  std::size_t num_prefix = 0;
  bool is_exact = true;
  bool all_members = false;
  bool all_items = false;
  std::vector<Visit> visits{{id, true}};
  std::unordered_set<SchemaId> seen{id};
  for (std::size_t i = 0; i < visits.size(); ++i) {
    const auto [at, is_certain] = visits[i];
    const Schema& one = graph_[at];
    std::vector<SchemaId> in_place;
    append_in_place(one, in_place);
    for (const SchemaId more : in_place) {
      if (is_left_out(state.seen, one, more)) continue;
      if (!seen.insert(more).second) continue;
      visits.push_back({more, is_certain && is_counted(state.seen, one, more)});
    }
    const bool has_rules = one.array != nullptr || one.object != nullptr;
    is_exact &= is_certain || !has_rules;
    if (one.array) {
      num_prefix = std::max(num_prefix, one.array->prefix.size());
      all_items |=
          one.array->items != kNoSchema || (at != id && one.array->unevaluated != kNoSchema);
      if (one.array->contains != kNoSchema && graph_.draft == SchemaDraft::k2020) {
        is_exact = false;
        all_items = true;
      }
    }
    if (one.object) {
      for (const auto& [name, property] : one.object->properties) {
        if (++num_named[name] == 1) named.emplace_back(name, property);
      }
      for (const auto& [pattern, unused] : one.object->patterns) {
        members.patterns.emplace_back(pattern, positive(kTrueSchema));
      }
      all_members |=
          one.object->additional != kNoSchema || (at != id && one.object->unevaluated != kNoSchema);
    }
  }
  Alternative& out = state.alternative;
  if (schema.array && schema.array->unevaluated != kNoSchema) {
    if (!all_items) {
      ItemLayer layer;
      layer.prefix.assign(num_prefix, positive(kTrueSchema));
      layer.rest = positive(schema.array->unevaluated);
      out.items.push_back(std::move(layer));
    }
    if (!is_exact) out.checks.push_back({positive(id), kArrayType});
  }
  if (schema.object && schema.object->unevaluated != kNoSchema) {
    if (!all_members) {
      // A key that one schema alone may evaluate obeys that schema.
      const bool are_listed =
          schema.object->unevaluated == kFalseSchema && members.patterns.empty();
      for (const auto& [name, property] : named) {
        const bool is_only = are_listed && num_named[name] == 1;
        members.names.emplace_back(name, positive(is_only ? property : kTrueSchema));
      }
      members.additional = positive(schema.object->unevaluated);
      out.members.push_back(std::move(members));
    }
    if (!is_exact) out.checks.push_back({positive(id), kObjectType});
  }
}

}  // namespace sluice::grammar
