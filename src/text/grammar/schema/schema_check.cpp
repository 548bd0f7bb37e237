#include "text/grammar/schema/schema_check.h"

#include <algorithm>
#include <string>
#include <unordered_set>

namespace sluice::grammar {
namespace {

constexpr ExactJsonLimits kValueLimits{.repeated_keys = true};
constexpr std::size_t kMaxConjuncts = 64;

}  // namespace

SchemaValidator& SchemaHost::validator() {
  if (!validator_) {
    strings_ = std::make_unique<LazySchemaStrings>(graph_, assert_formats_);
    validator_ = std::make_unique<SchemaValidator>(graph_, *strings_);
  }
  return *validator_;
}

bool SchemaHost::fulfils(const std::vector<Literal>& literals, const ExactJson& instance,
                         JsonId at) {
  const std::lock_guard lock(mutex_);
  SchemaValidator& validator = this->validator();
  // What cannot be told is not accepted, and neither is its opposite.
  return std::all_of(literals.begin(), literals.end(), [&](Literal literal) {
    const std::optional<bool> is_valid = validator.is_valid(schema_of(literal), instance, at);
    return is_valid && *is_valid != is_negative(literal);
  });
}

std::vector<SchemaId> SchemaHost::conjuncts(const std::vector<Literal>& literals) const {
  std::vector<SchemaId> schemas;
  for (const Literal literal : literals) {
    if (!is_negative(literal)) schemas.push_back(schema_of(literal));
  }
  for (std::size_t i = 0; i < schemas.size() && schemas.size() < kMaxConjuncts; ++i) {
    const auto& more = graph_[schemas[i]].all_of;
    schemas.insert(schemas.end(), more.begin(), more.end());
  }
  return schemas;
}

SchemaHost::ItemRule SchemaHost::item_rule(const std::vector<Literal>& literals) const {
  ItemRule rule = ItemRule::kNone;
  for (const SchemaId id : conjuncts(literals)) {
    const ArrayKeywords* array = graph_[id].array.get();
    if (array == nullptr) continue;
    if (array->contains != kNoSchema && array->max_contains) return ItemRule::kAll;
    if (array->unique) rule = ItemRule::kUnique;
  }
  return rule;
}

bool SchemaHost::may_fulfil(const std::vector<Literal>& literals, const ExactJson& items) {
  bool is_unique = false;
  for (const SchemaId id : conjuncts(literals)) {
    const ArrayKeywords* array = graph_[id].array.get();
    if (array == nullptr) continue;
    is_unique |= array->unique;
    if (array->contains == kNoSchema || !array->max_contains) continue;
    std::uint64_t count = 0;
    for (JsonId item = items.first(0); item != kNoJson; item = items.next(item)) {
      count += fulfils({positive(array->contains)}, items, item) ? 1 : 0;
    }
    if (count > *array->max_contains) return false;
  }
  if (!is_unique) return true;
  std::unordered_set<std::string> seen;
  for (JsonId item = items.first(0); item != kNoJson; item = items.next(item)) {
    if (!seen.insert(items.canonical(item)).second) return false;
  }
  return true;
}

bool SchemaCheck::passes(std::string_view value) const {
  const Result<ExactJson> instance = ExactJson::parse(value, kValueLimits);
  return instance.ok() && host_->fulfils(literals_, *instance, 0);
}

bool SchemaCheck::is_viable(std::string_view prefix) const {
  // Guards stand behind the items of an array only.
  if (!prefix.starts_with('[') || item_rule_ == SchemaHost::ItemRule::kNone) return true;
  if (item_rule_ == SchemaHost::ItemRule::kUnique) return has_unique_items(prefix);
  const Result<ExactJson> items = ExactJson::parse(std::string(prefix) + "]", kValueLimits);
  return !items.ok() || host_->may_fulfil(literals_, *items);
}

// Whether no two items are equal. What is no item yet differs from all others.
bool SchemaCheck::has_unique_items(std::string_view prefix) const {
  const std::lock_guard lock(mutex_);
  if (!prefix.starts_with(head_)) {
    head_ = "[";
    head_items_.clear();
  }
  const auto canonical = [](std::string_view item) {
    const Result<ExactJson> json = ExactJson::parse(item, kValueLimits);
    return json.ok() ? json->canonical(0) : std::string();
  };
  std::size_t begin = head_.size(), depth = 0;
  bool is_string = false;
  for (std::size_t at = begin; at < prefix.size(); ++at) {
    const char c = prefix[at];
    if (is_string) {
      if (c == '\\') ++at;
      is_string = c != '"';
      continue;
    }
    is_string = c == '"';
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if (c != ',' || depth != 0) continue;
    std::string item = canonical(prefix.substr(begin, at - begin));
    if (!item.empty() && !head_items_.insert(std::move(item)).second) return false;
    begin = at + 1;
    head_ = prefix.substr(0, begin);
  }
  return !head_items_.contains(canonical(prefix.substr(begin)));
}

}  // namespace sluice::grammar
