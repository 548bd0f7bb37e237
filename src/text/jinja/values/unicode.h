// Code points and the parts of Python's `str` that depend on the Unicode database. Texts are UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::jinja {

// The code point at `pos`; moves `pos` past it. A byte that begins no code point counts as one.
std::uint32_t next_code_point(std::string_view text, std::size_t& pos);
void append_code_point(std::string& text, std::uint32_t code);
std::size_t count_code_points(std::string_view text);
// Byte offset of code point `index` (at most the length of the text).
std::size_t byte_offset(std::string_view text, std::size_t index);

bool is_space(std::uint32_t code);     // str.isspace
bool is_line_end(std::uint32_t code);  // str.splitlines, but for "\r\n"
bool is_alpha(std::uint32_t code);
bool is_decimal(std::uint32_t code);
bool is_digit(std::uint32_t code);
bool is_numeric(std::uint32_t code);
bool is_lower(std::uint32_t code);
bool is_upper(std::uint32_t code);
bool is_title(std::uint32_t code);
bool is_printable(std::uint32_t code);
bool is_name_start(std::uint32_t code);
bool is_name_part(std::uint32_t code);
int decimal_value(std::uint32_t code);  // 0..9, or -1

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);
std::string capitalize(std::string_view text);
std::string swap_case(std::string_view text);
std::string fold_case(std::string_view text);

// `chars` empty: white space. Sides: strip the left, the right.
std::string_view strip(std::string_view text, std::string_view chars, bool left, bool right);
inline std::string_view strip(std::string_view text) {
  return strip(text, {}, true, true);
}
inline std::string_view right_strip(std::string_view text) {
  return strip(text, {}, false, true);
}

}  // namespace sluice::jinja
