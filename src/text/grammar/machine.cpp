#include "text/grammar/machine.h"

#include <algorithm>

namespace sluice::grammar {

Machine::Machine(const Program& program, LanguageStore store, const Budget& budget)
    : program_(program),
      store_(std::move(store)),
      budget_(budget),
      call_of_body_(program.code.size()),
      call_stamp_(program.code.size()),
      seen_(256),
      seen_stamp_(256) {
  states_.add({}, 0);                     // kDead
  const Item root{program.accept, 0, 0};  // the context 0 returns to the end of the grammar
  contexts_.add(std::span(&root, 1));
  transitions_.resize(1);
  key_sets_.emplace_back();
}

void Machine::restart_work() {
  work_ = 0;
  store_.restart_work(budget_.max_step_work);
}

std::uint64_t Machine::bytes() const {
  return states_.bytes() + contexts_.bytes() + data_.bytes() + object_words_.bytes() +
         store_.bytes() + table_bytes_ + transitions_.size() * sizeof(Transitions) +
         horizon_states_.size() * 32 + horizon_contexts_.size() * 32;
}

StateId Machine::find(StateId state, unsigned char byte) const {
  const Transitions& known = transitions_[state];
  if (known.table != nullptr) return (*known.table)[byte];
  for (std::uint8_t i = 0; i < known.count; ++i)
    if (known.list[i].byte == byte) return known.list[i].to;
  return kEmptySlot;
}

void Machine::remember(StateId state, unsigned char byte, StateId to) {
  Transitions& known = transitions_[state];
  if (known.table == nullptr && known.count == kMaxListed) {
    known.table = std::make_unique<std::array<StateId, 256>>();
    known.table->fill(kEmptySlot);
    for (std::uint8_t i = 0; i < known.count; ++i)
      (*known.table)[known.list[i].byte] = known.list[i].to;
    known.list.reset();
    table_bytes_ += 256 * sizeof(StateId) - kMaxListed * sizeof(Edge);
  }
  if (known.table != nullptr) {
    (*known.table)[byte] = to;
    return;
  }
  if (known.count == known.capacity) {
    const auto capacity = static_cast<std::uint8_t>(known.capacity == 0 ? 2 : 2 * known.capacity);
    auto list = std::make_unique<Edge[]>(capacity);
    std::copy_n(known.list.get(), known.count, list.get());
    known.list = std::move(list);
    table_bytes_ += (capacity - known.capacity) * sizeof(Edge);
    known.capacity = capacity;
  }
  known.list[known.count++] = {to, byte};
}

void Machine::clear() {
  stack_.clear();
  active_.clear();
  num_calls_ = 0;
  num_seen_ = 0;
  ++stamp_;
  can_end_ = is_conditional_ = is_unknown_ = false;
}

StateId Machine::begin(Text text) {
  clear();
  text_ = text;
  push(program_.begin, 0, 0);
  close();
  return finish();
}

StateId Machine::state_of(std::span<const Item> items) {
  clear();
  active_.assign(items.begin(), items.end());
  return finish();
}

StateId Machine::state_at(const Item& item, Text text) {
  clear();
  text_ = text;
  push(item.place, item.data, item.context);
  close();
  return finish();
}

StateId Machine::step(StateId state, unsigned char byte, Text text) {
  if (const StateId known = find(state, byte); known != kEmptySlot) return known;
  clear();
  text_ = text;
  const std::span<const Item> span = states_.at(state);
  for (const Item& item : span) advance(item, byte);
  if (stack_.empty() && active_.empty() && !is_conditional_) {
    remember(state, byte, kDead);
    return kDead;
  }
  close();
  if (is_unknown_) return kUnknown;
  const bool is_conditional = is_conditional_;
  const StateId to = finish();
  if (!is_conditional && !is_exhausted()) remember(state, byte, to);
  return to;
}

void Machine::push(Place place, std::uint32_t data, std::uint32_t context) {
  if (num_seen_ * 2 >= seen_.size()) {  // grow
    std::vector<Item> old(seen_.size() * 2);
    std::vector<std::uint32_t> stamps(seen_.size() * 2);
    old.swap(seen_);
    stamps.swap(seen_stamp_);
    for (std::size_t i = 0; i < old.size(); ++i) {
      if (stamps[i] != stamp_) continue;
      std::size_t slot = old[i].hash_value(0) & (seen_.size() - 1);
      while (seen_stamp_[slot] == stamp_) slot = (slot + 1) & (seen_.size() - 1);
      seen_[slot] = old[i];
      seen_stamp_[slot] = stamp_;
    }
  }
  const Item item{place, data, context};
  std::size_t slot = item.hash_value(0) & (seen_.size() - 1);
  for (; seen_stamp_[slot] == stamp_; slot = (slot + 1) & (seen_.size() - 1))
    if (seen_[slot] == item) return;
  seen_[slot] = item;
  seen_stamp_[slot] = stamp_;
  ++num_seen_;
  stack_.push_back(item);
}

void Machine::advance(const Item& item, unsigned char byte) {
  const Instruction& instruction = program_.code[item.place];
  switch (instruction.op) {
    case Op::kBytes: {
      const std::string& bytes = program_.strings[instruction.a];
      if (static_cast<unsigned char>(bytes[item.data]) != byte) return;
      if (item.data + 1 == bytes.size())
        push(item.place + 1, 0, item.context);
      else
        activate(item.place, item.data + 1, item.context);
      return;
    }
    case Op::kText:
      advance_text(item, byte);
      return;
    default:
      advance_object(item, instruction, byte);
  }
}

void Machine::close() {
  while (!stack_.empty()) {
    const Item item = stack_.back();
    stack_.pop_back();
    if (++work_ > budget_.max_step_work) is_exhausted_ = true;
    if (is_exhausted() || is_unknown_) return;
    process(item);
  }
}

void Machine::process(const Item& item) {
  const Instruction& instruction = program_.code[item.place];
  switch (instruction.op) {
    case Op::kAccept:
      can_end_ = true;
      return;
    case Op::kEnd:
      end_body(item.context);
      return;
    case Op::kJump:
      push(instruction.a, 0, item.context);
      return;
    case Op::kSplit:
    case Op::kLoop:
      for (std::uint32_t i = 0; i < instruction.b; ++i)
        push(program_.targets[instruction.a + i], 0, item.context);
      return;
    case Op::kBytes:
      activate(item.place, 0, item.context);
      return;
    case Op::kText: {
      const TextLeaf& leaf = program_.texts[instruction.a];
      enter_text(item.place, {&leaf, leaf.language, 0, {}}, item.context);
      return;
    }
    case Op::kCall:
      if (instruction.b != 0)
        tail_call(instruction.a, item.context);
      else
        call(instruction.a, {item.place + 1, 0, item.context});
      return;
    case Op::kMark:
      push(item.place + 1, 0, item.context);
      return;
    case Op::kOpaque:
      call(instruction.a, {item.place + 1, 0, item.context});
      return;
    case Op::kRepeat: {
      const RepeatLoop& loop = program_.repeats[instruction.a];
      if (loop.min == 0) push(item.place + 2, 0, item.context);
      call(loop.body, {item.place + 1, 0, item.context});
      return;
    }
    case Op::kRepeated: {
      const RepeatLoop& loop = program_.repeats[instruction.a];
      std::uint32_t rounds = item.data + 1;
      if (loop.max == RepeatLoop::kMany) rounds = std::min(rounds, loop.min);
      if (rounds >= loop.min) push(item.place + 1, 0, item.context);
      if (rounds < loop.max) call(loop.body, {item.place, rounds, item.context});
      return;
    }
    case Op::kCheck:
      is_conditional_ = true;
      call(program_.checks[instruction.a].body, {item.place + 1, start(), item.context});
      return;
    case Op::kChecked:
    case Op::kGuard:
      run_check(item, instruction);
      return;
    default:
      process_object(item, instruction);
  }
}

std::uint32_t Machine::start() const {
  return text_.is_known ? static_cast<std::uint32_t>(text_.bytes.size()) : kNoStart;
}

void Machine::run_check(const Item& item, const Instruction& instruction) {
  is_conditional_ = true;
  if (!text_.is_known) {
    is_unknown_ = true;
    return;
  }
  const bool passes = instruction.op == Op::kGuard
                          ? is_viable(item.context)
                          : item.data != kNoStart && program_.checks[instruction.a].check->passes(
                                                         text_.bytes.substr(item.data));
  work_ += text_.bytes.size() / 16;
  if (passes) push(item.place + 1, 0, item.context);
}

// Whether the innermost checked value around a context may still pass; true where there is none.
bool Machine::is_viable(std::uint32_t context) {
  std::vector<std::uint32_t> contexts = {context};
  std::vector<bool> seen(contexts_.size());
  bool has_check = false;
  while (!contexts.empty()) {
    const std::uint32_t top = contexts.back();
    contexts.pop_back();
    if ((top & kTemporary) != 0) return true;  // a value that begins here
    if (seen[top]) continue;
    seen[top] = true;
    for (const Item& back : contexts_.at(top)) {
      const Instruction& instruction = program_.code[back.place];
      if (instruction.op != Op::kChecked) {
        if (back.place != program_.accept) contexts.push_back(back.context);
        continue;
      }
      has_check = true;
      if (back.data == kNoStart ||
          program_.checks[instruction.a].check->is_viable(text_.bytes.substr(back.data)))
        return true;
    }
  }
  return !has_check;
}

Machine::Call& Machine::call_of(Place body, std::uint32_t& id) {
  if (call_stamp_[body] == stamp_) {
    id = call_of_body_[body];
    return calls_[id];
  }
  call_stamp_[body] = stamp_;
  id = call_of_body_[body] = static_cast<std::uint32_t>(num_calls_++);
  if (calls_.size() < num_calls_) calls_.resize(num_calls_);
  Call& made = calls_[id];
  made.body = body;
  made.returns.clear();
  made.includes.clear();
  made.is_empty = false;
  made.progress = 0;
  push(body, 0, id | kTemporary);
  return made;
}

void Machine::call(Place body, const Item& back) {
  std::uint32_t id = 0;
  Call& made = call_of(body, id);
  made.returns.push_back(back);
  if (made.is_empty) come_back(back, true);
}

void Machine::tail_call(Place body, std::uint32_t context) {
  std::uint32_t id = 0;
  Call& made = call_of(body, id);
  if (context == (id | kTemporary)) return;
  if (std::ranges::find(made.includes, context) != made.includes.end()) return;
  made.includes.push_back(context);
  if (made.is_empty) end_body(context);
}

void Machine::come_back(const Item& to, bool is_empty) {
  const Instruction& instruction = program_.code[to.place];
  // A round without a byte: all rounds that are missing may be such.
  if (is_empty && instruction.op == Op::kRepeated)
    push(to.place + 1, 0, to.context);
  else
    push(to.place, to.data, to.context);
}

void Machine::end_body(std::uint32_t context) {
  std::vector<std::uint32_t> contexts = {context};
  while (!contexts.empty()) {
    const std::uint32_t top = contexts.back();
    contexts.pop_back();
    if ((top & kTemporary) == 0) {
      for (const Item& back : contexts_.at(top)) come_back(back, false);
      continue;
    }
    Call& ended = calls_[top & ~kTemporary];
    if (ended.is_empty) continue;
    ended.is_empty = true;
    for (const Item& back : ended.returns) come_back(back, true);
    contexts.insert(contexts.end(), ended.includes.begin(), ended.includes.end());
  }
}

StateId Machine::finish() {
  if (is_exhausted()) return kDead;
  for (Item& item : active_) item.context = resolve(item.context);
  std::ranges::sort(active_);
  active_.erase(std::unique(active_.begin(), active_.end()), active_.end());
  const StateId state = states_.add(active_, can_end_ ? 1 : 0);
  if (transitions_.size() <= state) transitions_.resize(state + 1);
  return state;
}

}  // namespace sluice::grammar
