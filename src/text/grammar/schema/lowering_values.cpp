// Values that a schema lists: `enum` and `const`, in every spelling.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "text/grammar/schema/lowering.h"

namespace sluice::grammar {

NodeId Lowering::lower_values(const Goal& goal, const std::vector<JsonId>& values,
                              bool is_plain_integer, bool is_raw) {
  // What the goal demands besides is decided here, value by value.
  std::vector<NodeId> options;
  std::vector<std::string> strings;
  NumberSet numbers;
  numbers.has_values = true;
  numbers.is_plain_integer = is_plain_integer;
  std::unordered_set<std::string> seen;
  for (const JsonId at : values) {
    if (!seen.insert(graph_.json.canonical(at)).second) continue;
    if (!host_->fulfils(goal, graph_.json, at)) continue;
    if (graph_.json.is(at, JsonKind::kString)) {
      strings.emplace_back(graph_.json.text(at));
    } else if (graph_.json.is(at, JsonKind::kNumber)) {
      numbers.values.push_back(*Decimal::parse(graph_.json.text(at)));
    } else {
      options.push_back(value(at));
    }
  }
  Languages& languages = grammar_.languages();
  if (is_raw)
    std::erase_if(strings, [&](const std::string& text) {
      return !languages.contains(*options_.raw_string, text);
    });
  if (!strings.empty()) {
    const LanguageId listed = languages.literals(strings);
    options.push_back(is_raw ? grammar_.text(listed) : grammar_.json_string(listed));
  }
  if (!numbers.values.empty()) options.push_back(number_node(grammar_, numbers));
  return grammar_.any_of(options);
}

std::optional<std::vector<NodeId>> Lowering::few_values(const Goal& goal) {
  constexpr std::size_t kMaxValues = 64;
  constexpr std::uint8_t kScalars = kNullType | kBooleanType;
  std::vector<NodeId> out;
  std::unordered_set<std::string> seen;
  const auto add = [&](const std::string& canonical, NodeId node) {
    if (seen.insert(canonical).second) out.push_back(node);
  };
  for (const Alternative& one : expander_.expand(goal)) {
    if (one.has_values) {
      if (one.values.size() > kMaxValues) return std::nullopt;
      const bool is_plain = options_.plain_integers || one.numbers.is_plain_integer;
      for (const JsonId at : one.values) {
        if (!host_->fulfils(goal, graph_.json, at)) continue;
        add(graph_.json.canonical(at), lower_values(goal, {at}, is_plain, false));
      }
      continue;
    }
    if ((one.types & ~(kScalars | kNumberTypes)) != 0) return std::nullopt;
    for (const auto& [type, booleans] :
         {std::pair(kNullType, 0), {kBooleanType, 1}, {kBooleanType, 2}}) {
      if ((one.types & type) == 0) continue;
      Alternative part = one;
      part.types = type;
      part.booleans &= static_cast<std::uint8_t>(booleans);
      if (type == kBooleanType && part.booleans == 0) continue;
      const char* text = type == kNullType ? "null" : booleans == 1 ? "false" : "true";
      add(text, lower_constants(goal, part));
    }
    if ((one.types & kNumberTypes) == 0) continue;
    NumberSet set = number_set(one);
    const std::vector<Literal> literals = checks(one, one.types & kNumberTypes);
    if (!literals.empty() && !keep_checked_members(literals, set)) return std::nullopt;
    const std::optional<std::vector<Decimal>> members = set.members(kMaxValues);
    if (!members) return std::nullopt;
    for (const Decimal& member : *members) {
      NumberSet single = set;
      single.has_values = true;
      single.values = {member};
      add(member.canonical(), number_node(grammar_, single));
    }
  }
  return out.size() <= kMaxValues ? std::optional(std::move(out)) : std::nullopt;
}

bool Lowering::keep_checked_members(const std::vector<Literal>& literals, NumberSet& set) {
  constexpr std::size_t kMaxMembers = 256;
  if (literals.empty()) return false;
  std::optional<std::vector<Decimal>> members = set.members(kMaxMembers);
  if (!members) return false;
  std::erase_if(*members, [&](const Decimal& member) {
    const std::string text = fmt::format("{}{}e{}", member.negative ? "-" : "",
                                         member.is_zero() ? "0" : member.digits, member.exponent);
    const Result<ExactJson> instance = ExactJson::parse(text, {});
    return !instance.ok() || !host_->fulfils(literals, *instance, 0);
  });
  set.has_values = true;
  set.values = std::move(*members);
  return true;
}

NodeId Lowering::value(JsonId root) {
  // Children first: a stack of containers whose parts are being made.
  struct Frame {
    JsonId at;
    JsonId child;
    std::vector<NodeId> parts;
  };
  const auto scalar = [&](JsonId at) {
    switch (graph_.json.kind(at)) {
      case JsonKind::kNull:
        return grammar_.bytes("null");
      case JsonKind::kTrue:
        return grammar_.bytes("true");
      case JsonKind::kFalse:
        return grammar_.bytes("false");
      case JsonKind::kNumber: {
        NumberSet set;
        set.has_values = true;
        set.values = {*Decimal::parse(graph_.json.text(at))};
        return number_node(grammar_, set);
      }
      default:
        return grammar_.json_string(grammar_.languages().literal(graph_.json.text(at)));
    }
  };
  const auto container = [&](const Frame& frame) {
    if (graph_.json.is(frame.at, JsonKind::kArray)) {
      std::vector<NodeId> nodes{grammar_.bytes("["), space_};
      for (std::size_t i = 0; i < frame.parts.size(); ++i) {
        if (i > 0) nodes.push_back(comma_);
        nodes.push_back(frame.parts[i]);
      }
      nodes.push_back(space_);
      nodes.push_back(grammar_.bytes("]"));
      return grammar_.sequence(nodes);
    }
    ObjectSpec spec;
    spec.any_order = true;
    spec.space = space_;
    JsonId child = graph_.json.first(frame.at);
    for (const NodeId part : frame.parts) {
      spec.members.push_back({std::string(graph_.json.key(child)), part, true});
      child = graph_.json.next(child);
    }
    return grammar_.object(std::move(spec));
  };
  const auto is_container = [&](JsonId at) {
    return graph_.json.is(at, JsonKind::kArray) || graph_.json.is(at, JsonKind::kObject);
  };
  if (!is_container(root)) return scalar(root);
  std::vector<Frame> stack{{root, graph_.json.first(root), {}}};
  while (true) {
    Frame& top = stack.back();
    if (top.child == kNoJson) {
      const NodeId made = container(top);
      stack.pop_back();
      if (stack.empty()) return made;
      stack.back().parts.push_back(made);
      continue;
    }
    const JsonId child = top.child;
    top.child = graph_.json.next(child);
    if (is_container(child)) {
      stack.push_back({child, graph_.json.first(child), {}});
    } else {
      top.parts.push_back(scalar(child));
    }
  }
}

}  // namespace sluice::grammar
