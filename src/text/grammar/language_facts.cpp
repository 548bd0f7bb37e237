// What can be told of a language without a look at all of its automaton.
#include <algorithm>

#include "text/grammar/language_store.h"

namespace sluice::grammar {
namespace {

constexpr char32_t kLastCode = 0x10FFFF;
// An automaton of more states is not looked through.
constexpr std::size_t kMaxStates = 64;

}  // namespace

bool LanguageStore::is_finite_by_form(Id id) const {
  const Expression& expression = at(id);
  switch (expression.kind) {
    case Kind::kNone:
    case Kind::kEmpty:
    case Kind::kChars:
    case Kind::kTrie:
      return true;
    case Kind::kAny:
      return std::ranges::all_of(list(id), [&](Id part) {
        const Kind kind = at(part).kind;
        return kind == Kind::kEmpty || kind == Kind::kChars || kind == Kind::kTrie;
      });
    default:
      return false;
  }
}

bool LanguageStore::never_dies_by_form(Id id) const {
  const auto is_any = [&](Id part) {
    if (part == kAnyText) return true;
    const Expression& expression = at(part);
    return expression.kind == Kind::kRepeat && expression.left == kAnyChar &&
           expression.max == kUnbounded;
  };
  const auto simple = [&](Id part) {
    if (is_any(part)) return true;
    const Expression& expression = at(part);
    if (expression.kind == Kind::kNot) return is_finite_by_form(expression.left);
    return expression.kind == Kind::kConcat && is_any(expression.left) &&
           at(expression.right).is_positive;
  };
  if (simple(id)) return true;
  const Expression& expression = at(id);
  if (expression.kind == Kind::kAny) return std::ranges::any_of(list(id), simple);
  // a finite number of texts is left out
  return expression.kind == Kind::kAll && std::ranges::all_of(list(id), [&](Id part) {
           return at(part).kind == Kind::kNot && is_finite_by_form(at(part).left);
         });
}

bool LanguageStore::never_dies(Id id) {
  if (id == kAnyText) return true;
  if (id == kNone || id == kEmpty) return false;
  if (never_dies_.size() <= id) never_dies_.resize(expressions_.size() + 64, -1);
  if (never_dies_[id] >= 0) return never_dies_[id] != 0;
  if (never_dies_by_form(id)) {
    never_dies_[id] = 1;
    return true;
  }
  std::vector<Id> queue = {id};
  bool dies = false;
  for (std::size_t next = 0; next < queue.size() && !dies; ++next) {
    const Id top = queue[next];
    for (char32_t code = 0; code <= kLastCode && !dies;) {
      const auto [range, to] = arc(top, code);
      dies = to == kNone || is_exhausted_ || queue.size() > kMaxStates || !is_live(to);
      if (!dies && to != kAnyText && std::ranges::find(queue, to) == queue.end()) {
        if (never_dies_.size() <= to) never_dies_.resize(expressions_.size() + 64, -1);
        dies = never_dies_[to] == 0;
        if (never_dies_[to] < 0) queue.push_back(to);
      }
      code = range.last + 1;
      if (code >= 0xD800 && code < 0xE000) code = 0xE000;
    }
  }
  if (never_dies_.size() <= expressions_.size()) never_dies_.resize(expressions_.size() + 64, -1);
  if (dies) never_dies_[id] = 0;
  if (!dies)
    for (const Id alive : queue) never_dies_[alive] = 1;
  return !dies;
}

}  // namespace sluice::grammar
