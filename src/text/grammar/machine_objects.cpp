// Objects of the machine: which keys may come, and which keys must.
#include <algorithm>
#include <bit>

#include "text/grammar/json_text.h"
#include "text/grammar/machine.h"

namespace sluice::grammar {

std::uint32_t Machine::pack_object(const ObjectState& state) {
  std::vector<Word> words = {{state.object}, {state.next}, {state.extra_keys}, {state.count}};
  for (const std::uint64_t word : state.seen) words.push_back({word});
  const std::uint32_t id = object_words_.add(words);
  if (id == object_states_.size()) {
    object_states_.push_back(state);
    table_bytes_ += sizeof(ObjectState) + state.seen.size() * 8;
  }
  return id;
}

const Machine::ObjectState& Machine::object_state(std::uint32_t id) {
  return object_states_[id];
}

namespace {

bool has(const std::vector<std::uint64_t>& bits, std::uint32_t member) {
  return member / 64 < bits.size() && (bits[member / 64] >> member % 64 & 1) != 0;
}
void set(std::vector<std::uint64_t>& bits, std::uint32_t member) {
  if (bits.size() <= member / 64) bits.resize(member / 64 + 1);
  bits[member / 64] |= std::uint64_t{1} << member % 64;
}

}  // namespace

Machine::ObjectState Machine::with_member(const ObjectState& state, std::uint32_t member) const {
  const ObjectProgram& object = program_.objects[state.object];
  ObjectState next = state;
  if (object.any_order || !object.needs.empty()) set(next.seen, member);
  if (!object.any_order) next.next = member + 1;
  if (object.counts) {
    ++next.count;
    if (object.max_keys == kUnbounded) next.count = std::min(next.count, object.min_keys);
  }
  return next;
}

// The number of members that must still come, and the first of them.
std::uint64_t Machine::num_missing(const ObjectState& state, std::uint32_t* first) const {
  const ObjectProgram& object = program_.objects[state.object];
  if (first != nullptr) *first = ~0u;
  if (object.needs.empty()) {
    std::uint64_t missing = 0;
    std::uint32_t at = ~0u;
    if (!object.any_order) {
      missing = object.required_behind[state.next];
      at = object.next_required[state.next];
    } else {
      for (std::size_t word = object.required.size(); word-- > 0;) {
        const std::uint64_t seen = word < state.seen.size() ? state.seen[word] : 0;
        const std::uint64_t left = object.required[word] & ~seen;
        missing += static_cast<std::uint64_t>(std::popcount(left));
        if (left != 0)
          at = static_cast<std::uint32_t>(word * 64 +
                                          static_cast<std::size_t>(std::countr_zero(left)));
      }
    }
    if (first != nullptr) *first = at;
    return missing;
  }
  std::vector<std::uint64_t> needed = object.required;
  std::vector<std::uint32_t> stack;
  for (std::uint32_t i = 0; i < object.members.size(); ++i)
    if (has(state.seen, i) || has(needed, i)) stack.push_back(i);
  while (!stack.empty()) {
    const std::uint32_t member = stack.back();
    stack.pop_back();
    for (const std::uint32_t other : object.needs[member]) {
      if (has(needed, other)) continue;
      set(needed, other);
      stack.push_back(other);
    }
  }
  std::uint64_t missing = 0;
  for (std::uint32_t i = static_cast<std::uint32_t>(object.members.size()); i-- > 0;) {
    if (!has(needed, i) || has(state.seen, i)) continue;
    ++missing;
    if (first != nullptr) *first = i;
  }
  return missing;
}

// Whether the object can still be closed, now or behind more keys.
bool Machine::is_possible(const ObjectState& state) const {
  const ObjectProgram& object = program_.objects[state.object];
  std::uint32_t first = ~0u;
  const std::uint64_t missing = num_missing(state, &first);
  if (!object.any_order && first < state.next) return false;
  if (missing > object.max_keys || state.count > object.max_keys - missing) return false;
  if (object.has_extras || state.count >= object.min_keys) return true;
  std::uint64_t left = 0;
  for (std::uint32_t i = state.next; i < object.members.size(); ++i)
    if (object.members[i].is_allowed && !has(state.seen, i)) ++left;
  return left >= object.min_keys - state.count;
}

bool Machine::can_add(const ObjectState& state, std::uint32_t member) const {
  const ObjectProgram& object = program_.objects[state.object];
  if (!object.members[member].is_allowed || member < state.next || has(state.seen, member))
    return false;
  if (object.needs.empty() && !object.any_order && member > object.next_required[state.next])
    return false;                              // a required member would be left out
  if (object.needs.empty() && !object.counts)  // the common case: only what must not be left out
    return object.any_order || member <= object.next_required[state.next];
  if (object.counts && state.count >= object.max_keys) return false;
  return is_possible(with_member(state, member));
}

bool Machine::can_add_extra(const ObjectState& state) const {
  const ObjectProgram& object = program_.objects[state.object];
  if (!object.has_extras) return false;
  if (!object.any_order && num_missing(state, nullptr) != 0) return false;
  if (!object.counts) return true;
  if (state.count >= object.max_keys) return false;
  ObjectState next = state;
  ++next.count;
  return is_possible(next);
}

bool Machine::can_add_any(const ObjectState& state) const {
  return can_add_extra(state) || any_below(state, 0);
}

bool Machine::can_close(const ObjectState& state) const {
  return state.count >= program_.objects[state.object].min_keys && num_missing(state, nullptr) == 0;
}

// Whether a key that can be added is below a node of the tree of keys.
bool Machine::any_below(const ObjectState& state, std::uint32_t node) const {
  const KeyTree& keys = program_.objects[state.object].keys;
  for (std::uint32_t i = keys.nodes[node].begin; i < keys.nodes[node].end; ++i)
    if (can_add(state, keys.order[i])) return true;
  return false;
}

void Machine::call_or_skip(Place body, const Item& back) {
  if (program_.code[body].op == Op::kEnd)
    push(back.place, back.data, back.context);
  else
    call(body, back);
}

void Machine::process_object(const Item& item, const Instruction& instruction) {
  const std::uint32_t index = instruction.a;
  const ObjectProgram& object = program_.objects[index];
  switch (instruction.op) {
    case Op::kObject: {
      const std::uint32_t state = pack_object({.object = index});
      call_or_skip(object.space, {object.first, state, item.context});
      return;
    }
    case Op::kObjectFirst:
      if (can_close(object_state(item.data))) push(object.close, 0, item.context);
      push(object.key, item.data, item.context);
      return;
    case Op::kObjectMore:
      call_or_skip(object.space, {object.separator, item.data, item.context});
      return;
    case Op::kObjectSeparator:
      if (can_close(object_state(item.data))) push(object.close, 0, item.context);
      if (can_add_any(object_state(item.data))) activate(object.comma, item.data, item.context);
      return;
    case Op::kObjectKey:
      if (can_add_any(object_state(item.data))) activate(object.quote, item.data, item.context);
      return;
    case Op::kObjectColon: {
      const std::span<const Word> words = data_.at(item.data);
      const auto state = static_cast<std::uint32_t>(words[0].value);
      call(object.members[words[1].value].body, {object.more, state, item.context});
      return;
    }
    case Op::kObjectExtra: {
      std::uint32_t state = item.data, begin = 0;
      if (object.distinct_extras) {
        state = static_cast<std::uint32_t>(data_.at(item.data)[0].value);
        begin = static_cast<std::uint32_t>(data_.at(item.data)[1].value);
      }
      std::uint32_t next = 0;
      if (!add_extra(ObjectState(object_state(state)), begin, next)) return;
      call(object.colon, {item.place + 1, next, item.context});
      return;
    }
    case Op::kObjectExtraColon:
      call(object.extras[instruction.b].value, {object.more, item.data, item.context});
      return;
    default:
      process_bare(item, instruction);
      return;
  }
}

void Machine::process_bare(const Item& item, const Instruction& instruction) {
  const ObjectProgram& object = program_.objects[instruction.a];
  switch (instruction.op) {
    case Op::kBare:
      push(object.first, pack_object({.object = instruction.a}), item.context);
      return;
    case Op::kBareFirst:
      if (can_close(object_state(item.data))) push(object.close, 0, item.context);
      push(object.key, item.data, item.context);
      return;
    case Op::kBareMore:
      if (can_close(object_state(item.data))) push(object.close, 0, item.context);
      if (can_add_any(object_state(item.data)))
        call_or_skip(object.space, {object.key, item.data, item.context});
      return;
    case Op::kBareNext: {
      const ObjectState state = object_state(item.data);
      for (std::uint32_t member = 0; member < object.members.size(); ++member)
        if (can_add(state, member))
          call(object.members[member].body,
               {object.more, pack_object(with_member(state, member)), item.context});
      return;
    }
    default:
      return;
  }
}

// The state behind the key of an extra that begins at `begin` of the text and ends before its last
// quote; false: the key was there before, or that is not known.
bool Machine::add_extra(const ObjectState& state, std::uint32_t begin, std::uint32_t& out) {
  const ObjectProgram& object = program_.objects[state.object];
  ObjectState next = state;
  if (!object.any_order) next.next = static_cast<std::uint32_t>(object.members.size());
  if (object.counts) {
    ++next.count;
    if (object.max_keys == kUnbounded) next.count = std::min(next.count, object.min_keys);
  }
  if (object.distinct_extras) {
    is_conditional_ = true;
    if (!text_.is_known || begin == kNoStart) {
      is_unknown_ = true;
      return false;
    }
    const std::string key = json_key(text_.bytes.substr(begin, text_.bytes.size() - begin - 1));
    const std::vector<std::string>& before = key_sets_[state.extra_keys & ~kTrialKeys];
    if ((state.extra_keys & kTrialKeys) != 0 || std::ranges::binary_search(before, key))
      return false;
    next.extra_keys = text_.is_trial ? state.extra_keys | kTrialKeys : key_set_of(before, key);
  }
  out = pack_object(next);
  return true;
}

// The id of `before` with one more key.
std::uint32_t Machine::key_set_of(std::vector<std::string> keys, const std::string& key) {
  keys.insert(std::ranges::lower_bound(keys, key), key);
  std::uint64_t hash = keys.size();
  for (const std::string& one : keys) hash = mix_hash(hash, std::hash<std::string>{}(one));
  const auto [begin, end] = key_set_ids_.equal_range(hash);
  for (auto it = begin; it != end; ++it)
    if (key_sets_[it->second] == keys) return it->second;
  const auto id = static_cast<std::uint32_t>(key_sets_.size());
  for (const std::string& one : keys) table_bytes_ += sizeof(std::string) + one.size();
  key_set_ids_.emplace(hash, id);
  key_sets_.push_back(std::move(keys));
  return id;
}

void Machine::advance_object(const Item& item, const Instruction& instruction, unsigned char byte) {
  const ObjectProgram& object = program_.objects[instruction.a];
  switch (instruction.op) {
    case Op::kObjectComma:
      if (byte == ',') call_or_skip(object.space, {object.key, item.data, item.context});
      return;
    case Op::kObjectQuote: {
      if (byte != '"') return;
      const ObjectState& state = object_state(item.data);
      const bool adds_extra = can_add_extra(state);
      if (any_below(state, 0))
        activate(object.key_text, pack(0, item.data, Spelling{}.pack()), item.context);
      if (!adds_extra) return;
      if (object.distinct_extras) is_conditional_ = true;
      for (std::size_t i = 0; i < object.extras.size(); ++i) {
        const std::uint32_t data = object.distinct_extras ? pack(item.data, start()) : item.data;
        call(object.extras[i].key, {object.extra + 2 * static_cast<Place>(i), data, item.context});
      }
      return;
    }
    case Op::kObjectKeyText:
      advance_key(item, object, byte);
      return;
    default:
      return;
  }
}

void Machine::advance_key(const Item& item, const ObjectProgram& object, unsigned char byte) {
  const std::span<const Word> words = data_.at(item.data);
  const auto node = static_cast<std::uint32_t>(words[0].value);
  const auto state_id = static_cast<std::uint32_t>(words[1].value);
  const Spelling from = Spelling::unpack(words[2].value);
  const KeyTree::Node& at = object.keys.nodes[node];
  if (from.kind == Spelling::kBoundary && byte == '"') {
    if (at.member < 0) return;
    const auto member = static_cast<std::uint32_t>(at.member);
    const ObjectState& state = object_state(state_id);
    if (!can_add(state, member)) return;
    const std::uint32_t next = pack_object(with_member(state, member));
    call(object.colon, {object.colon_end, pack(next, member), item.context});
    return;
  }
  const std::span<const KeyTree::Child> children =
      std::span(object.keys.children).subspan(at.first_child, at.num_children);
  const auto find = [&](char32_t code) {
    return std::ranges::lower_bound(children, code, {}, &KeyTree::Child::code);
  };
  const SpellingStep next = spelling::step(from, byte, true, [&](char32_t first, char32_t last) {
    for (auto it = find(first); it != children.end() && it->code <= last; ++it)
      if (any_below(object_state(state_id), it->node)) return true;
    return false;
  });
  if (!next.is_possible) return;
  const std::uint32_t to = next.is_whole ? find(next.code)->node : node;
  activate(item.place, pack(to, state_id, next.spelling.pack()), item.context);
}

}  // namespace sluice::grammar
