// Masks of texts: what a language says about tokens, whatever stands around it.
#include <algorithm>
#include <bit>

#include "text/grammar/masks.h"

namespace sluice::grammar {
namespace {

constexpr Text kNoText{{}, false};
// A smaller part of the trie is walked as any other.
constexpr std::uint32_t kMinSubtree = 32;
constexpr std::size_t kFewRejected = 16;
constexpr std::uint64_t kLanguageBytes = 32;

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

// So many digits may follow, whichever they are, and a text goes on behind each.
std::uint64_t free_digits(const LanguageStore& store, LanguageStore::Id id, int depth) {
  constexpr int kMaxDepth = 8;
  using Kind = LanguageStore::Kind;
  const LanguageStore::Expression& whole = store.at(id);
  if (!whole.is_positive || depth > kMaxDepth) return 0;
  switch (whole.kind) {
    case Kind::kAutomaton:
      return store.free_digits(id);
    case Kind::kConcat:
      return free_digits(store, whole.left, depth + 1);
    case Kind::kRepeat: {
      if (store.at(whole.left).kind != Kind::kChars) return 0;
      const std::span<const CodeRange> set = store.set(whole.left);
      return set.size() == 1 && set[0].first == '0' && set[0].last == '9' ? whole.max : 0;
    }
    case Kind::kAny: {
      std::uint64_t most = 0;
      for (const LanguageStore::Id part : store.list(id))
        most = std::max(most, free_digits(store, part, depth + 1));
      return most;
    }
    default:
      return 0;
  }
}

}  // namespace

bool Masks::is_string(const Item& item) {
  if (!machine_.is_text(item)) return false;
  const Machine::TextPlace at = machine_.text_place(item);
  if (!at.leaf->is_json || at.spelling.kind != Spelling::kBoundary) return false;
  const std::uint64_t key = std::uint64_t{item.place} << 32 | item.context;
  const auto known = are_strings_.find(key);
  if (known != are_strings_.end()) return known->second;
  const StateId state = machine_.state_behind(item);
  const bool is_string = state != Machine::kUnknown && !machine_.items(state).empty() &&
                         machine_.begins_with(state, '"');
  are_strings_.emplace(key, is_string);
  return is_string;
}

bool Masks::is_bounded_string(const Item& item) {
  if (!is_string(item)) return false;
  const TextLeaf& leaf = *machine_.text_place(item).leaf;
  if (!leaf.has_bounds()) return false;
  const std::optional<std::uint64_t> slack = machine_.slack(item);
  return slack && (leaf.max == kUnbounded || leaf.max - leaf.min >= *slack);
}

bool Masks::is_last_text(const Item& item) {
  if (!machine_.is_text(item)) return false;
  const Machine::TextPlace at = machine_.text_place(item);
  if (at.leaf->is_json || at.leaf->has_bounds() || at.spelling.kind != Spelling::kBoundary)
    return false;
  const std::uint64_t key = std::uint64_t{item.place} << 32 | item.context;
  const auto known = are_strings_.find(key);
  if (known != are_strings_.end()) return known->second;
  const StateId state = machine_.state_behind(item);
  const bool is_last = state != Machine::kUnknown && machine_.items(state).empty();
  are_strings_.emplace(key, is_last);
  return is_last;
}

Masks::Room Masks::room_of(const Item& item) {
  const Machine::TextPlace at = machine_.text_place(item);
  Room room;
  if (!at.leaf->has_bounds()) return room;
  room.min = at.leaf->min - std::min(at.leaf->min, at.count);
  if (at.leaf->max == kUnbounded) return room;
  room.max = at.leaf->max - at.count;
  const std::uint64_t slack = machine_.slack(item).value_or(kUnbounded);
  room.safe = slack > room.max ? 0 : room.max - slack + 1;
  return room;
}

const Masks::Inside& Masks::inside_of(Id language) {
  auto it = insides_.find(language);
  if (it == insides_.end()) {
    Inside inside;
    if (machine_.languages().never_dies(language)) {
      inside.tokens = all_inside_;
    } else {
      own_.assign(vocabulary_.num_words(), 0);
      walk_language(language, true, own_);
      inside.tokens = piece_of(own_);
    }
    inside.accepts_all = language == LanguageStore::kAnyText;
    if (!inside.accepts_all) find_prefixes(language, inside);
    bytes_ += sizeof(Inside) + 32 + inside.accepts.size() / 8 + inside.rejects.size() * 4;
    it = insides_.emplace(language, std::move(inside)).first;
  }
  it->second.last_use = clock_;
  return it->second;
}

void Masks::find_prefixes(Id language, Inside& inside) {
  LanguageStore& store = machine_.languages();
  const std::vector<Vocabulary::PrefixNode>& nodes = vocabulary_.prefixes();
  const auto reject = [&](std::int32_t prefix) {
    if (prefix >= 0) inside.rejects.push_back(static_cast<std::uint32_t>(prefix));
  };
  if (!store.accepts(language)) reject(0);
  std::vector<Id> path = {language};
  for (std::uint32_t node = 0; node < nodes.size();) {
    const Vocabulary::PrefixNode& at = nodes[node];
    const Id next = store.step(path[at.depth - 1], at.code);
    if (next == LanguageStore::kNone) {
      for (std::uint32_t i = node; i < at.end; ++i) reject(nodes[i].prefix);
      node = at.end;
      continue;
    }
    if (next == LanguageStore::kAnyText) {
      node = at.end;
      continue;
    }
    if (path.size() <= at.depth) path.resize(at.depth + 1);
    path[at.depth] = next;
    if (at.prefix >= 0 && !store.accepts(next)) reject(at.prefix);
    ++node;
  }
  inside.rejects_few = inside.rejects.size() <= kFewRejected;
  if (inside.rejects_few) return;
  inside.accepts.assign(vocabulary_.num_prefixes(), true);
  for (const std::uint32_t prefix : inside.rejects) inside.accepts[prefix] = false;
  inside.rejects = {};
}

Masks::PieceRef Masks::last_text_of(Id language) {
  auto it = last_texts_.find(language);
  if (it == last_texts_.end()) {
    own_.assign(vocabulary_.num_words(), 0);
    walk_language(language, false, own_);
    it = last_texts_.emplace(language, piece_of(own_)).first;
  }
  return it->second;
}

const Masks::Behind& Masks::behind(const Item& item) {
  const StateId state = machine_.state_behind(item);
  const auto known = behinds_.find(state);
  if (known != behinds_.end()) {
    known->second.last_use = clock_;
    return known->second;
  }
  Behind behind;
  behind.last_use = clock_;
  behind.is_allowed.resize(vocabulary_.num_suffixes());
  behind.is_unknown.resize(vocabulary_.num_suffixes());
  const Vocabulary::Trie& trie = vocabulary_.suffixes();
  behind_path_[0] = state;
  std::vector<std::pair<bool, Machine::ByteSet>> first(behind_path_.size());
  for (std::uint32_t node = 0; node < trie.size();) {
    const Vocabulary::Node& at = trie[node];
    const auto& [is_known, bytes] = first[at.depth - 1u];
    if (is_known && !bytes.test(at.byte)) {
      node = at.end;
      continue;
    }
    const StateId to = machine_.step(behind_path_[at.depth - 1u], at.byte, kNoText);
    if (to == Machine::kDead || to == Machine::kUnknown) {
      for (std::uint32_t i = node; to == Machine::kUnknown && i < at.end; ++i) {
        if (trie[i].token < 0) continue;
        behind.unknown.push_back(static_cast<std::uint32_t>(trie[i].token));
        behind.is_unknown[behind.unknown.back()] = true;
      }
      node = at.end;
      continue;
    }
    behind_path_[at.depth] = to;
    first[at.depth].first = at.end - node > kMinSubtree;
    if (first[at.depth].first) first[at.depth].second = first_bytes(to);
    if (at.token >= 0) {
      behind.allowed.push_back(static_cast<std::uint32_t>(at.token));
      behind.is_allowed[behind.allowed.back()] = true;
    }
    ++node;
  }
  bytes_ += sizeof(Behind) + 32 + (behind.allowed.size() + behind.unknown.size()) * 4 +
            vocabulary_.num_suffixes() / 4;
  return behinds_.emplace(state, std::move(behind)).first->second;
}

// The language of an item as far as tokens can tell.
Masks::Id Masks::language_of(const Item& item) {
  const Id language = machine_.text_place(item).language;
  const auto known = horizon_languages_.find(language);
  if (known != horizon_languages_.end()) return known->second;
  const Id form = machine_.languages().horizon_form(language, vocabulary_.longest_bytes());
  bytes_ += kLanguageBytes;
  horizon_languages_.emplace(language, form);
  return form;
}

const Masks::Quotes& Masks::quotes_of(const Item& item) {
  const Id language = language_of(item);
  const std::uint64_t key = std::uint64_t{language} << 32 | machine_.state_behind(item);
  auto it = quotes_.find(key);
  if (it == quotes_.end()) {
    const Behind& after = behind(item);
    const Inside& inside = inside_of(language);
    Quotes quotes;
    std::vector<std::int32_t> tokens;
    std::vector<std::uint32_t> unknown;
    const auto each = [&](std::uint32_t suffix, auto use) {
      for (const Vocabulary::QuoteToken& quote : vocabulary_.quotes_of(suffix))
        if (inside.accepts_prefix(quote.prefix)) use(quote.token);
    };
    for (const std::uint32_t suffix : after.allowed)
      each(suffix, [&](std::int32_t token) { tokens.push_back(token); });
    for (const std::uint32_t suffix : after.unknown)
      each(suffix, [&](std::int32_t token) { unknown.push_back(vocabulary_.node_of(token)); });
    quotes.tokens = piece_of(tokens);
    quotes.unknown = unknown_piece_of(std::move(unknown));
    bytes_ += sizeof(Quotes) + 32;
    it = quotes_.emplace(key, std::move(quotes)).first;
  }
  it->second.last_use = clock_;
  return it->second;
}

const Masks::Quotes& Masks::all_quotes_of(const Item& item) {
  Machine::TextPlace at = machine_.text_place(item);
  at.language = LanguageStore::kAnyText;
  return quotes_of(machine_.text_item(item, at));
}

void Masks::add_bounded_string(const Item& item, Bits bits, std::vector<std::uint32_t>& unknown) {
  const Room room = room_of(item);
  const Inside& inside = inside_of(language_of(item));
  if (room.safe > vocabulary_.longest_chars()) {
    apply(*inside.tokens, bits);
  } else {
    own_.assign(vocabulary_.num_words(), 0);
    apply(*inside.tokens, own_);
    const auto short_of = [&](std::uint64_t chars) {
      return std::span(
          vocabulary_.short_bits(std::min<std::uint64_t>(chars, Vocabulary::kShortChars)));
    };
    const auto fits = short_of(room.max);
    const auto safe = short_of(room.safe == 0 ? 0 : room.safe - 1);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const std::uint32_t sure = room.safe == 0 ? 0 : own_[i] & safe[i];
      bits[i] |= sure;
      for (std::uint32_t word = own_[i] & fits[i] & ~sure; word != 0; word &= word - 1)
        unknown.push_back(
            vocabulary_.node_of(static_cast<std::int32_t>(i * 32) + std::countr_zero(word)));
    }
    for (const Vocabulary::InsideToken& token : vocabulary_.long_inside()) {
      if (token.chars > room.max || !has_bit(own_, token.token)) continue;
      if (token.chars < room.safe)
        set_bit(bits, token.token);
      else
        unknown.push_back(token.node);
    }
  }
  if (room.min == 0 && room.max >= vocabulary_.longest_chars()) {
    const Quotes& quotes = quotes_of(item);
    apply(*quotes.tokens, bits);
    append(quotes.unknown, unknown);
    return;
  }
  const Behind& after = behind(item);
  const auto each = [&](std::uint32_t suffix, auto use) {
    for (const Vocabulary::QuoteToken& quote : vocabulary_.quotes_of(suffix)) {
      const std::uint32_t chars = vocabulary_.prefix_chars(quote.prefix);
      if (chars < room.min || chars > room.max || !inside.accepts_prefix(quote.prefix)) continue;
      use(quote.token);
    }
  };
  for (const std::uint32_t suffix : after.allowed)
    each(suffix, [&](std::int32_t token) { set_bit(bits, token); });
  for (const std::uint32_t suffix : after.unknown)
    each(suffix, [&](std::int32_t token) { unknown.push_back(vocabulary_.node_of(token)); });
}

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
  if (const std::uint64_t digits = is_json ? 0 : free_digits(store, language, 0); digits > 0) {
    loop = {.kinds = Vocabulary::kind_of('0'), .limit = digits, .is_digits = true};
  } else if (counts) {
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
bool Masks::walk_loop(const Item& item, Entry& entry, Found& found) {
  if (!machine_.is_text(item)) return false;
  const Machine::TextPlace place = machine_.text_place(item);
  if (place.leaf->has_bounds() || place.spelling.kind != Spelling::kBoundary) return false;
  const Loop loop = loop_of(place.language, place.leaf->is_json);
  if (loop.kinds == 0) return false;
  std::vector<std::uint32_t> bits(vocabulary_.num_words());
  const std::uint32_t longest = vocabulary_.add_kinds(bits, loop.kinds);
  if (!loop.holds(longest)) return false;

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
      if (to == Machine::kUnknown) add_subtree(node, found.unknown);
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
