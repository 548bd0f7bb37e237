// The `pre_tokenizer` of tokenizer.json: splits text into pieces, which the model tokenizes one by
// one.
//
// The types of the file are compiled into a few primitive steps (ByteLevel is a prefix space, a
// split and a byte map). Source: tokenizers `pre_tokenizers/`, `tokenizer/normalizer.rs` (split
// behaviours).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/pre_tokenizer_regex.h"
#include "text/tokenizer/token_trie.h"

namespace sluice {

// The treatment of a match: dropped, a piece of its own, merged with a neighbour, or merged with
// adjacent matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct PreTokenizerStep {
  enum Kind {
    // The kinds that split, up to kSplitTokens: is_split() compares.
    kSplitRegex,
    kSplitLiteral,
    kSplitClass,
    kSplitTokens,  // at the longest of `tokens`, from left to right
    // The kinds that rewrite pieces.
    kPrefixSpace,   // a space before a piece that does not begin with one
    kMetaspace,     // ' ' becomes `literal`, which is also put in front as `prepend` says
    kByteAlphabet,  // each byte becomes its character of the byte alphabet
  };
  enum Prepend { kNever, kFirst, kAlways };

  Kind kind = kSplitRegex;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // the text between matches is the match
  std::shared_ptr<const SplitRegex> regex;
  std::string literal;
  bool (*is_member)(char32_t) = nullptr;  // kSplitClass
  std::shared_ptr<const TokenTrie> tokens;
  Prepend prepend = kAlways;
};

// A text and the ranges of its pieces.
struct Pieces {
  struct Span {
    std::size_t begin;
    std::size_t end;
  };
  std::string text;
  std::vector<Span> spans;

  std::string_view operator[](std::size_t i) const {
    return std::string_view(text).substr(spans[i].begin, spans[i].end - spans[i].begin);
  }
};

// Immutable; any thread.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps);

  // True if the last step was a byte map, which is left to the model: pieces hold plain bytes.
  bool ends_in_byte_alphabet() const { return ends_in_byte_alphabet_; }
  // Whether some of a text may be dropped.
  bool drops_text() const;
  // Adds the final byte map, for a model that works on characters.
  void keep_byte_alphabet();

  // Splits valid UTF-8 `text` into `out` (its old content is dropped). `at_start`: the text begins
  // the whole input. Linear in the text, except for regular expressions, whose limits are in
  // pre_tokenizer_regex.h. Error{kBadInput} beyond the limits of text_growth.h.
  void split(std::string_view text, bool at_start, SplitRegex::Scratch& scratch, Pieces& out) const;

 private:
  std::vector<PreTokenizerStep> steps_;
  bool ends_in_byte_alphabet_ = false;
};

}  // namespace sluice
