#include "text/grammar/program.h"

#include <algorithm>
#include <unordered_map>

#include "text/grammar/node.h"
#include "text/unicode.h"

namespace sluice::grammar {
namespace {

// Maximum depth of nodes inside one body; deeper nodes become bodies of their own.
constexpr int kMaxInline = 24;
constexpr std::size_t kMaxCode = 4'000'000;

std::u32string codes_of(std::string_view text) {
  std::u32string out;
  while (!text.empty()) {
    const Utf8Step next = next_utf8(text);
    out += next.kind == Utf8Step::kCharacter ? next.code : char32_t{0xFFFD};
    text.remove_prefix(static_cast<std::size_t>(next.size));
  }
  return out;
}

KeyTree key_tree(const std::vector<ObjectSpec::Member>& members) {
  struct Key {
    std::u32string codes;
    std::uint32_t member;
  };
  std::vector<Key> keys;
  for (std::uint32_t i = 0; i < members.size(); ++i) keys.push_back({codes_of(members[i].key), i});
  std::ranges::sort(keys, {}, &Key::codes);
  KeyTree tree;
  struct Task {
    std::uint32_t node, begin, end;
    std::size_t depth;
  };
  for (const Key& key : keys) tree.order.push_back(key.member);
  tree.nodes.push_back({.end = static_cast<std::uint32_t>(keys.size())});
  std::vector<Task> tasks = {{0, 0, static_cast<std::uint32_t>(keys.size()), 0}};
  while (!tasks.empty()) {
    const Task task = tasks.back();
    tasks.pop_back();
    std::uint32_t begin = task.begin;
    if (begin < task.end && keys[begin].codes.size() == task.depth)
      tree.nodes[task.node].member = static_cast<std::int32_t>(keys[begin++].member);
    tree.nodes[task.node].first_child = static_cast<std::uint32_t>(tree.children.size());
    while (begin < task.end) {
      const char32_t code = keys[begin].codes[task.depth];
      std::uint32_t end = begin + 1;
      while (end < task.end && keys[end].codes[task.depth] == code) ++end;
      const auto child = static_cast<std::uint32_t>(tree.nodes.size());
      tree.nodes.push_back({.begin = begin, .end = end});
      tree.children.push_back({code, child});
      ++tree.nodes[task.node].num_children;
      tasks.push_back({child, begin, end, task.depth + 1});
      begin = end;
    }
  }
  return tree;
}

class Emitter {
 public:
  Emitter(Grammar& grammar, std::vector<bool> satisfiable)
      : grammar_(grammar), satisfiable_(std::move(satisfiable)), uses_(grammar.nodes().size()) {}

  Result<Program> run(NodeId root) {
    count_uses(root);
    if (grammar_.keeps_captures()) find_bearing();
    const std::uint32_t main = grammar_.keeps_captures() ? open_body(root) : body_of(root);
    for (std::size_t next = 0; next < bodies_.size(); ++next) {
      bodies_[next].place = here();
      emit_body(bodies_[next]);
      if (program_.code.size() > kMaxCode || !grammar_.languages().store().spend(1))
        return Fault{400, "grammar_too_large", "", "The grammar has too many parts."};
    }
    program_.accept = here();
    add(Instruction::kAccept);
    patch();
    program_.begin = bodies_[main].place;
    return std::move(program_);
  }

 private:
  struct Body {
    NodeId node;
    bool is_separator = false;  // node is a space: then ':' and the space again
    bool ends_quote = false;    // a '"' follows
    bool is_open = false;       // captures may be read inside
    Place place = 0;
  };
  using Op = Instruction::Op;

  const Node& node(NodeId id) const { return grammar_.nodes()[index_of(id)]; }
  bool lives(NodeId id) const { return satisfiable_[index_of(id)]; }
  Place here() const { return static_cast<Place>(program_.code.size()); }
  Place add(Op op, std::uint32_t a = 0, std::uint32_t b = 0) {
    program_.code.push_back({op, a, b});
    return here() - 1;
  }

  void count_uses(NodeId root) {
    std::vector<NodeId> stack = {root};
    const auto use = [&](NodeId id) {
      if (++uses_[index_of(id)] == 1) stack.push_back(id);
    };
    while (!stack.empty()) {
      const Node& top = node(stack.back());
      stack.pop_back();
      for (const NodeId child : top.children) use(child);
      if (top.kind == Node::kRule) use(grammar_.rules()[index_of(top.rule)].node);
      if (top.kind != Node::kObject) continue;
      for (const ObjectSpec::Member& member : top.object->members) use(member.value);
      for (const ObjectSpec::Extra& extra : top.object->extras) use(extra.value);
    }
  }

  // Whether captures are read inside a node, or its ways are ordered.
  bool bears(NodeId id) const { return index_of(id) < bears_.size() && bears_[index_of(id)]; }
  void find_bearing() {
    const std::vector<Node>& nodes = grammar_.nodes();
    bears_.assign(nodes.size(), false);
    for (bool changes = true; changes;) {
      changes = false;
      if (!grammar_.languages().store().spend(nodes.size())) return;
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        const Node& n = nodes[i];
        if (bears_[i]) continue;
        bears_[i] = n.kind == Node::kCapture || n.is_ordered ||
                    std::ranges::any_of(n.children, [&](NodeId child) { return bears(child); }) ||
                    (n.kind == Node::kRule && bears(grammar_.rules()[index_of(n.rule)].node));
        changes = changes || bears_[i];
      }
    }
  }

  std::uint32_t body_of(NodeId id, bool is_separator = false) {
    auto& known = is_separator ? separators_ : body_ids_;
    const auto [it, is_new] = known.try_emplace(id, static_cast<std::uint32_t>(bodies_.size()));
    if (is_new) bodies_.push_back({.node = id, .is_separator = is_separator});
    return it->second;
  }
  std::uint32_t open_body(NodeId id) {
    bodies_.push_back({.node = id, .is_open = true});
    return static_cast<std::uint32_t>(bodies_.size() - 1);
  }
  std::uint32_t quoted_body(NodeId id) {
    bodies_.push_back({.node = id, .ends_quote = true});
    return static_cast<std::uint32_t>(bodies_.size() - 1);
  }

  void emit_body(Body body) {
    is_opaque_ = !body.is_open && !bears(body.node);
    emit(body.node, 0, true);
    if (body.is_separator) {
      literal(":");
      emit(body.node, 0, true);
    }
    if (body.ends_quote) literal("\"");
    add(Op::kEnd);
  }

  void literal(std::string_view text) {
    const auto [it, is_new] = literals_.try_emplace(
        std::string(text), static_cast<std::uint32_t>(program_.strings.size()));
    if (is_new) program_.strings.emplace_back(text);
    add(Op::kBytes, it->second);
  }

  void text(TextLeaf leaf) {
    program_.texts.push_back(leaf);
    add(Op::kText, static_cast<std::uint32_t>(program_.texts.size() - 1));
  }

  // `is_root`: the node is its body's own.
  void emit(NodeId id, int depth, bool is_root) {
    const Node& n = node(id);
    const bool is_plain = n.kind == Node::kNone || n.kind == Node::kEmpty || n.kind == Node::kBytes;
    if (!is_opaque_ && !is_plain && !bears(id)) {
      add(Op::kOpaque, body_of(id));
      return;
    }
    const bool is_composite = n.kind == Node::kSequence || n.kind == Node::kAny ||
                              n.kind == Node::kRepeat || n.kind == Node::kObject ||
                              n.kind == Node::kChecked;
    if (!is_root && is_composite && (uses_[index_of(id)] > 1 || depth > kMaxInline)) {
      add(Op::kCall, body_of(id));
      return;
    }
    switch (n.kind) {
      case Node::kNone:
        add(Op::kSplit);  // to nowhere
        break;
      case Node::kEmpty:
        break;
      case Node::kBytes:
        literal(n.bytes);
        break;
      case Node::kText:
        text({static_cast<LanguageStore::Id>(n.language), n.is_json, n.min, n.max});
        break;
      case Node::kSequence:
        for (const NodeId child : n.children) emit(child, depth + 1, false);
        break;
      case Node::kAny:
        emit_any(n, depth);
        break;
      case Node::kRepeat:
        emit_repeat(n, depth);
        break;
      case Node::kRule:
        add(Op::kCall, body_of(grammar_.rules()[index_of(n.rule)].node));
        break;
      case Node::kObject:
        emit_object(*n.object);
        break;
      case Node::kChecked: {
        program_.reads_values = true;
        program_.checks.push_back({body_of(n.children[0]), n.check});
        const auto check = static_cast<std::uint32_t>(program_.checks.size() - 1);
        add(Op::kCheck, check);
        add(Op::kChecked, check);
        break;
      }
      case Node::kGuard:
        program_.reads_values = true;
        add(Op::kGuard);
        break;
      case Node::kCapture: {
        const std::uint32_t mark = 2 * n.capture;
        add(Op::kMark, mark);
        emit(n.children[0], depth + 1, false);
        add(Op::kMark, mark + 1);
        break;
      }
    }
  }

  void emit_any(const Node& n, int depth) {
    std::vector<NodeId> parts;
    std::vector<std::u32string> literals;
    for (const NodeId child : n.children) {
      const Node& part = node(child);
      if (!lives(child)) continue;
      if (is_opaque_ && part.kind == Node::kBytes && is_valid_utf8(part.bytes))
        literals.push_back(codes_of(part.bytes));
      else
        parts.push_back(child);
    }
    const std::size_t num_branches = parts.size() + (literals.empty() ? 0 : 1);
    const Place split = num_branches == 1 ? 0 : add(Op::kSplit);
    std::vector<Place> targets, jumps;
    const auto end_branch = [&] {
      if (num_branches > 1) jumps.push_back(add(Op::kJump));
    };
    if (!literals.empty()) {
      targets.push_back(here());
      const LanguageStore::Id set = grammar_.languages().store().literals(std::move(literals));
      text({.language = set});
      end_branch();
    }
    for (const NodeId part : parts) {
      targets.push_back(here());
      emit(part, depth + 1, false);
      end_branch();
    }
    for (const Place jump : jumps) program_.code[jump].a = here();
    if (num_branches != 1) set_targets(split, targets);
  }

  void set_targets(Place split, const std::vector<Place>& targets) {
    program_.code[split].a = static_cast<std::uint32_t>(program_.targets.size());
    program_.code[split].b = static_cast<std::uint32_t>(targets.size());
    program_.targets.insert(program_.targets.end(), targets.begin(), targets.end());
  }

  void set_ways(Place split, Place round, Place end, bool is_lazy) {
    if (!is_opaque_) program_.code[split].op = Op::kLoop;
    set_targets(split, {is_lazy ? end : round, is_lazy ? round : end});
  }

  void emit_repeat(const Node& n, int depth) {
    const NodeId child = n.children[0];
    const bool is_lazy = n.is_lazy;
    if (!lives(child)) return;  // min is 0: the node lives
    if (n.max == kUnbounded && n.min <= 1) {
      if (n.min == 0) {
        const Place split = add(Op::kSplit);
        emit(child, depth + 1, false);
        add(Op::kJump, split);
        set_ways(split, split + 1, here(), is_lazy);
      } else {
        const Place begin = here();
        emit(child, depth + 1, false);
        const Place split = add(Op::kSplit);
        set_ways(split, begin, here(), is_lazy);
      }
      return;
    }
    // no text has as many rounds as 32 bits count
    constexpr std::uint32_t kMany = RepeatLoop::kMany;
    RepeatLoop loop{.min = static_cast<std::uint32_t>(std::min<std::uint64_t>(n.min, kMany - 1)),
                    .max = static_cast<std::uint32_t>(std::min<std::uint64_t>(n.max, kMany)),
                    .body = is_opaque_ ? body_of(child) : open_body(child),
                    .is_lazy = is_lazy};
    program_.repeats.push_back(loop);
    const auto index = static_cast<std::uint32_t>(program_.repeats.size() - 1);
    add(Op::kRepeat, index);
    add(Op::kRepeated, index);
  }

  void emit_object(const ObjectSpec& spec) {
    const auto index = static_cast<std::uint32_t>(program_.objects.size());
    ObjectProgram object;
    object.any_order = spec.any_order;
    object.distinct_extras = spec.distinct_extras && !spec.extras.empty();
    if (object.distinct_extras) program_.reads_values = true;
    object.min_keys = spec.min_keys;
    object.max_keys = spec.max_keys;
    object.counts = spec.min_keys > 0 || spec.max_keys != kUnbounded;
    object.keys = key_tree(spec.members);
    object.space = body_of(spec.space);
    object.colon = body_of(spec.space, true);
    for (const ObjectSpec::Member& member : spec.members)
      object.members.push_back({.body = lives(member.value) ? body_of(member.value) : 0,
                                .is_required = member.is_required,
                                .is_allowed = lives(member.value)});
    if (!spec.dependent.empty()) object.needs.resize(spec.members.size());
    for (const auto& [from, to] : spec.dependent) object.needs[from].push_back(to);
    for (bool changes = !spec.dependent.empty(); changes;) {
      changes = false;
      for (const auto& [from, to] : spec.dependent) {
        if (!object.members[from].is_allowed || object.members[to].is_allowed) continue;
        object.members[from].is_allowed = false;
        changes = true;
      }
    }
    index_required(object);
    if (spec.is_bare) {
      add(Op::kBare, index);
      object.first = add(Op::kBareFirst, index);
      object.more = add(Op::kBareMore, index);
      object.key = add(Op::kBareNext, index);
      object.close = here();
      program_.objects.push_back(std::move(object));
      return;
    }
    LanguageStore& store = grammar_.languages().store();
    literal("{");
    add(Op::kObject, index);
    object.first = add(Op::kObjectFirst, index);
    object.more = add(Op::kObjectMore, index);
    object.separator = add(Op::kObjectSeparator, index);
    object.comma = add(Op::kObjectComma, index);
    object.key = add(Op::kObjectKey, index);
    object.quote = add(Op::kObjectQuote, index);
    object.key_text = add(Op::kObjectKeyText, index);
    object.colon_end = add(Op::kObjectColon, index);
    object.extra = here();
    for (const ObjectSpec::Extra& extra : spec.extras) {
      const auto keys = static_cast<LanguageStore::Id>(extra.keys);
      if (!lives(extra.value) || !store.is_live(keys)) continue;
      const auto number = static_cast<std::uint32_t>(object.extras.size());
      add(Op::kObjectExtra, index, number);
      add(Op::kObjectExtraColon, index, number);
      object.extras.push_back(
          {.key = quoted_body(grammar_.json_text(extra.keys)), .value = body_of(extra.value)});
    }
    object.has_extras = !object.extras.empty();
    object.close = here();
    literal("}");
    satisfiable_.resize(grammar_.nodes().size(), true);
    uses_.resize(grammar_.nodes().size(), 1);
    program_.objects.push_back(std::move(object));
  }

  static void index_required(ObjectProgram& object) {
    const std::size_t count = object.members.size();
    object.required.resize((count + 63) / 64);
    object.required_behind.resize(count + 1, 0);
    object.next_required.resize(count + 1, ~0u);
    for (std::size_t i = count; i-- > 0;) {
      object.required_behind[i] = object.required_behind[i + 1];
      object.next_required[i] = object.next_required[i + 1];
      if (!object.members[i].is_required) continue;
      object.required[i / 64] |= std::uint64_t{1} << i % 64;
      ++object.required_behind[i];
      object.next_required[i] = static_cast<std::uint32_t>(i);
    }
  }

  // Bodies become places, and calls that end a body are marked.
  void patch() {
    const auto place = [&](std::uint32_t body) { return bodies_[body].place; };
    for (RepeatLoop& loop : program_.repeats) loop.body = place(loop.body);
    for (CheckBody& check : program_.checks) check.body = place(check.body);
    for (ObjectProgram& object : program_.objects) {
      object.space = place(object.space);
      object.colon = place(object.colon);
      for (ObjectProgram::Member& member : object.members) member.body = place(member.body);
      for (ObjectProgram::Extra& extra : object.extras)
        extra = {place(extra.key), place(extra.value)};
    }
    for (Place at = 0; at < program_.code.size(); ++at) {
      Instruction& call = program_.code[at];
      if (call.op == Op::kOpaque) call.a = place(call.a);
      if (call.op != Op::kCall) continue;
      call.a = place(call.a);
      Place next = at + 1;
      for (int i = 0; i < kMaxInline && program_.code[next].op == Op::kJump; ++i)
        next = program_.code[next].a;
      call.b = program_.code[next].op == Op::kEnd ? 1 : 0;
    }
  }

  struct NodeHash {
    std::size_t operator()(NodeId id) const { return index_of(id) * 0x9E3779B97F4A7C15; }
  };

  Grammar& grammar_;
  std::vector<bool> satisfiable_;
  std::vector<std::uint32_t> uses_;
  std::vector<bool> bears_;  // empty: no captures are kept
  bool is_opaque_ = true;    // of the body that is emitted
  std::vector<Body> bodies_;
  std::unordered_map<NodeId, std::uint32_t, NodeHash> body_ids_, separators_;
  std::unordered_map<std::string, std::uint32_t> literals_;
  Program program_;
};

}  // namespace

Result<Program> make_program(Grammar& grammar, NodeId root) {
  const auto too_large = [] {
    return Fault{400, "grammar_too_large", "",
                 "The grammar needs more memory or steps than its budget allows."};
  };
  for (const Grammar::Rule& rule : grammar.rules())
    if (!rule.is_defined)
      return Fault{
          400, "undefined_rule", "",
          fmt::format("The grammar uses the rule '{}', which it does not define.", rule.name)};
  if (grammar.is_exhausted()) return too_large();
  std::vector<bool> satisfiable = find_satisfiable(grammar);
  if (grammar.is_exhausted()) return too_large();
  if (!satisfiable[index_of(root)])
    return Fault{400, "unsatisfiable_grammar", "",
                 "No finite text fulfils the grammar: a rule needs itself without an end, or its "
                 "conditions exclude each other."};
  Result<Program> program = Emitter(grammar, std::move(satisfiable)).run(root);
  if (grammar.is_exhausted()) return too_large();
  return program;
}

std::uint64_t Program::bytes() const {
  std::uint64_t sum = code.size() * sizeof(Instruction) + targets.size() * sizeof(Place) +
                      texts.size() * sizeof(TextLeaf) + repeats.size() * sizeof(RepeatLoop);
  for (const std::string& text : strings) sum += sizeof(std::string) + text.size();
  for (const ObjectProgram& object : objects)
    sum += sizeof(object) + object.members.size() * sizeof(ObjectProgram::Member) +
           object.keys.nodes.size() * sizeof(KeyTree::Node) +
           object.keys.children.size() * sizeof(KeyTree::Child) + object.keys.order.size() * 4;
  return sum;
}

}  // namespace sluice::grammar
