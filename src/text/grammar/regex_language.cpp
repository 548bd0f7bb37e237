// From the tree of a regular expression to its language.
//
// A part is built with the language K of everything behind it: that of "ab" is a.b.K, a lookahead
// is an intersection with K, and '$' keeps of K the empty text alone. What stands in front of a
// text is one symbol, kStartMark: '^' is that symbol. The language is then what follows the symbol.
#include <algorithm>

#include "text/grammar/regex_tree.h"

namespace sluice::grammar {
namespace {

using Id = LanguageStore::Id;

// Maximum number of repetitions of a part that holds an assertion; each is built anew.
constexpr std::uint64_t kMaxAssertedRepeats = 16;

class Builder {
 public:
  Builder(LanguageStore& store, const RegexTree& tree, RegexMatch match)
      : store_(store), tree_(tree) {
    behind_ = match == RegexMatch::kSearch ? LanguageStore::kAnyText : LanguageStore::kEmpty;
    mark_ = store.chars({{kStartMark, kStartMark}});
    all_ = store.repeat(store.chars({{0, kStartMark}}), 0, kUnbounded);
    before_ = match == RegexMatch::kSearch ? store.concat(mark_, LanguageStore::kAnyText) : mark_;
  }

  Result<Id> run() {
    // Either the match begins somewhere and holds no '^', or it begins with one.
    std::vector<Id> both;
    for (const bool has_start : {false, true}) {
      if (has_start && !tree_.has_start) break;
      start_ = has_start ? mark_ : LanguageStore::kNone;
      const Id prefix = has_start ? LanguageStore::kEmpty : before_;
      Result<Id> one = build(prefix);
      if (!one) return one;
      both.push_back(store_.step(one.value(), kStartMark));
    }
    const Id language = store_.any_of(both);
    if (tree_.has_start && holds_mark(language))
      return unsupported_regex("'^' behind another '^'", last_start());
    return language;
  }

 private:
  struct Frame {
    std::uint32_t node;
    std::size_t next;  // children still to do
    Id behind;
    std::vector<Id> results;
    Id prefix = LanguageStore::kEmpty;  // of the outermost concatenations
  };

  Result<Id> build(Id prefix) {
    stack_.clear();
    push(tree_.root, behind_, prefix);
    Id value = LanguageStore::kNone;
    bool has_value = false;
    while (!stack_.empty()) {
      const Result<bool> done = advance(has_value, value);
      if (!done) return done.fault();
      has_value = done.value();
      if (store_.is_exhausted()) return LanguageStore::kNone;
    }
    return value;
  }

  void push(std::uint32_t node, Id behind, Id prefix) {
    const RegexNode& regex = tree_.nodes[node];
    const std::size_t count = regex.kind == RegexNode::kRepeat ? regex.max : regex.children.size();
    stack_.push_back({node, count, behind, {}, prefix});
  }

  // One step of the top frame; true: it is done, and `value` is its language.
  Result<bool> advance(bool has_value, Id& value) {
    Frame& frame = stack_.back();
    const RegexNode& node = tree_.nodes[frame.node];
    const auto done = [&](Id language) {
      value = language;
      stack_.pop_back();
      return true;
    };
    const auto with_prefix = [&](Id language) { return store_.concat(frame.prefix, language); };
    switch (node.kind) {
      case RegexNode::kPure:
        return done(with_prefix(store_.concat(node.language, frame.behind)));
      case RegexNode::kStart:
        return done(with_prefix(store_.concat(start_, frame.behind)));
      case RegexNode::kEnd:
        return done(with_prefix(store_.accepts(frame.behind) ? LanguageStore::kEmpty
                                                             : LanguageStore::kNone));
      case RegexNode::kWordBoundary:
      case RegexNode::kLookbehind:
        return done(look_back(node, frame.prefix, frame.behind));
      case RegexNode::kLookahead: {
        if (!has_value) {
          push(node.children[0], LanguageStore::kAnyText, LanguageStore::kEmpty);
          return false;
        }
        const Id ahead = node.is_negative ? store_.complement(value) : value;
        return done(with_prefix(store_.all_of({ahead, frame.behind})));
      }
      case RegexNode::kAlternate:
        if (has_value) frame.results.push_back(value);
        if (frame.next == 0) return done(store_.any_of(std::move(frame.results)));
        push(node.children[--frame.next], frame.behind, frame.prefix);
        return false;
      case RegexNode::kRepeat: {
        if (has_value) frame.behind = value;
        const std::uint64_t times = node.max - frame.next;
        if (times >= node.min) frame.results.push_back(frame.behind);
        if (frame.next == 0) return done(with_prefix(store_.any_of(std::move(frame.results))));
        --frame.next;
        push(node.children[0], frame.behind, LanguageStore::kEmpty);
        return false;
      }
      case RegexNode::kConcat:
        break;
    }
    if (has_value) frame.behind = value;
    if (frame.next == 0) return done(with_prefix(frame.behind));
    const RegexNode& child = tree_.nodes[node.children[--frame.next]];
    if (child.kind != RegexNode::kWordBoundary && child.kind != RegexNode::kLookbehind) {
      push(node.children[frame.next], frame.behind, LanguageStore::kEmpty);
      return false;
    }
    // the plain parts in front are the context
    Id left = LanguageStore::kEmpty;
    while (frame.next > 0) {
      const RegexNode& part = tree_.nodes[node.children[frame.next - 1]];
      if (part.kind != RegexNode::kPure && part.kind != RegexNode::kStart) break;
      left = store_.concat(part.kind == RegexNode::kStart ? start_ : part.language, left);
      --frame.next;
    }
    if (frame.next == 0) {
      left = store_.concat(frame.prefix, left);
      frame.prefix = LanguageStore::kEmpty;
    }
    if (store_.accepts(left) && !is_start_of_text(frame))
      return unsupported_regex(child.kind == RegexNode::kWordBoundary
                                   ? "\\b without a character in front of it in the same group"
                                   : "lookbehind without a character in front in the same group",
                               child.position);
    frame.behind = look_back(child, left, frame.behind);
    return false;
  }

  // Whether a context that may be empty is then the beginning of the pattern with '^' to come.
  bool is_start_of_text(const Frame& frame) const {
    return start_ != LanguageStore::kNone && frame.node == tree_.root && frame.next == 0;
  }

  Id look_back(const RegexNode& node, Id left, Id right) {
    if (node.kind == RegexNode::kLookbehind) {
      const Id ends = store_.concat(all_, tree_.nodes[node.children[0]].language);
      const Id allowed = node.is_negative ? store_.complement(ends) : ends;
      return store_.concat(store_.all_of({left, allowed}), right);
    }
    const Id word = store_.chars({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
    const Id ends = store_.concat(all_, word), begins = store_.concat(word, all_);
    const Id not_ends = store_.complement(ends), not_begins = store_.complement(begins);
    const auto case_of = [&](Id left_side, Id right_side) {
      return store_.concat(store_.all_of({left, left_side}), store_.all_of({right, right_side}));
    };
    if (node.is_negative)
      return store_.any_of({case_of(ends, begins), case_of(not_ends, not_begins)});
    return store_.any_of({case_of(ends, not_begins), case_of(not_ends, begins)});
  }

  bool holds_mark(Id language) const {
    std::vector<Id> stack = {language};
    std::vector<bool> seen(language + 1);
    while (!stack.empty()) {
      const Id top = stack.back();
      stack.pop_back();
      if (top >= seen.size() || seen[top]) continue;
      seen[top] = true;
      const LanguageStore::Expression& expression = store_.at(top);
      using Kind = LanguageStore::Kind;
      if (top == mark_) return true;
      if (expression.kind == Kind::kConcat) stack.push_back(expression.right);
      if (expression.kind == Kind::kConcat || expression.kind == Kind::kNot ||
          expression.kind == Kind::kRepeat)
        stack.push_back(expression.left);
      if (expression.kind == Kind::kAny || expression.kind == Kind::kAll)
        for (const Id part : store_.list(top)) stack.push_back(part);
    }
    return false;
  }

  std::size_t last_start() const {
    std::size_t position = 0;
    for (const RegexNode& node : tree_.nodes)
      if (node.kind == RegexNode::kStart) position = std::max(position, node.position);
    return position;
  }

  LanguageStore& store_;
  const RegexTree& tree_;
  Id behind_, before_, mark_, all_, start_ = LanguageStore::kNone;
  std::vector<Frame> stack_;
};

// What language_of cannot express: the first such node, or nullptr.
const RegexNode* unbounded_assertion(const RegexTree& tree) {
  for (const RegexNode& node : tree.nodes)
    if (node.kind == RegexNode::kRepeat && node.max > kMaxAssertedRepeats) return &node;
  return nullptr;
}

}  // namespace

Result<Id> language_of(LanguageStore& store, const RegexTree& tree, RegexMatch match) {
  const RegexNode& root = tree.nodes[tree.root];
  if (root.kind == RegexNode::kPure) {
    if (match == RegexMatch::kFull) return root.language;
    return store.concat(LanguageStore::kAnyText,
                        store.concat(root.language, LanguageStore::kAnyText));
  }
  if (const RegexNode* node = unbounded_assertion(tree))
    return unsupported_regex("an anchor or look-around inside a repetition", node->position);
  for (const RegexNode& node : tree.nodes)
    if (node.kind == RegexNode::kLookbehind &&
        tree.nodes[node.children[0]].kind != RegexNode::kPure)
      return unsupported_regex("an anchor or look-around inside a lookbehind", node.position);
  return Builder(store, tree, match).run();
}

}  // namespace sluice::grammar
