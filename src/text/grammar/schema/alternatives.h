// What a value must fulfil, as a list of alternatives without `anyOf`, `$ref`, `not` and the like.
//
// A goal is a set of literals: a schema that has to accept the value, or one that must not. The
// alternatives of a goal together hold every value that fulfils it. An alternative may hold more:
// then `checks` names the literals that a whole value has still to be checked against.
//
//   Expander expander(graph, languages, strings);
//   for (const Alternative& one : expander.expand({positive(graph.root)})) ...
//
// Nothing recurses. A goal has at most kMaxAlternatives; what would need more is checked instead.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "text/grammar/languages.h"
#include "text/grammar/schema/number_set.h"
#include "text/grammar/schema/schema_graph.h"
#include "text/grammar/schema/schema_strings.h"

namespace sluice::grammar {

// A schema with a sign: 2 * id, plus one where the schema must not accept the value.
using Literal = std::int32_t;
using Goal = std::vector<Literal>;  // sorted, without repetition

constexpr Literal positive(SchemaId id) {
  return id * 2;
}
constexpr Literal negative(SchemaId id) {
  return id * 2 + 1;
}
constexpr Literal opposite(Literal literal) {
  return literal ^ 1;
}
constexpr SchemaId schema_of(Literal literal) {
  return literal / 2;
}
constexpr bool is_negative(Literal literal) {
  return (literal & 1) != 0;
}
// Sorted, without true; {false} where nothing fulfils it.
Goal make_goal(std::vector<Literal> literals);

// One schema's demands on items.
struct ItemLayer {
  std::vector<Literal> prefix;
  std::optional<Literal> rest;  // none: any value
};

// So many items fulfil a schema.
struct Contained {
  Literal literal;
  std::uint64_t min = 1, max = kUnbounded;
};

// One schema's demands on members: a key takes the literal of its name and those of every pattern
// that it has; the rest takes `additional`.
struct MemberLayer {
  std::vector<std::pair<std::string, Literal>> names;
  std::vector<std::pair<int, Literal>> patterns;
  std::optional<Literal> additional;
};

struct Check {
  Literal literal;
  std::uint8_t types;  // of the values that need it
};

struct Alternative {
  std::uint8_t types = kAllTypes;
  std::uint8_t booleans = 3;  // 1: false, 2: true
  NumberSet numbers;
  std::vector<LanguageId> languages;  // of a string
  std::uint64_t min_length = 0, max_length = kUnbounded;
  std::vector<ItemLayer> items;
  std::uint64_t min_items = 0, max_items = kUnbounded;
  bool needs_item_guard = false;  // a check can fail before the array ends
  bool has_unique_items = false;
  std::vector<Contained> contained;
  std::vector<MemberLayer> members;
  std::vector<std::string> required;  // in the order of first mention
  std::vector<Literal> names;         // of every key
  std::uint64_t min_properties = 0, max_properties = kUnbounded;
  std::vector<std::pair<std::string, std::string>> dependent;  // first needs second
  bool has_values = false;
  std::vector<JsonId> values;  // of graph.json
  std::vector<Check> checks;

  bool is_dead() const;
};

// Alternatives of one goal: by a long list, by choices that multiply, and by a negation.
inline constexpr std::size_t kMaxAlternatives = 1500;
inline constexpr std::size_t kMaxMultiplied = 96;
inline constexpr std::size_t kMaxNegated = 48;

class Expander {
 public:
  Expander(const SchemaGraph& graph, Languages& languages, const SchemaLanguages& strings)
      : graph_(graph), languages_(languages), strings_(strings) {}

  std::vector<Alternative> expand(const Goal& goal);
  // Types that a schema may accept; more at times, never fewer.
  std::uint8_t types(SchemaId id) { return types_within(id, kMaxDepth); }
  // Whether no value fulfils both schemas, as far as types and values of members tell.
  bool are_disjoint(SchemaId a, SchemaId b);

 private:
  // One way to go on: literals to add and a change to the alternative.
  struct Option {
    std::vector<Literal> literals;
    std::function<void(Alternative&)> change;
  };
  struct Choice {
    std::vector<Option> options;
    Literal literal;                 // what to check where the options are too many
    std::uint8_t types = kAllTypes;  // that the choice concerns
  };
  struct State {
    Alternative alternative;
    std::vector<Literal> pending;
    std::vector<Choice> choices;
    std::vector<SchemaId> unevaluated;  // schemas with a keyword that asks what others evaluate
    Goal seen;
  };

  void add(State& state, Literal literal);
  void add_positive(State& state, SchemaId id);
  void add_negative(State& state, SchemaId id);
  void add_numbers(Alternative& out, const NumberKeywords& number);
  void add_strings(Alternative& out, const StringKeywords& string);
  void add_items(State& state, SchemaId id, const ArrayKeywords& array);
  void add_members(State& state, SchemaId id, const ObjectKeywords& object);
  void add_one_of(State& state, SchemaId id, const Schema& schema);
  void add_unevaluated(State& state, SchemaId id);
  static bool is_left_out(const Goal& known, const Schema& one, SchemaId part);
  static bool is_counted(const Goal& known, const Schema& one, SchemaId part);
  void negate_values(Choice& choice, SchemaId id, const Schema& schema);
  void negate_numbers(Choice& choice, SchemaId id, const NumberKeywords& number);
  void negate_strings(Choice& choice, const StringKeywords& string);
  void negate_items(Choice& choice, SchemaId id, const ArrayKeywords& array);
  void negate_members(Choice& choice, SchemaId id, const ObjectKeywords& object);
  void resolve_choice(State state, std::vector<State>& stack, std::size_t num_done);
  // Looks `depth` subschemas deep; what lies deeper may have every type.
  static constexpr int kMaxDepth = 12;
  std::uint8_t types_within(SchemaId id, int depth);
  // The schema and all that `allOf` and $ref add to it, up to a bound.
  std::vector<SchemaId> conjuncts(SchemaId id) const;
  bool have_disjoint_values(SchemaId a, SchemaId b);
  // The canonical texts of the values that a schema lists.
  const std::unordered_set<std::string>& texts_of(const Schema& schema);
  // Whether a required member has no value, told from its listed values alone.
  bool has_impossible_member(const Alternative& one);
  bool is_impossible(Literal a, Literal b);
  bool excludes_member(const std::vector<SchemaId>& schemas, const std::string& key) const;

  const SchemaGraph& graph_;
  Languages& languages_;
  const SchemaLanguages& strings_;
  std::unordered_map<SchemaId, std::uint8_t> types_;
  std::unordered_map<const Schema*, std::unordered_set<std::string>> texts_;
};

}  // namespace sluice::grammar
