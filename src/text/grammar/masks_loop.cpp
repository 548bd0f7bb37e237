// Masks of texts that loop on kinds of characters.
#include <algorithm>

#include "text/grammar/masks.h"

namespace sluice::grammar {
namespace {

constexpr Text kNoText{{}, false};
// A loop on fewer kinds is walked as any other text.
constexpr std::uint32_t kMinLongest = 4;

}  // namespace

Masks::Loop Masks::loop_of(const Item& item) {
  const Machine::TextPlace at = machine_.text_place(item);
  const std::uint64_t key = std::uint64_t{at.language} << 1 | (at.leaf->is_json ? 1 : 0);
  const auto known = loops_.find(key);
  if (known != loops_.end()) return known->second;
  LanguageStore& store = machine_.languages();
  using Kind = LanguageStore::Kind;
  // r*, or the beginning of r{m,n}...: each character of r leads to what is as good
  Loop loop;
  const LanguageStore::Expression& whole = store.at(at.language);
  const LanguageStore::Expression head = whole.kind == Kind::kConcat ? store.at(whole.left) : whole;
  const bool counts = head.kind == Kind::kRepeat && head.max != kUnbounded && whole.is_positive &&
                      store.at(head.left).kind == Kind::kChars;
  const LanguageStore::Id chars = head.left;
  if (counts) loop.limit = head.max;
  const auto stays = [&](char32_t code) {
    return counts ? store.step(chars, code) == LanguageStore::kEmpty
                  : store.step(at.language, code) == at.language;
  };
  std::uint64_t leaves = 0;
  for (char32_t c = 0; c < 128; ++c) {
    const bool is_spelled = !at.leaf->is_json || (c >= 0x20 && c != '"' && c != '\\');
    const std::uint64_t kind = Vocabulary::kind_of(static_cast<unsigned char>(c));
    (is_spelled && stays(c) ? loop.kinds : leaves) |= kind;
  }
  bool has_wide = true;
  for (char32_t code = 0x80; has_wide && code <= 0x10FFFF;) {
    has_wide = stays(code);
    code = store.interval(counts ? chars : at.language, code).last + 1;
    if (spelling::is_surrogate(code)) code = 0xE000;
  }
  loop.kinds &= ~leaves;
  if (has_wide) loop.kinds |= Vocabulary::kWide;
  loops_.emplace(key, loop);
  return loop;
}

// False: the item is no such text.
bool Masks::walk_loop(const Item& item, std::span<std::uint32_t> bits,
                      std::vector<std::int32_t>& unknown) {
  if (!machine_.is_text(item)) return false;
  const Machine::TextPlace place = machine_.text_place(item);
  if (place.leaf->has_bounds() || place.spelling.kind != Spelling::kBoundary) return false;
  const Loop loop = loop_of(item);
  if (loop.kinds == 0) return false;
  std::vector<std::uint32_t> own(bits.size());
  const std::uint32_t longest = vocabulary_.add_kinds(own, loop.kinds);
  if (longest < kMinLongest || longest > loop.limit) return false;
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] |= own[i];

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
      if (to == Machine::kUnknown) add_subtree(node, unknown);
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
  return true;
}

}  // namespace sluice::grammar
