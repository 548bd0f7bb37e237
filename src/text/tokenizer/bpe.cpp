#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/hash.h"
#include "text/unicode.h"

namespace sluice {
namespace {

constexpr std::size_t kShortPiece = 24;  // symbols; for shorter pieces a scan is faster than a heap
constexpr std::size_t kMemorySlots = 4096;
constexpr std::size_t kMaxRememberedBytes = 48;
// number of pieces after which the table of recent pieces is allocated
constexpr std::size_t kMemoryFrom = 64;
constexpr std::int32_t kNoRank = std::numeric_limits<std::int32_t>::max();
constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581

std::string shown(std::string_view text) {
  std::string out(text.substr(0, 64));
  if (text.size() > 64) out += "...";
  return to_valid_utf8(out);
}

}  // namespace

void TokenTable::reserve(std::size_t tokens, std::size_t bytes) {
  entries_.reserve(tokens);
  bytes_.reserve(bytes);
  std::size_t slots = 16;
  while (slots < tokens * 2) slots *= 2;
  if (num_tokens_ == 0) slots_.assign(slots, {});
}

std::size_t TokenTable::slot_of(std::string_view text, std::uint64_t hash) const {
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  std::size_t slot = hash & (slots_.size() - 1);
  while (slots_[slot].id >= 0 && (slots_[slot].tag != tag || this->text(slots_[slot].id) != text))
    slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void TokenTable::grow() {
  slots_.assign(std::max<std::size_t>(16, slots_.size() * 2), {});
  for (std::int32_t id = 0; id < size(); ++id) {
    if (!contains(id)) continue;
    const std::uint64_t hash = hash_bytes(text(id));
    slots_[slot_of(text(id), hash)] = {static_cast<std::uint32_t>(hash >> 32), id};
  }
}

void TokenTable::add(std::string_view text, std::int64_t id, std::string_view what,
                     bool last_wins) {
  // Each check tests before it builds its message, because messages are costly and tokens are many.
  if (id < 0 || id > kMaxId)
    fail(ErrorKind::kBadInput, "{}: token \"{}\" has id {}; allowed are 0 to {}", what, shown(text),
         id, kMaxId);
  require(bytes_.size() + text.size() <= std::numeric_limits<std::int32_t>::max(),
          "{}: token texts of more than 2 GiB in all", what);
  if ((num_tokens_ + 1) * 2 > slots_.size()) grow();
  const auto key = static_cast<std::int32_t>(id);
  if (contains(key))
    fail(ErrorKind::kBadInput, "{}: tokens \"{}\" and \"{}\" have the same id {}", what,
         shown(this->text(key)), shown(text), id);
  const std::uint64_t hash = hash_bytes(text);
  Slot& slot = slots_[slot_of(text, hash)];
  if (slot.id >= 0 && !last_wins)
    fail(ErrorKind::kBadInput, "{}: token \"{}\" appears twice, with ids {} and {}", what,
         shown(text), slot.id, id);
  if (key >= size()) entries_.resize(static_cast<std::size_t>(key) + 1);
  entries_[key] = {static_cast<std::uint32_t>(bytes_.size()),
                   static_cast<std::int32_t>(text.size())};
  bytes_.append(text);
  slot = {static_cast<std::uint32_t>(hash >> 32), key};
  ++num_tokens_;
  longest_bytes_ = std::max(longest_bytes_, text.size());
}

std::optional<std::int32_t> TokenTable::find(std::string_view text) const {
  if (slots_.empty() || text.size() > longest_bytes_) return std::nullopt;
  const std::int32_t id = slots_[slot_of(text, hash_bytes(text))].id;
  return id < 0 ? std::nullopt : std::optional(id);
}

bool TokenTable::contains(std::int32_t id) const {
  return id >= 0 && id < size() && entries_[id].length >= 0;
}

std::string_view TokenTable::text(std::int32_t id) const {
  return contains(id) ? std::string_view(bytes_).substr(entries_[id].offset, entries_[id].length)
                      : std::string_view();
}

BpeModel::BpeModel(const TokenTable& vocab, BpeOptions options, std::string_view what)
    : vocab_(vocab), options_(std::move(options)) {
  if (!options_.unk_token.empty()) {
    unk_ = vocab_.find(options_.unk_token);
    require(unk_.has_value(), "{}: model.unk_token \"{}\" is not in model.vocab", what,
            shown(options_.unk_token));
  }
  for (int byte = 0; byte < 256; ++byte) {
    std::string character;
    append_byte_alphabet(character, static_cast<unsigned char>(byte));
    byte_tokens_[byte] = vocab_.find(character).value_or(-1);
    has_all_bytes_ = has_all_bytes_ && byte_tokens_[byte] >= 0;
    fallback_tokens_[byte] = vocab_.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  for (int code = 0; code < 128; ++code) {
    const char character = static_cast<char>(code);
    ascii_tokens_[static_cast<std::size_t>(code)] = vocab_.find({&character, 1}).value_or(-1);
  }
  // These options change the first symbols of a piece.
  if (!options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty())
    has_all_bytes_ = false;
}

bool BpeModel::covers_everything(bool as_bytes) const {
  if (as_bytes) return has_all_bytes_;
  return options_.byte_fallback && std::all_of(fallback_tokens_.begin(), fallback_tokens_.end(),
                                               [](std::int32_t id) { return id >= 0; });
}

void BpeModel::reserve_merges(std::size_t count) {
  std::size_t slots = 16;
  while (slots < count * 2) slots *= 2;
  if (num_merges_ == 0) merges_.assign(slots, {});
}

void BpeModel::insert(const Merge& merge) {
  std::size_t slot = mix64(merge.pair) & (merges_.size() - 1);
  while (merges_[slot].pair != ~0ull && merges_[slot].pair != merge.pair)
    slot = (slot + 1) & (merges_.size() - 1);
  merges_[slot] = merge;
}

void BpeModel::add_merge(std::string_view left, std::string_view right, std::string_view what) {
  const auto need = [&](std::string_view text) {
    const auto id = vocab_.find(text);
    if (!id)
      fail(ErrorKind::kBadInput,
           "{}: model.merges[{}] needs the token \"{}\", which is not in model.vocab", what,
           num_merges_, shown(text));
    return *id;
  };
  const std::int32_t left_id = need(left);
  const std::int32_t right_id = need(right);
  const std::string& prefix = options_.continuing_subword_prefix;
  if (prefix.size() > right.size())
    fail(ErrorKind::kBadInput,
         "{}: model.merges[{}]: \"{}\" is shorter than continuing_subword_prefix", what,
         num_merges_, shown(right));
  const std::int32_t merged = need(std::string(left).append(right.substr(prefix.size())));
  add_ranked_merge(left_id, right_id, static_cast<std::int32_t>(num_merges_), merged, what);
}

void BpeModel::add_ranked_merge(std::int32_t left, std::int32_t right, std::int32_t rank,
                                std::int32_t merged, std::string_view what) {
  require(num_merges_ < static_cast<std::size_t>(kNoRank), "{}: more than {} merges", what,
          kNoRank);
  if ((num_merges_ + 1) * 2 > merges_.size()) {
    std::vector<Merge> old(std::max<std::size_t>(16, merges_.size() * 2));
    old.swap(merges_);
    for (const Merge& merge : old)
      if (merge.pair != ~0ull) insert(merge);
  }
  insert(
      {static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right), rank, merged});
  ++num_merges_;
}

void BpeModel::set_role(std::int32_t id, Role role) {
  if (roles_.empty()) roles_.resize(static_cast<std::size_t>(vocab_.size()), kPlain);
  roles_[static_cast<std::size_t>(id)] = role;
}
void BpeModel::set_whole(std::int32_t id) {
  set_role(id, kWhole);
}
void BpeModel::set_unused(std::int32_t id) {
  set_role(id, kUnused);
  has_unused_ = true;
}

// Texts of the SentencePiece kind come as one piece. If no token contains a character followed by
// U+2581, no merge crosses that boundary. Then the parts on both sides can be encoded separately,
// and words repeat.
void BpeModel::seal() {
  const bool decorated =
      !options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty();
  cuts_at_spaces_ = !decorated && vocab_.find(kSpaceSymbol).has_value();
  if (!cuts_at_spaces_) return;
  for (std::int32_t id = 0; id < vocab_.size(); ++id) {
    const std::string_view text = vocab_.text(id);
    for (std::size_t at = 1; (at = text.find(kSpaceSymbol, at)) != std::string_view::npos; ++at)
      joined_.push_back(last_character(text.substr(0, at)));
  }
  std::sort(joined_.begin(), joined_.end());
  joined_.erase(std::unique(joined_.begin(), joined_.end()), joined_.end());
}

// The first possible cut in `piece`, or its end.
std::size_t BpeModel::first_cut(std::string_view piece) const {
  for (std::size_t at = 1; (at = piece.find(kSpaceSymbol, at)) != std::string_view::npos;
       at += kSpaceSymbol.size()) {
    const char32_t before = last_character(piece.substr(0, at));
    if (!std::binary_search(joined_.begin(), joined_.end(), before)) return at;
  }
  return piece.size();
}

const BpeModel::Merge* BpeModel::find_merge(std::int32_t left, std::int32_t right) const {
  if (merges_.empty()) return nullptr;
  const auto pair = static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  std::size_t slot = mix64(pair) & (merges_.size() - 1);
  while (merges_[slot].pair != pair) {
    if (merges_[slot].pair == ~0ull) return nullptr;
    slot = (slot + 1) & (merges_.size() - 1);
  }
  return &merges_[slot];
}

bool BpeModel::bytes_to_symbols(std::string_view character,
                                std::vector<std::int32_t>& symbols) const {
  for (const char c : character)
    if (fallback_tokens_[static_cast<unsigned char>(c)] < 0) return false;
  for (const char c : character) symbols.push_back(fallback_tokens_[static_cast<unsigned char>(c)]);
  return true;
}

void BpeModel::characters_to_symbols(std::string_view piece,
                                     std::vector<std::int32_t>& symbols) const {
  const bool decorated =
      !options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty();
  // A run of unknown characters is written when a known symbol follows it; in the reference byte
  // fallbacks may come before.
  bool unk_pending = false;
  std::string text;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t size = utf8_length(static_cast<unsigned char>(piece[at]));
    std::string_view character = piece.substr(at, size);
    if (decorated) {
      text.assign(at > 0 ? options_.continuing_subword_prefix : "").append(character);
      if (at + size == piece.size()) text += options_.end_of_word_suffix;
      character = text;
    }
    at += size;
    const std::int32_t id = character.size() == 1 && static_cast<unsigned char>(character[0]) < 0x80
                                ? ascii_tokens_[static_cast<unsigned char>(character[0])]
                                : vocab_.find(character).value_or(-1);
    if (id >= 0) {
      if (unk_pending) symbols.push_back(*unk_);
      unk_pending = false;
      symbols.push_back(id);
    } else if (!(options_.byte_fallback && bytes_to_symbols(character, symbols)) && unk_) {
      if (unk_pending && !options_.fuse_unk) symbols.push_back(*unk_);
      unk_pending = true;
    }
  }
  if (unk_pending) symbols.push_back(*unk_);
}

// Merges the pair of lowest rank, the leftmost of equals, until there is none.
void BpeModel::merge_short(std::vector<std::int32_t>& symbols, Scratch& scratch) const {
  auto& found = scratch.found_;
  std::size_t count = symbols.size();
  found.resize(count);
  for (std::size_t i = 0; i + 1 < count; ++i) found[i] = find_merge(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = count;
    std::int32_t best_rank = kNoRank;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      if (found[i] == nullptr || found[i]->rank >= best_rank) continue;
      best = i;
      best_rank = found[i]->rank;
    }
    if (best == count) break;
    symbols[best] = found[best]->id;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      found[i] = found[i + 1];
    }
    if (best + 1 < count) found[best] = find_merge(symbols[best], symbols[best + 1]);
    if (best > 0) found[best - 1] = find_merge(symbols[best - 1], symbols[best]);
  }
  symbols.resize(count);
}

// As merge_short(), with a heap of candidates and a linked list, for pieces of any length.
void BpeModel::merge_long(std::vector<std::int32_t>& symbols, Scratch& scratch) const {
  using Candidate = Scratch::Candidate;
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto count = static_cast<std::int32_t>(symbols.size());
  auto& nodes = scratch.nodes_;
  auto& heap = scratch.heap_;
  nodes.resize(symbols.size());
  heap.clear();
  for (std::int32_t i = 0; i < count; ++i)
    nodes[i] = {symbols[i], i - 1, i + 1 < count ? i + 1 : -1};
  const auto candidate_at = [&](std::int32_t position, Candidate& out) {
    const std::int32_t next = nodes[position].next;
    const Merge* merge = next >= 0 ? find_merge(nodes[position].id, nodes[next].id) : nullptr;
    if (merge == nullptr) return false;
    out = {merge->rank, position, nodes[position].id, nodes[next].id, merge->id};
    if (has_unused_ && role(merge->id) == kUnused)
      scratch.halves_[merge->id] = {out.left, out.right};
    return true;
  };
  const auto push = [&](std::int32_t position) {
    Candidate candidate;
    if (!candidate_at(position, candidate)) return;
    heap.push_back(candidate);
    std::push_heap(heap.begin(), heap.end(), later);
  };
  for (std::int32_t i = 0; i < count; ++i) {
    Candidate candidate;
    if (candidate_at(i, candidate)) heap.push_back(candidate);
  }
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    ++scratch.heap_steps_;
    const Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    auto& node = nodes[top.position];
    if (node.id != top.left || node.next < 0 || nodes[node.next].id != top.right) continue;
    const std::int32_t gone = node.next;
    node.id = top.id;
    node.next = nodes[gone].next;
    nodes[gone].id = -1;
    if (node.next >= 0) nodes[node.next].previous = top.position;
    if (node.previous >= 0) push(node.previous);
    push(top.position);
  }
  symbols.clear();
  for (std::int32_t i = count > 0 ? 0 : -1; i >= 0; i = nodes[i].next)
    symbols.push_back(nodes[i].id);
}

// Remaining unused tokens become the two halves of their last merge.
void BpeModel::split_unused(std::vector<std::int32_t>& symbols, const Scratch& scratch) const {
  std::vector<std::int32_t> pending(symbols.rbegin(), symbols.rend());
  symbols.clear();
  while (!pending.empty()) {
    const std::int32_t id = pending.back();
    pending.pop_back();
    const auto halves = role(id) == kUnused ? scratch.halves_.find(id) : scratch.halves_.end();
    if (halves == scratch.halves_.end()) {
      symbols.push_back(id);
    } else {
      pending.push_back(halves->second.second);
      pending.push_back(halves->second.first);
    }
  }
}

BpeModel::Scratch::Scratch() = default;

// A token equal to the whole piece, if such a token has priority over the merges.
std::optional<std::int32_t> BpeModel::whole_token(std::string_view piece, bool as_bytes) const {
  // In the byte alphabet a text has at most twice as many bytes as the original, and at least as
  // many.
  if ((!options_.ignore_merges && roles_.empty()) || piece.size() > vocab_.longest_bytes())
    return std::nullopt;
  const auto id = as_bytes ? vocab_.find(to_byte_alphabet(piece)) : vocab_.find(piece);
  return id && (options_.ignore_merges || role(*id) == kWhole) ? id : std::nullopt;
}

void BpeModel::encode(std::string_view piece, bool as_bytes, Scratch& scratch,
                      std::vector<std::int32_t>& ids) const {
  require(piece.size() < static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()),
          "a piece of {} bytes is too long to tokenize", piece.size());
  if (as_bytes || !cuts_at_spaces_ || whole_token(piece, as_bytes))
    return encode_part(piece, as_bytes, scratch, ids);
  while (!piece.empty()) {
    const std::size_t cut = first_cut(piece);
    encode_part(piece.substr(0, cut), as_bytes, scratch, ids);
    piece.remove_prefix(cut);
  }
}

void BpeModel::encode_part(std::string_view piece, bool as_bytes, Scratch& scratch,
                           std::vector<std::int32_t>& ids) const {
  if (piece.empty()) return;
  if (as_bytes && piece.size() == 1) {
    ids.push_back(byte_tokens_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  Scratch::Remembered* memory = nullptr;
  if (piece.size() <= kMaxRememberedBytes && ++scratch.seen_ > kMemoryFrom) {
    if (scratch.memory_.empty()) scratch.memory_.resize(kMemorySlots);
    memory = &scratch.memory_[hash_bytes(piece) % kMemorySlots];
    if (memory->piece == piece) {
      ids.insert(ids.end(), memory->ids.begin(), memory->ids.end());
      return;
    }
  }

  std::vector<std::int32_t>& symbols = scratch.symbols_;
  symbols.clear();
  if (const auto whole = whole_token(piece, as_bytes)) {
    symbols.push_back(*whole);
  } else if (as_bytes) {
    for (const char c : piece) symbols.push_back(byte_tokens_[static_cast<unsigned char>(c)]);
  } else {
    characters_to_symbols(piece, symbols);
  }
  if (symbols.size() <= kShortPiece && !has_unused_)
    merge_short(symbols, scratch);
  else
    merge_long(symbols, scratch);
  if (has_unused_) split_unused(symbols, scratch);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  if (memory) {
    memory->piece.assign(piece);
    memory->ids.assign(symbols.begin(), symbols.end());
  }
}

}  // namespace sluice
