#include "text/grammar/masks.h"

#include <algorithm>
#include <bit>

namespace sluice::grammar {
namespace {

constexpr Text kNoText{{}, false};
constexpr std::uint64_t kPlanBytes = 80, kOpeningBytes = 96;

void erase_tokens(std::span<std::uint32_t> bits, const std::vector<std::int32_t>& tokens) {
  for (const std::int32_t token : tokens) clear_bit(bits, token);
}

}  // namespace

Masks::Masks(Machine& machine, const Vocabulary& vocabulary, std::uint64_t max_bytes)
    : machine_(machine),
      vocabulary_(vocabulary),
      max_bytes_(max_bytes),
      all_inside_(std::make_shared<const Piece>(Piece{.has_inside = true})) {
  path_.resize(vocabulary.longest_bytes() + 2);
  behind_path_.resize(path_.size());
  in_loop_.resize(path_.size());
}

void Masks::fill(StateId state, std::string_view text, std::span<std::uint32_t> bits) {
  ++clock_;
  make_room();
  const Plan& plan = plan_of(state);
  const Entry* entry = plan.form != Machine::kDead ? &entry_of(plan.form) : nullptr;
  if (entry != nullptr) apply(*entry, bits);
  if (plan.bounded.empty() && (entry == nullptr || entry->unknown.empty())) return;
  std::vector<std::int32_t> unknown;
  if (entry != nullptr) unknown = entry->unknown;
  for (const Item& item : plan.bounded) add_bounded_string(item, bits, unknown);
  if (!unknown.empty()) try_unknown(state, text, unknown, bits);
}

const Masks::Plan& Masks::plan_of(StateId state) {
  const auto known = plans_.find(state);
  if (known != plans_.end()) return known->second;
  const std::span<const Item> span = machine_.items(state);
  const std::vector<Item> items(span.begin(), span.end());
  Plan plan;
  std::vector<Item> rest;
  for (const Item& item : items) (is_bounded_string(item) ? plan.bounded : rest).push_back(item);
  StateId base = state;
  if (!plan.bounded.empty()) base = rest.empty() ? Machine::kDead : machine_.state_of(rest);
  if (base != Machine::kDead) plan.form = machine_.horizon_form(base, vocabulary_.longest_bytes());
  // the horizon form leaves out where values began
  for (Item& item : plan.bounded) {
    const StateId alone = machine_.state_of(std::span(&item, 1));
    item.context =
        machine_.items(machine_.horizon_form(alone, vocabulary_.longest_bytes()))[0].context;
  }
  bytes_ += kPlanBytes + plan.bounded.size() * sizeof(Item);
  return plans_.emplace(state, std::move(plan)).first->second;
}

const Masks::Entry& Masks::entry_of(StateId form) {
  auto it = entries_.find(form);
  if (it == entries_.end()) {
    Entry entry;
    make(form, entry);
    bytes_ += sizeof(Entry) + 64 + entry.pieces.size() * 16 + entry.unknown.size() * 4;
    it = entries_.emplace(form, std::move(entry)).first;
  }
  it->second.last_use = clock_;
  return it->second;
}

// Forgets the half of the masks that was not used for the longest time.
void Masks::make_room() {
  if (bytes_ <= max_bytes_) return;
  std::vector<std::uint64_t> uses;
  const auto note = [&](const auto& map) {
    for (const auto& [key, value] : map) uses.push_back(value.last_use);
  };
  note(entries_), note(insides_), note(behinds_), note(quotes_);
  plans_.clear();
  openings_.clear();
  last_texts_.clear();
  if (uses.empty()) {
    bytes_ = 0;
    return;
  }
  const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(uses.size() / 2);
  std::ranges::nth_element(uses, middle);
  const std::uint64_t oldest = *middle;
  const auto forget = [&](auto& map) {
    std::erase_if(map, [&](const auto& entry) { return entry.second.last_use <= oldest; });
  };
  forget(entries_), forget(insides_), forget(behinds_), forget(quotes_);
  bytes_ = 0;
  std::unordered_map<const Piece*, bool> counted;
  const auto count = [&](const PieceRef& piece) {
    if (piece != nullptr && counted.try_emplace(piece.get(), true).second) bytes_ += piece->bytes();
  };
  for (const auto& [form, entry] : entries_) {
    bytes_ += sizeof(Entry) + 64 + entry.pieces.size() * 16 + entry.unknown.size() * 4;
    for (const PieceRef& piece : entry.pieces) count(piece);
  }
  for (const auto& [language, inside] : insides_) {
    bytes_ += sizeof(Inside) + 32 + inside.accepts.size() / 8;
    count(inside.tokens);
  }
  for (const auto& [state, behind] : behinds_)
    bytes_ += sizeof(Behind) + 32 + (behind.allowed.size() + behind.unknown.size()) * 4 +
              vocabulary_.num_suffixes() / 4;
  for (const auto& [key, quotes] : quotes_) {
    bytes_ += sizeof(Quotes) + 32 + quotes.unknown.size() * 4;
    count(quotes.tokens);
  }
}

void Masks::apply(const Entry& entry, Bits bits) const {
  for (const PieceRef& piece : entry.pieces) apply(*piece, bits);
}

void Masks::apply(const Piece& piece, Bits bits) const {
  if (!piece.dense.empty()) {
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] |= piece.dense[i];
  } else if (piece.has_inside) {
    const std::vector<std::uint32_t>& inside = vocabulary_.inside_bits();
    // what others have set stays
    std::vector<std::int32_t> others;
    for (const std::int32_t token : piece.remove)
      if (has_bit(bits, token)) others.push_back(token);
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] |= inside[i];
    erase_tokens(bits, piece.remove);
    for (const std::int32_t token : others) set_bit(bits, token);
  }
  for (const std::int32_t token : piece.add) set_bit(bits, token);
}

// The smallest form of a set.
Masks::PieceRef Masks::piece_of(Bits bits) {
  const std::vector<std::uint32_t>& inside = vocabulary_.inside_bits();
  std::size_t count = 0, changes = 0;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    count += static_cast<std::size_t>(std::popcount(bits[i]));
    changes += static_cast<std::size_t>(std::popcount(bits[i] ^ inside[i]));
  }
  Piece piece;
  const auto list = [&](std::vector<std::int32_t>& out, auto word_at) {
    for (std::size_t i = 0; i < bits.size(); ++i)
      for (std::uint32_t word = word_at(i); word != 0; word &= word - 1)
        out.push_back(static_cast<std::int32_t>(i * 32) + std::countr_zero(word));
  };
  if (std::min(count, changes) >= bits.size()) {
    piece.dense.assign(bits.begin(), bits.end());
  } else if (count <= changes) {
    piece.add.reserve(count);
    list(piece.add, [&](std::size_t i) { return bits[i]; });
  } else {
    piece.has_inside = true;
    list(piece.add, [&](std::size_t i) { return bits[i] & ~inside[i]; });
    list(piece.remove, [&](std::size_t i) { return inside[i] & ~bits[i]; });
  }
  bytes_ += piece.bytes();
  return std::make_shared<const Piece>(std::move(piece));
}

void Masks::make(StateId form, Entry& entry) {
  const std::span<const Item> span = machine_.items(form);
  std::vector<Item> items(span.begin(), span.end());
  // the quote that ends a string that may end here is among the tokens that close it
  std::vector<Item> closing;
  for (const Item& item : items) {
    if (!is_string(item) || !machine_.languages().accepts(machine_.text_place(item).language) ||
        machine_.text_place(item).leaf->has_bounds())
      continue;
    const std::span<const Item> behind = machine_.items(machine_.state_behind(item));
    closing.insert(closing.end(), behind.begin(), behind.end());
  }
  std::erase_if(
      items, [&](const Item& item) { return std::ranges::find(closing, item) != closing.end(); });
  scratch_.assign(vocabulary_.num_words(), 0);
  bool has_bits = false;
  std::vector<Item> rest;
  for (const Item& item : items) {
    if (is_string(item) && !machine_.text_place(item).leaf->has_bounds()) {
      entry.pieces.push_back(inside_of(machine_.text_place(item).language).tokens);
      const Quotes& quotes = quotes_of(item);
      entry.pieces.push_back(quotes.tokens);
      entry.unknown.insert(entry.unknown.end(), quotes.unknown.begin(), quotes.unknown.end());
    } else if (is_last_text(item)) {
      entry.pieces.push_back(last_text_of(machine_.text_place(item).language));
    } else if (walk_loop(item, scratch_, entry.unknown)) {
      has_bits = true;
    } else {
      rest.push_back(item);
    }
  }
  if (!rest.empty()) walk(machine_.state_of(rest), scratch_, entry.unknown);
  if (!rest.empty() || has_bits) entry.pieces.push_back(piece_of(scratch_));
}

void Masks::add_subtree(std::uint32_t node, std::vector<std::int32_t>& out) const {
  const Vocabulary::Trie& trie = vocabulary_.trie();
  for (std::uint32_t i = node; i < trie[node].end; ++i)
    for (std::int32_t token = trie[i].token; token >= 0; token = vocabulary_.same(token))
      out.push_back(token);
}

const Masks::Opening& Masks::opening_of(StateId state) {
  const auto known = openings_.find(state);
  if (known != openings_.end()) return known->second;
  const std::span<const Item> span = machine_.items(state);
  const std::vector<Item> items(span.begin(), span.end());
  Opening opening;
  std::vector<Item> rest, closing;
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

void Masks::open_strings(const Opening& opening, const Vocabulary::Opened& opened, Bits bits,
                         std::vector<std::int32_t>& unknown) {
  for (std::uint32_t i = opened.inside_begin; i < opened.inside_end; ++i)
    set_bit(bits, vocabulary_.opened_inside()[i]);
  for (const Item& item : opening.strings) {
    const Room room = room_of(item);
    const Behind& after = behind(item);
    const Inside& inside = inside_of(machine_.text_place(item).language);
    for (std::uint32_t i = opened.quotes_begin; i < opened.quotes_end; ++i) {
      const Vocabulary::QuoteToken& quote = vocabulary_.opened_quotes()[i];
      const std::uint32_t chars = vocabulary_.prefix_chars(quote.prefix);
      if (chars < room.min || chars > room.max || !inside.accepts_prefix(quote.prefix)) continue;
      if (after.is_allowed[quote.suffix]) set_bit(bits, quote.token);
      if (after.is_unknown[quote.suffix]) unknown.push_back(quote.token);
    }
  }
}

void Masks::walk(StateId state, Bits bits, std::vector<std::int32_t>& unknown) {
  const Vocabulary::Trie& trie = vocabulary_.trie();
  path_[0] = state;
  for (std::uint32_t node = 0; node < trie.size();) {
    const Vocabulary::Node& at = trie[node];
    StateId to = machine_.step(path_[at.depth - 1u], at.byte, kNoText);
    if (to == Machine::kDead) {
      node = at.end;
      continue;
    }
    if (to == Machine::kUnknown) {
      add_subtree(node, unknown);
      node = at.end;
      continue;
    }
    for (std::int32_t token = at.token; token >= 0; token = vocabulary_.same(token))
      set_bit(bits, token);
    if (at.byte == '"' && at.end > node + 1) {
      const Opening opening = opening_of(to);
      const Vocabulary::Opened* opened = vocabulary_.opened(node);
      if (!opening.strings.empty()) {
        if (opened != nullptr) open_strings(opening, *opened, bits, unknown);
        to = opening.rest;
      }
      if (to == Machine::kDead) {
        node = at.end;
        continue;
      }
    }
    path_[at.depth] = to;
    ++node;
    if (machine_.is_exhausted()) return;
  }
}

// Tokens whose fate depends on the text: each is tried.
void Masks::try_unknown(StateId state, std::string_view text, std::span<const std::int32_t> tokens,
                        Bits bits) {
  text_ = text;
  for (const std::int32_t token : tokens) {
    if (has_bit(bits, token)) continue;
    StateId at = state;
    text_.resize(text.size());
    for (const char c : vocabulary_.bytes(token)) {
      text_ += c;
      at = machine_.step(at, static_cast<unsigned char>(c), {text_, true});
      if (at == Machine::kDead || machine_.is_exhausted()) break;
    }
    if (at != Machine::kDead) set_bit(bits, token);
  }
}

}  // namespace sluice::grammar
