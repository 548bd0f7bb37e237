// Tokens by what they do in a JSON string.
#include <algorithm>
#include <map>

#include "text/grammar/spelling.h"
#include "text/grammar/vocabulary.h"

namespace sluice::grammar {
namespace {

// The beginning of `text` as the content of a JSON string.
struct Content {
  std::u32string codes;      // whole characters
  std::uint32_t chars = 0;   // also one that has begun
  std::size_t size = 0;      // bytes that may stand there
  bool is_boundary = false;  // they end with a whole character
};

Content content_of(std::string_view text) {
  Content out;
  Spelling at;
  const auto any = [](char32_t, char32_t) { return true; };
  for (; out.size < text.size(); ++out.size) {
    const bool is_begin = at.kind == Spelling::kBoundary;
    const auto byte = static_cast<unsigned char>(text[out.size]);
    const SpellingStep next = spelling::step(at, byte, true, any);
    if (!next.is_possible) break;
    if (is_begin) ++out.chars;
    at = next.spelling;
    if (next.is_whole) out.codes += next.code;
  }
  out.is_boundary = at.kind == Spelling::kBoundary;
  return out;
}

}  // namespace

// A token that a quote cuts into the end of a string and what follows.
struct Vocabulary::Split {
  std::u32string prefix;
  std::string_view suffix;
  std::int32_t token = -1;
  bool is_opened = false;  // the string begins within the token
  std::uint32_t prefix_index = 0, suffix_index = 0;
};

void Vocabulary::make_prefixes(std::vector<Split>& splits) {
  std::map<std::u32string, std::uint32_t> all = {{U"", 0}};
  for (const Split& split : splits) all.emplace(split.prefix, 0);
  std::uint32_t next = 0;
  for (auto& [text, index] : all) index = next++;  // the empty text comes first
  for (Split& split : splits) split.prefix_index = all[split.prefix];
  num_prefixes_ = all.size();
  std::vector<std::uint32_t> path;
  std::u32string last;
  for (const auto& [text, index] : all) {
    prefix_chars_.push_back(static_cast<std::uint32_t>(text.size()));
    longest_chars_ = std::max(longest_chars_, prefix_chars_.back());
    std::size_t common = 0;
    while (common < last.size() && common < text.size() && last[common] == text[common]) ++common;
    for (; path.size() > common; path.pop_back())
      prefixes_[path.back()].end = static_cast<std::uint32_t>(prefixes_.size());
    for (std::size_t depth = common; depth < text.size(); ++depth) {
      path.push_back(static_cast<std::uint32_t>(prefixes_.size()));
      prefixes_.push_back({.code = text[depth], .depth = static_cast<std::uint32_t>(depth + 1)});
    }
    if (!path.empty()) prefixes_[path.back()].prefix = static_cast<std::int32_t>(index);
    last = text;
  }
  for (const std::uint32_t node : path)
    prefixes_[node].end = static_cast<std::uint32_t>(prefixes_.size());
}

void Vocabulary::make_suffixes(std::vector<Split>& splits) {
  std::map<std::string_view, std::uint32_t> all;
  for (const Split& split : splits) all.emplace(split.suffix, 0);
  std::vector<Keyed> keys;
  for (auto& [text, index] : all) {
    index = static_cast<std::uint32_t>(keys.size());
    keys.push_back({text, static_cast<std::int32_t>(index)});
  }
  for (Split& split : splits) split.suffix_index = all[split.suffix];
  quotes_begin_.resize(keys.size() + 1);
  suffixes_ = make_trie(std::move(keys), nullptr);
}

void Vocabulary::classify() {
  inside_bits_.assign(num_words(), 0);
  std::vector<Split> splits;
  struct Below {  // a token below a quote
    std::uint32_t node;
    std::int32_t token;
    bool stays;
    std::size_t split;
  };
  std::vector<Below> below;
  std::vector<std::uint32_t> path;
  const auto one = [&](std::uint32_t node, std::int32_t token) {
    const std::string_view text = bytes(token);
    const Content content = content_of(text);
    if (content.size == text.size()) {
      inside_.push_back({node, token, content.chars});
      set_bit(inside_bits_, token);
    } else if (content.is_boundary && text[content.size] == '"') {
      node_quotes_.push_back({node, token, static_cast<std::uint32_t>(content.size),
                              static_cast<std::uint32_t>(splits.size())});
      splits.push_back({content.codes, text.substr(content.size), token});
    }
    for (std::size_t quote = text.find('"'); quote < text.size() - 1;
         quote = text.find('"', quote + 1)) {
      const std::string_view rest = text.substr(quote + 1);
      const Content opened = content_of(rest);
      if (opened.size == rest.size()) {
        below.push_back({path[quote], token, true, 0});
      } else if (opened.is_boundary && rest[opened.size] == '"') {
        below.push_back({path[quote], token, false, splits.size()});
        splits.push_back({opened.codes, rest.substr(opened.size), token, true});
      }
    }
  };
  first_inside_.resize(trie_.size() + 1);
  node_of_.resize(same_.size());
  for (std::uint32_t node = 0; node < trie_.size(); ++node) {
    first_inside_[node] = static_cast<std::uint32_t>(inside_.size());
    path.resize(trie_[node].depth);
    path.back() = node;
    for (std::int32_t token = trie_[node].token; token >= 0; token = same(token)) {
      node_of_[static_cast<std::size_t>(token)] = node;
      one(node, token);
    }
  }
  first_inside_[trie_.size()] = static_cast<std::uint32_t>(inside_.size());
  make_prefixes(splits);
  make_suffixes(splits);

  for (NodeQuote& quote : node_quotes_) quote.suffix = splits[quote.suffix].suffix_index;
  std::ranges::stable_sort(below, {}, &Below::node);
  for (const Below& entry : below) {
    if (opened_.empty() || opened_.back().node != entry.node) {
      const auto inside = static_cast<std::uint32_t>(opened_inside_.size());
      const auto quotes = static_cast<std::uint32_t>(opened_quotes_.size());
      opened_.push_back({entry.node, inside, inside, quotes, quotes});
    }
    if (entry.stays) {
      opened_inside_.push_back(entry.token);
      ++opened_.back().inside_end;
    } else {
      const Split& split = splits[entry.split];
      opened_quotes_.push_back({split.token, split.prefix_index, split.suffix_index});
      ++opened_.back().quotes_end;
    }
  }
  std::erase_if(splits, &Split::is_opened);
  std::ranges::stable_sort(splits, {}, &Split::suffix_index);
  for (const Split& split : splits) {
    quotes_.push_back({split.token, split.prefix_index, split.suffix_index});
    ++quotes_begin_[split.suffix_index + 1];
  }
  for (std::size_t i = 1; i < quotes_begin_.size(); ++i) quotes_begin_[i] += quotes_begin_[i - 1];
  prefix_quotes_ = quotes_;
  std::ranges::stable_sort(prefix_quotes_, {}, &QuoteToken::prefix);
  prefix_begin_.resize(num_prefixes_ + 1);
  for (const QuoteToken& quote : prefix_quotes_) ++prefix_begin_[quote.prefix + 1];
  for (std::size_t i = 1; i < prefix_begin_.size(); ++i) prefix_begin_[i] += prefix_begin_[i - 1];

  short_bits_.assign(kShortChars + 1, std::vector<std::uint32_t>(num_words()));
  for (const InsideToken& token : inside_) {
    longest_chars_ = std::max(longest_chars_, token.chars);
    if (token.chars > kShortChars) long_inside_.push_back(token);
    for (std::size_t chars = token.chars; chars <= kShortChars; ++chars)
      set_bit(short_bits_[chars], token.token);
  }
}

const Vocabulary::Opened* Vocabulary::opened(std::uint32_t node) const {
  const auto it = std::ranges::lower_bound(opened_, node, {}, &Opened::node);
  return it != opened_.end() && it->node == node ? &*it : nullptr;
}

void Vocabulary::add_inside(std::span<std::uint32_t> bits, std::uint64_t chars) const {
  const std::vector<std::uint32_t>& base = short_bits_[std::min<std::uint64_t>(chars, kShortChars)];
  for (std::size_t i = 0; i < base.size(); ++i) bits[i] |= base[i];
  if (chars <= kShortChars) return;
  for (const InsideToken& token : long_inside_)
    if (token.chars <= chars) set_bit(bits, token.token);
}

std::uint64_t Vocabulary::bytes_used() const {
  return bytes_.size() + offsets_.size() * 4 + trie_.size() * sizeof(Node) +
         (same_.size() + node_of_.size()) * 4 + inside_.size() * sizeof(InsideToken) +
         first_inside_.size() * 4 +
         (2 * quotes_.size() + opened_quotes_.size()) * sizeof(QuoteToken) +
         node_quotes_.size() * sizeof(NodeQuote) + opened_inside_.size() * 4 +
         prefixes_.size() * sizeof(PrefixNode) + suffixes_.size() * sizeof(Node) +
         (short_bits_.size() + 2) * num_words() * 4;
}

}  // namespace sluice::grammar
