// Which nodes a finite text fulfils: the least fixed point, each edge looked at once (Knuth 1977,
// "A generalization of Dijkstra's algorithm").
#include <algorithm>
#include <span>

#include "text/grammar/language_lengths.h"
#include "text/grammar/node.h"
#include "text/grammar/program.h"

namespace sluice::grammar {
namespace {

bool is_text_satisfiable(Grammar& grammar, const Node& node) {
  LanguageStore& store = grammar.languages().store();
  const auto language = static_cast<LanguageStore::Id>(node.language);
  if (node.min == 0 && node.max == kUnbounded) return store.is_live(language);
  return Lengths(store, language).has(language, node.min, node.max);
}

// Whether an object can be closed at all, given its satisfiable values.
bool is_object_satisfiable(const ObjectSpec& spec, const std::vector<bool>& known) {
  std::vector<bool> allowed;
  for (const ObjectSpec::Member& member : spec.members)
    allowed.push_back(known[index_of(member.value)]);
  // a member whose dependent cannot be there cannot be there
  for (bool changes = true; changes;) {
    changes = false;
    for (const auto& [from, to] : spec.dependent) {
      if (!allowed[from] || allowed[to]) continue;
      allowed[from] = false;
      changes = true;
    }
  }
  std::vector<bool> needed(spec.members.size());
  std::vector<std::uint32_t> stack;
  for (std::uint32_t i = 0; i < spec.members.size(); ++i)
    if (spec.members[i].is_required) stack.push_back(i);
  std::uint64_t num_needed = 0, num_allowed = 0;
  while (!stack.empty()) {
    const std::uint32_t member = stack.back();
    stack.pop_back();
    if (needed[member]) continue;
    if (!allowed[member]) return false;
    needed[member] = true;
    ++num_needed;
    for (const auto& [from, to] : spec.dependent)
      if (from == member) stack.push_back(to);
  }
  for (const bool is_allowed : allowed) num_allowed += is_allowed ? 1 : 0;
  const bool has_extra = std::ranges::any_of(
      spec.extras, [&](const ObjectSpec::Extra& extra) { return known[index_of(extra.value)]; });
  return num_needed <= spec.max_keys && (has_extra || num_allowed >= spec.min_keys) &&
         known[index_of(spec.space)];
}

// Lists of numbers, one after another in one vector.
class Lists {
 public:
  explicit Lists(std::size_t count) : begin_(count + 1) {}
  void count(std::size_t list) { ++begin_[list + 1]; }
  void end_counting() {
    for (std::size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
    items_.resize(begin_.back());
    end_.assign(begin_.begin(), begin_.end() - 1);
  }
  void add(std::size_t list, std::uint32_t item) { items_[end_[list]++] = item; }
  std::span<const std::uint32_t> of(std::size_t list) const {
    return std::span(items_).subspan(begin_[list], begin_[list + 1] - begin_[list]);
  }

 private:
  std::vector<std::uint32_t> begin_, end_, items_;
};

template <class Use>
void for_each_part(const Node& node, Use use) {
  for (const NodeId child : node.children) use(index_of(child));
  if (node.kind != Node::kObject) return;
  for (const ObjectSpec::Member& member : node.object->members) use(index_of(member.value));
  for (const ObjectSpec::Extra& extra : node.object->extras) use(index_of(extra.value));
  use(index_of(node.object->space));
}

}  // namespace

std::vector<bool> find_satisfiable(Grammar& grammar) {
  const std::vector<Node>& nodes = grammar.nodes();
  const std::vector<Grammar::Rule>& rules = grammar.rules();
  std::vector<bool> known(nodes.size());
  Lists users(nodes.size()), users_of_rule(rules.size()), rules_of(nodes.size());
  for (const Node& node : nodes) {
    for_each_part(node, [&](std::size_t part) { users.count(part); });
    if (node.kind == Node::kRule) users_of_rule.count(index_of(node.rule));
  }
  for (const Grammar::Rule& rule : rules)
    if (rule.is_defined) rules_of.count(index_of(rule.node));
  users.end_counting();
  users_of_rule.end_counting();
  rules_of.end_counting();
  for (std::size_t i = 0; i < rules.size(); ++i)
    if (rules[i].is_defined) rules_of.add(index_of(rules[i].node), static_cast<std::uint32_t>(i));

  std::vector<std::uint32_t> missing(nodes.size());  // parts of a sequence
  std::vector<std::uint32_t> queue, objects;
  const auto add = [&](std::size_t index) {
    if (known[index]) return;
    known[index] = true;
    queue.push_back(static_cast<std::uint32_t>(index));
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    const auto user = static_cast<std::uint32_t>(i);
    for_each_part(node, [&](std::size_t part) { users.add(part, user); });
    missing[i] = static_cast<std::uint32_t>(node.children.size());
    switch (node.kind) {
      case Node::kEmpty:
      case Node::kBytes:
      case Node::kGuard:
        add(i);
        break;
      case Node::kText:
        if (is_text_satisfiable(grammar, node)) add(i);
        break;
      case Node::kRepeat:
        if (node.min == 0) add(i);
        break;
      case Node::kRule:
        users_of_rule.add(index_of(node.rule), user);
        break;
      case Node::kObject:
        objects.push_back(user);
        break;
      default:
        break;
    }
  }

  const auto spread = [&](std::uint32_t index) {
    for (const std::uint32_t rule : rules_of.of(index))
      for (const std::uint32_t user : users_of_rule.of(rule)) add(user);
    for (const std::uint32_t user : users.of(index)) {
      const Node& node = nodes[user];
      // an object is judged when the queue is empty: its members come in large numbers
      if (node.kind == Node::kObject) continue;
      if (node.kind != Node::kSequence || --missing[user] == 0) add(user);
    }
  };
  for (bool changes = true; changes;) {
    while (!queue.empty()) {
      const std::uint32_t index = queue.back();
      queue.pop_back();
      spread(index);
    }
    changes = false;
    for (const std::uint32_t index : objects) {
      if (known[index] || !is_object_satisfiable(*nodes[index].object, known)) continue;
      add(index);
      changes = true;
    }
  }
  return known;
}

}  // namespace sluice::grammar
