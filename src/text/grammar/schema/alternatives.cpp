// The loop over literals and choices, and the keywords of a schema that must accept the value.
#include "text/grammar/schema/alternatives.h"

#include <algorithm>

#include "text/grammar/schema/formats.h"

namespace sluice::grammar {

Goal make_goal(std::vector<Literal> literals) {
  std::sort(literals.begin(), literals.end());
  literals.erase(std::unique(literals.begin(), literals.end()), literals.end());
  const auto is_true = [](Literal literal) {
    return literal == positive(kTrueSchema) || literal == negative(kFalseSchema);
  };
  std::erase_if(literals, is_true);
  for (std::size_t i = 0; i < literals.size(); ++i) {
    const bool is_false = literals[i] == positive(kFalseSchema) ||
                          literals[i] == negative(kTrueSchema) ||
                          (i > 0 && literals[i] == opposite(literals[i - 1]));
    if (is_false) return {positive(kFalseSchema)};
  }
  return literals;
}

bool Alternative::is_dead() const {
  return types == 0 || (has_values && values.empty());
}

std::vector<Alternative> Expander::expand(const Goal& goal) {
  std::vector<Alternative> done;
  std::vector<State> stack(1);
  stack.back().pending.assign(goal.rbegin(), goal.rend());
  while (!stack.empty()) {
    State state = std::move(stack.back());
    stack.pop_back();
    while (!state.pending.empty() && !state.alternative.is_dead()) {
      const Literal literal = state.pending.back();
      state.pending.pop_back();
      add(state, literal);
    }
    if (has_impossible_member(state.alternative)) {
      state.alternative.types &= static_cast<std::uint8_t>(~kObjectType);
    }
    if (state.alternative.is_dead()) continue;
    if (state.choices.empty()) {
      for (const SchemaId id : state.unevaluated) add_unevaluated(state, id);
      done.push_back(std::move(state.alternative));
    } else {
      resolve_choice(std::move(state), stack, done.size());
    }
  }
  return done;
}

void Expander::resolve_choice(State state, std::vector<State>& stack, std::size_t num_done) {
  const Choice choice = std::move(state.choices.front());
  state.choices.erase(state.choices.begin());
  if ((state.alternative.types & choice.types) == 0) {
    stack.push_back(std::move(state));
    return;
  }
  constexpr std::size_t kLongList = 8;
  const std::size_t max = is_negative(choice.literal)          ? kMaxNegated
                          : choice.options.size() <= kLongList ? kMaxMultiplied
                                                               : kMaxAlternatives;
  if (choice.options.size() > 1 && choice.options.size() + stack.size() + num_done > max) {
    state.alternative.checks.push_back({choice.literal, choice.types});
    stack.push_back(std::move(state));
    return;
  }
  // Values of types that the choice does not concern need no decision.
  if ((state.alternative.types & ~choice.types) != 0) {
    State rest = state;
    rest.alternative.types &= static_cast<std::uint8_t>(~choice.types);
    stack.push_back(std::move(rest));
    state.alternative.types &= choice.types;
  }
  // The first option ends on top, so alternatives keep the order of the schema.
  for (auto option = choice.options.rbegin(); option != choice.options.rend(); ++option) {
    State next = state;
    if (option->change) option->change(next.alternative);
    if (next.alternative.is_dead()) continue;
    next.pending.insert(next.pending.end(), option->literals.rbegin(), option->literals.rend());
    stack.push_back(std::move(next));
  }
}

void Expander::add(State& state, Literal literal) {
  if (literal == positive(kTrueSchema) || literal == negative(kFalseSchema)) return;
  const auto place = std::lower_bound(state.seen.begin(), state.seen.end(), literal);
  if (place != state.seen.end() && *place == literal) return;
  if (std::binary_search(state.seen.begin(), state.seen.end(), opposite(literal)) ||
      literal == positive(kFalseSchema) || literal == negative(kTrueSchema)) {
    state.alternative.types = 0;
    return;
  }
  state.seen.insert(place, literal);
  if (is_negative(literal)) {
    add_negative(state, schema_of(literal));
  } else {
    add_positive(state, schema_of(literal));
  }
}

void Expander::add_positive(State& state, SchemaId id) {
  const Schema& schema = graph_[id];
  Alternative& out = state.alternative;
  out.types &= schema.types;
  out.numbers.is_plain_integer |= schema.integer_is_spelling;
  if (schema.is_false) out.types = 0;
  if (schema.has_values) {
    if (!out.has_values) {
      out.values = schema.values;
    } else {
      const auto& texts = texts_of(schema);
      std::erase_if(out.values,
                    [&](JsonId value) { return !texts.contains(graph_.json.canonical(value)); });
    }
    out.has_values = true;
  }
  if (out.is_dead()) return;
  if (schema.number) add_numbers(out, *schema.number);
  if (schema.string) {
    add_strings(out, *schema.string);
    // No regular language: the string is checked when it ends.
    if (schema.string->format == "regex" && strings_.asserts_formats()) {
      out.checks.push_back({positive(id), kStringType});
    }
  }
  if (schema.array) add_items(state, id, *schema.array);
  if (schema.object) add_members(state, id, *schema.object);
  if (schema.has_unevaluated) state.unevaluated.push_back(id);
  for (auto target = schema.all_of.rbegin(); target != schema.all_of.rend(); ++target) {
    state.pending.push_back(positive(*target));
  }
  if (schema.not_ != kNoSchema) state.pending.push_back(negative(schema.not_));
  for (const auto& list : schema.any_of) {
    Choice choice{{}, positive(id)};
    for (const SchemaId option : list) choice.options.push_back({{positive(option)}, {}});
    state.choices.push_back(std::move(choice));
  }
  if (!schema.one_of.empty()) add_one_of(state, id, schema);
  if (schema.if_ != kNoSchema && (schema.then_ != kNoSchema || schema.else_ != kNoSchema)) {
    Choice choice{{}, positive(id)};
    Option then{{positive(schema.if_)}, {}};
    Option otherwise{{negative(schema.if_)}, {}};
    if (schema.then_ != kNoSchema) then.literals.push_back(positive(schema.then_));
    if (schema.else_ != kNoSchema) otherwise.literals.push_back(positive(schema.else_));
    choice.options = {std::move(then), std::move(otherwise)};
    state.choices.push_back(std::move(choice));
  }
}

void Expander::add_numbers(Alternative& out, const NumberKeywords& number) {
  NumberSet& set = out.numbers;
  if (number.minimum) set.raise_low(*number.minimum, false);
  if (number.exclusive_minimum) set.raise_low(*number.exclusive_minimum, true);
  if (number.maximum) set.lower_high(*number.maximum, false);
  if (number.exclusive_maximum) set.lower_high(*number.exclusive_maximum, true);
  if (number.multiple_of) set.multiples.push_back(*number.multiple_of);
}

void Expander::add_strings(Alternative& out, const StringKeywords& string) {
  out.min_length = std::max(out.min_length, string.min_length);
  if (string.max_length) out.max_length = std::min(out.max_length, *string.max_length);
  if (string.pattern >= 0) out.languages.push_back(strings_.pattern(string.pattern));
  if (const LanguageId* format = strings_.format(string.format)) {
    out.languages.push_back(*format);
    out.max_length = std::min(out.max_length, format_max_length(string.format));
  }
}

void Expander::add_items(State& state, SchemaId id, const ArrayKeywords& array) {
  Alternative& out = state.alternative;
  out.min_items = std::max(out.min_items, array.min_items);
  if (array.max_items) out.max_items = std::min(out.max_items, *array.max_items);
  if (!array.prefix.empty() || array.items != kNoSchema) {
    ItemLayer layer;
    for (const SchemaId item : array.prefix) layer.prefix.push_back(positive(item));
    if (array.items != kNoSchema) layer.rest = positive(array.items);
    out.items.push_back(std::move(layer));
  }
  if (array.unique) {
    out.checks.push_back({positive(id), kArrayType});
    out.needs_item_guard = true;
    out.has_unique_items = true;
  }
  if (array.contains == kNoSchema) return;
  if (array.min_contains == 0 && !array.max_contains) return;
  out.checks.push_back({positive(id), kArrayType});
  out.needs_item_guard |= array.max_contains.has_value();
  out.contained.push_back(
      {positive(array.contains), array.min_contains, array.max_contains.value_or(kUnbounded)});
  out.min_items = std::max(out.min_items, array.min_contains);
  if (array.min_contains > 0) {
    const Goal contained = make_goal({positive(array.contains)});
    if (contained == Goal{positive(kFalseSchema)}) out.types &= ~kArrayType;
  }
}

void Expander::add_members(State& state, SchemaId id, const ObjectKeywords& object) {
  Alternative& out = state.alternative;
  (void)id;
  MemberLayer layer;
  for (const auto& [name, schema] : object.properties) {
    layer.names.emplace_back(name, positive(schema));
  }
  for (const auto& [pattern, schema] : object.patterns) {
    layer.patterns.emplace_back(pattern, positive(schema));
  }
  if (object.additional != kNoSchema) layer.additional = positive(object.additional);
  if (!layer.names.empty() || !layer.patterns.empty() || layer.additional) {
    out.members.push_back(std::move(layer));
  }
  out.required.insert(out.required.end(), object.required.begin(), object.required.end());
  if (object.names != kNoSchema) out.names.push_back(positive(object.names));
  out.min_properties = std::max(out.min_properties, object.min_properties);
  if (object.max_properties) {
    out.max_properties = std::min(out.max_properties, *object.max_properties);
  }
  for (const auto& [key, needed] : object.dependent_required) {
    for (const std::string& other : needed) out.dependent.emplace_back(key, other);
  }
  for (const auto& [key, schema] : object.dependent_schemas) {
    Choice choice{{}, positive(id), kObjectType};
    choice.options.push_back({{}, [key = key](Alternative& a) {
                                a.members.push_back({{{key, positive(kFalseSchema)}}, {}, {}});
                              }});
    choice.options.push_back(
        {{positive(schema)}, [key = key](Alternative& a) { a.required.push_back(key); }});
    state.choices.push_back(std::move(choice));
  }
}

void Expander::add_one_of(State& state, SchemaId id, const Schema& schema) {
  Choice choice{{}, positive(id)};
  const auto& list = schema.one_of;
  // Pairs of long lists would cost too much; a check at the end of the value replaces them.
  constexpr std::size_t kMaxPairs = 64;
  bool needs_check = list.size() > kMaxPairs;
  for (std::size_t i = 0; i < list.size(); ++i) {
    Option option{{positive(list[i])}, {}};
    for (std::size_t j = 0; j < list.size() && !needs_check; ++j) {
      if (i != j && !are_disjoint(list[i], list[j])) option.literals.push_back(negative(list[j]));
    }
    choice.options.push_back(std::move(option));
  }
  if (needs_check) state.alternative.checks.push_back({positive(id), kAllTypes});
  state.choices.push_back(std::move(choice));
}

}  // namespace sluice::grammar
