#include "text/grammar/schema/schema_places.h"

#include <algorithm>
#include <array>

#include "text/grammar/schema/uri.h"

namespace sluice::grammar {
namespace {

enum class Holds : std::uint8_t { kSchema, kList, kMap, kSchemaOrList };

struct Position {
  std::string_view keyword;
  Holds holds;
};

// Where subschemas stand. `dependencies` holds lists of names too, which are no objects.
constexpr std::array kPositions = {
    Position{"$defs", Holds::kMap},
    Position{"definitions", Holds::kMap},
    Position{"properties", Holds::kMap},
    Position{"patternProperties", Holds::kMap},
    Position{"dependentSchemas", Holds::kMap},
    Position{"dependencies", Holds::kMap},
    Position{"additionalProperties", Holds::kSchema},
    Position{"propertyNames", Holds::kSchema},
    Position{"unevaluatedProperties", Holds::kSchema},
    Position{"unevaluatedItems", Holds::kSchema},
    Position{"additionalItems", Holds::kSchema},
    Position{"contains", Holds::kSchema},
    Position{"items", Holds::kSchemaOrList},
    Position{"prefixItems", Holds::kList},
    Position{"allOf", Holds::kList},
    Position{"anyOf", Holds::kList},
    Position{"oneOf", Holds::kList},
    Position{"not", Holds::kSchema},
    Position{"if", Holds::kSchema},
    Position{"then", Holds::kSchema},
    Position{"else", Holds::kSchema},
};

struct DraftName {
  std::string_view uri;
  SchemaDraft draft;
};

constexpr std::array kDrafts = {
    DraftName{"json-schema.org/draft-04/schema", SchemaDraft::k4},
    DraftName{"json-schema.org/draft-06/schema", SchemaDraft::k6},
    DraftName{"json-schema.org/draft-07/schema", SchemaDraft::k7},
    DraftName{"json-schema.org/draft/2019-09/schema", SchemaDraft::k2019},
    DraftName{"json-schema.org/draft/2020-12/schema", SchemaDraft::k2020},
    DraftName{"json-schema.org/schema", SchemaDraft::k2020},
};

Result<SchemaDraft> draft_of(const ExactJson& json) {
  const JsonId declared = json.member(0, "$schema");
  if (declared == kNoJson) return SchemaDraft::k2020;
  if (!json.is(declared, JsonKind::kString)) {
    return schema_fault("invalid_json_schema", "/$schema", "it must be a string");
  }
  std::string_view uri = json.text(declared);
  while (uri.ends_with('#')) uri.remove_suffix(1);
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (uri.starts_with(scheme)) uri.remove_prefix(scheme.size());
  }
  for (const DraftName& name : kDrafts) {
    if (uri == name.uri) return name.draft;
  }
  return schema_fault("unsupported_json_schema", "/$schema",
                      "the dialect is unknown; use the URI of draft-04, draft-06, draft-07, "
                      "2019-09 or 2020-12, or leave $schema out");
}

class Finder {
 public:
  explicit Finder(const ExactJson& json) : json_(json) {}

  Result<SchemaPlaces> find() {
    const Result<SchemaDraft> draft = draft_of(json_);
    if (!draft) return draft.fault();
    places_.draft = *draft;
    places_.bases[0] = "";
    places_.resources[""] = 0;
    bases_.push_back("");
    std::vector<std::pair<JsonId, std::size_t>> pending{{0, 0}};
    while (!pending.empty()) {
      auto [at, base] = pending.back();
      pending.pop_back();
      if (!json_.is(at, JsonKind::kObject)) continue;
      visit(at, base);
      const bool is_only_ref = places_.draft <= SchemaDraft::k7 && has_string(at, "$ref");
      for (const Position& position : kPositions) {
        if (is_only_ref && position.holds != Holds::kMap) continue;
        const JsonId value = json_.member(at, position.keyword);
        if (value == kNoJson) continue;
        const bool is_list = json_.is(value, JsonKind::kArray);
        if (position.holds == Holds::kSchema ||
            (position.holds == Holds::kSchemaOrList && !is_list)) {
          pending.emplace_back(value, base);
          continue;
        }
        for (JsonId child = json_.first(value); child != kNoJson; child = json_.next(child)) {
          pending.emplace_back(child, base);
        }
      }
    }
    return std::move(places_);
  }

 private:
  bool has_string(JsonId at, std::string_view key) const {
    const JsonId value = json_.member(at, key);
    return value != kNoJson && json_.is(value, JsonKind::kString);
  }
  std::string_view string(JsonId at, std::string_view key) const {
    return has_string(at, key) ? json_.text(json_.member(at, key)) : std::string_view();
  }

  // Reads the identifiers of one schema. `place` of its base in bases_ follows `$id`.
  void visit(JsonId at, std::size_t& place) {
    std::string base = bases_[place];
    const bool is_old = places_.draft <= SchemaDraft::k7;
    if (!(is_old && has_string(at, "$ref"))) {
      const std::string_view id = string(at, places_.draft == SchemaDraft::k4 ? "id" : "$id");
      const std::string_view name = uri_fragment(id);
      if (!id.empty() && id[0] != '#') {
        base = resolve_uri(base, id);
        places_.bases[at] = base;
        place = bases_.size();
        bases_.push_back(base);
        places_.resources.try_emplace(base, at);
      }
      if (is_old && !name.empty() && name[0] != '/') {
        places_.anchors.try_emplace(base + "#" + std::string(name), at);
      }
    }
    if (is_old) return;
    if (const std::string_view name = string(at, "$anchor"); !name.empty()) {
      places_.anchors.try_emplace(base + "#" + std::string(name), at);
    }
    if (places_.draft == SchemaDraft::k2020) {
      if (const std::string_view name = string(at, "$dynamicAnchor"); !name.empty()) {
        places_.anchors.try_emplace(base + "#" + std::string(name), at);
        places_.dynamic_anchors[std::string(name)].push_back(at);
      }
    } else if (at == 0) {
      const JsonId recurses = json_.member(at, "$recursiveAnchor");
      places_.root_recurses = recurses != kNoJson && json_.is(recurses, JsonKind::kTrue);
    }
  }

  const ExactJson& json_;
  std::vector<std::string> bases_;
  SchemaPlaces places_;
};

}  // namespace

const std::string& SchemaPlaces::base(const ExactJson& json, JsonId at) const {
  while (true) {
    const auto found = bases.find(at);
    if (found != bases.end()) return found->second;
    at = json.parent(at);
  }
}

JsonId SchemaPlaces::resolve(const ExactJson& json, JsonId at, std::string_view reference) const {
  const std::string uri = resolve_uri(base(json, at), reference);
  const auto resource = resources.find(uri);
  if (resource == resources.end()) return kNoJson;
  const std::string fragment = decode_percent(uri_fragment(reference));
  if (fragment.empty() || fragment[0] == '/') return json.find(resource->second, fragment);
  const auto anchor = anchors.find(uri + "#" + fragment);
  return anchor == anchors.end() ? kNoJson : anchor->second;
}

Result<SchemaPlaces> find_schema_places(const ExactJson& json) {
  return Finder(json).find();
}

}  // namespace sluice::grammar
