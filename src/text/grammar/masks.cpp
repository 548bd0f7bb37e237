#include "text/grammar/masks.h"

#include <algorithm>
#include <bit>

namespace sluice::grammar {
namespace {

constexpr std::uint64_t kPlanBytes = 80;

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
  first_.resize(path_.size());
  has_first_.resize(path_.size());
  is_plain_.resize(path_.size());
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
  const std::size_t num_sorted = unknown.size();
  for (const Item& item : plan.bounded) add_bounded_string(item, bits, unknown);
  if (unknown.size() > num_sorted) sort_by_bytes(unknown);
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
    bytes_ += sizeof(Entry) + 64 + entry.pieces.size() * 16 +
              (entry.unknown.size() + entry.remove.size()) * 4;
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
    bytes_ += sizeof(Entry) + 64 + entry.pieces.size() * 16 +
              (entry.unknown.size() + entry.remove.size()) * 4;
    for (const PieceRef& piece : entry.pieces) count(piece);
  }
  for (const auto& [language, inside] : insides_) {
    bytes_ += sizeof(Inside) + 32 + inside.accepts.size() / 8 + inside.rejects.size() * 4;
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
  for (std::size_t i = 0; i < entry.pieces.size(); ++i) {
    apply(*entry.pieces[i], bits);
    if (i + 1 == entry.num_first) erase_tokens(bits, entry.remove);
  }
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

Masks::PieceRef Masks::piece_of(std::vector<std::int32_t> tokens) {
  if (tokens.size() >= vocabulary_.num_words()) {
    std::ranges::sort(tokens);
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  }
  Piece piece;
  if (tokens.size() >= vocabulary_.num_words()) {
    piece.dense.resize(vocabulary_.num_words());
    for (const std::int32_t token : tokens) set_bit(piece.dense, token);
  } else {
    tokens.shrink_to_fit();
    piece.add = std::move(tokens);
  }
  bytes_ += piece.bytes();
  return std::make_shared<const Piece>(std::move(piece));
}

void Masks::add_string(const Item& item, Entry& entry) {
  const Inside& inside = inside_of(machine_.text_place(item).language);
  const bool is_first = entry.pieces.empty();
  entry.pieces.push_back(inside.tokens);
  if (!is_first || inside.accepts_all || !inside.rejects_few) {
    const Quotes& quotes = quotes_of(item);
    entry.pieces.push_back(quotes.tokens);
    entry.unknown.insert(entry.unknown.end(), quotes.unknown.begin(), quotes.unknown.end());
    return;
  }
  // the tokens that close any text, less those of a few texts
  const Quotes& quotes = all_quotes_of(item);
  entry.pieces.push_back(quotes.tokens);
  entry.num_first = entry.pieces.size();
  entry.unknown = quotes.unknown;
  for (const std::uint32_t prefix : inside.rejects) {
    for (const Vocabulary::QuoteToken& quote : vocabulary_.quotes_with(prefix))
      entry.remove.push_back(quote.token);
  }
  if (!entry.unknown.empty())
    std::erase_if(entry.unknown, [&](std::int32_t token) {
      return std::ranges::find(entry.remove, token) != entry.remove.end();
    });
}

void Masks::make(StateId form, Entry& entry) {
  const std::span<const Item> span = machine_.items(form);
  std::vector<Item> items(span.begin(), span.end());
  // the quote that ends a string that may end here is among the tokens that close it
  std::vector<Item> closing, strings;
  for (const Item& item : items) {
    if (!is_string(item) || machine_.text_place(item).leaf->has_bounds()) continue;
    strings.push_back(item);
    if (!machine_.languages().accepts(machine_.text_place(item).language)) continue;
    const std::span<const Item> behind = machine_.items(machine_.state_behind(item));
    closing.insert(closing.end(), behind.begin(), behind.end());
  }
  // where several strings stand, the first piece is that of one which leaves out a few texts
  std::ranges::stable_partition(strings, [&](const Item& item) {
    return machine_.text_place(item).language != LanguageStore::kAnyText;
  });
  for (const Item& item : strings) add_string(item, entry);
  std::erase_if(items, [&](const Item& item) {
    return std::ranges::find(closing, item) != closing.end() ||
           std::ranges::find(strings, item) != strings.end();
  });
  std::vector<Item> rest;
  Found found;
  for (const Item& item : items) {
    std::uint64_t blanks = 0;
    if (is_last_text(item)) {
      entry.pieces.push_back(last_text_of(machine_.text_place(item).language));
    } else if (is_blank_text(item, blanks)) {
      walk(machine_.state_behind(item), blanks, found);
    } else if (!walk_loop(item, entry)) {
      rest.push_back(item);
    }
  }
  if (!rest.empty()) walk(machine_.state_of(rest), 0, found);
  if (!found.tokens.empty()) entry.pieces.push_back(piece_of(std::move(found.tokens)));
  entry.unknown.insert(entry.unknown.end(), found.unknown.begin(), found.unknown.end());
  sort_by_bytes(entry.unknown);
}

void Masks::add_subtree(std::uint32_t node, std::vector<std::int32_t>& out) const {
  const Vocabulary::Trie& trie = vocabulary_.trie();
  for (std::uint32_t i = node; i < trie[node].end; ++i)
    for (std::int32_t token = trie[i].token; token >= 0; token = vocabulary_.same(token))
      out.push_back(token);
}

// Tokens whose fate depends on the text: each is tried. In the order of their bytes, tokens that
// begin alike share the steps.
void Masks::try_unknown(StateId state, std::string_view text, std::span<const std::int32_t> tokens,
                        Bits bits) {
  text_ = text;
  std::vector<StateId> path(path_.size(), Machine::kDead);  // behind so many bytes of `last`
  path[0] = state;
  std::string_view last;
  std::size_t known = 0;  // bytes of `last` that were tried
  for (const std::int32_t token : tokens) {
    if (has_bit(bits, token)) continue;
    const std::string_view bytes = vocabulary_.bytes(token);
    std::size_t common = 0;
    while (common < known && common < bytes.size() && bytes[common] == last[common]) ++common;
    StateId at = path[common];
    if (at == Machine::kDead) continue;
    text_.resize(text.size() + common);
    for (known = common; known < bytes.size();) {
      text_ += bytes[known];
      at = machine_.step(at, static_cast<unsigned char>(bytes[known]), {text_, true});
      path[++known] = at;
      if (machine_.is_exhausted()) return;
      if (at == Machine::kDead) break;
    }
    last = bytes;
    if (at != Machine::kDead) set_bit(bits, token);
  }
}

void Masks::sort_by_bytes(std::vector<std::int32_t>& tokens) const {
  std::ranges::sort(tokens, {}, [&](std::int32_t token) { return vocabulary_.bytes(token); });
}

}  // namespace sluice::grammar
