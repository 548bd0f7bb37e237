// Tokens by the kinds of their characters.
#include <algorithm>
#include <array>

#include "text/grammar/vocabulary.h"
#include "text/unicode.h"

namespace sluice::grammar {
namespace {

constexpr int kLower = 0, kUpper = 1, kDigit = 2, kFirstOther = 3;

// Each character that is no letter and no digit has a bit of its own; control characters but tab
// and line ends share one.
constexpr std::array<std::uint8_t, 128> kinds_of_ascii() {
  std::array<std::uint8_t, 128> kinds{};
  std::uint8_t next = kFirstOther + 1;
  for (int c = 0; c < 128; ++c) {
    const auto at = static_cast<std::size_t>(c);
    if (c >= 'a' && c <= 'z')
      kinds[at] = kLower;
    else if (c >= 'A' && c <= 'Z')
      kinds[at] = kUpper;
    else if (c >= '0' && c <= '9')
      kinds[at] = kDigit;
    else if (c < ' ' && c != '\t' && c != '\n' && c != '\r')
      kinds[at] = kFirstOther;
    else
      kinds[at] = next++;
  }
  return kinds;
}

constexpr std::array<std::uint8_t, 128> kKinds = kinds_of_ascii();

std::uint64_t kinds_of_text(std::string_view text) {
  std::uint64_t kinds = 0;
  while (!text.empty()) {
    const Utf8Step next = next_utf8(text);
    if (next.kind != Utf8Step::kCharacter)
      kinds |= Vocabulary::kBroken;
    else
      kinds |= next.size > 1 ? Vocabulary::kWide
                             : Vocabulary::kind_of(static_cast<unsigned char>(text[0]));
    text.remove_prefix(static_cast<std::size_t>(next.size));
  }
  return kinds;
}

}  // namespace

std::uint64_t Vocabulary::kind_of(unsigned char byte) {
  return byte < 128 ? std::uint64_t{1} << kKinds[byte] : kWide;
}

void Vocabulary::find_kinds() {
  std::vector<std::pair<std::uint64_t, std::int32_t>> all;
  below_.resize(trie_.size());
  for (std::uint32_t node = 0; node < trie_.size(); ++node) {
    if (trie_[node].token < 0) continue;
    const std::uint64_t kinds = kinds_of_text(bytes(trie_[node].token));
    below_[node].kinds = kinds;
    for (std::int32_t token = trie_[node].token; token >= 0; token = same(token))
      all.emplace_back(kinds, token);
  }
  // children stand behind their parents
  std::vector<std::uint32_t> path;
  std::vector<std::uint32_t> parent(trie_.size());
  for (std::uint32_t node = 0; node < trie_.size(); ++node) {
    path.resize(trie_[node].depth);
    path[trie_[node].depth - 1u] = node;
    parent[node] = trie_[node].depth > 1 ? path[trie_[node].depth - 2u] : node;
  }
  for (std::size_t node = trie_.size(); node-- > 0;) {
    Below& up = below_[parent[node]];
    if (parent[node] == node) continue;
    up.kinds |= below_[node].kinds;
    up.longest = std::max(up.longest, below_[node].longest + 1);
  }
  std::ranges::sort(all);
  for (const auto& [kinds, token] : all) {
    if (kind_groups_.empty() || kind_groups_.back().kinds != kinds) {
      const auto at = static_cast<std::uint32_t>(kind_tokens_.size());
      kind_groups_.push_back({kinds, 0, at, at});
    }
    kind_tokens_.push_back(token);
    KindGroup& group = kind_groups_.back();
    ++group.end;
    group.longest = std::max(group.longest, static_cast<std::uint32_t>(bytes(token).size()));
  }

  const std::uint64_t letters = kind_of('a') | kind_of('A'), alnum = letters | kind_of('0');
  std::uint64_t printable = 0;
  for (unsigned char c = ' '; c < 0x7F; ++c) printable |= kind_of(c);
  const std::uint64_t unquoted = printable & ~kind_of('"') & ~kind_of('\\');
  const std::uint64_t wanted[] = {printable | kWide,
                                  unquoted | kWide,
                                  unquoted,
                                  alnum | kind_of(' ') | kind_of('_') | kind_of('-') | kind_of('.'),
                                  alnum | kind_of(' '),
                                  alnum | kind_of('_') | kind_of('-') | kind_of('.'),
                                  alnum | kind_of('_'),
                                  alnum,
                                  letters,
                                  kind_of('a') | kind_of('0'),
                                  kind_of('a')};
  std::vector<Slice> made;
  for (const std::uint64_t kinds : wanted) {
    Slice slice{kinds, 0, std::vector<std::uint32_t>(num_words())};
    slice.longest = add_kinds(slice.bits, kinds);
    made.push_back(std::move(slice));
  }
  slices_ = std::move(made);
}

std::uint32_t Vocabulary::add_kinds(std::span<std::uint32_t> bits, std::uint64_t kinds) const {
  std::uint64_t done = 0;
  bool has_slice = false;
  std::uint32_t longest = 0;
  for (const Slice& slice : slices_) {
    if ((slice.kinds & ~kinds) != 0) continue;
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] |= slice.bits[i];
    done = slice.kinds;
    longest = slice.longest;
    has_slice = true;
    break;
  }
  for (const KindGroup& group : kind_groups_) {
    if ((group.kinds & ~kinds) != 0) continue;
    longest = std::max(longest, group.longest);
    if (has_slice && (group.kinds & ~done) == 0) continue;
    for (std::uint32_t i = group.begin; i < group.end; ++i) set_bit(bits, kind_tokens_[i]);
  }
  return longest;
}

}  // namespace sluice::grammar
