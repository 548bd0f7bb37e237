// Walks of the vocabulary's trie: by the machine, for masks of what is no string, and by a
// language.
#include <algorithm>
#include <array>
#include <map>

#include "text/grammar/masks.h"

namespace sluice::grammar {
namespace {

constexpr Text kNoText{{}, false};
constexpr std::uint64_t kOpeningBytes = 96;
// Nodes with more below them are looked at with the bytes that may come, or at once.
constexpr std::uint32_t kLargeSubtree = 24;

bool is_blank(unsigned char byte) {
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

// A smaller part of the trie is walked as any other.
constexpr std::uint32_t kMinSubtree = 32;
// States beyond these have no table.
constexpr std::size_t kMaxTables = 2048;
constexpr std::uint32_t kDeadSpot = 0, kNotKnown = ~0u;

// Where a walk of the trie stands in a language. Spot 0 stands for a byte that is not allowed.
struct Spot {
  LanguageStore::Id language = LanguageStore::kNone;
  Spelling spelling{};
  std::int8_t is_free = -1;  // any text may follow; -1: not known
  bool has_loop = false;     // what follows is known
  std::uint64_t kinds = 0, limit = 0;
};

class Spots {
 public:
  Spots() : all_(1), tables_(1) {}
  std::uint32_t add(const Spot& spot) {
    const auto [it, is_new] = index_.try_emplace({spot.language, spot.spelling.pack()},
                                                 static_cast<std::uint32_t>(all_.size()));
    if (!is_new) return it->second;
    all_.push_back(spot);
    if (tables_.size() < kMaxTables) tables_.emplace_back().fill(kNotKnown);
    return it->second;
  }
  Spot& operator[](std::uint32_t at) { return all_[at]; }
  std::uint32_t next(std::uint32_t at, unsigned char byte) const {
    return at < tables_.size() ? tables_[at][byte] : kNotKnown;
  }
  void remember(std::uint32_t at, unsigned char byte, std::uint32_t to) {
    if (at < tables_.size()) tables_[at][byte] = to;
  }

 private:
  std::vector<Spot> all_;
  std::vector<std::array<std::uint32_t, 256>> tables_;
  std::map<std::pair<LanguageStore::Id, std::uint64_t>, std::uint32_t> index_;
};

}  // namespace

bool Masks::is_blank_text(const Item& item, std::uint64_t& limit) {
  if (!machine_.is_text(item)) return false;
  const Machine::TextPlace at = machine_.text_place(item);
  if (at.leaf->is_json || at.leaf->has_bounds() || at.spelling.kind != Spelling::kBoundary)
    return false;
  LanguageStore& store = machine_.languages();
  const LanguageStore::Expression& expression = store.at(at.language);
  if (expression.kind != LanguageStore::Kind::kRepeat || expression.min != 0 ||
      store.at(expression.left).kind != LanguageStore::Kind::kChars)
    return false;
  const std::span<const CodeRange> set = store.set(expression.left);
  const auto is_range = [&](std::size_t i, char32_t first, char32_t last) {
    return set[i].first == first && set[i].last == last;
  };
  if (set.size() != 3 || !is_range(0, '\t', '\n') || !is_range(1, '\r', '\r') ||
      !is_range(2, ' ', ' '))
    return false;
  limit = expression.max;
  return machine_.state_behind(item) != Machine::kUnknown;
}

Machine::ByteSet Masks::first_bytes(StateId state) {
  Machine::ByteSet bytes;
  const std::span<const Item> span = machine_.items(state);
  const std::vector<Item> items(span.begin(), span.end());
  for (const Item& item : items) machine_.add_first_bytes(item, bytes);
  return bytes;
}

const Masks::Opening& Masks::opening_of(StateId state) {
  const auto known = openings_.find(state);
  if (known != openings_.end()) return known->second;
  const std::span<const Item> span = machine_.items(state);
  const std::vector<Item> items(span.begin(), span.end());
  Opening opening;
  std::vector<Item> rest;
  for (const Item& item : items) {
    bool is_free = is_string(item);
    if (is_free) {
      const Machine::TextPlace at = machine_.text_place(item);
      is_free = machine_.languages().never_dies(at.language);
      if (is_free && at.leaf->has_bounds())
        is_free = is_bounded_string(item) && room_of(item).safe > vocabulary_.longest_chars();
    }
    (is_free ? opening.strings : rest).push_back(item);
  }
  if (opening.strings.empty()) {
    opening.rest = state;
  } else if (!rest.empty()) {
    opening.rest = machine_.state_of(rest);
  }
  bytes_ += kOpeningBytes + opening.strings.size() * sizeof(Item);
  return openings_.emplace(state, std::move(opening)).first->second;
}

// Tokens that go on behind a quote that opens the strings.
void Masks::open_strings(const Opening& opening, const Vocabulary::Opened& opened, Found& found) {
  found.tokens.insert(found.tokens.end(), vocabulary_.opened_inside().begin() + opened.inside_begin,
                      vocabulary_.opened_inside().begin() + opened.inside_end);
  if (opened.quotes_begin == opened.quotes_end) return;
  for (const Item& item : opening.strings) {
    const Room room = room_of(item);
    const Behind& after = behind(item);
    const Inside& inside = inside_of(language_of(item));
    for (std::uint32_t i = opened.quotes_begin; i < opened.quotes_end; ++i) {
      const Vocabulary::QuoteToken& quote = vocabulary_.opened_quotes()[i];
      const std::uint32_t chars = vocabulary_.prefix_chars(quote.prefix);
      if (chars < room.min || chars > room.max || !inside.accepts_prefix(quote.prefix)) continue;
      if (after.is_allowed[quote.suffix]) found.tokens.push_back(quote.token);
      if (after.is_unknown[quote.suffix]) found.unknown.push_back(vocabulary_.node_of(quote.token));
    }
  }
}

// Tokens below a node to which plain characters lead, and behind which the strings stand.
void Masks::enter_strings(const Opening& opening, std::uint32_t node, Found& found) {
  const Vocabulary::Node& at = vocabulary_.trie()[node];
  const std::uint32_t end = vocabulary_.first_inside(at.end);
  for (std::uint32_t i = vocabulary_.first_inside(node); i < end; ++i)
    found.tokens.push_back(vocabulary_.inside()[i].token);
  const std::vector<Vocabulary::NodeQuote>& quotes = vocabulary_.node_quotes();
  const auto begin = std::ranges::lower_bound(quotes, node, {}, &Vocabulary::NodeQuote::node);
  LanguageStore& store = machine_.languages();
  for (const Item& item : opening.strings) {
    const Room room = room_of(item);
    const Behind& after = behind(item);
    const Id language = machine_.text_place(item).language;
    for (auto quote = begin; quote != quotes.end() && quote->node < at.end; ++quote) {
      if (!after.is_allowed[quote->suffix] && !after.is_unknown[quote->suffix]) continue;
      const std::string_view text =
          vocabulary_.bytes(quote->token).substr(at.depth, quote->quote_at - at.depth);
      Spelling spelling;
      Id state = language;
      std::uint64_t chars = 0;
      for (const char c : text) {
        const SpellingStep next = spelling::step(spelling, static_cast<unsigned char>(c), true,
                                                 [](char32_t, char32_t) { return true; });
        spelling = next.spelling;
        if (!next.is_whole) continue;
        ++chars;
        state = store.step(state, next.code);
      }
      if (!store.accepts(state) || chars < room.min || chars > room.max) continue;
      if (after.is_allowed[quote->suffix])
        found.tokens.push_back(quote->token);
      else
        found.unknown.push_back(quote->node);
    }
  }
}

void Masks::walk(StateId state, std::uint64_t blanks, Found& found) {
  const Vocabulary::Trie& trie = vocabulary_.trie();
  path_[0] = state;
  in_loop_[0] = blanks != 0;  // only white space so far
  first_[0] = first_bytes(state);
  has_first_[0] = true;
  is_plain_[0] = true;
  if (blanks != 0) {  // what comes without white space is looked at elsewhere
    first_[0].reset();
    for (const char blank : {' ', '\t', '\n', '\r'})
      first_[0].set(static_cast<unsigned char>(blank));
  }
  const Machine::ByteSet behind_blanks = blanks != 0 ? first_bytes(state) | first_[0] : first_[0];
  for (std::uint32_t node = 0; node < trie.size();) {
    const Vocabulary::Node& at = trie[node];
    const std::size_t up = at.depth - 1u;
    if (has_first_[up] && !first_[up].test(at.byte)) {
      node = at.end;
      continue;
    }
    const auto add_token = [&] {
      for (std::int32_t token = at.token; token >= 0; token = vocabulary_.same(token))
        found.tokens.push_back(token);
    };
    const bool is_large = at.end - node > kLargeSubtree;
    in_loop_[at.depth] = in_loop_[up] && is_blank(at.byte) && at.depth <= blanks;
    if (in_loop_[at.depth]) {
      add_token();
      path_[at.depth] = state;
      first_[at.depth] = behind_blanks;
      has_first_[at.depth] = true;
      is_plain_[at.depth] = false;
      ++node;
      continue;
    }
    StateId to = machine_.step(path_[up], at.byte, kNoText);
    if (machine_.is_exhausted()) return;
    if (to == Machine::kUnknown) add_subtree(node, found.unknown);
    if (to == Machine::kDead || to == Machine::kUnknown) {
      node = at.end;
      continue;
    }
    add_token();
    is_plain_[at.depth] =
        is_plain_[up] && at.byte >= 0x20 && at.byte < 0x7F && at.byte != '"' && at.byte != '\\';
    const bool opens = at.byte == '"' && at.end > node + 1;
    if (opens || (is_large && is_plain_[at.depth])) {
      const Opening& opening = opening_of(to);
      if (!opening.strings.empty()) {
        if (!opens) {
          enter_strings(opening, node, found);
        } else if (const Vocabulary::Opened* opened = vocabulary_.opened(node)) {
          open_strings(opening, *opened, found);
        }
        to = opening.rest;
      }
      if (to == Machine::kDead) {
        node = at.end;
        continue;
      }
    }
    path_[at.depth] = to;
    has_first_[at.depth] = is_large;
    if (is_large) first_[at.depth] = first_bytes(to);
    ++node;
  }
}

// Sets the tokens behind which a text of the language can go on, or end.
void Masks::walk_language(Id language, bool is_json, Bits bits) {
  LanguageStore& store = machine_.languages();
  const Vocabulary::Trie& trie = vocabulary_.trie();
  const std::vector<Vocabulary::Below>& below = vocabulary_.below();
  Spots spots;
  std::vector<std::uint32_t> path(path_.size());
  path[0] = spots.add({.language = language});
  std::uint64_t kinds = 0;  // of the loop whose tokens are set at once
  if (const Loop loop = entered_loop(language, is_json); loop.kinds != 0) {
    const std::vector<std::uint32_t> before(bits.begin(), bits.end());
    const std::uint32_t longest = vocabulary_.add_kinds(bits, loop.kinds);
    if (loop.holds(longest))
      kinds = loop.kinds;
    else
      std::ranges::copy(before, bits.begin());
  }
  in_loop_[0] = kinds != 0;
  const auto add_below = [&](std::uint32_t node) {
    if (is_json) {
      const std::uint32_t end = vocabulary_.first_inside(trie[node].end);
      for (std::uint32_t i = vocabulary_.first_inside(node); i < end; ++i)
        set_bit(bits, vocabulary_.inside()[i].token);
      return;
    }
    for (std::uint32_t i = node; i < trie[node].end; ++i)
      for (std::int32_t token = trie[i].token; token >= 0; token = vocabulary_.same(token))
        set_bit(bits, token);
  };
  // whether all that is below a node can follow
  const auto is_free = [&](std::uint32_t node, Spot& at) {
    const std::uint32_t size = trie[node].end - node;
    if (size <= 1) return false;
    if (at.is_free < 0) at.is_free = is_json && store.never_dies(at.language) ? 1 : 0;
    if (at.is_free != 0) return true;
    if (size < kMinSubtree) return false;
    if (!at.has_loop) {
      const Loop loop = loop_of(at.language, is_json);
      at.kinds = loop.kinds;
      at.limit = loop.limit;
      at.has_loop = true;
    }
    return (below[node].kinds & ~at.kinds) == 0 && below[node].longest <= at.limit;
  };
  const auto step = [&](const Spot& from, unsigned char byte) {
    Spot to;
    const bool is_plain = from.spelling.kind == Spelling::kBoundary && byte < 0x80 &&
                          (!is_json || (byte >= 0x20 && byte != '"' && byte != '\\'));
    if (is_plain) {
      to.language = store.step(from.language, byte);
      const bool is_live = to.language != LanguageStore::kNone && store.is_live(to.language);
      return is_live ? spots.add(to) : kDeadSpot;
    }
    const SpellingStep next =
        spelling::step(from.spelling, byte, is_json, [&](char32_t first, char32_t last) {
          return machine_.can_follow(from.language, first, last);
        });
    if (!next.is_possible) return kDeadSpot;
    to.language = next.is_whole ? store.step(from.language, next.code) : from.language;
    to.spelling = next.spelling;
    return spots.add(to);
  };
  for (std::uint32_t node = 0; node < trie.size();) {
    const Vocabulary::Node& at = trie[node];
    const bool in_loop = in_loop_[at.depth - 1u] && (Vocabulary::kind_of(at.byte) & ~kinds) == 0;
    if (in_loop && (below[node].kinds & ~kinds) == 0) {
      node = at.end;
      continue;
    }
    const std::uint32_t from = path[at.depth - 1u];
    std::uint32_t to = spots.next(from, at.byte);
    if (to == kNotKnown) {
      to = step(Spot(spots[from]), at.byte);
      if (machine_.is_exhausted()) return;
      spots.remember(from, at.byte, to);
    }
    if (to == kDeadSpot) {
      node = at.end;
      continue;
    }
    for (std::int32_t token = at.token; token >= 0; token = vocabulary_.same(token))
      set_bit(bits, token);
    Spot& spot = spots[to];
    if (spot.spelling.kind == Spelling::kBoundary && is_free(node, spot)) {
      add_below(node);
      node = at.end;
      continue;
    }
    path[at.depth] = to;
    in_loop_[at.depth] = in_loop;
    ++node;
  }
}

}  // namespace sluice::grammar
