// The alternatives of a schema that must not accept the value: one for each keyword that the value
// may fail.
#include <algorithm>

#include "text/grammar/schema/alternatives.h"
#include "text/grammar/schema/formats.h"

namespace sluice::grammar {

void Expander::add_negative(State& state, SchemaId id) {
  const Schema& schema = graph_[id];
  Choice choice{{}, negative(id)};
  const auto option = [&](std::vector<Literal> literals, std::function<void(Alternative&)> change) {
    choice.options.push_back({std::move(literals), std::move(change)});
  };
  if (schema.types != kAllTypes) {
    const auto others = static_cast<std::uint8_t>(~schema.types & kAllTypes);
    option({}, [others](Alternative& a) { a.types &= others; });
    if (schema.integer_is_spelling) {
      option({}, [id](Alternative& a) {
        a.types &= kIntegerType;
        a.checks.push_back({negative(id), kIntegerType});
      });
    }
  }
  if (schema.has_values) negate_values(choice, id, schema);
  if (schema.number) negate_numbers(choice, id, *schema.number);
  if (schema.string) {
    negate_strings(choice, *schema.string);
    if (schema.string->format == "regex" && strings_.asserts_formats()) {
      option({}, [id](Alternative& a) {
        a.types &= kStringType;
        a.checks.push_back({negative(id), kStringType});
      });
    }
  }
  if (schema.array) negate_items(choice, id, *schema.array);
  if (schema.object) negate_members(choice, id, *schema.object);
  for (const SchemaId target : schema.all_of) option({negative(target)}, {});
  if (schema.not_ != kNoSchema) option({positive(schema.not_)}, {});
  for (const auto& list : schema.any_of) {
    std::vector<Literal> none;
    for (const SchemaId one : list) none.push_back(negative(one));
    option(std::move(none), {});
  }
  if (!schema.one_of.empty()) {
    // None of them, or more than one.
    std::vector<Literal> none;
    for (const SchemaId one : schema.one_of) none.push_back(negative(one));
    option(std::move(none), {});
    option({}, [id](Alternative& a) { a.checks.push_back({negative(id), kAllTypes}); });
  }
  if (schema.if_ != kNoSchema) {
    if (schema.then_ != kNoSchema) option({positive(schema.if_), negative(schema.then_)}, {});
    if (schema.else_ != kNoSchema) option({negative(schema.if_), negative(schema.else_)}, {});
  }
  if (choice.options.empty()) {
    state.alternative.types = 0;  // the schema accepts every value
  } else if (choice.options.size() == 1) {
    Option& only = choice.options.front();
    if (only.change) only.change(state.alternative);
    state.pending.insert(state.pending.end(), only.literals.rbegin(), only.literals.rend());
  } else {
    state.choices.push_back(std::move(choice));
  }
}

void Expander::negate_values(Choice& choice, SchemaId id, const Schema& schema) {
  std::uint8_t types = 0;
  std::uint8_t booleans = 3;
  std::vector<std::string> strings;
  bool needs_check = false;
  std::uint8_t checked = 0;
  for (const JsonId value : schema.values) {
    switch (graph_.json.kind(value)) {
      case JsonKind::kNull:
        types |= kNullType;
        break;
      case JsonKind::kFalse:
        booleans &= 2;
        break;
      case JsonKind::kTrue:
        booleans &= 1;
        break;
      case JsonKind::kString:
        strings.emplace_back(graph_.json.text(value));
        break;
      case JsonKind::kNumber:
        checked |= kNumberTypes;
        break;
      case JsonKind::kArray:
        checked |= kArrayType;
        break;
      case JsonKind::kObject:
        checked |= kObjectType;
        break;
    }
  }
  needs_check = checked != 0;
  if (booleans == 0) types |= kBooleanType;
  std::optional<LanguageId> others;
  if (!strings.empty()) others = languages_.complement(languages_.literals(strings));
  choice.options.push_back({{}, [=](Alternative& a) {
                              a.types &= static_cast<std::uint8_t>(~types);
                              a.booleans &= booleans;
                              if (a.booleans == 0)
                                a.types &= static_cast<std::uint8_t>(~kBooleanType);
                              if (others) a.languages.push_back(*others);
                              if (needs_check) a.checks.push_back({negative(id), checked});
                            }});
}

void Expander::negate_numbers(Choice& choice, SchemaId id, const NumberKeywords& number) {
  const auto option = [&](std::function<void(Alternative&)> change) {
    choice.options.push_back({{}, [change = std::move(change)](Alternative& a) {
                                a.types &= kNumberTypes;
                                change(a);
                              }});
  };
  if (number.minimum) {
    option([bound = *number.minimum](Alternative& a) { a.numbers.lower_high(bound, true); });
  }
  if (number.exclusive_minimum) {
    option([bound = *number.exclusive_minimum](Alternative& a) {
      a.numbers.lower_high(bound, false);
    });
  }
  if (number.maximum) {
    option([bound = *number.maximum](Alternative& a) { a.numbers.raise_low(bound, true); });
  }
  if (number.exclusive_maximum) {
    option(
        [bound = *number.exclusive_maximum](Alternative& a) { a.numbers.raise_low(bound, false); });
  }
  if (number.multiple_of) {
    option([id](Alternative& a) { a.checks.push_back({negative(id), kNumberTypes}); });
  }
}

void Expander::negate_strings(Choice& choice, const StringKeywords& string) {
  const auto option = [&](std::function<void(Alternative&)> change) {
    choice.options.push_back({{}, [change = std::move(change)](Alternative& a) {
                                a.types &= kStringType;
                                change(a);
                              }});
  };
  if (string.min_length > 0) {
    option([bound = string.min_length - 1](Alternative& a) {
      a.max_length = std::min(a.max_length, bound);
    });
  }
  if (string.max_length) {
    option([bound = *string.max_length + 1](Alternative& a) {
      a.min_length = std::max(a.min_length, bound);
    });
  }
  if (string.pattern >= 0) {
    const LanguageId others = languages_.complement(strings_.pattern(string.pattern));
    option([others](Alternative& a) { a.languages.push_back(others); });
  }
  if (const LanguageId* format = strings_.format(string.format)) {
    const LanguageId others = languages_.complement(*format);
    option([others](Alternative& a) { a.languages.push_back(others); });
    if (const std::uint64_t max = format_max_length(string.format); max != kUnbounded) {
      option([max](Alternative& a) { a.min_length = std::max(a.min_length, max + 1); });
    }
  }
}

void Expander::negate_items(Choice& choice, SchemaId id, const ArrayKeywords& array) {
  const auto option = [&](std::function<void(Alternative&)> change) {
    choice.options.push_back({{}, [change = std::move(change)](Alternative& a) {
                                a.types &= kArrayType;
                                change(a);
                              }});
  };
  if (array.min_items > 0) {
    option([bound = array.min_items - 1](Alternative& a) {
      a.max_items = std::min(a.max_items, bound);
    });
  }
  if (array.max_items) {
    option([bound = *array.max_items + 1](Alternative& a) {
      a.min_items = std::max(a.min_items, bound);
    });
  }
  // Which item fails is known at the end only.
  const bool has_rules = !array.prefix.empty() || array.items != kNoSchema;
  const bool has_more = array.contains != kNoSchema || array.unevaluated != kNoSchema;
  if (has_rules || has_more || array.unique) {
    option([id, has_rules, has_more](Alternative& a) {
      a.checks.push_back({negative(id), kArrayType});
      if (has_rules && !has_more) a.min_items = std::max<std::uint64_t>(a.min_items, 1);
    });
  }
}

void Expander::negate_members(Choice& choice, SchemaId id, const ObjectKeywords& object) {
  const auto option = [&](std::function<void(Alternative&)> change) {
    choice.options.push_back({{}, [change = std::move(change)](Alternative& a) {
                                a.types &= kObjectType;
                                change(a);
                              }});
  };
  const auto forbid = [](Alternative& a, const std::string& key) {
    a.members.push_back({{{key, positive(kFalseSchema)}}, {}, {}});
  };
  for (const std::string& key : object.required) {
    option([key, forbid](Alternative& a) { forbid(a, key); });
  }
  for (const auto& [key, schema] : object.properties) {
    if (schema == kTrueSchema) continue;
    option([key = key, schema = schema](Alternative& a) {
      a.members.push_back({{{key, negative(schema)}}, {}, {}});
      a.required.push_back(key);
    });
  }
  if (object.min_properties > 0) {
    option([bound = object.min_properties - 1](Alternative& a) {
      a.max_properties = std::min(a.max_properties, bound);
    });
  }
  if (object.max_properties) {
    option([bound = *object.max_properties + 1](Alternative& a) {
      a.min_properties = std::max(a.min_properties, bound);
    });
  }
  for (const auto& [key, needed] : object.dependent_required) {
    for (const std::string& other : needed) {
      option([key = key, other = other, forbid](Alternative& a) {
        a.required.push_back(key);
        forbid(a, other);
      });
    }
  }
  for (const auto& [key, schema] : object.dependent_schemas) {
    choice.options.push_back({{negative(schema)}, [key = key](Alternative& a) {
                                a.types &= kObjectType;
                                a.required.push_back(key);
                              }});
  }
  // Which member fails is known at the end only.
  if (!object.patterns.empty() || object.additional != kNoSchema || object.names != kNoSchema ||
      object.unevaluated != kNoSchema) {
    option([id](Alternative& a) {
      a.checks.push_back({negative(id), kObjectType});
      a.min_properties = std::max<std::uint64_t>(a.min_properties, 1);
    });
  }
}

}  // namespace sluice::grammar
