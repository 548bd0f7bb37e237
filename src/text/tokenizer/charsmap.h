// The `precompiled_charsmap` of SentencePiece: replacements of characters and of character
// sequences.
//
// The blob is a little-endian uint32 (the bytes of the trie), the trie (a Darts-clone double array
// of uint32 units) and the replacements, each ended by a zero byte. Source: sentencepiece
// `normalizer.cc`, tokenizers `normalizers/precompiled.rs` and the crate spm_precompiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Immutable; any thread.
class Charsmap {
 public:
  // Error{kBadInput}, naming `what`: a blob whose lengths do not fit, or replacements that are not
  // UTF-8 or of more than 1024 bytes.
  Charsmap(std::string_view blob, std::string_view what);

  struct Hit {
    std::size_t length = 0;  // in bytes; 0: no replacement here
    std::string_view replacement;
  };
  // SentencePiece's rule: the longest sequence that `text` begins with.
  Hit longest(std::string_view text) const { return find(text, false); }

  // The rule of the tokenizers library, by grapheme clusters. A cluster below 6 bytes is replaced
  // as a whole by the replacement of its shortest prefix in the map. Otherwise its characters are
  // replaced separately. `text` is valid UTF-8, and so is the result. O(n). Error{kBadInput} beyond
  // the limits of text_growth.h.
  std::string apply(std::string_view text) const;

 private:
  Hit find(std::string_view text, bool shortest) const;
  bool replace(std::string_view chunk, std::string& out) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
  std::vector<char> may_begin_;  // by byte: whether any sequence begins with it
};

}  // namespace sluice
