// From the tree of a regular expression to its language.
//
// A part is built with the language K of everything behind it: that of "ab" is a.b.K, a lookahead
// is an intersection with K, and '$' keeps of K the empty text alone. What stands in front of a
// text is one symbol, kStartMark: '^' is that symbol. The language is then what follows the symbol.
#include <algorithm>
#include <optional>

#include "text/grammar/regex_tree.h"

namespace sluice::grammar {
namespace {

using Id = LanguageStore::Id;

// Maximum number of repetitions of a part that holds an assertion; each is built anew.
constexpr std::uint64_t kMaxAssertedRepeats = 16;

bool is_zero_width(const RegexNode& node) {
  return node.kind != RegexNode::kConcat && node.kind != RegexNode::kAlternate &&
         node.kind != RegexNode::kRepeat &&
         (node.kind != RegexNode::kPure || node.language == LanguageStore::kEmpty);
}

// (?!x)c with one character c, of any number: no place of the text begins with x.
bool is_tempered(const LanguageStore& store, const RegexTree& tree, const RegexNode& repeat) {
  const RegexNode& child = tree.nodes[repeat.children[0]];
  if (child.kind != RegexNode::kConcat || child.children.size() < 2) return false;
  const RegexNode& last = tree.nodes[child.children.back()];
  return last.kind == RegexNode::kPure &&
         store.at(last.language).kind == LanguageStore::Kind::kChars &&
         std::all_of(child.children.begin(), child.children.end() - 1, [&](std::uint32_t part) {
           return tree.nodes[part].kind == RegexNode::kLookahead && tree.nodes[part].is_negative;
         });
}

// Brings anchors out of repetitions, and drops a '^' where the text has just begun.
class Anchors {
 public:
  Anchors(LanguageStore& store, RegexTree& tree) : store_(store), tree_(tree) {}

  void simplify(RegexMatch match) {
    if (match == RegexMatch::kFull) drop_starts({tree_.root});
    for (std::uint32_t i = 0; i < tree_.nodes.size(); ++i) {
      const RegexNode& node = tree_.nodes[i];
      if (node.kind != RegexNode::kRepeat || node.max <= kMaxAssertedRepeats) continue;
      if (const std::optional<Parts> parts = split(i)) replace(i, *parts);
    }
    for (std::uint32_t i = 0; i < tree_.nodes.size(); ++i) {
      if (tree_.nodes[i].kind != RegexNode::kConcat) continue;
      std::vector<std::uint32_t>& children = tree_.nodes[i].children;
      const auto is_start = [&](std::uint32_t child) {
        return tree_.nodes[child].kind == RegexNode::kStart;
      };
      const auto first = std::find_if(children.begin(), children.end(), is_start);
      if (first == children.end()) continue;
      // what has no width may as well stand behind it
      if (std::all_of(children.begin(), first,
                      [&](std::uint32_t child) { return is_zero_width(tree_.nodes[child]); })) {
        std::rotate(children.begin(), first, first + 1);
        drop_starts({children.begin() + 1, children.end()});
      } else {
        drop_starts({first + 1, children.end()});
      }
    }
  }

 private:
  // The texts of a part by the anchors that they need: none, '^' in front, '$' behind, both.
  struct Parts {
    Id plain = LanguageStore::kNone, start = LanguageStore::kNone, end = LanguageStore::kNone,
       both = LanguageStore::kNone;
  };
  bool is_empty_at_start(const Parts& parts) const {
    return store_.accepts(parts.plain) || store_.accepts(parts.start);
  }
  bool is_empty_at_end(const Parts& parts) const {
    return store_.accepts(parts.plain) || store_.accepts(parts.end);
  }
  bool is_empty_between(const Parts& parts) const {
    return is_empty_at_start(parts) || is_empty_at_end(parts) || store_.accepts(parts.both);
  }

  // Nothing where a part has other assertions. Groups bound the depth.
  std::optional<Parts> split(std::uint32_t id) {
    const RegexNode& node = tree_.nodes[id];
    switch (node.kind) {
      case RegexNode::kPure:
        return Parts{.plain = node.language};
      case RegexNode::kStart:
        return Parts{.start = LanguageStore::kEmpty};
      case RegexNode::kEnd:
        return Parts{.end = LanguageStore::kEmpty};
      case RegexNode::kConcat: {
        Parts all{.plain = LanguageStore::kEmpty};
        for (const std::uint32_t child : node.children) {
          const std::optional<Parts> next = split(child);
          if (!next) return std::nullopt;
          all = concat(all, *next);
        }
        return all;
      }
      case RegexNode::kAlternate: {
        Parts all;
        for (const std::uint32_t child : node.children) {
          const std::optional<Parts> next = split(child);
          if (!next) return std::nullopt;
          all = {store_.any_of({all.plain, next->plain}), store_.any_of({all.start, next->start}),
                 store_.any_of({all.end, next->end}), store_.any_of({all.both, next->both})};
        }
        return all;
      }
      case RegexNode::kRepeat: {
        const std::optional<Parts> child = split(node.children[0]);
        if (!child) return std::nullopt;
        return repeat(*child, node.min, node.max);
      }
      default:
        return std::nullopt;
    }
  }

  // Behind '$' and in front of '^' stands nothing.
  Parts concat(const Parts& left, const Parts& right) {
    std::vector<Id> start = {store_.concat(left.start, right.plain)},
                    end = {store_.concat(left.plain, right.end)},
                    both = {store_.concat(left.start, right.end)};
    if (is_empty_at_start(left)) {
      start.push_back(right.start);
      both.push_back(right.both);
    }
    if (is_empty_at_end(right)) {
      end.push_back(left.end);
      both.push_back(left.both);
    }
    if (is_empty_between(left) && is_empty_between(right)) both.push_back(LanguageStore::kEmpty);
    return {store_.concat(left.plain, right.plain), store_.any_of(start), store_.any_of(end),
            store_.any_of(both)};
  }

  Parts repeat(const Parts& part, std::uint64_t min, std::uint64_t max) {
    Parts all{.plain = store_.repeat(part.plain, min, max)};
    if (max == 0) return all;
    // So many rounds with an anchor; rounds that are empty there may stand in for plain ones.
    const auto plain = [&](std::uint64_t anchored, bool is_empty) {
      return store_.repeat(part.plain, is_empty ? 0 : min - std::min(min, anchored),
                           max == kUnbounded ? max : max - anchored);
    };
    const bool start_is_empty = store_.accepts(part.start), end_is_empty = store_.accepts(part.end);
    all.start = store_.concat(part.start, plain(1, start_is_empty));
    all.end = store_.concat(plain(1, end_is_empty), part.end);
    std::vector<Id> both;
    if (max >= 2)
      both.push_back(store_.concat(
          part.start, store_.concat(plain(2, start_is_empty || end_is_empty), part.end)));
    if (min <= 1 || is_empty_at_start(part) || is_empty_at_end(part)) both.push_back(part.both);
    if (is_empty_between(part)) both.push_back(LanguageStore::kEmpty);
    all.both = store_.any_of(both);
    return all;
  }

  std::uint32_t add(RegexNode node) {
    tree_.nodes.push_back(std::move(node));
    return static_cast<std::uint32_t>(tree_.nodes.size() - 1);
  }

  void replace(std::uint32_t id, const Parts& parts) {
    RegexNode made{.kind = RegexNode::kAlternate, .position = tree_.nodes[id].position};
    const auto add_option = [&](Id language, bool has_start, bool has_end) {
      if (language == LanguageStore::kNone) return;
      std::vector<std::uint32_t> children;
      if (has_start)
        children.push_back(add({.kind = RegexNode::kStart, .position = made.position}));
      children.push_back(add({.language = language}));
      if (has_end) children.push_back(add({.kind = RegexNode::kEnd}));
      made.children.push_back(add({.kind = RegexNode::kConcat, .children = children}));
    };
    add_option(parts.plain, false, false);
    add_option(parts.start, true, false);
    add_option(parts.end, false, true);
    add_option(parts.both, true, true);
    if (made.children.empty()) made = {.language = LanguageStore::kNone};
    tree_.nodes[id] = std::move(made);
  }

  // Parts that follow a '^': up to the first that is not empty.
  void drop_starts(const std::vector<std::uint32_t>& parts) {
    for (const std::uint32_t part : parts) {
      RegexNode& node = tree_.nodes[part];
      if (node.kind == RegexNode::kStart) node = {};
      if (node.kind == RegexNode::kConcat) drop_starts(std::vector(node.children));
      if (node.kind == RegexNode::kAlternate || node.kind == RegexNode::kLookahead)
        for (const std::uint32_t child : std::vector(node.children)) drop_starts({child});
      if (!is_zero_width(tree_.nodes[part])) return;
    }
  }

  LanguageStore& store_;
  RegexTree& tree_;
};

class Builder {
 public:
  Builder(LanguageStore& store, const RegexTree& tree, RegexMatch match)
      : store_(store), tree_(tree) {
    behind_ = match == RegexMatch::kSearch ? LanguageStore::kAnyText : LanguageStore::kEmpty;
    mark_ = store.chars({{kStartMark, kStartMark}});
    all_char_ = store.chars({{0, kStartMark}});
    all_ = store.repeat(all_char_, 0, kUnbounded);
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
    if (holds_mark(language)) return unsupported_regex("'^' behind another '^'", last_start());
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
        // what is looked at has no symbol for the beginning
        if (holds_mark(frame.behind))
          return unsupported_regex("'^' behind a look-around", last_start());
        const Id ahead = node.is_negative ? store_.complement(value) : value;
        return done(with_prefix(store_.all_of({ahead, frame.behind})));
      }
      case RegexNode::kAlternate:
        if (has_value) frame.results.push_back(value);
        if (frame.next == 0) return done(store_.any_of(std::move(frame.results)));
        push(node.children[--frame.next], frame.behind, frame.prefix);
        return false;
      case RegexNode::kRepeat: {
        if (node.max > kMaxAssertedRepeats) {
          if (has_value) frame.results.push_back(value);
          return tempered(frame, value);
        }
        if (has_value) frame.behind = value;
        const std::uint64_t times = node.max - frame.next;
        if (times >= node.min) frame.results.push_back(frame.behind);
        if (frame.next == 0) return done(with_prefix(store_.any_of(std::move(frame.results))));
        --frame.next;
        push(node.children[0], frame.behind, LanguageStore::kEmpty);
        return false;
      }
      case RegexNode::kConcat:
      case RegexNode::kGroup:
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

  // One step of a repetition of (?!x)c in front of the end; `results` are the x that are built.
  Result<bool> tempered(Frame& frame, Id& value) {
    const RegexNode& node = tree_.nodes[frame.node];
    if (frame.behind != LanguageStore::kEmpty)
      return unsupported_regex("a look-around inside a repetition that is not the pattern's end",
                               node.position);
    const std::vector<std::uint32_t>& parts = tree_.nodes[node.children[0]].children;
    if (frame.results.size() + 1 < parts.size()) {
      const std::uint32_t ahead = tree_.nodes[parts[frame.results.size()]].children[0];
      push(ahead, LanguageStore::kAnyText, LanguageStore::kEmpty);
      return false;
    }
    const Id some = store_.repeat(all_char_, 1, kUnbounded);
    const Id wrong = store_.all_of({store_.any_of(std::move(frame.results)), some});
    const Id texts = store_.repeat(tree_.nodes[parts.back()].language, node.min, node.max);
    const Id none_wrong = store_.complement(store_.concat(all_, wrong));
    value = store_.concat(frame.prefix, store_.all_of({texts, none_wrong}));
    stack_.pop_back();
    return true;
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
    if (start_ == LanguageStore::kNone) return false;
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
  Id behind_, before_, mark_, all_char_, all_, start_ = LanguageStore::kNone;
  std::vector<Frame> stack_;
};

// A '^' inside a look-around, or nullptr.
const RegexNode* start_inside(const RegexTree& tree) {
  std::vector<std::pair<std::uint32_t, bool>> stack = {{tree.root, false}};
  while (!stack.empty()) {
    const auto [id, is_inside] = stack.back();
    stack.pop_back();
    const RegexNode& node = tree.nodes[id];
    if (node.kind == RegexNode::kStart && is_inside) return &node;
    for (const std::uint32_t child : node.children)
      stack.emplace_back(child, is_inside || node.kind == RegexNode::kLookahead);
  }
  return nullptr;
}

// What language_of cannot express: the first such node, or nullptr.
const RegexNode* unbounded_assertion(const LanguageStore& store, const RegexTree& tree) {
  const RegexNode* first = nullptr;
  std::vector<std::uint32_t> stack = {tree.root};
  while (!stack.empty()) {
    const RegexNode& node = tree.nodes[stack.back()];
    stack.pop_back();
    stack.insert(stack.end(), node.children.begin(), node.children.end());
    const bool is_open = node.kind == RegexNode::kRepeat && node.max > kMaxAssertedRepeats &&
                         !is_tempered(store, tree, node);
    if (is_open && (first == nullptr || node.position < first->position)) first = &node;
  }
  return first;
}

}  // namespace

Result<Id> language_of(LanguageStore& store, const RegexTree& tree, RegexMatch match) {
  const RegexNode& root = tree.nodes[tree.root];
  if (root.kind == RegexNode::kPure) {
    if (match == RegexMatch::kFull) return root.language;
    return store.concat(LanguageStore::kAnyText,
                        store.concat(root.language, LanguageStore::kAnyText));
  }
  RegexTree plain = tree;
  Anchors(store, plain).simplify(match);
  if (const RegexNode* node = start_inside(plain))
    return unsupported_regex("'^' inside a look-around", node->position);
  if (const RegexNode* node = unbounded_assertion(store, plain))
    return unsupported_regex("an anchor or look-around inside a repetition", node->position);
  for (const RegexNode& node : plain.nodes)
    if (node.kind == RegexNode::kLookbehind &&
        plain.nodes[node.children[0]].kind != RegexNode::kPure)
      return unsupported_regex("an anchor or look-around inside a lookbehind", node.position);
  return Builder(store, plain, match).run();
}

}  // namespace sluice::grammar
