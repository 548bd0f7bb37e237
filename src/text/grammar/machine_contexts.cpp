// Contexts of the machine: those of a step become permanent, and the forms that masks share.
#include <algorithm>

#include "text/grammar/machine.h"

namespace sluice::grammar {

// The returns of a call, with those of the contexts that it includes. Included calls may include
// each other in a ring.
void Machine::gather(Call& call) {
  call.all = call.returns;
  std::vector<std::uint32_t> contexts = call.includes, seen;
  while (!contexts.empty()) {
    const std::uint32_t top = contexts.back();
    contexts.pop_back();
    if (std::ranges::find(seen, top) != seen.end()) continue;
    seen.push_back(top);
    if ((top & kTemporary) == 0) {
      const std::span<const Item> span = contexts_.at(top);
      call.all.insert(call.all.end(), span.begin(), span.end());
      continue;
    }
    const Call& included = calls_[top & ~kTemporary];
    call.all.insert(call.all.end(), included.returns.begin(), included.returns.end());
    contexts.insert(contexts.end(), included.includes.begin(), included.includes.end());
  }
  work_ += seen.size() + call.all.size();
}

std::uint32_t Machine::resolve(std::uint32_t context) {
  if ((context & kTemporary) == 0) return context;
  std::vector<std::uint32_t> stack = {context & ~kTemporary};
  while (!stack.empty()) {
    Call& top = calls_[stack.back()];
    if (top.progress == 0) {
      gather(top);
      top.progress = 1;
    }
    std::uint32_t missing = kNoStart;
    for (Item& back : top.all) {
      if ((back.context & kTemporary) == 0) continue;
      Call& needed = calls_[back.context & ~kTemporary];
      if (needed.progress == 2) {
        back.context = needed.context;
      } else {
        missing = back.context & ~kTemporary;
        break;
      }
    }
    if (missing != kNoStart) {
      // left recursion is removed before a program is made
      check(calls_[missing].progress == 0, "a body of the grammar calls itself without a byte");
      stack.push_back(missing);
      continue;
    }
    std::ranges::sort(top.all);
    top.all.erase(std::unique(top.all.begin(), top.all.end()), top.all.end());
    top.context = contexts_.add(top.all);
    top.progress = 2;
    stack.pop_back();
  }
  return calls_[context & ~kTemporary].context;
}

// A count of rounds behind which as many rounds may follow as bytes are looked at, seen from both
// bounds, is any other such count.
static std::uint64_t horizon_count(std::uint64_t count, std::uint64_t min, std::uint64_t max,
                                   std::uint64_t horizon) {
  if (max != kUnbounded && max - std::min(count, max) <= horizon) return count;
  if (count < min) return min - count > horizon ? min - std::min(min, horizon + 1) : count;
  return max == kUnbounded || max - min > horizon ? min : count;
}

Item Machine::horizon_item(const Item& item, std::uint64_t horizon) {
  Item out = item;
  const Instruction& instruction = program_.code[item.place];
  if (instruction.op == Op::kRepeated) {
    const RepeatLoop& loop = program_.repeats[instruction.a];
    const std::uint64_t max = loop.max == RepeatLoop::kMany ? kUnbounded : loop.max;
    out.data = static_cast<std::uint32_t>(horizon_count(item.data, loop.min, max, horizon));
  } else if (instruction.op == Op::kChecked) {
    out.data = kNoStart;
  } else if (instruction.op == Op::kText) {
    TextPlace at = text_place(item);
    if (!at.leaf->has_bounds())
      at.language = store_.horizon_form(at.language, horizon);
    else if (at.leaf->language == LanguageStore::kAnyText)
      at.count = horizon_count(at.count, at.leaf->min, at.leaf->max, horizon);
    out.data = pack_text(at);
  } else if (instruction.op == Op::kObjectExtra &&
             program_.objects[instruction.a].distinct_extras) {
    out.data = pack(data_.at(item.data)[0].value, kNoStart);
  }
  return out;
}

std::uint32_t Machine::horizon_context(std::uint32_t context, std::uint64_t horizon) {
  std::vector<std::uint32_t> stack = {context};
  while (!stack.empty()) {
    const std::uint32_t top = stack.back();
    if (horizon_contexts_.contains(top)) {
      stack.pop_back();
      continue;
    }
    if (top == 0) {
      horizon_contexts_.emplace(0, 0);
      continue;
    }
    const std::size_t before = stack.size();
    for (const Item& back : contexts_.at(top))
      if (!horizon_contexts_.contains(back.context)) stack.push_back(back.context);
    if (stack.size() > before) continue;
    const std::span<const Item> span = contexts_.at(top);
    std::vector<Item> items(span.begin(), span.end());
    for (Item& back : items) {
      back = horizon_item(back, horizon);
      back.context = horizon_contexts_.at(back.context);
    }
    std::ranges::sort(items);
    items.erase(std::unique(items.begin(), items.end()), items.end());
    horizon_contexts_.emplace(top, contexts_.add(items));
    stack.pop_back();
  }
  return horizon_contexts_.at(context);
}

StateId Machine::horizon_form(StateId state, std::uint64_t horizon) {
  if (horizon != horizon_) {
    horizon_contexts_.clear();
    horizon_states_.clear();
    horizon_ = horizon;
  }
  const auto it = horizon_states_.find(state);
  if (it != horizon_states_.end()) return it->second;
  const std::span<const Item> span = states_.at(state);
  std::vector<Item> items(span.begin(), span.end());
  for (Item& item : items) {
    item = horizon_item(item, horizon);
    item.context = horizon_context(item.context, horizon);
  }
  std::ranges::sort(items);
  items.erase(std::unique(items.begin(), items.end()), items.end());
  const StateId form = states_.add(items, states_.tag(state));
  if (transitions_.size() <= form) transitions_.resize(form + 1);
  horizon_states_.emplace(state, form);
  return form;
}

}  // namespace sluice::grammar
