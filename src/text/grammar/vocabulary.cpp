#include "text/grammar/vocabulary.h"

#include <algorithm>

#include "text/grammar/spelling.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode.h"

namespace sluice::grammar {
namespace {

constexpr char kSpecialMark = '\xFF';
// Inside tokens of up to this many characters have a mask for each number of them.
constexpr std::size_t kShortChars = 24;

bool is_blank(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; });
}

// A character that most kinds of quoted text may hold: LanguageStore::is_plain_loop has the same.
bool is_plain(char32_t code) {
  return code >= 0x20 && code != '"' && code != '\\' && code != 0x7F;
}

}  // namespace

std::string special(std::string_view token_text) {
  return std::string(1, kSpecialMark) + std::string(token_text);
}

Vocabulary::Vocabulary(const Tokenizer& tokenizer, std::int32_t vocab_size)
    : vocab_size_(vocab_size) {
  const std::int32_t count = std::min(tokenizer.size(), vocab_size);
  std::vector<Keyed> keys;
  offsets_.push_back(0);
  for (std::int32_t id = 0; id < count; ++id) {
    if (tokenizer.is_token(id)) {
      const std::string_view bytes = tokenizer.token_bytes_view(id);
      const std::string text = tokenizer.token_text(id);
      const bool is_added = tokenizer.is_added_token(text);
      if (tokenizer.is_special(id) || (is_added && !is_blank(bytes))) {
        specials_.push_back(text);
        bytes_ += special(text);
      } else if (bytes.find(kSpecialMark) == std::string_view::npos) {
        bytes_ += bytes;
      }
    }
    offsets_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  }
  for (std::int32_t id = 0; id < count; ++id) {
    longest_bytes_ = std::max(longest_bytes_, bytes(id).size());
    if (!bytes(id).empty()) keys.push_back({bytes(id), id});
  }
  std::ranges::sort(specials_);
  same_.assign(static_cast<std::size_t>(vocab_size), -1);
  trie_ = make_trie(std::move(keys), &same_);
  classify();
  find_kinds();
}

std::size_t Vocabulary::special_at(std::string_view text) const {
  std::size_t longest = 0;
  for (const std::string& token : specials_)
    if (token.size() > longest && text.starts_with(token)) longest = token.size();
  return longest;
}

Vocabulary::Trie Vocabulary::make_trie(std::vector<Keyed> keys, std::vector<std::int32_t>* same) {
  std::ranges::sort(keys, [](const Keyed& a, const Keyed& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.token < b.token;
  });
  Trie trie;
  std::vector<std::uint32_t> path;  // nodes of the last key
  std::string_view last;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::string_view key = keys[i].bytes;
    if (i > 0 && key == last) {
      if (same != nullptr) (*same)[static_cast<std::size_t>(keys[i - 1].token)] = keys[i].token;
      continue;
    }
    std::size_t common = 0;
    while (common < last.size() && common < key.size() && last[common] == key[common]) ++common;
    while (path.size() > common) {
      trie[path.back()].end = static_cast<std::uint32_t>(trie.size());
      path.pop_back();
    }
    for (std::size_t depth = common; depth < key.size(); ++depth) {
      path.push_back(static_cast<std::uint32_t>(trie.size()));
      trie.push_back({.depth = static_cast<std::uint16_t>(depth + 1),
                      .byte = static_cast<unsigned char>(key[depth])});
    }
    trie[path.back()].token = keys[i].token;
    last = key;
  }
  for (const std::uint32_t node : path) trie[node].end = static_cast<std::uint32_t>(trie.size());
  return trie;
}

Vocabulary::Suffixes Vocabulary::make_suffixes(std::vector<Split> splits) {
  std::ranges::sort(splits, [](const Split& a, const Split& b) {
    return a.suffix != b.suffix ? a.suffix < b.suffix : a.chars < b.chars;
  });
  Suffixes out;
  std::vector<Keyed> keys;
  for (std::size_t i = 0; i < splits.size(); ++i) {
    if (i == 0 || splits[i].suffix != splits[i - 1].suffix) {
      keys.push_back({splits[i].suffix, static_cast<std::int32_t>(out.begin.size())});
      out.begin.push_back(static_cast<std::uint32_t>(i));
    }
    out.entries.push_back({splits[i].chars, splits[i].token});
  }
  out.begin.push_back(static_cast<std::uint32_t>(splits.size()));
  out.trie = make_trie(std::move(keys), nullptr);
  return out;
}

void Vocabulary::classify() {
  inside_bits_.assign(num_words(), 0);
  plain_bits_.assign(num_words(), 0);
  std::vector<Split> quote_splits, plain_splits;
  const auto any = [](char32_t, char32_t) { return true; };
  const auto one = [&](std::uint32_t node, std::int32_t token) {
    const std::string_view text = bytes(token);
    Spelling at;
    std::uint32_t chars = 0;
    std::size_t i = 0;
    for (; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      const bool is_begin = at.kind == Spelling::kBoundary;
      if (is_begin && byte == '"') break;
      const SpellingStep next = spelling::step(at, byte, true, any);
      if (!next.is_possible) break;
      if (is_begin) ++chars;
      at = next.spelling;
    }
    if (i == text.size()) {
      inside_.push_back({node, token, chars});
      set_bit(inside_bits_, token);
    } else if (text[i] == '"' && at.kind == Spelling::kBoundary) {
      quotes_.push_back({node, token, chars, 0});
      quote_splits.push_back({text.substr(i), chars, token});
    }
    // the run of plain characters
    std::size_t plain = 0;
    std::uint32_t plain_chars = 0;
    while (plain < text.size()) {
      const Utf8Step next = next_utf8(text.substr(plain));
      if (next.kind != Utf8Step::kCharacter || !is_plain(next.code)) break;
      plain += static_cast<std::size_t>(next.size);
      ++plain_chars;
    }
    if (plain == text.size())
      set_bit(plain_bits_, token);
    else
      plain_splits.push_back({text.substr(plain), plain_chars, token});
  };
  for (std::uint32_t node = 0; node < trie_.size(); ++node)
    for (std::int32_t token = trie_[node].token; token >= 0; token = same(token)) one(node, token);

  quote_suffixes_ = make_suffixes(std::move(quote_splits));
  plain_suffixes_ = make_suffixes(std::move(plain_splits));
  std::vector<std::uint32_t> suffix_of(static_cast<std::size_t>(vocab_size_));
  for (std::uint32_t suffix = 0; suffix < quote_suffixes_.size(); ++suffix)
    for (const Suffixes::Entry& entry : quote_suffixes_.of(suffix))
      suffix_of[static_cast<std::size_t>(entry.token)] = suffix;
  for (QuoteToken& quote : quotes_) quote.suffix = suffix_of[static_cast<std::size_t>(quote.token)];

  short_bits_.assign(kShortChars + 1, std::vector<std::uint32_t>(num_words()));
  for (const InsideToken& token : inside_) {
    if (token.chars > kShortChars) long_inside_.push_back(token);
    for (std::size_t chars = token.chars; chars <= kShortChars; ++chars)
      set_bit(short_bits_[chars], token.token);
  }
}

void Vocabulary::add_inside(std::span<std::uint32_t> bits, std::uint64_t chars) const {
  const std::vector<std::uint32_t>& base = short_bits_[std::min<std::uint64_t>(chars, kShortChars)];
  for (std::size_t i = 0; i < base.size(); ++i) bits[i] |= base[i];
  if (chars <= kShortChars) return;
  for (const InsideToken& token : long_inside_)
    if (token.chars <= chars) set_bit(bits, token.token);
}

std::uint64_t Vocabulary::bytes_used() const {
  return bytes_.size() + offsets_.size() * 4 + trie_.size() * sizeof(Node) + same_.size() * 4 +
         inside_.size() * sizeof(InsideToken) + quotes_.size() * sizeof(QuoteToken) +
         (short_bits_.size() + 2) * num_words() * 4;
}

}  // namespace sluice::grammar
