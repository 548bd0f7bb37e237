#include "text/grammar/vocabulary.h"

#include <algorithm>

#include "text/tokenizer/tokenizer.h"

namespace sluice::grammar {
namespace {

constexpr char kSpecialMark = '\xFF';
bool is_blank(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; });
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
    const auto digits =
        std::ranges::count_if(bytes(id), [](char c) { return c >= '0' && c <= '9'; });
    longest_digits_ = std::max(longest_digits_, static_cast<std::size_t>(digits));
    if (!bytes(id).empty()) keys.push_back({bytes(id), id});
  }
  std::ranges::sort(specials_);
  for (const std::string& text : specials_)
    if (!text.empty()) begins_special_[static_cast<unsigned char>(text.front())] = true;
  same_.assign(static_cast<std::size_t>(vocab_size), -1);
  trie_ = make_trie(std::move(keys), &same_);
  classify();
  find_kinds();
}

std::size_t Vocabulary::special_at(std::string_view text) const {
  // A token that the text begins with does not stand behind the text. Of those before it the last
  // one is the longest, or shares all that such a token can have.
  while (!text.empty() && begins_special_[static_cast<unsigned char>(text.front())]) {
    const auto behind = std::ranges::upper_bound(
        specials_, text, {}, [](const std::string& token) { return std::string_view(token); });
    if (behind == specials_.begin()) return 0;
    const std::string_view token = behind[-1];
    if (text.starts_with(token)) return token.size();
    text = text.substr(0, std::ranges::mismatch(text, token).in1 - text.begin());
  }
  return 0;
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

}  // namespace sluice::grammar
