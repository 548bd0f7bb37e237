// A subschema whose parts are not known yet puts them on a stack and runs again after them. So
// each pair of subschema and value is decided once.
#include "text/grammar/schema/validator.h"

#include <algorithm>

namespace sluice::grammar {

std::uint64_t SchemaValidator::place(SchemaId id, Subject subject) {
  return (static_cast<std::uint64_t>(id) << 32) | (static_cast<std::uint64_t>(subject.at) << 1) |
         (subject.is_key ? 1 : 0);
}

std::optional<bool> SchemaValidator::is_valid(SchemaId id, const ExactJson& instance, JsonId at) {
  instance_ = &instance;
  outcomes_.clear();
  stack_.clear();
  if (id == kTrueSchema || id == kFalseSchema) return id == kTrueSchema;
  stack_.emplace_back(id, Subject{at, false});
  for (std::uint64_t steps = 0; !stack_.empty(); ++steps) {
    if (steps > kMaxSteps) return std::nullopt;
    const auto [schema, subject] = stack_.back();
    if (outcomes_.contains(place(schema, subject))) {
      stack_.pop_back();
      continue;
    }
    const std::size_t depth = stack_.size();
    Outcome outcome;
    const Verdict verdict = evaluate(schema, subject, outcome);
    if (verdict == Verdict::kUnknown) continue;
    stack_.resize(depth - 1);  // what it asked for beside is not needed any more
    outcome.is_valid = verdict == Verdict::kValid;
    if (!outcome.is_valid) outcome.evaluated.clear();
    outcomes_.emplace(place(schema, subject), std::move(outcome));
  }
  if (strings_.ran_out()) return std::nullopt;
  return outcomes_.at(place(id, Subject{at, false})).is_valid;
}

const SchemaValidator::Outcome* SchemaValidator::need(SchemaId id, Subject subject) {
  static const Outcome kValidOutcome{true, {}};
  static const Outcome kInvalidOutcome{false, {}};
  if (id == kTrueSchema) return &kValidOutcome;
  if (id == kFalseSchema) return &kInvalidOutcome;
  const auto found = outcomes_.find(place(id, subject));
  if (found != outcomes_.end()) return &found->second;
  stack_.emplace_back(id, subject);
  return nullptr;
}

SchemaValidator::Verdict SchemaValidator::verdict(SchemaId id, Subject subject) {
  const Outcome* outcome = need(id, subject);
  if (outcome == nullptr) return Verdict::kUnknown;
  return outcome->is_valid ? Verdict::kValid : Verdict::kInvalid;
}

SchemaValidator::Verdict SchemaValidator::apply(SchemaId id, Subject subject, Outcome& into) {
  const Outcome* outcome = need(id, subject);
  if (outcome == nullptr) return Verdict::kUnknown;
  if (!outcome->is_valid) return Verdict::kInvalid;
  for (std::size_t i = 0; i < std::min(outcome->evaluated.size(), into.evaluated.size()); ++i) {
    if (outcome->evaluated[i]) into.evaluated[i] = true;
  }
  return Verdict::kValid;
}

bool SchemaValidator::has_type(const Schema& schema, Subject subject) const {
  switch (kind(subject)) {
    case JsonKind::kNull:
      return (schema.types & kNullType) != 0;
    case JsonKind::kFalse:
    case JsonKind::kTrue:
      return (schema.types & kBooleanType) != 0;
    case JsonKind::kString:
      return (schema.types & kStringType) != 0;
    case JsonKind::kArray:
      return (schema.types & kArrayType) != 0;
    case JsonKind::kObject:
      return (schema.types & kObjectType) != 0;
    case JsonKind::kNumber:
      break;
  }
  if ((schema.types & kNumberTypes) == kNumberTypes) return true;
  if ((schema.types & kIntegerType) == 0) return false;
  const std::string_view number = text(subject);
  if (schema.integer_is_spelling) return number.find_first_of(".eE") == std::string_view::npos;
  return Decimal::parse(number)->is_integer();
}

bool SchemaValidator::has_value(SchemaId id, const Schema& schema, Subject subject) {
  const auto [found, is_new] = values_.try_emplace(id);
  if (is_new) {
    for (const JsonId value : schema.values) found->second.insert(graph_.json.canonical(value));
  }
  return found->second.contains(subject.is_key ? quote_json(text(subject))
                                               : instance_->canonical(subject.at));
}

bool SchemaValidator::fits_number(const NumberKeywords& number, Subject subject) const {
  const Decimal value = *Decimal::parse(text(subject));
  return !(number.minimum && compare(value, *number.minimum) < 0) &&
         !(number.maximum && compare(value, *number.maximum) > 0) &&
         !(number.exclusive_minimum && compare(value, *number.exclusive_minimum) <= 0) &&
         !(number.exclusive_maximum && compare(value, *number.exclusive_maximum) >= 0) &&
         !(number.multiple_of && !value.is_multiple_of(*number.multiple_of));
}

bool SchemaValidator::fits_string(const StringKeywords& string, Subject subject) const {
  const std::string_view value = text(subject);
  if (string.min_length > 0 || string.max_length) {
    const std::uint64_t length = count_characters(value);
    if (length < string.min_length || (string.max_length && length > *string.max_length)) {
      return false;
    }
  }
  return !(string.pattern >= 0 && !strings_.has_match(string.pattern, value)) &&
         !(!string.format.empty() && !strings_.has_format(string.format, value));
}

bool SchemaValidator::fits_array(const ArrayKeywords& array, Subject subject) const {
  const std::uint64_t count = instance_->count(subject.at);
  if (count < array.min_items || (array.max_items && count > *array.max_items)) return false;
  if (!array.unique) return true;
  std::unordered_set<std::string> seen;
  for (JsonId item = instance_->first(subject.at); item != kNoJson; item = instance_->next(item)) {
    if (!seen.insert(instance_->canonical(item)).second) return false;
  }
  return true;
}

bool SchemaValidator::fits_object(const ObjectKeywords& object, Subject subject) const {
  const std::uint64_t count = instance_->count(subject.at);
  if (count < object.min_properties || (object.max_properties && count > *object.max_properties)) {
    return false;
  }
  if (object.required.empty() && object.dependent_required.empty()) return true;
  std::unordered_set<std::string_view> keys;
  for (JsonId item = instance_->first(subject.at); item != kNoJson; item = instance_->next(item)) {
    keys.insert(instance_->key(item));
  }
  const auto has = [&](const std::string& key) { return keys.contains(key); };
  return std::all_of(object.required.begin(), object.required.end(), has) &&
         std::all_of(object.dependent_required.begin(), object.dependent_required.end(),
                     [&](const auto& rule) {
                       return !has(rule.first) ||
                              std::all_of(rule.second.begin(), rule.second.end(), has);
                     });
}

SchemaValidator::Verdict SchemaValidator::evaluate(SchemaId id, Subject subject, Outcome& out) {
  const Schema& schema = graph_[id];
  if (schema.is_false || !has_type(schema, subject)) return Verdict::kInvalid;
  if (schema.has_values && !has_value(id, schema, subject)) return Verdict::kInvalid;
  const JsonKind kind = this->kind(subject);
  if (kind == JsonKind::kNumber && schema.number && !fits_number(*schema.number, subject)) {
    return Verdict::kInvalid;
  }
  if (kind == JsonKind::kString && schema.string && !fits_string(*schema.string, subject)) {
    return Verdict::kInvalid;
  }
  const bool is_array = kind == JsonKind::kArray && schema.array != nullptr;
  const bool is_object = kind == JsonKind::kObject && schema.object != nullptr;
  if (is_array && !fits_array(*schema.array, subject)) return Verdict::kInvalid;
  if (is_object && !fits_object(*schema.object, subject)) return Verdict::kInvalid;
  if (graph_.has_unevaluated && (kind == JsonKind::kArray || kind == JsonKind::kObject)) {
    out.evaluated.assign(instance_->count(subject.at), false);
  }

  Verdict all = apply_in_place(schema, subject, out);
  const auto also = [&all](Verdict more) {
    if (more == Verdict::kInvalid || all == Verdict::kInvalid) {
      all = Verdict::kInvalid;
    } else if (more == Verdict::kUnknown) {
      all = Verdict::kUnknown;
    }
  };
  if (is_array) also(apply_items(*schema.array, subject, out));
  if (is_object) also(apply_members(*schema.object, subject, out));
  if (all != Verdict::kValid || !schema.has_unevaluated) return all;
  if (is_array && schema.array->unevaluated != kNoSchema) {
    also(apply_unevaluated(schema.array->unevaluated, subject, out));
  }
  if (is_object && schema.object->unevaluated != kNoSchema) {
    also(apply_unevaluated(schema.object->unevaluated, subject, out));
  }
  return all;
}

SchemaValidator::Verdict SchemaValidator::apply_unevaluated(SchemaId rest, Subject subject,
                                                            Outcome& out) {
  Verdict all = Verdict::kValid;
  std::size_t at = 0;
  for (JsonId child = instance_->first(subject.at); child != kNoJson;
       child = instance_->next(child), ++at) {
    if (out.evaluated[at]) continue;
    const Verdict verdict = this->verdict(rest, {child, false});
    if (verdict == Verdict::kInvalid) return verdict;
    if (verdict == Verdict::kUnknown) all = verdict;
  }
  if (all == Verdict::kValid) out.evaluated.assign(out.evaluated.size(), true);
  return all;
}

}  // namespace sluice::grammar
