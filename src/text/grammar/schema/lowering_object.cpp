// Objects: declared keys, and the other keys split by the patterns that they have.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "text/grammar/schema/lowering.h"

namespace sluice::grammar {
namespace {

// More sets of keys than this are left to a check.
constexpr std::size_t kMaxCells = 64;

// The key of a pattern such as ^name$, which has one match only.
std::optional<std::string> only_key(std::string_view pattern) {
  if (pattern.size() < 2 || !pattern.starts_with('^') || !pattern.ends_with('$')) {
    return std::nullopt;
  }
  pattern = pattern.substr(1, pattern.size() - 2);
  if (pattern.find_first_of("\\^$.|?*+()[]{}") != std::string_view::npos) return std::nullopt;
  return std::string(pattern);
}

}  // namespace

struct Lowering::Keys {
  std::vector<std::string> order;
  std::unordered_map<std::string, std::uint32_t> places;  // in `order`
  // of each layer
  std::vector<std::unordered_map<std::string, std::vector<Literal>>> names;
  std::optional<LanguageId> allowed;  // by propertyNames

  std::uint32_t add(const std::string& key) {
    const auto [found, is_new] = places.try_emplace(key, static_cast<std::uint32_t>(order.size()));
    if (is_new) order.push_back(key);
    return found->second;
  }
};

std::optional<LanguageId> Lowering::key_language(const std::vector<Literal>& literals) {
  Languages& languages = grammar_.languages();
  const Goal goal = make_goal(literals);
  if (goal == Goal{positive(kFalseSchema)}) return languages.none();
  std::vector<LanguageId> options;
  std::vector<std::string> strings;
  for (const Alternative& one : expander_.expand(goal)) {
    if (one.has_values) {
      for (const JsonId at : one.values) {
        if (graph_.json.is(at, JsonKind::kString) && host_->fulfils(goal, graph_.json, at)) {
          strings.emplace_back(graph_.json.text(at));
        }
      }
      continue;
    }
    if ((one.types & kStringType) == 0 || one.min_length > one.max_length) continue;
    if (!checks(one, kStringType).empty()) return std::nullopt;
    std::vector<LanguageId> parts = one.languages;
    if (one.min_length > 0 || one.max_length != kUnbounded) {
      parts.push_back(languages.repeat(languages.any_char(), one.min_length, one.max_length));
    }
    options.push_back(parts.empty() ? languages.any_text() : languages.intersect(parts));
  }
  if (!strings.empty()) options.push_back(languages.literals(strings));
  return options.empty() ? languages.none() : languages.alternate(options);
}

std::optional<std::vector<std::string>> Lowering::listed_keys(
    const std::vector<Literal>& literals) {
  constexpr std::size_t kMaxKeys = 128;
  const Goal goal = make_goal(literals);
  std::vector<std::string> out;
  for (const Alternative& one : expander_.expand(goal)) {
    if (!one.has_values) {
      if ((one.types & kStringType) != 0) return std::nullopt;
      continue;
    }
    if (one.values.size() > kMaxKeys) return std::nullopt;
    for (const JsonId at : one.values) {
      if (graph_.json.is(at, JsonKind::kString) && host_->fulfils(goal, graph_.json, at)) {
        out.emplace_back(graph_.json.text(at));
      }
    }
  }
  return out.size() <= kMaxKeys ? std::optional(std::move(out)) : std::nullopt;
}

std::vector<Literal> Lowering::literals_of(const Alternative& one, const Keys& keys,
                                           const std::string& key) {
  std::vector<Literal> out;
  for (std::size_t i = 0; i < one.members.size(); ++i) {
    const MemberLayer& layer = one.members[i];
    bool is_known = false;
    if (const auto found = keys.names[i].find(key); found != keys.names[i].end()) {
      is_known = true;
      out.insert(out.end(), found->second.begin(), found->second.end());
    }
    for (const auto& [pattern, literal] : layer.patterns) {
      if (!strings_.has_match(pattern, key)) continue;
      is_known = true;
      out.push_back(literal);
    }
    if (!is_known && layer.additional) out.push_back(*layer.additional);
  }
  return out;
}

void Lowering::add_members(const Alternative& one, Keys& keys, ObjectSpec& spec) {
  std::unordered_set<std::string> required(one.required.begin(), one.required.end());
  for (const std::string& key : keys.order) {
    const bool is_required = required.contains(key);
    NodeId value = grammar_.none();
    if (!keys.allowed || grammar_.languages().contains(*keys.allowed, key)) {
      value = node(make_goal(literals_of(one, keys, key)));
    }
    spec.members.push_back({key, value, is_required});
  }
  for (const auto& [key, needed] : one.dependent) {
    spec.dependent.emplace_back(keys.places.at(key), keys.places.at(needed));
  }
}

bool Lowering::add_extras(const Alternative& one, const Keys& keys, ObjectSpec& spec) {
  Languages& languages = grammar_.languages();
  std::vector<int> patterns;
  for (const MemberLayer& layer : one.members) {
    for (const auto& [pattern, unused] : layer.patterns) {
      const std::string& text = graph_.patterns[static_cast<std::size_t>(pattern)].text;
      if (only_key(text)) continue;  // its key is a member
      if (std::find(patterns.begin(), patterns.end(), pattern) == patterns.end()) {
        patterns.push_back(pattern);
      }
    }
  }
  // Sets of keys that have the same patterns.
  struct Cell {
    LanguageId keys;
    std::vector<int> patterns;
  };
  std::vector<Cell> cells{{keys.allowed ? *keys.allowed : languages.any_text(), {}}};
  for (const int pattern : patterns) {
    const LanguageId matching = strings_.pattern(pattern);
    const LanguageId others = languages.complement(matching);
    std::vector<Cell> next;
    for (Cell& cell : cells) {
      const LanguageId inside = languages.intersect({cell.keys, matching});
      const LanguageId outside = languages.intersect({cell.keys, others});
      const auto has_keys = [&](LanguageId language) {
        if (patterns.size() == 1) return true;  // an extra without keys does no harm
        const Result<bool> is_empty = languages.is_empty(language);
        return !is_empty.ok() || !*is_empty;
      };
      if (has_keys(inside)) {
        Cell with{inside, cell.patterns};
        with.patterns.push_back(pattern);
        next.push_back(std::move(with));
      }
      if (has_keys(outside)) next.push_back({outside, std::move(cell.patterns)});
    }
    cells = std::move(next);
    if (cells.size() > kMaxCells) return false;
  }
  for (const Cell& cell : cells) {
    std::vector<Literal> literals;
    for (const MemberLayer& layer : one.members) {
      bool is_known = false;
      for (const auto& [pattern, literal] : layer.patterns) {
        if (std::find(cell.patterns.begin(), cell.patterns.end(), pattern) == cell.patterns.end()) {
          continue;
        }
        is_known = true;
        literals.push_back(literal);
      }
      if (!is_known && layer.additional) literals.push_back(*layer.additional);
    }
    const Goal goal = make_goal(std::move(literals));
    if (goal == Goal{positive(kFalseSchema)}) continue;
    spec.extras.push_back({cell.keys, node(goal)});
  }
  return true;
}

NodeId Lowering::lower_object(const Goal& goal, const Alternative& one) {
  Keys keys;
  std::size_t num_sources = 0;  // layers that declare keys
  for (const MemberLayer& layer : one.members) {
    auto& names = keys.names.emplace_back();
    bool declares = false;
    for (const auto& [name, literal] : layer.names) {
      keys.add(name);
      names[name].push_back(literal);
      declares |= literal != positive(kFalseSchema);
    }
    for (const auto& [pattern, unused] : layer.patterns) {
      const std::string& text = graph_.patterns[static_cast<std::size_t>(pattern)].text;
      if (const auto key = only_key(text)) keys.add(*key);
    }
    num_sources += declares ? 1 : 0;
  }
  for (const std::string& key : one.required) {
    num_sources += keys.places.contains(key) ? 0 : 2;
    keys.add(key);
  }
  for (const auto& [key, needed] : one.dependent) {
    for (const std::string* name : {&key, &needed}) {
      num_sources += keys.places.contains(*name) ? 0 : 2;  // the schema gives it no place
      keys.add(*name);
    }
  }
  bool needs_check = false;
  if (!one.names.empty()) {
    keys.allowed = key_language(one.names);
    needs_check = !keys.allowed;
  }
  // Keys from a list are members, so that each of them comes once.
  bool are_all_listed = false;
  if (keys.allowed) {
    if (const auto listed = listed_keys(one.names)) {
      are_all_listed = true;
      for (const std::string& key : *listed) {
        num_sources += keys.places.contains(key) ? 0 : 2;  // `properties` gives it no place
        keys.add(key);
      }
    }
  }
  ObjectSpec spec;
  spec.space = space_;
  // Several sources have no common order.
  spec.any_order = options_.any_order || num_sources > 1;
  spec.min_keys = one.min_properties;
  spec.max_keys = one.max_properties;
  if (spec.min_keys > spec.max_keys) return grammar_.none();
  spec.distinct_extras =
      spec.min_keys > 0 || spec.max_keys != kUnbounded || !checks(one, kObjectType).empty();
  add_members(one, keys, spec);
  if (!are_all_listed && !add_extras(one, keys, spec)) {
    needs_check = true;
    spec.extras = {{grammar_.languages().any_text(), grammar_.any_json(space_)}};
  }
  const auto num_required = static_cast<std::uint64_t>(
      std::count_if(spec.members.begin(), spec.members.end(),
                    [](const ObjectSpec::Member& member) { return member.is_required; }));
  if (num_required > spec.max_keys) return grammar_.none();
  if (spec.extras.empty() && spec.members.size() < spec.min_keys) return grammar_.none();
  const NodeId node = grammar_.object(std::move(spec));
  return needs_check ? check_value(node, goal) : node;
}

}  // namespace sluice::grammar
