// The keywords of the validator that hold subschemas.
#include <algorithm>

#include "text/grammar/schema/validator.h"

namespace sluice::grammar {

SchemaValidator::Verdict SchemaValidator::apply_in_place(const Schema& schema, Subject subject,
                                                         Outcome& out) {
  bool is_unknown = false;
  for (const SchemaId id : schema.all_of) {
    const Verdict verdict = apply(id, subject, out);
    if (verdict == Verdict::kInvalid) return verdict;
    is_unknown |= verdict == Verdict::kUnknown;
  }
  for (const auto& list : schema.any_of) {
    bool is_any_valid = false;
    bool is_any_unknown = false;
    for (const SchemaId id : list) {
      const Verdict verdict = apply(id, subject, out);
      is_any_valid |= verdict == Verdict::kValid;
      is_any_unknown |= verdict == Verdict::kUnknown;
      if (is_any_valid && !graph_.has_unevaluated) break;
    }
    if (!is_any_valid && !is_any_unknown) return Verdict::kInvalid;
    is_unknown |= is_any_unknown && (!is_any_valid || graph_.has_unevaluated);
  }
  if (schema.not_ != kNoSchema) {
    const Verdict verdict = this->verdict(schema.not_, subject);
    if (verdict == Verdict::kValid) return Verdict::kInvalid;
    is_unknown |= verdict == Verdict::kUnknown;
  }
  for (const Verdict verdict :
       {apply_one_of(schema, subject, out), apply_condition(schema, subject, out)}) {
    if (verdict == Verdict::kInvalid) return verdict;
    is_unknown |= verdict == Verdict::kUnknown;
  }
  return is_unknown ? Verdict::kUnknown : Verdict::kValid;
}

SchemaValidator::Verdict SchemaValidator::apply_one_of(const Schema& schema, Subject subject,
                                                       Outcome& out) {
  if (schema.one_of.empty()) return Verdict::kValid;
  int num_valid = 0;
  bool is_unknown = false;
  for (const SchemaId id : schema.one_of) {
    const Verdict verdict = apply(id, subject, out);
    num_valid += verdict == Verdict::kValid ? 1 : 0;
    is_unknown |= verdict == Verdict::kUnknown;
    if (num_valid > 1) return Verdict::kInvalid;
  }
  if (is_unknown) return Verdict::kUnknown;
  return num_valid == 1 ? Verdict::kValid : Verdict::kInvalid;
}

SchemaValidator::Verdict SchemaValidator::apply_condition(const Schema& schema, Subject subject,
                                                          Outcome& out) {
  if (schema.if_ == kNoSchema) return Verdict::kValid;
  const Verdict condition = apply(schema.if_, subject, out);
  if (condition == Verdict::kUnknown) return condition;
  const SchemaId then = condition == Verdict::kValid ? schema.then_ : schema.else_;
  return then == kNoSchema ? Verdict::kValid : apply(then, subject, out);
}

SchemaValidator::Verdict SchemaValidator::apply_items(const ArrayKeywords& array, Subject subject,
                                                      Outcome& out) {
  bool is_unknown = false;
  std::uint64_t num_contained = 0;
  std::uint64_t num_undecided = 0;
  std::size_t at = 0;
  const bool marks = !out.evaluated.empty();
  for (JsonId item = instance_->first(subject.at); item != kNoJson;
       item = instance_->next(item), ++at) {
    const bool is_prefix = at < array.prefix.size();
    const SchemaId id = is_prefix ? array.prefix[at] : array.items;
    if (id != kNoSchema) {
      const Verdict verdict = this->verdict(id, {item, false});
      if (verdict == Verdict::kInvalid) return verdict;
      is_unknown |= verdict == Verdict::kUnknown;
      if (marks) out.evaluated[at] = true;
    }
    if (array.contains == kNoSchema) continue;
    const Verdict verdict = this->verdict(array.contains, {item, false});
    num_contained += verdict == Verdict::kValid ? 1 : 0;
    num_undecided += verdict == Verdict::kUnknown ? 1 : 0;
    if (marks && verdict == Verdict::kValid && graph_.draft == SchemaDraft::k2020) {
      out.evaluated[at] = true;
    }
  }
  if (array.contains != kNoSchema) {
    if (array.max_contains && num_contained > *array.max_contains) return Verdict::kInvalid;
    if (num_contained + num_undecided < array.min_contains) return Verdict::kInvalid;
    is_unknown |= num_undecided > 0;
  }
  return is_unknown ? Verdict::kUnknown : Verdict::kValid;
}

SchemaValidator::Verdict SchemaValidator::apply_members(const ObjectKeywords& object,
                                                        Subject subject, Outcome& out) {
  bool is_unknown = false;
  bool is_invalid = false;
  std::unordered_map<std::string_view, SchemaId> declared;
  for (const auto& [name, id] : object.properties) declared.emplace(name, id);
  std::unordered_map<std::string_view, SchemaId> dependents;
  for (const auto& [name, id] : object.dependent_schemas) dependents.emplace(name, id);
  const auto also = [&](Verdict verdict) {
    is_invalid |= verdict == Verdict::kInvalid;
    is_unknown |= verdict == Verdict::kUnknown;
  };
  std::size_t at = 0;
  for (JsonId member = instance_->first(subject.at); member != kNoJson;
       member = instance_->next(member), ++at) {
    const std::string_view key = instance_->key(member);
    bool is_known = false;
    if (const auto found = declared.find(key); found != declared.end()) {
      is_known = true;
      also(verdict(found->second, {member, false}));
    }
    for (const auto& [pattern, id] : object.patterns) {
      if (!strings_.has_match(pattern, key)) continue;
      is_known = true;
      also(verdict(id, {member, false}));
    }
    if (!is_known && object.additional != kNoSchema) {
      is_known = true;
      also(verdict(object.additional, {member, false}));
    }
    if (is_known && !out.evaluated.empty()) out.evaluated[at] = true;
    if (object.names != kNoSchema) also(verdict(object.names, {member, true}));
    if (const auto found = dependents.find(key); found != dependents.end()) {
      also(apply(found->second, subject, out));
    }
    if (is_invalid) return Verdict::kInvalid;
  }
  return is_unknown ? Verdict::kUnknown : Verdict::kValid;
}

}  // namespace sluice::grammar
