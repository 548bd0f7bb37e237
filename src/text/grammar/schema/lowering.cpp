#include "text/grammar/schema/lowering.h"

#include <algorithm>
#include <iterator>

namespace sluice::grammar {
namespace {

constexpr std::uint8_t kContainers = kArrayType | kObjectType;

}  // namespace

Lowering::Lowering(Grammar& grammar, std::shared_ptr<SchemaHost> host,
                   const SchemaLanguages& strings, const SchemaOptions& options)
    : grammar_(grammar),
      host_(std::move(host)),
      graph_(host_->graph()),
      strings_(strings),
      options_(options),
      expander_(graph_, grammar.languages(), strings) {
  space_ = options.max_space == 0 ? grammar.empty() : grammar.white_space(options.max_space);
  comma_ = grammar.sequence({space_, grammar.bytes(","), space_});
}

Result<NodeId> Lowering::lower() {
  const Goal goal = make_goal({positive(graph_.root)});
  const NodeId root = options_.raw_string ? define(goal, true) : node(goal);
  const auto is_out_of_budget = [&] {
    return grammar_.is_exhausted() || grammar_.languages().budget().is_cancelled();
  };
  while (!pending_.empty() && !is_out_of_budget()) {
    auto [goal, rule] = std::move(pending_.back());
    pending_.pop_back();
    grammar_.define_rule(rule, define(goal));
  }
  if (is_out_of_budget()) {
    return schema_fault("json_schema_too_large", "",
                        "its grammar takes more work or memory than one request may use; make the "
                        "schema smaller");
  }
  if (has_checked_raw_string_) {
    return schema_fault("unsupported_json_schema", "",
                        "a string without quotes cannot be checked when it ends; leave out `not` "
                        "and `if` for it");
  }
  return root;
}

std::string Lowering::shared_name(const Goal& goal) const {
  constexpr std::size_t kMaxValues = 128, kMaxBytes = 4096;  // larger schemas are not compared
  const SchemaId id = schema_of(goal.front());
  if (goal.size() != 1 || is_negative(goal.front()) || graph_[id].at == kNoJson) return {};
  const ExactJson& json = graph_.json;
  std::string name =
      fmt::format("{} {} {} {} {} ", static_cast<int>(graph_.draft), options_.max_space,
                  options_.any_order, options_.assert_formats, options_.plain_integers);
  struct Part {
    JsonId at;
    bool is_value;  // of `enum` and the like, no schema
  };
  std::vector<Part> stack{{graph_[id].at, false}};
  for (std::size_t num_values = 0; !stack.empty(); ++num_values) {
    const auto [at, is_value] = stack.back();
    stack.pop_back();
    if (at == kNoJson) {
      name += ']';
      continue;
    }
    if (num_values > kMaxValues || name.size() > kMaxBytes) return {};
    // The place of the schema itself does not matter.
    const std::string_view key = at == graph_[id].at ? std::string_view() : json.key(at);
    const std::string_view text = json.text(at);
    if (json.is(at, JsonKind::kString)) {
      if (key.starts_with('$') && key.ends_with("ef")) return {};  // $ref and its kin
      if (!is_value && (key == "title" || key == "description" || key == "$comment")) continue;
    }
    name += '+';
    for (const std::string_view part : {key, text}) {
      const auto size = static_cast<std::uint32_t>(part.size());
      name.append(reinterpret_cast<const char*>(&size), sizeof(size));
      name += part;
    }
    name += static_cast<char>('0' + static_cast<int>(json.kind(at)));
    if (json.first(at) == kNoJson) continue;
    const bool has_values =
        is_value || key == "enum" || key == "const" || key == "default" || key == "examples";
    stack.push_back({kNoJson, false});
    for (JsonId part = json.first(at); part != kNoJson; part = json.next(part))
      stack.push_back({part, has_values});
  }
  return name;
}

NodeId Lowering::node(const Goal& goal) {
  if (goal.empty()) return grammar_.any_json(space_);
  if (goal == Goal{positive(kFalseSchema)}) return grammar_.none();
  const auto found = nodes_.find(goal);
  if (found != nodes_.end()) return found->second;
  std::string name = shared_name(goal);
  if (!name.empty())
    if (const std::optional<NodeId> known = grammar_.named(name)) {
      nodes_.emplace(goal, *known);
      return *known;
    }
  // Values without parts need no rule, and lowering them starts no other goal.
  std::uint8_t types = kAllTypes;
  for (const Literal literal : goal) {
    if (!is_negative(literal)) types &= expander_.types(schema_of(literal));
  }
  NodeId out{};
  if ((types & kContainers) == 0) {
    out = define(goal);
  } else {
    const RuleId rule = grammar_.declare_rule(graph_.pointer(schema_of(goal.front())));
    pending_.emplace_back(goal, rule);
    out = grammar_.rule(rule);
  }
  nodes_.emplace(goal, out);
  if (!name.empty()) grammar_.name(std::move(name), out);
  return out;
}

NodeId Lowering::raw_text(LanguageId language, std::uint64_t min, std::uint64_t max) {
  Languages& languages = grammar_.languages();
  std::vector<LanguageId> parts{language, *options_.raw_string};
  if (min > 0 || max != kUnbounded) {
    parts.push_back(languages.repeat(languages.any_char(), min, max));
  }
  return grammar_.text(languages.intersect(parts));
}

NodeId Lowering::define(const Goal& goal, bool is_raw) {
  std::vector<NodeId> options;
  std::vector<JsonId> values;
  Strings strings;
  bool is_plain_integer = options_.plain_integers;
  for (const Alternative& one : expander_.expand(goal)) {
    if (one.has_values) {
      // Languages sort out most values of a long list; the validator decides on the rest.
      const auto has_language = [&](JsonId at) {
        return !graph_.json.is(at, JsonKind::kString) ||
               std::all_of(one.languages.begin(), one.languages.end(), [&](LanguageId language) {
                 return grammar_.languages().contains(language, graph_.json.text(at));
               });
      };
      std::copy_if(one.values.begin(), one.values.end(), std::back_inserter(values), has_language);
      is_plain_integer |= one.numbers.is_plain_integer;
    } else {
      lower_alternative(goal, one, strings, options, is_raw);
    }
  }
  // The automaton of many languages together may be much larger than each of theirs.
  constexpr std::size_t kMaxTogether = 8;
  for (const auto& [length, languages] : strings) {
    if (is_raw) {
      for (const LanguageId language : languages) {
        options.push_back(raw_text(language, length.first, length.second));
      }
      continue;
    }
    if (languages.size() > kMaxTogether) {
      for (const LanguageId language : languages) {
        options.push_back(grammar_.json_string(language, length.first, length.second));
      }
      continue;
    }
    options.push_back(grammar_.json_string(grammar_.languages().alternate(languages), length.first,
                                           length.second));
  }
  if (!values.empty()) options.push_back(lower_values(goal, values, is_plain_integer, is_raw));
  return grammar_.any_of(options);
}

std::vector<Literal> Lowering::checks(const Alternative& one, std::uint8_t types) const {
  std::vector<Literal> out;
  for (const Check& check : one.checks) {
    if ((check.types & types) != 0) out.push_back(check.literal);
  }
  return make_goal(std::move(out));
}

NodeId Lowering::check_value(NodeId node, std::vector<Literal> literals) {
  if (literals.empty()) return node;
  return grammar_.checked(node, std::make_shared<const SchemaCheck>(host_, std::move(literals)));
}

void Lowering::lower_alternative(const Goal& goal, const Alternative& one, Strings& strings,
                                 std::vector<NodeId>& options, bool is_raw) {
  if ((one.types & (kNullType | kBooleanType)) != 0) {
    options.push_back(lower_constants(goal, one));
  }
  if ((one.types & kNumberTypes) != 0) {
    options.push_back(lower_number(one));
  }
  if ((one.types & kStringType) != 0) {
    const std::vector<Literal> literals = checks(one, kStringType);
    has_checked_raw_string_ |= is_raw && !literals.empty();
    if (!literals.empty()) {
      options.push_back(check_value(lower_string(one), literals));
    } else if (one.min_length <= one.max_length) {
      strings[{one.min_length, one.max_length}].push_back(string_language(one));
    }
  }
  if ((one.types & kArrayType) != 0) {
    options.push_back(check_value(lower_array(one), checks(one, kArrayType)));
  }
  if ((one.types & kObjectType) != 0) {
    options.push_back(check_value(lower_object(goal, one), checks(one, kObjectType)));
  }
}

NodeId Lowering::lower_constants(const Goal& goal, const Alternative& one) {
  std::vector<NodeId> options;
  const auto add = [&](const char* text, std::uint8_t type) {
    if (!checks(one, type).empty()) {
      const Result<ExactJson> value = ExactJson::parse(text, {});
      if (!host_->fulfils(goal, *value, 0)) return;
    }
    options.push_back(grammar_.bytes(text));
  };
  if ((one.types & kNullType) != 0) add("null", kNullType);
  if ((one.types & kBooleanType) != 0) {
    if ((one.booleans & 2) != 0) add("true", kBooleanType);
    if ((one.booleans & 1) != 0) add("false", kBooleanType);
  }
  return grammar_.any_of(options);
}

NumberSet Lowering::number_set(const Alternative& one) const {
  NumberSet set = one.numbers;
  set.has_integers = (one.types & kIntegerType) != 0;
  set.has_fractions = (one.types & kFractionType) != 0;
  // The spelling of draft 4 counts where fractions are excluded; 1.0 is checked otherwise.
  set.is_plain_integer |= options_.plain_integers;
  set.is_plain_integer &= !set.has_fractions;
  return set;
}

NodeId Lowering::lower_number(const Alternative& one) {
  NumberSet set = number_set(one);
  std::vector<Literal> literals = checks(one, one.types & kNumberTypes);
  if (keep_checked_members(literals, set)) literals.clear();
  const auto [found, is_new] = numbers_.try_emplace(set.canonical());
  if (is_new) found->second = number_node(grammar_, set);
  return check_value(found->second, std::move(literals));
}

LanguageId Lowering::string_language(const Alternative& one) {
  Languages& languages = grammar_.languages();
  if (one.languages.empty()) return languages.any_text();
  if (one.languages.size() == 1) return one.languages.front();
  return languages.intersect(one.languages);
}

NodeId Lowering::lower_string(const Alternative& one) {
  if (one.min_length > one.max_length) return grammar_.none();
  return grammar_.json_string(string_language(one), one.min_length, one.max_length);
}

Goal Lowering::item_goal(const Alternative& one, std::size_t at) const {
  std::vector<Literal> literals;
  for (const ItemLayer& layer : one.items) {
    if (at < layer.prefix.size()) {
      literals.push_back(layer.prefix[at]);
    } else if (layer.rest) {
      literals.push_back(*layer.rest);
    }
  }
  return make_goal(std::move(literals));
}

std::optional<NodeId> Lowering::lower_contained(const Alternative& one, std::uint64_t max,
                                                std::size_t num_prefix) {
  constexpr std::uint64_t kMaxCount = 8, kMaxItems = 16;
  if (one.contained.size() != 1) return std::nullopt;
  const Contained& wanted = one.contained.front();
  const bool is_bounded = wanted.max != kUnbounded;
  const std::uint64_t most = is_bounded ? wanted.max : wanted.min;  // counted so far
  // Behind `last` items each number of items is as good as the others.
  const std::uint64_t last =
      max != kUnbounded ? max : std::max<std::uint64_t>(num_prefix, one.min_items);
  if (most > kMaxCount || last > kMaxItems) return std::nullopt;
  const auto item = [&](std::uint64_t at, Literal literal) {
    Goal goal = item_goal(one, at);
    goal.push_back(literal);
    const NodeId value = node(make_goal(std::move(goal)));
    const NodeId whole =
        one.needs_item_guard ? grammar_.sequence({value, grammar_.guard()}) : value;
    return at == 0 ? whole : grammar_.sequence({comma_, whole});
  };
  // What may follow, by the number of items that were contained. From the back.
  std::vector<NodeId> tails(most + 1, grammar_.none());
  const auto before = [&](std::uint64_t at, const std::vector<NodeId>& behind) {
    const NodeId in = item(at, wanted.literal);
    const NodeId out = item(at, is_bounded ? opposite(wanted.literal) : positive(kTrueSchema));
    std::vector<NodeId> nodes;
    for (std::uint64_t count = 0; count <= most; ++count) {
      std::vector<NodeId> options{grammar_.sequence({out, behind[count]})};
      if (count < most) options.push_back(grammar_.sequence({in, behind[count + 1]}));
      if (count >= wanted.min && at >= one.min_items) options.push_back(grammar_.empty());
      nodes.push_back(grammar_.any_of(options));
    }
    return nodes;
  };
  if (max == kUnbounded) {
    std::vector<RuleId> rules;
    for (NodeId& tail : tails) {
      rules.push_back(grammar_.declare_rule("items"));
      tail = grammar_.rule(rules.back());
    }
    const std::vector<NodeId> nodes = before(std::max<std::uint64_t>(last, 1), tails);
    for (std::size_t i = 0; i < rules.size(); ++i) grammar_.define_rule(rules[i], nodes[i]);
    if (last == 0) tails = before(0, tails);
  } else {
    for (std::uint64_t count = wanted.min; count <= most; ++count) tails[count] = grammar_.empty();
  }
  for (std::uint64_t at = last; at-- > 0;) tails = before(at, tails);
  return tails[0];
}

NodeId Lowering::lower_array(const Alternative& one) {
  std::size_t num_prefix = 0;
  for (const ItemLayer& layer : one.items) num_prefix = std::max(num_prefix, layer.prefix.size());
  const auto guarded = [&](NodeId item) {
    return one.needs_item_guard ? grammar_.sequence({item, grammar_.guard()}) : item;
  };
  const auto goal_at = [&](std::size_t at) { return item_goal(one, at); };
  const Goal nothing{positive(kFalseSchema)};
  std::uint64_t max = one.max_items;
  for (std::size_t i = 0; i <= num_prefix; ++i) {
    if (i < max && goal_at(i) == nothing) max = i;
  }
  if (one.min_items > max) return grammar_.none();
  const std::uint64_t min = one.min_items;
  if (num_prefix == 0 && max > 0 && one.has_unique_items) {
    if (const auto values = few_values(goal_at(0))) {
      // Each value comes once: members of an object without braces and keys.
      if (values->size() < min) return grammar_.none();
      ObjectSpec spec;
      spec.is_bare = true;
      spec.any_order = true;
      spec.space = comma_;
      spec.min_keys = min;
      spec.max_keys = max;
      for (const NodeId item : *values)
        spec.members.push_back({std::to_string(spec.members.size()), item, false});
      return grammar_.sequence({grammar_.bytes("["), space_, grammar_.object(std::move(spec)),
                                space_, grammar_.bytes("]")});
    }
  }
  if (const auto items = lower_contained(one, max, num_prefix)) {
    return grammar_.sequence({grammar_.bytes("["), space_, *items, space_, grammar_.bytes("]")});
  }
  if (num_prefix == 0 || max == 0) {
    const NodeId items = max == 0 ? grammar_.empty()
                                  : grammar_.separated(guarded(node(goal_at(0))), comma_, min, max);
    return grammar_.sequence({grammar_.bytes("["), space_, items, space_, grammar_.bytes("]")});
  }
  // From the back: what may follow the first i items.
  const std::uint64_t listed = std::min<std::uint64_t>(num_prefix, max);
  NodeId tail = grammar_.empty();
  if (max > num_prefix) {
    const NodeId rest = grammar_.sequence({comma_, guarded(node(goal_at(num_prefix)))});
    tail = grammar_.repeat(rest, min > num_prefix ? min - num_prefix : 0,
                           max == kUnbounded ? kUnbounded : max - num_prefix);
  }
  for (std::uint64_t i = listed; i-- > 0;) {
    std::vector<NodeId> parts;
    if (i > 0) parts.push_back(comma_);
    parts.push_back(guarded(node(goal_at(i))));
    parts.push_back(tail);
    tail = grammar_.sequence(parts);
    if (i >= min) tail = grammar_.optional(tail);
  }
  return grammar_.sequence({grammar_.bytes("["), space_, tail, space_, grammar_.bytes("]")});
}

}  // namespace sluice::grammar
