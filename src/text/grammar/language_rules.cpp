// The rules by which expressions of equal languages become one expression. Each holds for every
// language; together they keep the states of common patterns few.
#include <algorithm>
#include <tuple>

#include "text/grammar/language_store.h"

namespace sluice::grammar {

namespace {

std::vector<CodeRange> intersection(std::span<const CodeRange> a, std::span<const CodeRange> b) {
  std::vector<CodeRange> out;
  for (std::size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    const CodeRange both{std::max(a[i].first, b[k].first), std::min(a[i].last, b[k].last)};
    if (both.first <= both.last) out.push_back(both);
    a[i].last < b[k].last ? ++i : ++k;
  }
  return out;
}

std::uint64_t sum_of(std::uint64_t a, std::uint64_t b) {
  return a == kUnbounded || b == kUnbounded || a > kUnbounded - b ? kUnbounded : a + b;
}

}  // namespace

LanguageStore::Id LanguageStore::concat(Id left, Id right) {
  if (at(left).kind != Kind::kConcat) return concat_one(left, right);
  // the parts of `left` from the last to the first
  std::vector<Id> parts;
  while (at(left).kind == Kind::kConcat) {
    parts.push_back(at(left).left);
    left = at(left).right;
  }
  parts.push_back(left);
  for (std::size_t i = parts.size(); i-- > 0;) right = concat_one(parts[i], right);
  return right;
}

LanguageStore::Id LanguageStore::concat_one(Id left, Id right) {
  if (left == kNone || right == kNone) return kNone;
  if (left == kEmpty) return right;
  if (right == kEmpty) return left;
  // r? . everything = everything, also in front of more
  const Id head = at(right).kind == Kind::kConcat ? at(right).left : right;
  if (head == kAnyText && at(left).has_empty) return right;
  if (left == kAnyText && at(right).has_empty) return kAnyText;
  // r{a,b} . r{c,d} = r{a+c,b+d}
  const auto as_repeat = [&](Id id) {
    const Expression& expression = at(id);
    if (expression.kind == Kind::kRepeat) return expression;
    return Expression{.left = id, .min = 1, .max = 1};
  };
  const Expression first = as_repeat(left), second = as_repeat(head);
  if (first.left == second.left) {
    const Id both =
        repeat(first.left, sum_of(first.min, second.min), sum_of(first.max, second.max));
    return head == right ? both : concat_one(both, at(right).right);
  }
  return add({.kind = Kind::kConcat,
              .has_empty = at(left).has_empty && at(right).has_empty,
              .is_positive = at(left).is_positive && at(right).is_positive,
              .left = left,
              .right = right},
             {}, {});
}

LanguageStore::Id LanguageStore::repeat(Id of, std::uint64_t min, std::uint64_t max) {
  const Expression inner = at(of);
  if (max == 0 || of == kEmpty) return kEmpty;
  if (of == kNone) return min == 0 ? kEmpty : kNone;
  if (min == 1 && max == 1) return of;
  if (inner.has_empty) min = 0;
  if (inner.kind == Kind::kRepeat && inner.min <= 1 && inner.max == kUnbounded) {
    // (r*){m,n} = r*, (r+){m,n} = r{m,}
    return inner.min == 0 ? of : repeat(inner.left, min, kUnbounded);
  }
  if (of == kAnyText) return kAnyText;
  if (inner.kind == Kind::kRepeat && inner.min == 0) {  // (r{0,a}){0,b} = r{0,ab}
    const bool fits = max != kUnbounded && inner.max <= kUnbounded / max;
    return repeat(inner.left, 0, fits ? inner.max * max : kUnbounded);
  }
  return add({.kind = Kind::kRepeat,
              .has_empty = min == 0,
              .is_positive = inner.is_positive,
              .left = of,
              .min = min,
              .max = max},
             {}, {});
}

LanguageStore::Id LanguageStore::complement(Id of) {
  if (of == kNone) return kAnyText;
  if (of == kAnyText) return kNone;
  if (at(of).kind == Kind::kNot) return at(of).left;
  return add({.kind = Kind::kNot, .has_empty = !at(of).has_empty, .left = of}, {}, {});
}

// Makes one set of the sets among `parts`.
void LanguageStore::merge_sets(std::vector<Id>& parts, bool all) {
  const auto is_set = [&](Id id) { return at(id).kind == Kind::kChars; };
  if (std::ranges::count_if(parts, is_set) < 2) return;
  std::vector<CodeRange> merged;
  bool is_first = true;
  for (const Id part : parts) {
    if (!is_set(part)) continue;
    const std::span<const CodeRange> ranges = set(part);
    if (all && !is_first)
      merged = intersection(merged, ranges);
    else
      merged.insert(merged.end(), ranges.begin(), ranges.end());
    is_first = false;
  }
  std::erase_if(parts, is_set);
  parts.push_back(chars(std::move(merged)));
}

// r{a,b}t | r{c,d}t = r{min(a,c),max(b,d)}t where the intervals touch; also r = r{1,1}, and the
// empty text beside r{1,b}.
void LanguageStore::merge_repeats(std::vector<Id>& parts) {
  struct Counted {
    Id body, tail;
    std::uint64_t min, max;
    Id whole;
  };
  const auto is_counted = [&](Id part) {
    const Id body = at(part).kind == Kind::kConcat ? at(part).left : part;
    return at(body).kind == Kind::kRepeat;
  };
  if (std::ranges::none_of(parts, is_counted)) return;
  std::vector<Counted> counted;
  counted.reserve(parts.size());
  bool has_empty = false;
  for (const Id part : parts) {
    Counted entry{part, kEmpty, 1, 1, part};
    if (part == kEmpty) {
      has_empty = true;
      continue;
    }
    if (at(part).kind == Kind::kConcat) {
      entry.body = at(part).left;
      entry.tail = at(part).right;
    }
    if (const Expression& body = at(entry.body); body.kind == Kind::kRepeat) {
      entry.min = body.min;
      entry.max = body.max;
      entry.body = body.left;
    }
    counted.push_back(entry);
  }
  std::ranges::sort(counted, [](const Counted& a, const Counted& b) {
    return std::tie(a.body, a.tail, a.min, a.max) < std::tie(b.body, b.tail, b.min, b.max);
  });
  std::size_t num_merged = 0;
  for (const Counted& entry : counted) {
    Counted* last = num_merged == 0 ? nullptr : &counted[num_merged - 1];
    if (last != nullptr && last->body == entry.body && last->tail == entry.tail &&
        (last->max == kUnbounded || entry.min <= last->max + 1)) {
      if (entry.max > last->max) last->max = entry.max;
      last->whole = kNone;
    } else {
      counted[num_merged++] = entry;
    }
  }
  counted.resize(num_merged);
  for (Counted& entry : counted) {
    if (!has_empty || entry.tail != kEmpty || entry.min != 1 || entry.whole == entry.body) continue;
    entry.min = 0;
    entry.whole = kNone;
    has_empty = false;
  }
  parts.clear();
  if (has_empty) parts.push_back(kEmpty);
  for (const Counted& entry : counted)
    parts.push_back(entry.whole != kNone
                        ? entry.whole
                        : concat(repeat(entry.body, entry.min, entry.max), entry.tail));
}

LanguageStore::Id LanguageStore::any_of(std::span<const Id> parts) {
  std::vector<Id>& flat = flat_;
  flat.clear();
  for (const Id part : parts) {
    if (part == kAnyText) return kAnyText;
    if (part == kNone) continue;
    if (at(part).kind == Kind::kAny) {
      const std::span<const Id> inner = list(part);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else {
      flat.push_back(part);
    }
  }
  if (!spend(1 + flat.size())) return kNone;
  const auto tidy = [&] {
    std::ranges::sort(flat);
    flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  };
  tidy();
  merge_sets(flat, false);
  merge_repeats(flat);
  tidy();
  if (flat.size() > 1 && flat.front() == kEmpty &&
      std::any_of(flat.begin() + 1, flat.end(), [&](Id id) { return at(id).has_empty; }))
    flat.erase(flat.begin());
  if (flat.empty()) return kNone;
  if (flat.size() == 1) return flat.front();
  Expression any{.kind = Kind::kAny, .is_positive = true};
  for (const Id part : flat) {
    any.has_empty |= at(part).has_empty;
    any.is_positive &= at(part).is_positive;
  }
  return add(any, flat, {});
}

LanguageStore::Id LanguageStore::all_of(std::span<const Id> parts) {
  std::vector<Id>& flat = flat_;
  flat.clear();
  for (const Id part : parts) {
    if (part == kNone) return kNone;
    if (part == kAnyText) continue;
    if (at(part).kind == Kind::kAll) {
      const std::span<const Id> inner = list(part);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else {
      flat.push_back(part);
    }
  }
  if (!spend(1 + flat.size())) return kNone;
  merge_sets(flat, true);
  std::ranges::sort(flat);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return kAnyText;
  if (flat.front() == kNone) return kNone;
  if (flat.size() == 1) return flat.front();
  const bool has_empty = std::ranges::all_of(flat, [&](Id id) { return at(id).has_empty; });
  if (flat.front() == kEmpty) return has_empty ? kEmpty : kNone;
  for (const Id part : flat)
    if (at(part).kind == Kind::kNot && std::ranges::binary_search(flat, at(part).left))
      return kNone;
  return add({.kind = Kind::kAll, .has_empty = has_empty}, flat, {});
}

}  // namespace sluice::grammar
