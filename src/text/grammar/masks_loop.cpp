// Masks of texts that loop on kinds of characters.
#include <algorithm>
#include <bit>

#include "text/grammar/masks.h"

namespace sluice::grammar {
namespace {

constexpr Text kNoText{{}, false};
// A loop on fewer kinds is walked as any other text.
constexpr std::uint32_t kMinLongest = 4;

// The kinds of which every character fulfils `holds`; a JSON text has no kinds that it must escape.
template <class Holds>
std::uint64_t kinds_where(LanguageStore& store, LanguageStore::Id intervals_of, bool is_json,
                          Holds holds) {
  std::uint64_t kinds = 0, others = 0;
  for (char32_t c = 0; c < 128; ++c) {
    const bool is_spelled = !is_json || (c >= 0x20 && c != '"' && c != '\\');
    const std::uint64_t kind = Vocabulary::kind_of(static_cast<unsigned char>(c));
    (is_spelled && holds(c) ? kinds : others) |= kind;
  }
  bool has_wide = true;
  for (char32_t code = 0x80; has_wide && code <= 0x10FFFF;) {
    has_wide = holds(code);
    code = store.interval(intervals_of, code).last + 1;
    if (spelling::is_surrogate(code)) code = 0xE000;
  }
  kinds &= ~others;
  return has_wide ? kinds | Vocabulary::kWide : kinds;
}

}  // namespace

Masks::Loop Masks::loop_of(Id language, bool is_json) {
  const std::uint64_t key = std::uint64_t{language} << 1 | (is_json ? 1 : 0);
  const auto known = loops_.find(key);
  if (known != loops_.end()) return known->second;
  LanguageStore& store = machine_.languages();
  using Kind = LanguageStore::Kind;
  // r*, or the beginning of r{m,n}...: each character of r leads to what is as good
  Loop loop;
  const LanguageStore::Expression& whole = store.at(language);
  const LanguageStore::Expression head = whole.kind == Kind::kConcat ? store.at(whole.left) : whole;
  const bool counts = head.kind == Kind::kRepeat && head.max != kUnbounded && whole.is_positive &&
                      store.at(head.left).kind == Kind::kChars;
  if (counts) {
    loop.limit = head.max;
    loop.kinds = kinds_where(store, head.left, is_json, [&](char32_t code) {
      return store.step(head.left, code) == LanguageStore::kEmpty;
    });
  } else {
    loop.kinds = kinds_to(language, language, is_json);
  }
  loops_.emplace(key, loop);
  return loop;
}

std::uint64_t Masks::kinds_to(Id language, Id to, bool is_json) {
  LanguageStore& store = machine_.languages();
  return kinds_where(store, language, is_json,
                     [&](char32_t code) { return store.step(language, code) == to; });
}

Masks::Loop Masks::entered_loop(Id language, bool is_json) {
  Loop best = loop_of(language, is_json);
  if (best.kinds != 0) return best;
  LanguageStore& store = machine_.languages();
  for (const char32_t code : {U'a', U'A', U'0', U' '}) {
    const Id next = store.step(language, code);
    if (next == LanguageStore::kNone || !store.is_live(next)) continue;
    Loop loop = loop_of(next, is_json);
    if (loop.kinds == 0) continue;
    loop.kinds &= kinds_to(language, next, is_json);
    if (std::popcount(loop.kinds) > std::popcount(best.kinds)) best = loop;
  }
  return best;
}

// False: the item is no such text.
bool Masks::walk_loop(const Item& item, Entry& entry) {
  if (!machine_.is_text(item)) return false;
  const Machine::TextPlace place = machine_.text_place(item);
  if (place.leaf->has_bounds() || place.spelling.kind != Spelling::kBoundary) return false;
  const Loop loop = loop_of(place.language, place.leaf->is_json);
  if (loop.kinds == 0) return false;
  std::vector<std::uint32_t> bits(vocabulary_.num_words());
  const std::uint32_t longest = vocabulary_.add_kinds(bits, loop.kinds);
  if (longest < kMinLongest || longest > loop.limit) return false;

  const Vocabulary::Trie& trie = vocabulary_.trie();
  const std::vector<Vocabulary::Below>& below = vocabulary_.below();
  path_[0] = machine_.state_of(std::span(&item, 1));
  in_loop_[0] = true;
  for (std::uint32_t node = 0; node < trie.size();) {
    const Vocabulary::Node& at = trie[node];
    const bool is_in_loop =
        in_loop_[at.depth - 1u] && (Vocabulary::kind_of(at.byte) & ~loop.kinds) == 0;
    if (is_in_loop && (below[node].kinds & ~loop.kinds) == 0) {
      node = at.end;
      continue;
    }
    const StateId to = machine_.step(path_[at.depth - 1u], at.byte, kNoText);
    if (to == Machine::kDead || to == Machine::kUnknown) {
      if (to == Machine::kUnknown) add_subtree(node, entry.unknown);
      node = at.end;
      continue;
    }
    path_[at.depth] = to;
    in_loop_[at.depth] = is_in_loop;
    for (std::int32_t token = at.token; token >= 0; token = vocabulary_.same(token))
      set_bit(bits, token);
    ++node;
    if (machine_.is_exhausted()) return true;
  }
  entry.pieces.push_back(piece_of(bits));
  return true;
}

}  // namespace sluice::grammar
