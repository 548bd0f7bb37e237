// Whether a JSON value is valid under a schema: the definition of JSON Schema, keyword by keyword.
//
//   SchemaValidator validator(graph, strings);
//   validator.is_valid(graph.root, instance, 0);
//
// The grammar of a schema leaves to this class what only a whole value shows, such as
// `uniqueItems`, and it is the reference in tests. It has no state between calls but its memory,
// so one object serves one thread. Nothing recurses; `kMaxSteps` bounds one call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/grammar/schema/schema_graph.h"

namespace sluice::grammar {

// The tests of strings that a schema names: patterns and formats.
class SchemaStrings {
 public:
  virtual ~SchemaStrings() = default;
  // Whether the pattern of that place in SchemaGraph::patterns occurs in `text` (UTF-8).
  virtual bool has_match(int pattern, std::string_view text) const = 0;
  // Whether `text` has the format; true for a format that is not asserted.
  virtual bool has_format(std::string_view format, std::string_view text) const = 0;
  // Whether a test since the last call has no answer, because its budget was used up.
  virtual bool ran_out() const { return false; }
};

class SchemaValidator {
 public:
  static constexpr std::uint64_t kMaxSteps = 4'000'000;  // subschemas on values

  SchemaValidator(const SchemaGraph& graph, const SchemaStrings& strings)
      : graph_(graph), strings_(strings) {}

  // Whether the value `at` of `instance` is valid under schema `id`; std::nullopt where the budget
  // of steps or strings did not do to tell.
  std::optional<bool> is_valid(SchemaId id, const ExactJson& instance, JsonId at);

 private:
  // A value of the instance, or the key of one as a string.
  struct Subject {
    JsonId at = kNoJson;
    bool is_key = false;
  };
  struct Outcome {
    bool is_valid = false;
    std::vector<bool> evaluated;  // of the children, for unevaluatedItems and -Properties
  };
  enum class Verdict : std::uint8_t { kInvalid, kValid, kUnknown };

  JsonKind kind(Subject subject) const {
    return subject.is_key ? JsonKind::kString : instance_->kind(subject.at);
  }
  std::string_view text(Subject subject) const {
    return subject.is_key ? instance_->key(subject.at) : instance_->text(subject.at);
  }
  static std::uint64_t place(SchemaId id, Subject subject);
  // The outcome of a subschema, or null after putting it on the stack.
  const Outcome* need(SchemaId id, Subject subject);
  // need(), with the verdict; merges what the subschema evaluated where it is valid.
  Verdict apply(SchemaId id, Subject subject, Outcome& into);
  Verdict verdict(SchemaId id, Subject subject);

  Verdict evaluate(SchemaId id, Subject subject, Outcome& out);
  bool has_type(const Schema& schema, Subject subject) const;
  bool has_value(SchemaId id, const Schema& schema, Subject subject);
  bool fits_number(const NumberKeywords& number, Subject subject) const;
  bool fits_string(const StringKeywords& string, Subject subject) const;
  bool fits_array(const ArrayKeywords& array, Subject subject) const;
  bool fits_object(const ObjectKeywords& object, Subject subject) const;
  Verdict apply_in_place(const Schema& schema, Subject subject, Outcome& out);
  Verdict apply_one_of(const Schema& schema, Subject subject, Outcome& out);
  Verdict apply_condition(const Schema& schema, Subject subject, Outcome& out);
  Verdict apply_items(const ArrayKeywords& array, Subject subject, Outcome& out);
  Verdict apply_members(const ObjectKeywords& object, Subject subject, Outcome& out);
  Verdict apply_unevaluated(SchemaId rest, Subject subject, Outcome& out);

  const SchemaGraph& graph_;
  const SchemaStrings& strings_;
  const ExactJson* instance_ = nullptr;
  std::unordered_map<std::uint64_t, Outcome> outcomes_;
  std::vector<std::pair<SchemaId, Subject>> stack_;
  std::unordered_map<SchemaId, std::unordered_set<std::string>> values_;  // canonical enums
};

}  // namespace sluice::grammar
