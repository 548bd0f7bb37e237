#include "text/grammar/language_lengths.h"

#include <algorithm>

namespace sluice::grammar {
namespace {

constexpr std::size_t kMaxStates = 20'000;
constexpr std::uint64_t kMaxBytes = 16 << 20;
constexpr std::uint64_t kMaxSlackSets = 2'000, kMaxSlackWork = 1'000'000;

using Id = LanguageStore::Id;

std::uint64_t sum_of(std::uint64_t a, std::uint64_t b) {
  return a > kUnbounded - b ? kUnbounded : a + b;
}
std::uint64_t product_of(std::uint64_t a, std::uint64_t b) {
  return b != 0 && a > kUnbounded / b ? kUnbounded : a * b;
}

// By the expression, parts first. Of an automaton's text one character is counted.
std::uint64_t shortest_of_positive(const LanguageStore& store, Id language) {
  using Kind = LanguageStore::Kind;
  std::unordered_map<Id, std::uint64_t> known = {{LanguageStore::kNone, kUnbounded},
                                                 {LanguageStore::kEmpty, 0}};
  std::vector<Id> stack = {language};
  while (!stack.empty()) {
    const Id top = stack.back();
    const LanguageStore::Expression& expression = store.at(top);
    std::uint64_t length = kUnbounded;
    const std::size_t before = stack.size();
    const auto get = [&](Id part) {
      const auto it = known.find(part);
      if (it != known.end()) return it->second;
      stack.push_back(part);
      return kUnbounded;
    };
    if (expression.has_empty) {
      length = 0;
    } else if (expression.kind == Kind::kChars) {
      length = 1;
    } else if (expression.kind == Kind::kTrie) {
      for (const LanguageStore::Child& child : store.children(top))
        length = std::min(length, sum_of(1, get(child.next)));
    } else if (expression.kind == Kind::kConcat) {
      const std::uint64_t left = get(expression.left);
      length = sum_of(left, get(expression.right));
    } else if (expression.kind == Kind::kAny) {
      for (const Id part : store.list(top)) length = std::min(length, get(part));
    } else if (expression.kind == Kind::kRepeat) {
      length = product_of(get(expression.left), expression.min);
    } else if (expression.kind == Kind::kAutomaton) {
      length = 1;  // at least: none has the empty text
    }
    if (stack.size() > before) continue;
    known.insert_or_assign(top, length);
    stack.pop_back();
  }
  return known[language];
}

}  // namespace

std::uint64_t shortest_length(LanguageStore& store, Id language) {
  if (store.at(language).is_positive) return shortest_of_positive(store, language);
  if (!store.is_live(language)) return kUnbounded;
  std::unordered_map<Id, std::uint64_t> length = {{language, 0}};
  std::vector<Id> queue = {language};
  for (std::size_t next = 0; next < queue.size(); ++next) {
    const Id top = queue[next];
    if (store.accepts(top)) return length[top];
    for (char32_t code = 0; code <= 0x10FFFF;) {
      const auto [range, to] = store.arc(top, code);
      if (store.is_exhausted()) return kUnbounded;
      if (store.is_live(to) && length.try_emplace(to, length[top] + 1).second) queue.push_back(to);
      code = range.last + 1;
      if (code >= 0xD800 && code < 0xE000) code = 0xE000;
    }
  }
  return kUnbounded;
}

bool Lengths::build() {
  if (is_built_) return true;
  is_built_ = true;
  if (!store_->graph(root_, kMaxStates, graph_)) {
    store_->exhaust();
    return false;
  }
  std::vector<std::uint64_t> accepting((graph_.states.size() + 63) / 64);
  for (std::size_t i = 0; i < graph_.states.size(); ++i)
    if (store_->accepts(graph_.states[i])) accepting[i / 64] |= std::uint64_t{1} << i % 64;
  sets_.push_back(std::move(accepting));
  bytes_ = graph_.states.size() * 64;
  return true;
}

void Lengths::extend() {
  const std::vector<std::uint64_t>& last = sets_.back();
  std::vector<std::uint64_t> next(last.size());
  std::uint64_t hash = 0, edges = 0;
  for (std::size_t i = 0; i < graph_.states.size(); ++i) {
    const bool reaches = std::ranges::any_of(
        graph_.next[i], [&](std::uint32_t to) { return last[to / 64] >> to % 64 & 1; });
    edges += graph_.next[i].size();
    if (reaches) next[i / 64] |= std::uint64_t{1} << i % 64;
  }
  for (const std::uint64_t word : next) hash = (hash ^ word) * 0x9E3779B97F4A7C15;
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (sets_[it->second] != next) continue;
    begin_ = it->second;
    period_ = sets_.size() - it->second;
    return;
  }
  bytes_ += next.size() * 8 + 48;
  if (bytes_ > kMaxBytes || !store_->spend(edges)) {
    store_->exhaust();
    return;
  }
  by_hash_.emplace(hash, sets_.size());
  sets_.push_back(std::move(next));
}

bool Lengths::contains(std::uint64_t length, std::uint32_t state) {
  while (period_ == 0 && length >= sets_.size()) {
    extend();
    if (store_->is_exhausted()) return false;
  }
  if (length >= sets_.size()) length = begin_ + (length - begin_) % period_;
  return sets_[length][state / 64] >> state % 64 & 1;
}

bool Lengths::has(Id state, std::uint64_t min, std::uint64_t max) {
  if (min > max || state == LanguageStore::kNone) return false;
  if (state == LanguageStore::kAnyText) return true;
  if (min == 0 && max == kUnbounded) return store_->is_live(state);
  if (!build()) return false;
  const auto it = graph_.index.find(state);
  if (it == graph_.index.end()) return false;  // nothing follows
  for (std::uint64_t length = min; length <= max; ++length) {
    if (contains(length, it->second)) return true;
    if (store_->is_exhausted()) return false;
    if (period_ != 0 && length >= std::max(min, begin_) + period_) return false;
    if (length == kUnbounded) break;
  }
  return false;
}

std::optional<std::uint64_t> Lengths::slack() {
  if (!build()) return std::nullopt;
  while (period_ == 0 && !store_->is_exhausted() && sets_.size() < kMaxSlackSets) extend();
  if (period_ == 0) return std::nullopt;
  const std::uint64_t end = begin_ + 2 * period_;
  if (end * graph_.states.size() > kMaxSlackWork) return std::nullopt;
  std::uint64_t slack = 0;
  for (std::uint32_t state = 0; state < graph_.states.size(); ++state) {
    std::uint64_t next = 0;  // behind the last length that is possible
    for (std::uint64_t length = 0; length < end; ++length) {
      if (!contains(length, state)) continue;
      slack = std::max(slack, length - next);
      next = length + 1;
    }
    if (next <= begin_ + period_) return std::nullopt;  // no text of the lengths that repeat
  }
  return slack;
}

}  // namespace sluice::grammar
