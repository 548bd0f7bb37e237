// Steps of the automata: derivatives, remembered by interval, and what can be told of a state.
#include <algorithm>
#include <deque>

#include "text/grammar/language_store.h"

namespace sluice::grammar {
namespace {

constexpr char32_t kLastCode = 0x10FFFF;

char32_t after(char32_t code) {
  return code == 0xD7FF ? 0xE000 : code + 1;
}

}  // namespace

LanguageStore::State& LanguageStore::state(Id id) {
  if (automaton_.size() <= id) automaton_.resize(std::max<std::size_t>(id + 1, id * 5 / 4));
  if (!(automaton_[id] != nullptr)) {
    automaton_[id].value = std::make_unique<State>();
    add_automaton_bytes(sizeof(State) + sizeof(CopiedState));
    if (bytes_ > budget_.max_bytes) exhaust();
  }
  return *automaton_[id].value;
}

CodeRange LanguageStore::interval(Id id, char32_t code) {
  CodeRange out{0, kLastCode};
  if (code > kLastCode) return {code, code};
  std::vector<Id>& stack = heads_;
  stack.assign(1, id);
  std::uint64_t seen = 0;
  while (!stack.empty()) {
    const Id top = stack.back();
    stack.pop_back();
    ++seen;
    const Expression& expression = at(top);
    switch (expression.kind) {
      case Kind::kNone:
      case Kind::kEmpty:
        break;
      case Kind::kChars: {
        const std::span<const CodeRange> ranges = set(top);
        auto it = std::ranges::upper_bound(ranges, code, {}, &CodeRange::first);
        if (it != ranges.end()) out.last = std::min<char32_t>(out.last, it->first - 1);
        if (it == ranges.begin()) break;
        --it;
        if (code <= it->last) {
          out.first = std::max(out.first, it->first);
          out.last = std::min(out.last, it->last);
        } else {
          out.first = std::max<char32_t>(out.first, it->last + 1);
        }
        break;
      }
      case Kind::kTrie: {
        const std::span<const Child> span = children(top);
        auto it = std::ranges::lower_bound(span, code, {}, &Child::code);
        if (it != span.end() && it->code == code) {
          out = {code, code};
          break;
        }
        if (it != span.end()) out.last = std::min<char32_t>(out.last, it->code - 1);
        if (it != span.begin()) out.first = std::max<char32_t>(out.first, (it - 1)->code + 1);
        break;
      }
      case Kind::kAutomaton: {
        const std::string_view alphabet = text_automata_[expression.left]->alphabet();
        const auto it = std::ranges::lower_bound(alphabet, code, {},
                                                 [](char c) { return static_cast<char32_t>(c); });
        if (it != alphabet.end() && static_cast<char32_t>(*it) == code) {
          out = {code, code};
          break;
        }
        if (it != alphabet.end())
          out.last = std::min<char32_t>(out.last, static_cast<char32_t>(*it) - 1);
        if (it != alphabet.begin())
          out.first = std::max<char32_t>(out.first, static_cast<char32_t>(*(it - 1)) + 1);
        break;
      }
      case Kind::kConcat:
        stack.push_back(expression.left);
        if (at(expression.left).has_empty) stack.push_back(expression.right);
        break;
      case Kind::kAny:
      case Kind::kAll:
        for (const Id part : list(top)) stack.push_back(part);
        break;
      case Kind::kNot:
      case Kind::kRepeat:
        stack.push_back(expression.left);
        break;
    }
    if (out.first == out.last) break;
  }
  spend(seen);
  return out;
}

LanguageStore::Id LanguageStore::step_slowly(Id id, char32_t code) {
  if (id == kNone || id == kEmpty || is_exhausted_) return kNone;
  if (code > kLastCode) return derive(id, code);
  const auto before = [](const auto& entry) { return entry.first.first; };
  {
    State& known = state(id);
    const auto it = std::ranges::upper_bound(known.ranges, code, {}, before);
    if (it != known.ranges.begin() && code <= (it - 1)->first.last) {
      if (code < 128 && known.ascii == nullptr && ++known.num_uses >= kManyUses) {
        known.ascii = std::make_unique<std::array<Id, 128>>();
        known.ascii->fill(kUnknown);
        for (const auto& [range, next] : known.ranges)
          for (char32_t c = range.first; c < 128 && c <= range.last; ++c) (*known.ascii)[c] = next;
        add_automaton_bytes(sizeof(*known.ascii));
      }
      return (it - 1)->second;
    }
  }
  return arc(id, code).next;
}

LanguageStore::Arc LanguageStore::arc(Id id, char32_t code) {
  if (id == kNone || id == kEmpty || is_exhausted_) return {{0, kLastCode}, kNone};
  if (code > kLastCode) return {{code, code}, derive(id, code)};
  const auto find = [code](const State& known) {
    return std::ranges::upper_bound(known.ranges, code, {},
                                    [](const auto& entry) { return entry.first.first; });
  };
  {
    const State& known = state(id);
    const auto it = find(known);
    if (it != known.ranges.begin() && code <= (it - 1)->first.last) {
      spend(1);
      return {(it - 1)->first, (it - 1)->second};
    }
  }
  const CodeRange range = interval(id, code);
  const Id next = derive(id, code);
  if (is_exhausted_) return {range, kNone};
  State& known = state(id);
  if (known.ascii != nullptr)
    for (char32_t c = range.first; c < 128 && c <= range.last; ++c) (*known.ascii)[c] = next;
  const auto it = find(known);
  if ((it == known.ranges.begin() || (it - 1)->first.last < range.first) &&
      (it == known.ranges.end() || range.last < it->first.first)) {
    known.ranges.insert(it, {range, next});
    add_automaton_bytes(sizeof(known.ranges[0]));
  }
  return {range, next};
}

LanguageStore::Id LanguageStore::derive_one(Id id, char32_t code) {
  const Expression expression = at(id);
  switch (expression.kind) {
    case Kind::kNone:
    case Kind::kEmpty:
      return kNone;
    case Kind::kChars: {
      const std::span<const CodeRange> ranges = set(id);
      const auto it = std::ranges::upper_bound(ranges, code, {}, &CodeRange::first);
      return it != ranges.begin() && code <= (it - 1)->last ? kEmpty : kNone;
    }
    case Kind::kTrie: {
      const std::span<const Child> span = children(id);
      const auto it = std::ranges::lower_bound(span, code, {}, &Child::code);
      return it != span.end() && it->code == code ? it->next : kNone;
    }
    case Kind::kConcat: {
      const Id left = concat(derived(expression.left), expression.right);
      if (!at(expression.left).has_empty) return left;
      return any_of({left, derived(expression.right)});
    }
    case Kind::kAny:
    case Kind::kAll: {
      const std::span<const Id> span = list(id);
      parts_.clear();
      for (const Id part : span) parts_.push_back(derived(part));
      return expression.kind == Kind::kAny ? any_of(parts_) : all_of(parts_);
    }
    case Kind::kNot:
      return complement(derived(expression.left));
    case Kind::kRepeat: {
      const Id first = derived(expression.left);
      if (first == kNone) return kNone;
      return concat(first, repeat(expression.left, expression.min == 0 ? 0 : expression.min - 1,
                                  expression.max == kUnbounded ? kUnbounded : expression.max - 1));
    }
    case Kind::kAutomaton: {
      const TextAutomaton& automaton = *text_automata_[expression.left];
      if (code >= 0x80 ||
          automaton.alphabet().find(static_cast<char>(code)) == std::string_view::npos)
        return kNone;
      return state_of_automaton(
          expression.left, automaton.step(text_states_[expression.right], static_cast<char>(code)));
    }
  }
  return kNone;
}

// The derivative, parts first, with a stack of its own.
LanguageStore::Id LanguageStore::derive(Id id, char32_t code) {
  if (++derived_stamp_ == 0) {  // wrapped around
    derived_.clear();
    derived_stamp_ = 1;
  }
  std::vector<Id>& stack = derive_stack_;
  stack.assign(1, id);
  while (!stack.empty()) {
    const Id top = stack.back();
    if (is_derived(top)) {
      stack.pop_back();
      continue;
    }
    const std::size_t before = stack.size();
    const auto need = [&](Id part) {
      if (!is_derived(part)) stack.push_back(part);
    };
    const Expression& expression = at(top);
    switch (expression.kind) {
      case Kind::kConcat:
        need(expression.left);
        if (at(expression.left).has_empty) need(expression.right);
        break;
      case Kind::kAny:
      case Kind::kAll:
        for (const Id part : list(top)) need(part);
        break;
      case Kind::kNot:
      case Kind::kRepeat:
        need(expression.left);
        break;
      default:
        break;
    }
    if (stack.size() > before) continue;
    if (!spend(1)) return kNone;
    const Id result = derive_one(top, code);
    if (derived_.size() <= top) derived_.resize(expressions_.size() * 5 / 4 + 64);
    derived_[top] = {derived_stamp_, result};
    stack.pop_back();
  }
  return derived(id);
}

bool LanguageStore::explore_live(Id id) {
  if (id == kNone) return false;
  if (const std::int8_t live = state(id).live; live >= 0) return live != 0;
  std::unordered_map<Id, Id> parent = {{id, id}};
  std::deque<Id> open = {id};
  const auto is_plainly_live = [&](Id of) {
    return accepts(of) || at(of).is_positive || state(of).live == 1;
  };
  Id found = is_plainly_live(id) ? id : kNone;
  // The nearest state and the newest one in turn: some languages have a short word and some a
  // single long one.
  for (bool is_newest = false; !open.empty() && found == kNone; is_newest = !is_newest) {
    const Id top = is_newest ? open.back() : open.front();
    is_newest ? open.pop_back() : open.pop_front();
    for (char32_t code = 0; code <= kLastCode && found == kNone;) {
      const auto [range, to] = arc(top, code);
      if (is_exhausted_) return false;
      if (to != kNone && state(to).live != 0 && parent.try_emplace(to, top).second) {
        open.push_back(to);
        if (is_plainly_live(to)) found = to;
      }
      code = after(range.last);
      if (code >= 0xD800 && code < 0xE000) code = 0xE000;
    }
  }
  if (found == kNone) {
    for (const auto& [dead, unused] : parent) state(dead).live = 0;
    return false;
  }
  for (Id up = found;; up = parent[up]) {
    state(up).live = 1;
    if (up == id) break;
  }
  return true;
}

bool LanguageStore::graph(Id id, std::size_t max_states, Graph& out) {
  out = {};
  if (!is_live(id)) return !is_exhausted_;
  out.states.push_back(id);
  out.index.emplace(id, 0);
  for (std::size_t next = 0; next < out.states.size(); ++next) {
    const Id top = out.states[next];
    std::vector<std::uint32_t> edges;
    for (char32_t code = 0; code <= kLastCode;) {
      const auto [range, to] = arc(top, code);
      if (is_live(to)) {
        const auto [it, is_new] =
            out.index.try_emplace(to, static_cast<std::uint32_t>(out.states.size()));
        if (is_new) out.states.push_back(to);
        edges.push_back(it->second);
      }
      if (is_exhausted_) return false;
      code = after(range.last);
      if (code >= 0xD800 && code < 0xE000) code = 0xE000;
    }
    std::ranges::sort(edges);
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    out.next.push_back(std::move(edges));
    if (out.states.size() > max_states) return false;
  }
  return true;
}

}  // namespace sluice::grammar
