// The `added_tokens` of tokenizer.json: strings cut out of a text before the model sees it. Source:
// tokenizers `tokenizer/added_vocabulary.rs`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // only if no word character is adjacent
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // looked for in the normalised text
  bool special = false;      // skipped in decoded text on request
};

// Finds added tokens in a text: the leftmost, and at one position the longest. Immutable; any
// thread.
class AddedTokenMatcher {
 public:
  static constexpr std::size_t kMaxContentBytes = 1024;

  struct Part {
    std::size_t begin;
    std::size_t end;
    std::int32_t id;  // -1: text between tokens
  };

  // `content` is the text to find; for a normalised token it differs from `token.content`.
  void add(const AddedToken& token, std::string_view content);
  bool empty() const { return tokens_.empty(); }

  // Parts of valid UTF-8 `text` in order. `skip_special`: special tokens are ordinary text. O(n *
  // longest content) at most. Two adjacent tokens may both match the white space between them, as
  // in the reference, so parts may overlap.
  std::vector<Part> split(std::string_view text, bool skip_special) const;

 private:
  struct Node {
    std::int32_t child = -1;
    std::int32_t sibling = -1;
    std::int32_t token = -1;
    unsigned char byte = 0;
  };
  struct Hit {
    std::size_t end;
    std::int32_t token;
  };
  std::int32_t child_of(std::int32_t node, unsigned char byte) const;
  Hit longest_at(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<std::int32_t, 256> roots_ = filled();
  static constexpr std::array<std::int32_t, 256> filled() {
    std::array<std::int32_t, 256> roots{};
    roots.fill(-1);
    return roots;
  }
};

}  // namespace sluice
