#include "text/grammar/masks.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace sluice::grammar {
namespace {

constexpr std::uint64_t kPlanBytes = 80;
constexpr std::uint64_t kMapBytes = 64;  // of an entry of a map
// Longer lists are sorted by setting bits, and are compared with the vocabulary's bases.
constexpr std::size_t kShortList = 64;
constexpr std::size_t kMinBased = 512;
constexpr std::size_t kManyUnknown = 4096;

// Bits that differ; some number of at least `enough` where there are as many.
std::size_t num_changes(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b,
                        std::size_t enough) {
  constexpr std::size_t kChunk = 64;
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < a.size() && count < enough; begin += kChunk)
    for (std::size_t i = begin; i < std::min(begin + kChunk, a.size()); ++i)
      count += static_cast<std::size_t>(std::popcount(a[i] ^ b[i]));
  return count;
}

}  // namespace

Masks::Masks(Machine& machine, const Vocabulary& vocabulary, std::uint64_t max_bytes)
    : machine_(machine),
      vocabulary_(vocabulary),
      max_bytes_(max_bytes),
      all_inside_(std::make_shared<const Piece>(Piece{.base = 0})) {
  machine.languages().set_digit_horizon(vocabulary.longest_digits());
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
  if (plan.bounded.empty() && (entry == nullptr || entry->unknown == nullptr)) return;
  unknown_.clear();
  if (entry != nullptr) append(entry->unknown, unknown_);
  const std::size_t num_sorted = unknown_.size();
  bool is_marked = false;
  for (const Item& item : plan.bounded) {
    add_bounded_string(item, bits, unknown_);
    if (unknown_.size() <= kManyUnknown) continue;
    mark_unknown();
    is_marked = true;
  }
  if (is_marked) {
    mark_unknown();
    take_marked();
  } else if (unknown_.size() > num_sorted) {
    std::ranges::sort(unknown_);
  }
  if (!unknown_.empty()) try_unknown(state, text, unknown_, bits);
}

// Several items may bring the same nodes: a bit for each.
void Masks::mark_unknown() {
  marks_.resize(vocabulary_.trie().size() / 64 + 1);
  for (const std::uint32_t node : unknown_) marks_[node / 64] |= std::uint64_t{1} << node % 64;
  unknown_.clear();
}

void Masks::take_marked() {
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    for (std::uint64_t word = std::exchange(marks_[i], 0); word != 0; word &= word - 1)
      unknown_.push_back(static_cast<std::uint32_t>(i * 64) +
                         static_cast<std::uint32_t>(std::countr_zero(word)));
  }
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
    bytes_ += sizeof(Entry) + 64 + entry.pieces.size() * 16 + entry.remove.size() * 4;
    it = entries_.emplace(form, std::move(entry)).first;
  }
  it->second.last_use = clock_;
  return it->second;
}

void Masks::add_string(const Item& item, Entry& entry, std::vector<std::uint32_t>& unknown) {
  const Inside& inside = inside_of(language_of(item));
  const bool is_first = entry.pieces.empty();
  entry.pieces.push_back(inside.tokens);
  if (!is_first || inside.accepts_all || !inside.rejects_few) {
    const Quotes& quotes = quotes_of(item);
    entry.pieces.push_back(quotes.tokens);
    append(quotes.unknown, unknown);
    return;
  }
  // the tokens that close any text, less those of a few texts
  const Quotes& quotes = all_quotes_of(item);
  entry.pieces.push_back(quotes.tokens);
  entry.num_first = entry.pieces.size();
  for (const std::uint32_t prefix : inside.rejects) {
    for (const Vocabulary::QuoteToken& quote : vocabulary_.quotes_with(prefix))
      entry.remove.push_back(quote.token);
  }
  std::vector<std::uint32_t> removed;
  for (const std::int32_t token : entry.remove) removed.push_back(vocabulary_.node_of(token));
  std::ranges::sort(removed);
  append(quotes.unknown, unknown);
  std::erase_if(unknown,
                [&](std::uint32_t node) { return std::ranges::binary_search(removed, node); });
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
  Found found;
  for (const Item& item : strings) add_string(item, entry, found.unknown);
  std::erase_if(items, [&](const Item& item) {
    return std::ranges::find(closing, item) != closing.end() ||
           std::ranges::find(strings, item) != strings.end();
  });
  std::vector<Item> rest;
  for (const Item& item : items) {
    std::uint64_t blanks = 0;
    if (is_last_text(item)) {
      entry.pieces.push_back(last_text_of(machine_.text_place(item).language));
    } else if (is_blank_text(item, blanks)) {
      walk(machine_.state_behind(item), blanks, found);
    } else if (!walk_loop(item, entry, found)) {
      rest.push_back(item);
    }
  }
  if (!rest.empty()) walk(machine_.state_of(rest), 0, found);
  if (!found.tokens.empty()) entry.pieces.push_back(piece_of(found.tokens));
  entry.unknown = unknown_piece_of(std::move(found.unknown));
}

void Masks::add_subtree(std::uint32_t node, std::vector<std::uint32_t>& out) const {
  const Vocabulary::Trie& trie = vocabulary_.trie();
  for (std::uint32_t i = node; i < trie[node].end; ++i)
    if (trie[i].token >= 0) out.push_back(i);
}

// Tokens whose fate depends on the text: each is tried. In the order of their bytes, tokens that
// begin alike share the steps.
void Masks::try_unknown(StateId state, std::string_view text, std::span<const std::uint32_t> nodes,
                        Bits bits) {
  const Vocabulary::Trie& trie = vocabulary_.trie();
  text_ = text;
  path_[0] = state;  // behind so many bytes of `last`
  std::string_view last;
  std::size_t known = 0;  // bytes of `last` that were tried
  bool is_dead = false;   // behind the byte that follows them
  for (const std::uint32_t node : nodes) {
    const std::int32_t token = trie[node].token;
    if (has_bit(bits, token)) continue;
    const std::string_view bytes = vocabulary_.bytes(token);
    std::size_t common = 0;
    while (common < known && common < bytes.size() && bytes[common] == last[common]) ++common;
    if (is_dead && common == known && common < bytes.size() && bytes[common] == last[common])
      continue;
    StateId at = path_[common];
    is_dead = false;
    text_.resize(text.size() + common);
    for (known = common; known < bytes.size();) {
      text_ += bytes[known];
      at = machine_.step(at, static_cast<unsigned char>(bytes[known]), {text_, true, true});
      if (machine_.is_exhausted()) return;
      if (at == Machine::kDead) break;
      path_[++known] = at;
    }
    last = bytes;
    is_dead = at == Machine::kDead;
    for (std::int32_t same = is_dead ? -1 : token; same >= 0; same = vocabulary_.same(same))
      set_bit(bits, same);
  }
}

void Masks::add_number(Numbers& numbers, std::uint32_t& last, std::uint32_t number) {
  std::uint32_t step = number - last;
  last = number;
  for (; step >= 0x80; step >>= 7) numbers.steps.push_back(static_cast<std::uint8_t>(step | 0x80));
  numbers.steps.push_back(static_cast<std::uint8_t>(step));
}

template <class Use>
void Masks::each_of(const Numbers& numbers, Use use) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < numbers.steps.size(); ++i) {
    std::uint32_t step = numbers.steps[i];
    if (step >= 0x80) {
      step &= 0x7F;
      for (int shift = 7;; shift += 7) {
        const std::uint32_t more = numbers.steps[++i];
        step |= (more & 0x7F) << shift;
        if (more < 0x80) break;
      }
    }
    number += step;
    use(number);
  }
}

void Masks::append(const PieceRef& unknown, std::vector<std::uint32_t>& nodes) {
  if (unknown == nullptr) return;
  each_of(unknown->add, [&](std::uint32_t node) { nodes.push_back(node); });
}

void Masks::apply(const Entry& entry, Bits bits) const {
  for (std::size_t i = 0; i < entry.pieces.size(); ++i) {
    apply(*entry.pieces[i], bits);
    if (i + 1 != entry.num_first) continue;
    for (const std::int32_t token : entry.remove) clear_bit(bits, token);
  }
}

void Masks::apply(const Piece& piece, Bits bits) const {
  const auto set = [&](std::uint32_t token) { bits[token / 32] |= 1u << token % 32; };
  if (!piece.dense.empty()) {
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] |= piece.dense[i];
  } else if (piece.base != Piece::kNoBase) {
    const std::vector<std::uint32_t>& base = vocabulary_.base(static_cast<std::size_t>(piece.base));
    // what others have set stays
    std::vector<std::uint32_t> others;
    each_of(piece.remove, [&](std::uint32_t token) {
      if ((bits[token / 32] >> token % 32 & 1) != 0) others.push_back(token);
    });
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] |= base[i];
    each_of(piece.remove, [&](std::uint32_t token) { bits[token / 32] &= ~(1u << token % 32); });
    for (const std::uint32_t token : others) set(token);
  }
  each_of(piece.add, set);
}

std::uint64_t Masks::hash_of(const Piece& piece) {
  std::uint64_t hash = mix_hash(piece.dense.size(), static_cast<std::uint64_t>(piece.base));
  for (const std::uint32_t word : piece.dense) hash = mix_hash(hash, word);
  for (const Numbers* numbers : {&piece.add, &piece.remove}) {
    hash = mix_hash(hash, numbers->steps.size());
    for (const std::uint8_t step : numbers->steps) hash = mix_hash(hash, step);
  }
  return hash;
}

Masks::PieceRef Masks::shared(Piece piece) {
  const std::uint64_t hash = hash_of(piece);
  const auto known = pieces_.find(hash);
  if (known != pieces_.end() && *known->second == piece) return known->second;
  piece.add.steps.shrink_to_fit();
  piece.remove.steps.shrink_to_fit();
  bytes_ += piece.bytes() + kMapBytes;
  PieceRef made = std::make_shared<const Piece>(std::move(piece));
  if (known == pieces_.end()) pieces_.emplace(hash, made);
  return made;
}

// The smallest form of a set.
Masks::PieceRef Masks::piece_of(std::span<const std::uint32_t> bits) {
  std::size_t smallest = 0;
  for (const std::uint32_t word : bits) smallest += static_cast<std::size_t>(std::popcount(word));
  Piece piece;
  for (std::size_t index = 0; smallest > kMinBased && index < vocabulary_.num_bases(); ++index) {
    const std::vector<std::uint32_t>& base = vocabulary_.base(index);
    const std::size_t changes = num_changes(bits, base, smallest);
    if (changes >= smallest) continue;
    smallest = changes;
    piece.base = static_cast<std::int32_t>(index);
  }
  if (smallest >= bits.size() / 2) {
    piece.base = Piece::kNoBase;
    piece.dense.assign(bits.begin(), bits.end());
    return shared(std::move(piece));
  }
  const auto list = [&](Numbers& out, auto word_at) {
    std::uint32_t last = 0;
    for (std::size_t i = 0; i < bits.size(); ++i)
      for (std::uint32_t word = word_at(i); word != 0; word &= word - 1)
        add_number(out, last,
                   static_cast<std::uint32_t>(i * 32) +
                       static_cast<std::uint32_t>(std::countr_zero(word)));
  };
  if (piece.base == Piece::kNoBase) {
    list(piece.add, [&](std::size_t i) { return bits[i]; });
  } else {
    const std::vector<std::uint32_t>& base = vocabulary_.base(static_cast<std::size_t>(piece.base));
    list(piece.add, [&](std::size_t i) { return bits[i] & ~base[i]; });
    list(piece.remove, [&](std::size_t i) { return base[i] & ~bits[i]; });
  }
  return shared(std::move(piece));
}

Masks::PieceRef Masks::piece_of(const std::vector<std::int32_t>& tokens) {
  if (tokens.size() > kShortList) {
    list_bits_.assign(vocabulary_.num_words(), 0);
    for (const std::int32_t token : tokens) set_bit(list_bits_, token);
    return piece_of(list_bits_);
  }
  std::vector<std::int32_t> sorted = tokens;
  std::ranges::sort(sorted);
  Piece piece;
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i)
    if (i == 0 || sorted[i] != sorted[i - 1])
      add_number(piece.add, last, static_cast<std::uint32_t>(sorted[i]));
  return shared(std::move(piece));
}

Masks::PieceRef Masks::unknown_piece_of(std::vector<std::uint32_t> nodes) {
  if (nodes.empty()) return nullptr;
  std::ranges::sort(nodes);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  Piece piece;
  std::uint32_t last = 0;
  for (const std::uint32_t node : nodes) add_number(piece.add, last, node);
  return shared(std::move(piece));
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
  bytes_ = 0;
  if (!uses.empty()) {
    const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(uses.size() / 2);
    std::ranges::nth_element(uses, middle);
    const std::uint64_t oldest = *middle;
    const auto forget = [&](auto& map) {
      std::erase_if(map, [&](const auto& entry) { return entry.second.last_use <= oldest; });
    };
    forget(entries_), forget(insides_), forget(behinds_), forget(quotes_);
  }
  std::erase_if(pieces_, [](const auto& entry) { return entry.second.use_count() == 1; });
  for (const auto& [hash, piece] : pieces_) bytes_ += piece->bytes() + kMapBytes;
  for (const auto& [form, entry] : entries_)
    bytes_ += sizeof(Entry) + 64 + entry.pieces.size() * 16 + entry.remove.size() * 4;
  for (const auto& [language, inside] : insides_)
    bytes_ += sizeof(Inside) + 32 + inside.accepts.size() / 8 + inside.rejects.size() * 4;
  for (const auto& [state, behind] : behinds_)
    bytes_ += sizeof(Behind) + 32 + (behind.allowed.size() + behind.unknown.size()) * 4 +
              vocabulary_.num_suffixes() / 4;
  bytes_ += quotes_.size() * (sizeof(Quotes) + 32);
}

}  // namespace sluice::grammar
