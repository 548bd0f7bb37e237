// What each token adds to a text: the `decoder` of tokenizer.json, applied to every token once, at load.
// Source: tokenizers `decoders/`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

struct DecoderSpec {
  enum Kind {
    kBytes,   // ByteLevel: tokens are bytes; the text is their concatenation, read as UTF-8
    kPieces,  // SentencePiece style: tokens are text, <0xXX> tokens are bytes
    kWords,   // no decoder: token texts, joined by spaces
  };
  Kind kind = kWords;
  std::vector<std::pair<std::string, std::string>> replacements;  // kPieces, in order
  std::string dropped_in_first;  // kPieces: removed from the first token (the Metaspace decoder)
  std::string stripped;          // kPieces: removed from the start of the text, up to `max_stripped` times
  int max_stripped = 0;
  bool byte_fallback = false;
};

// Immutable after the last add; any thread.
class TokenDecoder {
 public:
  explicit TokenDecoder(DecoderSpec spec) : spec_(std::move(spec)) {}

  // `text` is the token as the vocabulary spells it.
  void add(std::int32_t id, std::string_view text, bool special);

  struct Token {
    std::string_view bytes;
    bool is_byte;  // a <0xXX> token
    bool is_special;
  };
  bool contains(std::int32_t id) const {
    return id >= 0 && static_cast<std::size_t>(id) < entries_.size() && entries_[id].present;
  }
  Token token(std::int32_t id) const {
    const Entry& entry = entries_[id];
    return {std::string_view(bytes_).substr(entry.offset, entry.length), entry.is_byte, entry.is_special};
  }
  const DecoderSpec& spec() const { return spec_; }
  std::int32_t size() const { return static_cast<std::int32_t>(entries_.size()); }
  std::size_t longest_bytes() const { return longest_bytes_; }

 private:
  struct Entry {
    std::size_t offset = 0;
    std::uint32_t length = 0;
    bool present = false;
    bool is_byte = false;
    bool is_special = false;
  };
  DecoderSpec spec_;
  std::string bytes_;
  std::vector<Entry> entries_;
  std::size_t longest_bytes_ = 0;
};

}  // namespace sluice
