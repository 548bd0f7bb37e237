// Text leaves of the machine: characters and their spellings.
#include <algorithm>

#include "text/grammar/machine.h"

namespace sluice::grammar {

std::uint32_t Machine::pack_text(const TextPlace& at) {
  return pack(at.language, at.count, at.spelling.pack());
}

Machine::TextPlace Machine::text_place(const Item& item) const {
  const std::span<const Word> words = data_.at(item.data);
  return {&program_.texts[program_.code[item.place].a],
          static_cast<LanguageStore::Id>(words[0].value), words[1].value,
          Spelling::unpack(words[2].value)};
}

Item Machine::text_item(const Item& like, const TextPlace& at) {
  return {like.place, pack_text(at), like.context};
}

StateId Machine::state_behind(const Item& text) {
  clear();
  text_ = {{}, false};
  push(text.place + 1, 0, text.context);
  close();
  return is_unknown_ || is_conditional_ ? kUnknown : finish();
}

bool Machine::begins_with(StateId state, unsigned char byte) const {
  return std::ranges::all_of(states_.at(state), [&](const Item& item) {
    const Instruction& instruction = program_.code[item.place];
    return instruction.op == Op::kBytes &&
           static_cast<unsigned char>(program_.strings[instruction.a][item.data]) == byte;
  });
}

std::optional<std::uint64_t> Machine::slack(const Item& item) {
  const std::uint32_t leaf = program_.code[item.place].a;
  const auto known = slacks_.find(leaf);
  if (known != slacks_.end()) return known->second;
  const TextLeaf& text = program_.texts[leaf];
  std::optional<std::uint64_t> slack;
  if (text.language == LanguageStore::kAnyText) {
    slack = 0;
  } else {
    auto it = lengths_.find(leaf);
    if (it == lengths_.end()) it = lengths_.emplace(leaf, Lengths(store_, text.language)).first;
    slack = it->second.slack();
  }
  slacks_.emplace(leaf, slack);
  return slack;
}

// Between two characters: the text may end here, or go on.
void Machine::enter_text(Place place, const TextPlace& at, std::uint32_t context) {
  if (store_.accepts(at.language) && at.count >= at.leaf->min) push(place + 1, 0, context);
  if (at.language == LanguageStore::kEmpty || at.count == at.leaf->max) return;
  activate(place, pack_text(at), context);
}

// Whether a text of the leaf can be finished from `language` on, `count` characters in.
bool Machine::can_finish(std::uint32_t leaf, LanguageStore::Id language, std::uint64_t count) {
  const TextLeaf& text = program_.texts[leaf];
  if (!text.has_bounds()) return store_.is_live(language);
  if (count > text.max) return false;
  if (language == LanguageStore::kAnyText) return true;
  auto it = lengths_.find(leaf);
  if (it == lengths_.end()) it = lengths_.emplace(leaf, Lengths(store_, text.language)).first;
  const std::uint64_t max = text.max == kUnbounded ? kUnbounded : text.max - count;
  return it->second.has(language, text.min > count ? text.min - count : 0, max);
}

bool Machine::can_follow(LanguageStore::Id language, char32_t first, char32_t last) {
  if (language == LanguageStore::kAnyText) return true;
  for (char32_t code = first; code <= last;) {
    const auto [range, next] = store_.arc(language, code);
    if (next != LanguageStore::kNone && store_.is_live(next)) return true;
    if (first == last || is_exhausted()) return false;
    code = range.last + 1;
    if (spelling::is_surrogate(code)) code = 0xE000;
  }
  return false;
}

bool Machine::may_follow(const TextPlace& at, std::uint32_t leaf, char32_t first, char32_t last) {
  if (at.count == at.leaf->max) return false;
  if (at.language == LanguageStore::kAnyText) return true;
  for (char32_t code = first; code <= last;) {
    const auto [range, next] = store_.arc(at.language, code);
    if (next != LanguageStore::kNone && can_finish(leaf, next, at.count + 1)) return true;
    if (first == last || is_exhausted()) return false;
    code = range.last + 1;
    if (spelling::is_surrogate(code)) code = 0xE000;
  }
  return false;
}

void Machine::advance_text(const Item& item, unsigned char byte) {
  TextPlace at = text_place(item);
  const std::uint32_t leaf = program_.code[item.place].a;
  const SpellingStep next = spelling::step(
      at.spelling, byte, at.leaf->is_json,
      [&](char32_t first, char32_t last) { return may_follow(at, leaf, first, last); });
  ++work_;
  if (!next.is_possible) return;
  at.spelling = next.spelling;
  if (!next.is_whole) {
    activate(item.place, pack_text(at), item.context);
    return;
  }
  at.language = store_.step(at.language, next.code);
  if (at.leaf->has_bounds()) {
    ++at.count;
    if (at.leaf->max == kUnbounded) at.count = std::min(at.count, at.leaf->min);
  }
  enter_text(item.place, at, item.context);
}

void Machine::add_first_bytes(const Item& item, ByteSet& bytes) {
  const Instruction& instruction = program_.code[item.place];
  const auto add_all = [&](std::string_view all) {
    for (const char c : all) bytes.set(static_cast<unsigned char>(c));
  };
  const auto add_range = [&](int first, int last) {
    for (int byte = first; byte <= last; ++byte) bytes.set(static_cast<std::size_t>(byte));
  };
  // false: between two characters
  const auto add_inner = [&](Spelling::Kind kind) {
    if (kind == Spelling::kBoundary) return false;
    if (kind == Spelling::kUtf8) add_range(0x80, 0xBF);
    if (kind == Spelling::kBackslash) add_all("\"\\/bfnrtu");
    if (kind == Spelling::kHex || kind == Spelling::kLow) add_all("0123456789abcdefABCDEF");
    if (kind == Spelling::kHigh) bytes.set('\\');
    if (kind == Spelling::kHighBackslash) bytes.set('u');
    return true;
  };
  switch (instruction.op) {
    case Op::kBytes:
      bytes.set(static_cast<unsigned char>(program_.strings[instruction.a][item.data]));
      return;
    case Op::kObjectComma:
      bytes.set(',');
      return;
    case Op::kObjectQuote:
      bytes.set('"');
      return;
    case Op::kObjectKeyText: {
      const std::span<const Word> words = data_.at(item.data);
      if (add_inner(Spelling::unpack(words[2].value).kind)) return;
      const KeyTree& keys = program_.objects[instruction.a].keys;
      const KeyTree::Node& node = keys.nodes[words[0].value];
      if (node.member >= 0) bytes.set('"');
      bytes.set('\\');
      for (std::uint32_t i = 0; i < node.num_children; ++i) {
        const char32_t code = keys.children[node.first_child + i].code;
        if (code < 0x80)
          bytes.set(code);
        else
          add_range(0xC2, 0xF4);
      }
      return;
    }
    case Op::kText: {
      const TextPlace at = text_place(item);
      if (add_inner(at.spelling.kind)) return;
      if (at.leaf->is_json) bytes.set('\\');
      for (char32_t code = 0; code <= 0x10FFFF;) {
        const auto [range, next] = store_.arc(at.language, code);
        const char32_t last = range.last;
        if (next != LanguageStore::kNone) {
          for (char32_t c = code; c < 0x80 && c <= last; ++c) bytes.set(c);
          if (last >= 0x80) {
            add_range(0xC2, 0xF4);
            return;
          }
        }
        code = last + 1;
      }
      return;
    }
    default:
      bytes.set();
  }
}

}  // namespace sluice::grammar
