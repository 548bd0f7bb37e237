#include "text/grammar/language_store.h"

#include <algorithm>

namespace sluice::grammar {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15 + (hash << 6) + (hash >> 2);
  return hash * 0xFF51AFD7ED558CCD;
}

}  // namespace

LanguageStore::LanguageStore(const Budget& budget) : max_work_(budget_.max_work) {
  // The first four stand in every store, whatever its budget.
  table_.resize(256, 0);
  expressions_.push_back({.kind = Kind::kNone, .is_positive = true});  // never in the table
  expressions_.push_back({.kind = Kind::kEmpty, .has_empty = true, .is_positive = true});
  const Id any_char = chars({{0, 0xD7FF}, {0xE000, 0x10FFFF}});
  const Id any_text = repeat(any_char, 0, kUnbounded);
  check(any_char == kAnyChar && any_text == kAnyText, "a store begins with its constants");
  budget_ = budget;
  max_work_ = budget.max_work;
}

LanguageStore LanguageStore::without_automata() const {
  LanguageStore out(budget_);
  out.work_ = work_;
  out.max_work_ = max_work_;
  out.bytes_ = bytes_ - automaton_bytes_;
  out.is_exhausted_ = is_exhausted_;
  out.expressions_ = expressions_;
  out.lists_ = lists_;
  out.children_ = children_;
  out.ranges_ = ranges_;
  out.sets_ = sets_;
  out.set_ids_ = set_ids_;
  out.table_ = table_;
  out.ascii_chars_ = ascii_chars_;
  out.text_automata_ = text_automata_;
  out.text_states_ = text_states_;
  out.text_state_ids_ = text_state_ids_;
  return out;
}

std::uint64_t LanguageStore::hash_of(const Expression& expression, std::span<const Id> list,
                                     std::span<const Child> children) const {
  std::uint64_t hash = mix(static_cast<std::uint64_t>(expression.kind), expression.has_empty);
  hash = mix(mix(hash, expression.left), expression.right);
  if (expression.kind == Kind::kRepeat) hash = mix(mix(hash, expression.min), expression.max);
  for (const Id id : list) hash = mix(hash, id);
  for (const Child& child : children) hash = mix(mix(hash, child.code), child.next);
  return hash ^ hash >> 32;
}

bool LanguageStore::same(Id id, const Expression& expression, std::span<const Id> list,
                         std::span<const Child> children) const {
  const Expression& other = at(id);
  if (other.kind != expression.kind || other.has_empty != expression.has_empty ||
      other.left != expression.left || other.right != expression.right)
    return false;
  if (expression.kind == Kind::kRepeat)
    return other.min == expression.min && other.max == expression.max;
  if (expression.kind == Kind::kAny || expression.kind == Kind::kAll)
    return std::ranges::equal(this->list(id), list);
  if (expression.kind == Kind::kTrie)
    return std::ranges::equal(this->children(id), children, [](const Child& a, const Child& b) {
      return a.code == b.code && a.next == b.next;
    });
  return true;
}

void LanguageStore::grow() {
  std::vector<Id> old(table_.size() * 2, 0);
  old.swap(table_);
  for (const Id id : old) {
    if (id == 0) continue;
    const Kind kind = at(id).kind;
    const bool has_list = kind == Kind::kAny || kind == Kind::kAll;
    std::size_t slot = hash_of(at(id), has_list ? list(id) : std::span<const Id>{},
                               kind == Kind::kTrie ? children(id) : std::span<const Child>{}) &
                       (table_.size() - 1);
    while (table_[slot] != 0) slot = (slot + 1) & (table_.size() - 1);
    table_[slot] = id;
  }
}

LanguageStore::Id LanguageStore::add(Expression expression, std::span<const Id> list,
                                     std::span<const Child> children) {
  if (is_exhausted_) return kNone;
  std::size_t slot = hash_of(expression, list, children) & (table_.size() - 1);
  while (table_[slot] != 0) {
    if (same(table_[slot], expression, list, children)) return table_[slot];
    slot = (slot + 1) & (table_.size() - 1);
  }
  bytes_ += sizeof(Expression) + 3 * sizeof(Id) + list.size_bytes() + children.size_bytes();
  if (bytes_ > budget_.max_bytes || !spend(1 + list.size() + children.size())) {
    exhaust();
    return kNone;
  }
  if (!list.empty() || !children.empty()) {
    expression.min = list.empty() ? children_.size() : lists_.size();
    expression.max = list.empty() ? children.size() : list.size();
    lists_.insert(lists_.end(), list.begin(), list.end());
    children_.insert(children_.end(), children.begin(), children.end());
  }
  const Id id = static_cast<Id>(expressions_.size());
  expressions_.push_back(expression);
  table_[slot] = id;
  if (expressions_.size() * 2 > table_.size()) grow();
  return id;
}

LanguageStore::Id LanguageStore::add_set(std::vector<CodeRange> ranges) {
  if (ranges.empty()) return kNone;
  // one range after another in ranges_; sets are compared by their text, which is short
  std::uint64_t hash = 0;
  for (const CodeRange& range : ranges) hash = mix(mix(hash, range.first), range.last);
  const auto [begin, end] = set_ids_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const auto& [first, count] = sets_[it->second];
    const bool equal = std::ranges::equal(std::span(ranges_).subspan(first, count), ranges,
                                          [](const CodeRange& a, const CodeRange& b) {
                                            return a.first == b.first && a.last == b.last;
                                          });
    if (equal) return add({.kind = Kind::kChars, .is_positive = true, .left = it->second}, {}, {});
  }
  const auto set = static_cast<std::uint32_t>(sets_.size());
  set_ids_.emplace(hash, set);
  bytes_ += ranges.size() * sizeof(CodeRange) + 32;
  sets_.emplace_back(static_cast<std::uint32_t>(ranges_.size()),
                     static_cast<std::uint32_t>(ranges.size()));
  ranges_.insert(ranges_.end(), ranges.begin(), ranges.end());
  return add({.kind = Kind::kChars, .is_positive = true, .left = set}, {}, {});
}

LanguageStore::Id LanguageStore::chars(std::vector<CodeRange> ranges) {
  if (ranges.size() == 1 && ranges[0].first <= ranges[0].last && ranges[0].last < 0xD800)
    return add_set(std::move(ranges));
  std::vector<CodeRange> cut;
  for (const CodeRange& range : ranges) {  // without surrogates
    if (range.first <= range.last && range.first < 0xD800)
      cut.push_back({range.first, std::min<char32_t>(range.last, 0xD7FF)});
    if (range.last >= 0xE000 && range.first <= range.last)
      cut.push_back({std::max<char32_t>(range.first, 0xE000), std::min(range.last, kStartMark)});
  }
  std::ranges::sort(cut, {}, &CodeRange::first);
  std::vector<CodeRange> merged;
  for (const CodeRange& range : cut) {
    // U+D7FF and U+E000 are neighbours among the characters, but stay two ranges
    if (!merged.empty() && range.first <= merged.back().last + 1)
      merged.back().last = std::max(merged.back().last, range.last);
    else
      merged.push_back(range);
  }
  return add_set(std::move(merged));
}

LanguageStore::Id LanguageStore::one_char(char32_t code) {
  if (code >= ascii_chars_.size()) return chars({{code, code}});
  if (ascii_chars_[code] == kNone) ascii_chars_[code] = add_set({{code, code}});
  return ascii_chars_[code];
}

// Makes the expression of the deepest unfinished node and hands it to its parent.
LanguageStore::Id LanguageStore::finish_trie(std::vector<TrieNode>& path) {
  TrieNode node = std::move(path.back());
  path.pop_back();
  if (node.children.empty()) return kEmpty;
  const bool is_set = !node.is_end && std::ranges::all_of(node.children, [](const Child& child) {
    return child.next == kEmpty;
  });
  if (is_set) {
    std::vector<CodeRange> ranges;
    for (const Child& child : node.children) ranges.push_back({child.code, child.code});
    return chars(std::move(ranges));
  }
  return add({.kind = Kind::kTrie, .has_empty = node.is_end, .is_positive = true}, {},
             node.children);
}

LanguageStore::Id LanguageStore::literals(std::vector<std::u32string> texts) {
  if (texts.empty()) return kNone;
  if (texts.size() == 1) {
    const std::u32string& text = texts.front();
    if (!spend(text.size() + 1)) return kNone;
    Id id = kEmpty;
    for (std::size_t i = text.size(); i-- > 0;) {
      const Child child{text[i], id};
      id = id == kEmpty ? one_char(text[i])
                        : add({.kind = Kind::kTrie, .is_positive = true}, {}, std::span(&child, 1));
    }
    return id;
  }
  std::ranges::sort(texts);
  std::vector<TrieNode> path(1);
  std::u32string last;
  for (const std::u32string& text : texts) {
    std::size_t common = 0;
    while (common < last.size() && common < text.size() && last[common] == text[common]) ++common;
    while (path.size() > common + 1) {
      const Id id = finish_trie(path);
      path.back().children.push_back({last[path.size() - 1], id});
    }
    path.resize(text.size() + 1);
    path.back().is_end = true;
    last = text;
    if (!spend(text.size() + 1)) return kNone;
  }
  while (path.size() > 1) {
    const Id id = finish_trie(path);
    path.back().children.push_back({last[path.size() - 1], id});
  }
  return finish_trie(path);
}

LanguageStore::Id LanguageStore::automaton(std::shared_ptr<const TextAutomaton> automaton) {
  const std::string begin = automaton->begin();
  text_automata_.push_back(std::move(automaton));
  return state_of_automaton(static_cast<Id>(text_automata_.size() - 1), begin);
}

LanguageStore::Id LanguageStore::state_of_automaton(Id automaton, const std::string& state) {
  if (state.empty()) return kNone;
  const auto [it, is_new] =
      text_state_ids_.try_emplace(state, static_cast<Id>(text_states_.size()));
  if (is_new) {
    text_states_.push_back(state);
    bytes_ += 2 * (sizeof(std::string) + state.size()) + sizeof(Id);
  }
  return add({.kind = Kind::kAutomaton,
              .has_empty = text_automata_[automaton]->accepts(state),
              .is_positive = true,
              .left = automaton,
              .right = it->second},
             {}, {});
}

bool LanguageStore::is_digits(Id id) const {
  if (at(id).kind != Kind::kChars) return false;
  return std::ranges::all_of(
      set(id), [](const CodeRange& range) { return range.first >= '0' && range.last <= '9'; });
}

LanguageStore::Id LanguageStore::horizon_form(Id id, std::uint64_t horizon, int depth) {
  const Expression expression = at(id);
  // In an intersection a count may decide whether any text is left, so it stays as it is.
  if (!expression.is_positive || depth > kMaxHorizonDepth) return id;
  switch (expression.kind) {
    case Kind::kRepeat: {
      if (is_digits(expression.left)) horizon = std::min(horizon, digit_horizon_);
      const std::uint64_t min = std::min(expression.min, horizon + 1);
      const std::uint64_t max = expression.max > horizon ? kUnbounded : expression.max;
      if (min == expression.min && max == expression.max) return id;
      return repeat(expression.left, min, max);
    }
    case Kind::kConcat: {
      const Id left = horizon_form(expression.left, horizon, depth + 1);
      return left == expression.left ? id : concat(left, expression.right);
    }
    case Kind::kAny: {
      const std::span<const Id> span = list(id);
      std::vector<Id> parts(span.begin(), span.end());
      for (Id& part : parts) part = horizon_form(part, horizon, depth + 1);
      return any_of(std::move(parts));
    }
    case Kind::kAutomaton:
      return state_of_automaton(
          expression.left, text_automata_[expression.left]->horizon_form(
                               text_states_[expression.right], std::min(horizon, digit_horizon_)));
    default:
      return id;
  }
}

}  // namespace sluice::grammar
