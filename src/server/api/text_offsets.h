// Where the tokens of a text begin in it, in characters. Tokens of one character begin where the
// character does.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice {

class TextOffsets {
 public:
  // The offset of a token of these bytes, which stand next in the text.
  std::size_t add(std::string_view bytes);
  // The offset of a token that shows nothing.
  std::size_t add_hidden() const { return characters_; }
  // Goes on behind a text of `characters`: a character that was begun has ended with it.
  void begin_at(std::size_t characters);

 private:
  std::size_t characters_ = 0;
  std::string begun_;  // the bytes of a character that is not complete
};

// Invalid bytes count as the U+FFFD that stands for them.
std::size_t num_characters(std::string_view text);

// Walks over a given text along the tokens that it became. A tokenizer may add tokens that the text
// does not have, or a space before it.
class PromptOffsets {
 public:
  // `text` must outlive this.
  explicit PromptOffsets(std::string_view text) : rest_(text) {}
  std::size_t add(std::string_view bytes, bool special);

 private:
  std::string_view rest_;
  TextOffsets offsets_;
  bool begun_ = false;
};

}  // namespace sluice
