#include "text/grammar/grammar.h"

#include <algorithm>
#include <unordered_set>

#include "text/grammar/json_text.h"
#include "text/grammar/node.h"
#include "text/grammar/regex.h"

namespace sluice::grammar {

Grammar::Grammar(const Budget& budget) : languages_(budget) {
  nodes_.push_back({.kind = Node::kNone});
  nodes_.push_back({.kind = Node::kEmpty});
}
Grammar::~Grammar() = default;
Grammar::Grammar(Grammar&&) noexcept = default;
Grammar& Grammar::operator=(Grammar&&) noexcept = default;

bool Grammar::is_exhausted() const {
  return is_exhausted_ || languages_.is_exhausted();
}

NodeId Grammar::add(Node node) {
  bytes_ += sizeof(Node) + node.bytes.size() + node.children.size() * sizeof(NodeId);
  const Budget& budget = languages_.budget();
  if (bytes_ + languages_.bytes() > budget.max_bytes || budget.is_cancelled()) is_exhausted_ = true;
  if (is_exhausted()) return kNoneNode;
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId Grammar::none() {
  return kNoneNode;
}
NodeId Grammar::empty() {
  return kEmptyNode;
}

NodeId Grammar::bytes(std::string_view text) {
  if (text.empty()) return kEmptyNode;
  return add({.kind = Node::kBytes, .bytes = std::string(text)});
}

NodeId Grammar::text(LanguageId language) {
  if (language == languages_.none()) return kNoneNode;
  if (language == languages_.empty_text()) return kEmptyNode;
  return add({.kind = Node::kText, .language = language, .max = kUnbounded});
}

NodeId Grammar::json_text(LanguageId language, std::uint64_t min_chars, std::uint64_t max_chars) {
  if (language == languages_.none() || min_chars > max_chars) return kNoneNode;
  if (max_chars == 0 || language == languages_.empty_text()) {
    const bool fits = min_chars == 0 && languages_.contains_empty(language);
    return fits ? kEmptyNode : kNoneNode;
  }
  return add({.kind = Node::kText,
              .is_json = true,
              .language = language,
              .min = min_chars,
              .max = max_chars});
}

NodeId Grammar::json_string(LanguageId language, std::uint64_t min_chars, std::uint64_t max_chars) {
  return sequence({bytes("\""), json_text(language, min_chars, max_chars), bytes("\"")});
}

NodeId Grammar::sequence(std::initializer_list<NodeId> parts) {
  return sequence(std::span(parts.begin(), parts.size()));
}
NodeId Grammar::any_of(std::initializer_list<NodeId> parts) {
  return any_of(std::span(parts.begin(), parts.size()));
}

NodeId Grammar::sequence(std::span<const NodeId> parts) {
  std::vector<NodeId> kept;
  for (const NodeId part : parts) {
    if (part == kNoneNode) return kNoneNode;
    if (part == kEmptyNode) continue;
    const Node& node = nodes_[index_of(part)];
    if (!kept.empty() && node.kind == Node::kBytes &&
        nodes_[index_of(kept.back())].kind == Node::kBytes) {
      kept.back() = bytes(nodes_[index_of(kept.back())].bytes + node.bytes);
      continue;
    }
    kept.push_back(part);
  }
  if (kept.empty()) return kEmptyNode;
  if (kept.size() == 1) return kept[0];
  return add({.kind = Node::kSequence, .children = std::move(kept)});
}

NodeId Grammar::any_of(std::span<const NodeId> parts) {
  std::vector<NodeId> kept;
  for (const NodeId part : parts) {
    if (part == kNoneNode) continue;
    const Node& node = nodes_[index_of(part)];
    if (node.kind == Node::kAny)
      kept.insert(kept.end(), node.children.begin(), node.children.end());
    else
      kept.push_back(part);
  }
  if (keeps_captures_) {
    std::unordered_set<std::uint32_t> seen;
    std::erase_if(
        kept, [&](NodeId part) { return !seen.insert(static_cast<std::uint32_t>(part)).second; });
  } else {
    std::ranges::sort(kept);
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  }
  if (kept.empty()) return kNoneNode;
  if (kept.size() == 1) return kept[0];
  return add({.kind = Node::kAny, .children = std::move(kept)});
}

NodeId Grammar::optional(NodeId node) {
  return any_of({node, kEmptyNode});
}

NodeId Grammar::repeat(NodeId node, std::uint64_t min, std::uint64_t max) {
  if (min > max) return kNoneNode;
  if (max == 0 || node == kEmptyNode) return kEmptyNode;
  if (node == kNoneNode) return min == 0 ? kEmptyNode : kNoneNode;
  if (min == 1 && max == 1) return node;
  if (min == 0 && max == 1) return optional(node);
  return add({.kind = Node::kRepeat, .min = min, .max = max, .children = {node}});
}

NodeId Grammar::separated(NodeId node, NodeId separator, std::uint64_t min, std::uint64_t max) {
  if (min > max) return kNoneNode;
  if (max == 0) return kEmptyNode;
  const NodeId more = repeat(sequence({separator, node}), min == 0 ? 0 : min - 1,
                             max == kUnbounded ? max : max - 1);
  const NodeId some = sequence({node, more});
  return min == 0 ? optional(some) : some;
}

RuleId Grammar::declare_rule(std::string_view name) {
  bytes_ += sizeof(Rule) + name.size();
  rules_.push_back({.name = std::string(name)});
  return static_cast<RuleId>(rules_.size() - 1);
}

void Grammar::define_rule(RuleId rule, NodeId node) {
  Rule& entry = rules_[index_of(rule)];
  check(!entry.is_defined, "the grammar's rule {} is defined twice", entry.name);
  entry.node = node;
  entry.is_defined = true;
}

NodeId Grammar::rule(RuleId rule) {
  return add({.kind = Node::kRule, .rule = rule});
}

NodeId Grammar::object(ObjectSpec spec) {
  if (spec.min_keys > spec.max_keys) return kNoneNode;
  for (const ObjectSpec::Member& member : spec.members)
    bytes_ += member.key.size() + sizeof(member);
  std::erase_if(spec.extras,
                [](const ObjectSpec::Extra& extra) { return extra.value == kNoneNode; });
  if (!spec.extras.empty()) {
    std::vector<std::string> keys;
    for (const ObjectSpec::Member& member : spec.members) keys.push_back(member.key);
    const LanguageId others = languages_.complement(languages_.literals(keys));
    for (ObjectSpec::Extra& extra : spec.extras)
      extra.keys = languages_.intersect({extra.keys, others});
    std::erase_if(spec.extras,
                  [&](const ObjectSpec::Extra& extra) { return extra.keys == languages_.none(); });
  }
  return add(
      {.kind = Node::kObject, .object = std::make_shared<const ObjectSpec>(std::move(spec))});
}

NodeId Grammar::checked(NodeId node, std::shared_ptr<const ValueCheck> check) {
  if (node == kNoneNode) return kNoneNode;
  return add({.kind = Node::kChecked, .children = {node}, .check = std::move(check)});
}

NodeId Grammar::capture(NodeId node, CaptureKind kind, std::string_view name) {
  if (!keeps_captures_ || node == kNoneNode) return node;
  captures_.push_back({kind, std::string(name)});
  bytes_ += sizeof(Capture) + name.size();
  return add({.kind = Node::kCapture,
              .capture = static_cast<std::uint32_t>(captures_.size() - 1),
              .children = {node}});
}

NodeId Grammar::ordered(NodeId node, bool is_lazy) {
  Node& known = nodes_[index_of(node)];
  if (known.kind == Node::kSequence || known.kind == Node::kAny || known.kind == Node::kRepeat)
    known.is_ordered = true;
  if (known.kind == Node::kRepeat && is_lazy) known.is_lazy = true;
  return node;
}

NodeId Grammar::guard() {
  return add({.kind = Node::kGuard});
}

NodeId Grammar::white_space(std::uint64_t max_chars) {
  for (const auto& [known, node] : white_spaces_)
    if (known == max_chars) return node;
  const CodeRange blanks[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}};
  const NodeId node = text(languages_.repeat(languages_.chars(blanks), 0, max_chars));
  white_spaces_.emplace_back(max_chars, node);
  return node;
}

NodeId Grammar::any_json_number() {
  return text(own_regex(languages_,
                        fmt::format("-?({}{}|{})", kAnyWhole, kAnyFraction, exponent_magnitude())));
}

Grammar::JsonValue Grammar::json_value(NodeId space) {
  for (const auto& [known, value] : any_values_)
    if (known == space) return value;
  const RuleId rule_id = declare_rule("value");
  const NodeId value = rule(rule_id);
  const NodeId comma = sequence({space, bytes(","), space});
  const NodeId string = json_string(languages_.any_text());
  const NodeId member = sequence({string, space, bytes(":"), space, value});
  JsonValue made;
  made.object =
      sequence({bytes("{"), space,
                optional(sequence({separated(member, comma, 1, kUnbounded), space})), bytes("}")});
  made.array =
      sequence({bytes("["), space,
                optional(sequence({separated(value, comma, 1, kUnbounded), space})), bytes("]")});
  made.any = value;
  define_rule(rule_id, any_of({made.object, made.array, string, any_json_number(), bytes("true"),
                               bytes("false"), bytes("null")}));
  any_values_.emplace_back(space, made);
  return made;
}

NodeId Grammar::any_json(NodeId space) {
  return json_value(space).any;
}
NodeId Grammar::any_json_object(NodeId space) {
  return json_value(space).object;
}
NodeId Grammar::any_json_array(NodeId space) {
  return json_value(space).array;
}

}  // namespace sluice::grammar
