// UTF-8 and the Unicode properties that tokenizers need.
//
// Properties and decompositions come from utf8proc. Any thread; nothing here throws except on
// exhausted memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// One step over UTF-8 text.
struct Utf8Step {
  enum Kind {
    kCharacter,  // a whole character of `size` bytes
    kInvalid,  // `size` bytes that no continuation can make valid: they count as one U+FFFD (WHATWG
               // maximal subpart)
    kIncomplete,  // the text ends inside a character whose first `size` bytes are good so far
  };
  Kind kind;
  int size;
  char32_t code;  // meaningful for kCharacter only
};

// Reads one step from non-empty `text`.
Utf8Step next_utf8(std::string_view text);

// The character at the start of valid, non-empty UTF-8, and its length in bytes.
char32_t decode_utf8(std::string_view text, int& size);
// The last character of valid, non-empty UTF-8.
char32_t last_character(std::string_view text);
void append_utf8(std::string& out, char32_t code);

bool is_valid_utf8(std::string_view text);
// Appends `text` with every invalid or unfinished sequence replaced by U+FFFD.
void append_lossy(std::string& out, std::string_view text);
std::string to_valid_utf8(std::string_view text);

// Length in bytes of the character that begins with `lead` (valid UTF-8).
constexpr int utf8_length(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

bool is_white_space(char32_t code);  // the White_Space property
bool is_word(char32_t code);         // \w: Alphabetic, M, Nd, Pc, Join_Control (UTS 18, annex C)
bool is_numeric(char32_t code);      // Nd, Nl, No

// Categories by the tables of Unicode 8 and 9, which tokenizer files assume
// (unicode_categories.cpp): younger characters have no category.
bool is_punctuation(char32_t code);      // P*, and the ASCII symbols such as '$' or '+'
bool is_mark(char32_t code);             // Mn, Mc, Me
bool is_nonspacing_mark(char32_t code);  // Mn
bool is_other(char32_t code);            // Cc, Cf, Co
// The blocks of Chinese characters according to BERT.
bool is_chinese(char32_t code);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// Normalises valid UTF-8 (UAX 15) by the tables of Unicode 9, as tokenizer files assume. O(n log n)
// for any runs of combining marks.
std::string normalize(std::string_view text, NormalForm form);

// The full lower-case mapping of each character, without the context rule for final sigma.
std::string lowercase(std::string_view text);

// The byte alphabet of byte-level BPE (GPT-2): each byte as a printable character. 33-126, 161-172
// and 174-255 stand for themselves; the other 68 bytes are U+0100 onwards in order.
void append_byte_alphabet(std::string& out, unsigned char byte);
// The byte that `code` stands for, or -1.
int byte_of_alphabet(char32_t code);
std::string to_byte_alphabet(std::string_view bytes);
// The bytes of a text in the byte alphabet; false, with `out` untouched, if a character is not of
// the alphabet.
bool from_byte_alphabet(std::string_view text, std::string& out);

}  // namespace sluice
