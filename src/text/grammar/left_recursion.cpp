#include "text/grammar/left_recursion.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "text/grammar/language_store.h"
#include "text/grammar/node.h"

namespace sluice::grammar {
namespace {

constexpr std::size_t kMaxGroup = 256;  // rules that are left-recursive with each other
constexpr std::size_t kMaxProductions = 20'000;
constexpr int kMaxDepth = 256;  // of nodes inside a rule

Fault too_large(std::string_view what) {
  return {400, "grammar_too_large", "",
          fmt::format("The grammar's left recursion has too many {}.", what)};
}

class Remover {
 public:
  explicit Remover(Grammar& grammar) : grammar_(grammar) {}

  Result<Ok> run() {
    find_nullable();
    if (grammar_.is_exhausted()) {
      return Fault{400, "grammar_too_large", "",
                   "The grammar needs more memory or steps than its budget allows."};
    }
    find_groups();
    for (const std::vector<std::uint32_t>& group : groups_) {
      const Result<Ok> done = rewrite(group);
      if (fault_) return *fault_;
      if (!done) return done;
    }
    return Ok{};
  }

 private:
  // A text that is not empty: one of rule `first` (not empty either), or none, and then `rest`.
  struct Production {
    std::optional<std::uint32_t> first;
    NodeId rest;
  };

  const Node& node(NodeId id) const { return grammar_.nodes()[index_of(id)]; }
  bool is_nullable(NodeId id) {
    nullable_.resize(grammar_.nodes().size());
    // nodes that were made since: their parts are known
    while (known_ < nullable_.size()) {
      nullable_[known_] = judge(grammar_.nodes()[known_]);
      ++known_;
    }
    return nullable_[index_of(id)];
  }

  bool judge(const Node& n) {
    const auto of = [&](NodeId id) { return bool{nullable_[index_of(id)]}; };
    switch (n.kind) {
      case Node::kEmpty:
      case Node::kGuard:
        return true;
      case Node::kText:
        return n.min == 0 && grammar_.languages().contains_empty(n.language);
      case Node::kSequence:
        return std::ranges::all_of(n.children, of);
      case Node::kAny:
        return std::ranges::any_of(n.children, of);
      case Node::kRepeat:
        return n.min == 0 || of(n.children[0]);
      case Node::kObject:
        return n.object->is_bare && n.object->min_keys == 0 &&
               std::ranges::none_of(n.object->members, &ObjectSpec::Member::is_required);
      case Node::kChecked:
      case Node::kCapture:
        return of(n.children[0]);
      case Node::kRule:
        return index_of(n.rule) < nullable_rules_.size() && nullable_rules_[index_of(n.rule)];
      default:
        return false;
    }
  }

  void find_nullable() {
    const std::vector<Node>& nodes = grammar_.nodes();
    nullable_.assign(nodes.size(), false);
    nullable_rules_.assign(grammar_.rules().size(), false);
    // who looks at a rule
    for (bool changes = true; changes;) {
      changes = false;
      if (!grammar_.languages().store().spend(nodes.size())) return;
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        if (nullable_[i] || !judge(nodes[i])) continue;
        nullable_[i] = true;
        changes = true;
      }
      for (std::size_t i = 0; i < grammar_.rules().size(); ++i) {
        if (nullable_rules_[i] || !nullable_[index_of(grammar_.rules()[i].node)]) continue;
        nullable_rules_[i] = true;
        changes = true;
      }
    }
    known_ = nodes.size();
  }

  // The rules that `id` may begin with.
  std::vector<std::uint32_t> first_rules(NodeId id) {
    std::vector<std::uint32_t> rules;
    std::vector<NodeId> stack = {id};
    std::set<NodeId> seen;
    while (!stack.empty()) {
      const NodeId top = stack.back();
      stack.pop_back();
      if (!seen.insert(top).second) continue;
      const Node& n = node(top);
      if (n.kind == Node::kRule) {
        rules.push_back(static_cast<std::uint32_t>(n.rule));
      } else if (n.kind == Node::kSequence) {
        for (const NodeId child : n.children) {
          stack.push_back(child);
          if (!is_nullable(child)) break;
        }
      } else {
        stack.insert(stack.end(), n.children.begin(), n.children.end());
      }
    }
    std::ranges::sort(rules);
    rules.erase(std::unique(rules.begin(), rules.end()), rules.end());
    return rules;
  }

  // Tarjan's strongly connected components, with a stack of its own.
  void find_groups() {
    const std::size_t count = grammar_.rules().size();
    std::vector<std::vector<std::uint32_t>> edges(count);
    for (std::size_t i = 0; i < count; ++i) edges[i] = first_rules(grammar_.rules()[i].node);
    std::vector<std::uint32_t> order(count), low(count), stack;
    std::vector<bool> on_stack(count);
    std::uint32_t next_order = 0;
    struct Visit {
      std::uint32_t rule;
      std::size_t edge;
    };
    for (std::uint32_t root = 0; root < count; ++root) {
      if (order[root] != 0) continue;
      std::vector<Visit> visits = {{root, 0}};
      while (!visits.empty()) {
        Visit& visit = visits.back();
        const std::uint32_t rule = visit.rule;
        if (visit.edge == 0 && order[rule] == 0) {
          order[rule] = low[rule] = ++next_order;
          stack.push_back(rule);
          on_stack[rule] = true;
        }
        if (visit.edge < edges[rule].size()) {
          const std::uint32_t to = edges[rule][visit.edge++];
          if (order[to] == 0)
            visits.push_back({to, 0});
          else if (on_stack[to])
            low[rule] = std::min(low[rule], order[to]);
          continue;
        }
        visits.pop_back();
        if (!visits.empty()) low[visits.back().rule] = std::min(low[visits.back().rule], low[rule]);
        if (low[rule] != order[rule]) continue;
        std::vector<std::uint32_t> group;
        do {
          group.push_back(stack.back());
          on_stack[stack.back()] = false;
          stack.pop_back();
        } while (group.back() != rule);
        if (group.size() > 1 || std::ranges::binary_search(edges[rule], rule))
          groups_.push_back(std::move(group));
      }
    }
  }

  NodeId rule_node(RuleId rule) { return grammar_.rule(rule); }

  // The rule of the texts of `rule` that are not empty; outside the group.
  NodeId without_empty(RuleId rule) {
    const auto index = static_cast<std::uint32_t>(rule);
    if (!nullable_rules_[index]) return rule_node(rule);
    const auto it = without_empty_.find(index);
    if (it != without_empty_.end()) return rule_node(it->second);
    const RuleId made = grammar_.declare_rule(grammar_.rules()[index].name + "-without-empty");
    nullable_rules_.push_back(false);
    without_empty_.emplace(index, made);
    waiting_.push_back(index);
    return rule_node(made);
  }

  // Appends the productions of the texts of `id` that are not empty, each followed by `rest`.
  bool split(NodeId id, NodeId rest, const std::vector<std::uint32_t>& group, int depth,
             std::vector<Production>& out) {
    if (depth > kMaxDepth || out.size() > kMaxProductions || grammar_.is_exhausted()) return false;
    const auto put = [&](NodeId begin) {
      out.push_back({std::nullopt, grammar_.sequence({begin, rest})});
    };
    const Node n = node(id);
    switch (n.kind) {
      case Node::kNone:
      case Node::kEmpty:
      case Node::kGuard:
        return true;
      case Node::kText: {
        Languages& languages = grammar_.languages();
        if (!is_nullable(id)) {
          put(id);
          return true;
        }
        const LanguageId some =
            languages.intersect({n.language, languages.complement(languages.empty_text())});
        put(n.is_json ? grammar_.json_text(some, 1, n.max) : grammar_.text(some));
        return true;
      }
      case Node::kRule:
        if (std::ranges::find(group, static_cast<std::uint32_t>(n.rule)) != group.end())
          out.push_back({static_cast<std::uint32_t>(n.rule), rest});
        else
          put(without_empty(n.rule));
        return true;
      case Node::kAny:
        for (const NodeId child : n.children)
          if (!split(child, rest, group, depth + 1, out)) return false;
        return true;
      case Node::kSequence:
        for (std::size_t i = 0; i < n.children.size(); ++i) {
          std::vector<NodeId> behind(n.children.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                     n.children.end());
          behind.push_back(rest);
          if (!split(n.children[i], grammar_.sequence(behind), group, depth + 1, out)) return false;
          if (!is_nullable(n.children[i])) break;
        }
        return true;
      case Node::kRepeat: {
        const std::uint64_t min = n.min == 0 || is_nullable(n.children[0]) ? 0 : n.min - 1;
        const NodeId more =
            grammar_.repeat(n.children[0], min, n.max == kUnbounded ? n.max : n.max - 1);
        return split(n.children[0], grammar_.sequence({more, rest}), group, depth + 1, out);
      }
      case Node::kCapture: {
        const std::vector<std::uint32_t> begins = first_rules(n.children[0]);
        for (const std::uint32_t rule : group) {
          if (!std::ranges::binary_search(begins, rule)) continue;
          fault_ = Fault{
              400, "unsupported_captures", "",
              fmt::format("The part '{}' cannot be captured: it begins with the rule '{}', which "
                          "begins with that part again. Capture a part that uses it.",
                          grammar_.captures()[n.capture].name, grammar_.rules()[rule].name)};
          return false;
        }
        if (!is_nullable(n.children[0])) {
          put(id);
          return true;
        }
        std::vector<Production> parts;  // none begins with a rule of the group
        if (!split(n.children[0], grammar_.empty(), group, depth + 1, parts)) return false;
        std::vector<NodeId> some;
        for (const Production& part : parts) some.push_back(part.rest);
        const Grammar::Capture capture = grammar_.captures()[n.capture];
        put(grammar_.capture(grammar_.any_of(some), capture.kind, capture.name));
        return true;
      }
      case Node::kBytes:
      case Node::kObject:
      case Node::kChecked:
        put(id);
        return true;
    }
    return true;
  }

  Result<Ok> rewrite(const std::vector<std::uint32_t>& group) {
    if (group.size() > kMaxGroup) return too_large("rules");
    std::vector<std::vector<Production>> productions(group.size());
    for (std::size_t i = 0; i < group.size(); ++i)
      if (!split(grammar_.rules()[group[i]].node, grammar_.empty(), group, 0, productions[i]))
        return too_large("alternatives");
    const auto place = [&](std::uint32_t rule) {
      return static_cast<std::size_t>(std::ranges::find(group, rule) - group.begin());
    };
    for (std::size_t x = 0; x < group.size(); ++x) {
      const std::string name = grammar_.rules()[group[x]].name;
      std::vector<RuleId> tails;
      for (std::size_t y = 0; y < group.size(); ++y) {
        tails.push_back(grammar_.declare_rule(name + "-behind-" + grammar_.rules()[group[y]].name));
        nullable_rules_.push_back(true);
      }
      std::vector<NodeId> begins;
      std::vector<std::vector<NodeId>> tail_parts(group.size());
      tail_parts[x].push_back(grammar_.empty());
      for (std::size_t z = 0; z < group.size(); ++z) {
        for (const Production& production : productions[z]) {
          const NodeId text = grammar_.sequence({production.rest, rule_node(tails[z])});
          if (production.first)
            tail_parts[place(*production.first)].push_back(text);
          else
            begins.push_back(text);
        }
      }
      for (std::size_t y = 0; y < group.size(); ++y)
        grammar_.define_rule(tails[y], grammar_.any_of(tail_parts[y]));
      const NodeId some = grammar_.any_of(begins);
      redefined_.emplace_back(group[x], nullable_rules_[group[x]] ? grammar_.optional(some) : some);
      if (grammar_.is_exhausted()) return too_large("parts");
    }
    for (const auto& [rule, body] : redefined_)
      grammar_.redefine_rule(static_cast<RuleId>(rule), body);
    redefined_.clear();
    // the rules without empty texts that the productions use
    while (!waiting_.empty()) {
      const std::uint32_t rule = waiting_.back();
      waiting_.pop_back();
      std::vector<Production> parts;
      if (!split(grammar_.rules()[rule].node, grammar_.empty(), {}, 0, parts))
        return too_large("alternatives");
      std::vector<NodeId> nodes;
      for (const Production& part : parts) nodes.push_back(part.rest);
      grammar_.define_rule(without_empty_.at(rule), grammar_.any_of(nodes));
    }
    return Ok{};
  }

  Grammar& grammar_;
  std::vector<bool> nullable_, nullable_rules_;
  std::size_t known_ = 0;
  std::vector<std::vector<std::uint32_t>> groups_;
  std::map<std::uint32_t, RuleId> without_empty_;
  std::vector<std::uint32_t> waiting_;
  std::vector<std::pair<std::uint32_t, NodeId>> redefined_;
  std::optional<Fault> fault_;
};

}  // namespace

Result<Ok> remove_left_recursion(Grammar& grammar) {
  return Remover(grammar).run();
}

}  // namespace sluice::grammar
