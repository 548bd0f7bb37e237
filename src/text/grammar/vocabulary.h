// The tokens of a tokenizer as a grammar sees them: bytes, in a trie that a mask walks, and what is
// the same for every grammar: how tokens behave inside a JSON string.
//
//   const Vocabulary vocabulary(tokenizer, model.vocab_size);
//
// A token stands for the bytes that it adds in the middle of a text. Special tokens, and added
// tokens that are more than white space, are no text: a grammar names such a token by special().
// Ids of the padded vocabulary, and ids without a token, are in no mask. About 100 ms for 130,000
// tokens. Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace sluice {
class Tokenizer;
}

namespace sluice::grammar {

// The bytes by which a grammar names a special token: a byte that no text has, and the token's
// text. Use Grammar::bytes(special("<|end|>")).
std::string special(std::string_view token_text);

class Vocabulary {
 public:
  // `vocab_size`: the width of the logits.
  Vocabulary(const Tokenizer& tokenizer, std::int32_t vocab_size);

  std::int32_t size() const { return vocab_size_; }
  std::size_t num_words() const { return (static_cast<std::size_t>(vocab_size_) + 31) / 32; }
  // Empty for what is in no mask.
  std::string_view bytes(std::int32_t token) const {
    const auto id = static_cast<std::size_t>(token);
    if (token < 0 || id + 1 >= offsets_.size()) return {};
    return std::string_view(bytes_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }
  // Whether the token is text: no special token, and not without bytes.
  bool is_text(std::int32_t token) const {
    const std::string_view text = bytes(token);
    return !text.empty() && text[0] != '\xFF';
  }
  std::size_t longest_bytes() const { return longest_bytes_; }
  std::size_t longest_digits() const { return longest_digits_; }  // of one token
  // The texts of all special tokens, sorted.
  const std::vector<std::string>& special_tokens() const { return specials_; }
  // The length of the longest special token with which `text` begins; 0: none.
  std::size_t special_at(std::string_view text) const;

  // A node of the trie, in the order of a walk (parents before children, siblings by byte). The
  // root is not stored.
  struct Node {
    std::uint32_t end = 0;    // the next node that is not below this one
    std::int32_t token = -1;  // that ends here
    std::uint16_t depth = 0;  // 1 for the first byte
    unsigned char byte = 0;
  };
  using Trie = std::vector<Node>;
  const Trie& trie() const { return trie_; }
  // The node at which a token's bytes end.
  std::uint32_t node_of(std::int32_t token) const {
    return node_of_[static_cast<std::size_t>(token)];
  }
  // The next token with the same bytes, or -1.
  std::int32_t same(std::int32_t token) const { return same_[static_cast<std::size_t>(token)]; }

  // Tokens by what they do in the middle of a JSON string of any text.
  struct InsideToken {  // the string goes on behind the token
    std::uint32_t node;
    std::int32_t token;
    std::uint32_t chars;  // characters that the token begins
  };
  struct QuoteToken {  // a quote closes the string
    std::int32_t token;
    std::uint32_t prefix;  // the text before the quote: an index of prefixes
    std::uint32_t suffix;  // the bytes from the quote on: an index of suffixes
  };
  const std::vector<InsideToken>& inside() const { return inside_; }  // by node
  // The first of inside() at or behind a node.
  std::uint32_t first_inside(std::uint32_t node) const { return first_inside_[node]; }
  // Those of a suffix, and those of a prefix.
  std::span<const QuoteToken> quotes_of(std::uint32_t suffix) const {
    return std::span(quotes_).subspan(quotes_begin_[suffix],
                                      quotes_begin_[suffix + 1] - quotes_begin_[suffix]);
  }
  std::span<const QuoteToken> quotes_with(std::uint32_t prefix) const {
    return std::span(prefix_quotes_)
        .subspan(prefix_begin_[prefix], prefix_begin_[prefix + 1] - prefix_begin_[prefix]);
  }
  struct NodeQuote {
    std::uint32_t node;
    std::int32_t token;
    std::uint32_t quote_at;  // the quote's place in the token's bytes
    std::uint32_t suffix;
  };
  const std::vector<NodeQuote>& node_quotes() const { return node_quotes_; }  // by node
  // Inside tokens of up to `chars` characters; `chars` is at most kShortChars.
  static constexpr std::size_t kShortChars = 24;
  const std::vector<std::uint32_t>& short_bits(std::uint64_t chars) const {
    return short_bits_[chars];
  }
  const std::vector<InsideToken>& long_inside() const { return long_inside_; }
  std::uint32_t longest_chars() const { return longest_chars_; }
  // Sets the inside tokens of up to `chars` characters.
  void add_inside(std::span<std::uint32_t> bits, std::uint64_t chars) const;
  const std::vector<std::uint32_t>& inside_bits() const { return inside_bits_; }

  // Tokens that begin before a string: what is behind the quote that opens it, by the quote's node.
  struct Opened {
    std::uint32_t node = 0;
    std::uint32_t inside_begin = 0, inside_end = 0;  // in opened_inside()
    std::uint32_t quotes_begin = 0, quotes_end = 0;  // in opened_quotes()
  };
  // Null: no token goes on behind this quote.
  const Opened* opened(std::uint32_t node) const;
  const std::vector<std::int32_t>& opened_inside() const { return opened_inside_; }
  const std::vector<QuoteToken>& opened_quotes() const { return opened_quotes_; }

  // The texts in front of quotes, one code point a node, in the order of a walk. The empty text is
  // prefix 0 and has no node.
  struct PrefixNode {
    char32_t code = 0;
    std::uint32_t end = 0;     // the next node that is not below this one
    std::int32_t prefix = -1;  // that ends here
    std::uint32_t depth = 0;   // 1 for the first
  };
  const std::vector<PrefixNode>& prefixes() const { return prefixes_; }
  std::size_t num_prefixes() const { return num_prefixes_; }
  std::uint32_t prefix_chars(std::uint32_t prefix) const { return prefix_chars_[prefix]; }
  // What stands behind texts, in a trie whose tokens are indices of suffixes.
  const Trie& suffixes() const { return suffixes_; }
  std::size_t num_suffixes() const { return quotes_begin_.size() - 1; }

  // Kinds of characters, a bit each: lower case, upper case, digits, each other character of ASCII,
  // and kWide for whole characters beyond. kBroken: a part of a character. A token has the bits of
  // its bytes; a node those of all tokens at and below it, and the bytes behind it to the longest.
  static constexpr std::uint64_t kWide = std::uint64_t{1} << 62, kBroken = std::uint64_t{1} << 63;
  static std::uint64_t kind_of(unsigned char byte);
  struct Below {
    std::uint64_t kinds = 0;
    std::uint32_t longest = 0;
  };
  const std::vector<Below>& below() const { return below_; }  // by node
  // Sets the tokens whose kinds are all in `kinds`; their greatest number of bytes.
  std::uint32_t add_kinds(std::span<std::uint32_t> bits, std::uint64_t kinds) const;

  // Sets to which the tokens of a text are often close: inside_bits(), and those of common kinds.
  std::size_t num_bases() const { return slices_.size() + 1; }
  const std::vector<std::uint32_t>& base(std::size_t index) const {
    return index == 0 ? inside_bits_ : slices_[index - 1].bits;
  }

  std::uint64_t bytes_used() const;

 private:
  struct Keyed {
    std::string_view bytes;
    std::int32_t token;
  };
  static Trie make_trie(std::vector<Keyed> keys, std::vector<std::int32_t>* same);
  struct Split;
  void classify();
  void make_prefixes(std::vector<Split>& splits);
  void make_suffixes(std::vector<Split>& splits);
  void find_kinds();

  std::int32_t vocab_size_ = 0;
  std::string bytes_;
  std::vector<std::uint32_t> offsets_;
  std::vector<std::string> specials_;       // texts, sorted
  std::array<bool, 256> begins_special_{};  // [byte]: whether one of them begins with it
  std::size_t longest_bytes_ = 0, longest_digits_ = 0;
  Trie trie_;
  std::vector<std::int32_t> same_;
  std::vector<std::uint32_t> node_of_;
  std::vector<InsideToken> inside_;
  std::vector<std::uint32_t> first_inside_;
  std::uint32_t longest_chars_ = 0;
  std::vector<QuoteToken> quotes_, opened_quotes_;
  std::vector<QuoteToken> prefix_quotes_;
  std::vector<std::uint32_t> quotes_begin_, prefix_begin_;
  std::vector<NodeQuote> node_quotes_;
  std::vector<Opened> opened_;  // by node
  std::vector<std::int32_t> opened_inside_;
  std::vector<PrefixNode> prefixes_;
  std::size_t num_prefixes_ = 0;
  std::vector<std::uint32_t> prefix_chars_;
  Trie suffixes_;
  std::vector<std::uint32_t> inside_bits_;
  // inside tokens of up to i characters, and by number of characters those of more
  std::vector<std::vector<std::uint32_t>> short_bits_;
  std::vector<InsideToken> long_inside_;
  std::vector<Below> below_;
  struct KindGroup {  // tokens of equal kinds
    std::uint64_t kinds;
    std::uint32_t longest, begin, end;  // in kind_tokens_
  };
  std::vector<KindGroup> kind_groups_;
  std::vector<std::int32_t> kind_tokens_;
  struct Slice {  // all tokens of some kinds, made before
    std::uint64_t kinds;
    std::uint32_t longest;
    std::vector<std::uint32_t> bits;
  };
  std::vector<Slice> slices_;  // those of more kinds first
};

inline void set_bit(std::span<std::uint32_t> bits, std::int32_t token) {
  bits[static_cast<std::size_t>(token) / 32] |= 1u << (token % 32);
}
inline void clear_bit(std::span<std::uint32_t> bits, std::int32_t token) {
  bits[static_cast<std::size_t>(token) / 32] &= ~(1u << (token % 32));
}
inline bool has_bit(std::span<const std::uint32_t> bits, std::int32_t token) {
  return (bits[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

}  // namespace sluice::grammar
