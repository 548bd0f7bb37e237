#include "text/grammar/masks.h"

#include <algorithm>
#include <bit>

namespace sluice::grammar {
namespace {

constexpr Text kNoText{{}, false};
// A mask of fewer tokens is kept as a list.
constexpr std::size_t kMaxListed = 1024;

}  // namespace

Masks::Masks(Machine& machine, const Vocabulary& vocabulary, std::uint64_t max_bytes)
    : machine_(machine), vocabulary_(vocabulary), max_bytes_(max_bytes) {
  path_.resize(vocabulary.longest_bytes() + 2);
  in_loop_.resize(path_.size());
}

bool Masks::is_string(const Item& item) const {
  if (!machine_.is_text(item)) return false;
  const Machine::TextPlace at = machine_.text_place(item);
  return at.leaf->is_json && at.language == LanguageStore::kAnyText &&
         at.leaf->language == LanguageStore::kAnyText && at.spelling.kind == Spelling::kBoundary;
}

bool Masks::is_bounded_string(const Item& item) const {
  return is_string(item) && machine_.text_place(item).leaf->has_bounds();
}

bool Masks::is_nearly_string(const Item& item) const {
  if (!machine_.is_text(item)) return false;
  const Machine::TextPlace at = machine_.text_place(item);
  return at.leaf->is_json && !at.leaf->has_bounds() && at.spelling.kind == Spelling::kBoundary &&
         machine_.languages().step(at.language, U'\u4E00') == LanguageStore::kAnyText;
}

bool Masks::is_plain_loop(const Item& item) const {
  if (!machine_.is_text(item)) return false;
  const Machine::TextPlace at = machine_.text_place(item);
  return !at.leaf->has_bounds() && at.spelling.kind == Spelling::kBoundary &&
         machine_.languages().is_plain_loop(at.language);
}

void Masks::fill(StateId state, std::string_view text, std::span<std::uint32_t> bits) {
  ++clock_;
  std::vector<Item> bounded, rest;
  for (const Item& item : machine_.items(state))
    (is_bounded_string(item) ? bounded : rest).push_back(item);
  StateId base = state;
  if (!bounded.empty()) base = rest.empty() ? Machine::kDead : machine_.state_of(rest);
  std::vector<std::int32_t> unknown;
  if (base != Machine::kDead) {
    const Entry& entry = entry_of(machine_.horizon_form(base, vocabulary_.longest_bytes()));
    apply(entry, bits);
    unknown = entry.unknown;
  }
  for (const Item& item : bounded) add_bounded_string(item, bits, unknown);
  if (!unknown.empty()) try_unknown(state, text, unknown, bits);
}

const Masks::Entry& Masks::entry_of(StateId form) {
  auto it = entries_.find(form);
  if (it == entries_.end()) {
    make_room();
    Entry entry;
    make(form, entry);
    bytes_ += entry.bytes();
    it = entries_.emplace(form, std::move(entry)).first;
  }
  it->second.last_use = clock_;
  return it->second;
}

// Forgets the half of the masks that was not used for the longest time.
void Masks::make_room() {
  if (bytes_ <= max_bytes_) return;
  std::vector<std::uint64_t> uses;
  for (const auto& [form, entry] : entries_) uses.push_back(entry.last_use);
  for (const auto& [state, behind] : behind_) uses.push_back(behind.last_use);
  const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(uses.size() / 2);
  std::nth_element(uses.begin(), middle, uses.end());
  const std::uint64_t oldest = *middle;
  std::erase_if(entries_, [&](const auto& entry) {
    return entry.second.last_use <= oldest && entry.second.last_use != clock_;
  });
  std::erase_if(behind_, [&](const auto& entry) {
    return entry.second.last_use <= oldest && entry.second.last_use != clock_;
  });
  bytes_ = 0;
  for (const auto& [form, entry] : entries_) bytes_ += entry.bytes();
  for (const auto& [state, behind] : behind_)
    bytes_ += 96 + behind.allowed.size() * 4 + behind.is_allowed.size() / 8;
}

void Masks::apply(const Entry& entry, std::span<std::uint32_t> bits) const {
  const std::vector<std::uint32_t>* base = nullptr;
  if (!entry.dense.empty())
    base = &entry.dense;
  else if (entry.has_inside)
    base = &vocabulary_.inside_bits();
  else if (entry.has_plain)
    base = &vocabulary_.plain_bits();
  if (base != nullptr) std::copy(base->begin(), base->end(), bits.begin());
  for (const std::int32_t token : entry.add) set_bit(bits, token);
}

void Masks::make(StateId form, Entry& entry) {
  const std::span<const Item> span = machine_.items(form);
  const std::vector<Item> items(span.begin(), span.end());
  scratch_.assign(vocabulary_.num_words(), 0);
  const std::span<std::uint32_t> bits = scratch_;
  std::vector<Item> rest;
  for (const Item& item : items) {
    if (is_string(item) && !is_bounded_string(item)) {
      entry.has_inside = true;
      const Behind& behind = behind_quote(item);
      for (const std::uint32_t suffix : behind.allowed)
        for (const auto& [chars, token] : vocabulary_.quote_suffixes().of(suffix))
          set_bit(bits, token);
      for (const std::uint32_t suffix : behind.unknown)
        for (const auto& [chars, token] : vocabulary_.quote_suffixes().of(suffix))
          entry.unknown.push_back(token);
    } else if (is_nearly_string(item)) {
      walk_text(item, bits, entry.unknown);
    } else if (is_plain_loop(item)) {
      entry.has_plain = true;
      const StateId state = machine_.state_of(std::span(&item, 1));
      const Vocabulary::Suffixes& suffixes = vocabulary_.plain_suffixes();
      const Vocabulary::Trie& trie = suffixes.trie;
      path_[0] = state;
      for (std::uint32_t node = 0; node < trie.size();) {
        const StateId to = machine_.step(path_[trie[node].depth - 1u], trie[node].byte, kNoText);
        if (to == Machine::kDead || to == Machine::kUnknown) {
          if (to == Machine::kUnknown)
            for (std::uint32_t i = node; i < trie[node].end; ++i)
              if (trie[i].token >= 0)
                for (const auto& [chars, token] :
                     suffixes.of(static_cast<std::uint32_t>(trie[i].token)))
                  entry.unknown.push_back(token);
          node = trie[node].end;
          continue;
        }
        path_[trie[node].depth] = to;
        if (trie[node].token >= 0)
          for (const auto& [chars, token] :
               suffixes.of(static_cast<std::uint32_t>(trie[node].token)))
            set_bit(bits, token);
        ++node;
      }
    } else if (!walk_loop(item, bits, entry.unknown)) {
      rest.push_back(item);
    }
  }
  if (!rest.empty()) walk(machine_.state_of(rest), bits, entry.unknown);

  // the smaller form
  const std::vector<std::uint32_t>* base = nullptr;
  if (entry.has_inside) base = &vocabulary_.inside_bits();
  if (entry.has_plain && !entry.has_inside) base = &vocabulary_.plain_bits();
  if (entry.has_plain && entry.has_inside)
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] |= vocabulary_.plain_bits()[i];
  std::size_t count = 0;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (base != nullptr) bits[i] &= ~(*base)[i];
    count += static_cast<std::size_t>(std::popcount(bits[i]));
  }
  if (count <= vocabulary_.num_words() / 2 || count <= kMaxListed) {
    for (std::size_t i = 0; i < bits.size(); ++i)
      for (std::uint32_t word = bits[i]; word != 0; word &= word - 1)
        entry.add.push_back(static_cast<std::int32_t>(i * 32) + std::countr_zero(word));
    return;
  }
  if (base != nullptr)
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] |= (*base)[i];
  entry.dense = scratch_;
  entry.has_inside = entry.has_plain = false;
}

void Masks::add_subtree(std::uint32_t node, std::vector<std::int32_t>& out) const {
  const Vocabulary::Trie& trie = vocabulary_.trie();
  for (std::uint32_t i = node; i < trie[node].end; ++i)
    for (std::int32_t token = trie[i].token; token >= 0; token = vocabulary_.same(token))
      out.push_back(token);
}

void Masks::walk(StateId state, std::span<std::uint32_t> bits, std::vector<std::int32_t>& unknown) {
  const Vocabulary::Trie& trie = vocabulary_.trie();
  path_[0] = state;
  for (std::uint32_t node = 0; node < trie.size();) {
    const Vocabulary::Node& at = trie[node];
    const StateId to = machine_.step(path_[at.depth - 1u], at.byte, kNoText);
    if (to == Machine::kDead) {
      node = at.end;
      continue;
    }
    if (to == Machine::kUnknown) {
      add_subtree(node, unknown);
      node = at.end;
      continue;
    }
    path_[at.depth] = to;
    for (std::int32_t token = at.token; token >= 0; token = vocabulary_.same(token))
      set_bit(bits, token);
    ++node;
    if (machine_.is_exhausted()) return;
  }
}

// A JSON string whose text is free but for exceptions: the walk leaves the trie where it is free.
void Masks::walk_text(const Item& item, std::span<std::uint32_t> bits,
                      std::vector<std::int32_t>& unknown) {
  const Vocabulary::Trie& trie = vocabulary_.trie();
  Machine::TextPlace free_place = machine_.text_place(item);
  free_place.language = LanguageStore::kAnyText;
  const Item free_item = machine_.text_item(item, free_place);
  const StateId free_state = machine_.state_of(std::span(&free_item, 1));
  const Behind behind = behind_quote(free_item);
  std::vector<std::uint32_t> own = vocabulary_.inside_bits();
  std::vector<bool> is_unknown(behind.is_allowed.size());
  for (const std::uint32_t suffix : behind.unknown) is_unknown[suffix] = true;
  const auto inside_from = [&](std::uint32_t node) {
    return std::ranges::lower_bound(vocabulary_.inside(), node, {}, &Vocabulary::InsideToken::node);
  };
  path_[0] = machine_.state_of(std::span(&item, 1));
  for (std::uint32_t node = 0; node < trie.size();) {
    const Vocabulary::Node& at = trie[node];
    const StateId to = machine_.step(path_[at.depth - 1u], at.byte, kNoText);
    if (machine_.is_exhausted()) return;
    if (to == free_state) {
      auto it =
          std::ranges::lower_bound(vocabulary_.quotes(), node, {}, &Vocabulary::QuoteToken::node);
      for (; it != vocabulary_.quotes().end() && it->node < at.end; ++it) {
        if (behind.is_allowed[it->suffix]) set_bit(own, it->token);
        if (is_unknown[it->suffix]) unknown.push_back(it->token);
      }
      node = at.end;
      continue;
    }
    if (to == Machine::kDead || to == Machine::kUnknown) {
      for (auto it = inside_from(node); it != vocabulary_.inside().end() && it->node < at.end; ++it)
        clear_bit(own, it->token);
      if (to == Machine::kUnknown) add_subtree(node, unknown);
      node = at.end;
      continue;
    }
    path_[at.depth] = to;
    for (std::int32_t token = at.token; token >= 0; token = vocabulary_.same(token))
      set_bit(own, token);
    ++node;
  }
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] |= own[i];
}

const Masks::Behind& Masks::behind_quote(const Item& item) {
  Machine::TextPlace at = machine_.text_place(item);
  at.count = at.leaf->min;  // a length at which the string may end
  const Item closing = machine_.text_item(item, at);
  const StateId state = machine_.state_of(std::span(&closing, 1));
  const auto it = behind_.find(state);
  if (it != behind_.end()) {
    it->second.last_use = clock_;
    return it->second;
  }
  Behind behind;
  behind.last_use = clock_;
  const Vocabulary::Suffixes& suffixes = vocabulary_.quote_suffixes();
  behind.is_allowed.resize(suffixes.size());
  path_[0] = state;
  for (std::uint32_t node = 0; node < suffixes.trie.size();) {
    const Vocabulary::Node& n = suffixes.trie[node];
    const StateId to = machine_.step(path_[n.depth - 1u], n.byte, kNoText);
    if (to == Machine::kDead || to == Machine::kUnknown) {
      for (std::uint32_t i = node; to == Machine::kUnknown && i < n.end; ++i)
        if (suffixes.trie[i].token >= 0)
          behind.unknown.push_back(static_cast<std::uint32_t>(suffixes.trie[i].token));
      node = n.end;
      continue;
    }
    path_[n.depth] = to;
    if (n.token >= 0) {
      behind.allowed.push_back(static_cast<std::uint32_t>(n.token));
      behind.is_allowed[static_cast<std::size_t>(n.token)] = true;
    }
    ++node;
  }
  bytes_ += 96 + behind.allowed.size() * 4 + behind.is_allowed.size() / 8;
  return behind_.emplace(state, std::move(behind)).first->second;
}

void Masks::add_bounded_string(const Item& item, std::span<std::uint32_t> bits,
                               std::vector<std::int32_t>& unknown) {
  const Machine::TextPlace at = machine_.text_place(item);
  const std::uint64_t max = at.leaf->max, min = at.leaf->min;
  const std::uint64_t left = max == kUnbounded ? kUnbounded : max - at.count;
  vocabulary_.add_inside(bits, left);
  // the horizon form leaves out where values began
  const StateId alone = machine_.state_of(std::span(&item, 1));
  const Item form = machine_.items(machine_.horizon_form(alone, vocabulary_.longest_bytes()))[0];
  const Behind& behind = behind_quote(form);
  const auto each = [&](std::uint32_t suffix, auto use) {
    for (const auto& [chars, token] : vocabulary_.quote_suffixes().of(suffix)) {
      if (chars > left) break;
      if (at.count + chars >= min) use(token);
    }
  };
  for (const std::uint32_t suffix : behind.allowed)
    each(suffix, [&](std::int32_t token) { set_bit(bits, token); });
  for (const std::uint32_t suffix : behind.unknown)
    each(suffix, [&](std::int32_t token) { unknown.push_back(token); });
}

// Tokens whose fate depends on the text: each is tried.
void Masks::try_unknown(StateId state, std::string_view text, std::span<const std::int32_t> tokens,
                        std::span<std::uint32_t> bits) {
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
