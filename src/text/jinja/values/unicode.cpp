#include "text/jinja/values/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "text/jinja/values/unicode_tables.h"

namespace sluice::jinja {
namespace {

int category(std::uint32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

template <std::size_t N>
bool in_ranges(const CodeRange (&ranges)[N], std::uint32_t code) {
  const CodeRange* end = ranges + N;
  const CodeRange* at = std::lower_bound(
      ranges, end, code, [](const CodeRange& r, std::uint32_t c) { return r.last < c; });
  return at != end && at->first <= code;
}

template <std::size_t N>
const char* expansion(const CaseExpansion (&table)[N], std::uint32_t code) {
  const CaseExpansion* end = table + N;
  const CaseExpansion* at = std::lower_bound(
      table, end, code, [](const CaseExpansion& e, std::uint32_t c) { return e.code < c; });
  return at != end && at->code == code ? at->text : nullptr;
}

void append_upper(std::string& out, std::uint32_t code) {
  if (const char* text = expansion(kUpperExpansions, code)) {
    out += text;
  } else {
    append_code_point(
        out, static_cast<std::uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))));
  }
}

void append_title(std::string& out, std::uint32_t code) {
  if (const char* text = expansion(kTitleExpansions, code)) {
    out += text;
  } else {
    append_code_point(
        out, static_cast<std::uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code))));
  }
}

bool is_cased(std::uint32_t code) {
  return is_lower(code) || is_upper(code) || is_title(code);
}

bool is_case_ignorable(std::uint32_t code) {
  switch (category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return code == '\'' || code == '.' || code == ':' || code == 0xB7 || code == 0x2019;
  }
}

// Sigma is final when a cased letter stands before it and none after it (Unicode 3.13,
// Final_Sigma). Ignorable code points on both sides are skipped.
bool is_final_sigma(std::string_view text, std::size_t begin, std::size_t end) {
  bool before = false;
  std::size_t pos = begin;
  while (pos > 0) {
    do --pos;
    while (pos > 0 && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80);
    std::size_t at = pos;
    const std::uint32_t code = next_code_point(text, at);
    if (is_case_ignorable(code)) continue;
    before = is_cased(code);
    break;
  }
  if (!before) return false;
  while (end < text.size()) {
    const std::uint32_t code = next_code_point(text, end);
    if (is_case_ignorable(code)) continue;
    return !is_cased(code);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, std::size_t begin, std::size_t end,
                  std::uint32_t code) {
  if (code == 0x130) {
    out += "i\xCC\x87";
  } else if (code == 0x3A3) {
    append_code_point(out, is_final_sigma(text, begin, end) ? 0x3C2 : 0x3C3);
  } else {
    append_code_point(
        out, static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }
}

template <class F>
std::string map_text(std::string_view text, F&& append) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t begin = pos;
    const std::uint32_t code = next_code_point(text, pos);
    append(out, begin, pos, code);
  }
  return out;
}

bool in_set(std::string_view chars, std::uint32_t code) {
  if (chars.empty()) return is_space(code);
  for (std::size_t pos = 0; pos < chars.size();)
    if (next_code_point(chars, pos) == code) return true;
  return false;
}

}  // namespace

std::uint32_t next_code_point(std::string_view text, std::size_t& pos) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  const std::uint32_t first = byte(pos);
  if (first < 0x80) {
    ++pos;
    return first;
  }
  const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0 ? 1 : 0;
  if (more == 0 || pos + static_cast<std::size_t>(more) >= text.size()) {
    ++pos;
    return first;
  }
  std::uint32_t code = first & (0x3Fu >> more);
  for (int i = 1; i <= more; ++i)
    code = code << 6 | (byte(pos + static_cast<std::size_t>(i)) & 0x3F);
  pos += static_cast<std::size_t>(more) + 1;
  return code;
}

void append_code_point(std::string& text, std::uint32_t code) {
  const auto put = [&](std::uint32_t b) { text += static_cast<char>(b); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18 & 7));
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::size_t count_code_points(std::string_view text) {
  std::size_t num_later = 0;  // bytes behind the first one of their code point: 10xxxxxx
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::uint64_t word = 0; end - at >= 8; at += 8) {
    std::memcpy(&word, at, 8);
    num_later += static_cast<std::size_t>(std::popcount(word & 0x8080808080808080 & ~(word << 1)));
  }
  for (; at != end; ++at) num_later += (static_cast<unsigned char>(*at) & 0xC0) == 0x80;
  return text.size() - num_later;
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
  std::size_t pos = 0;
  for (; pos < text.size(); ++pos) {
    if ((static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80) continue;
    if (index == 0) return pos;
    --index;
  }
  return pos;
}

bool is_space(std::uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_line_end(std::uint32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_alpha(std::uint32_t code) {
  const int c = category(code);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

int decimal_value(std::uint32_t code) {
  const auto* at = std::upper_bound(std::begin(kDecimalZeros), std::end(kDecimalZeros), code);
  if (at == std::begin(kDecimalZeros)) return -1;
  const std::uint32_t value = code - *(at - 1);
  return value < 10 ? static_cast<int>(value) : -1;
}

bool is_decimal(std::uint32_t code) {
  return decimal_value(code) >= 0;
}
bool is_digit(std::uint32_t code) {
  return is_decimal(code) || in_ranges(kOtherDigits, code);
}
bool is_numeric(std::uint32_t code) {
  return is_digit(code) || in_ranges(kOtherNumbers, code);
}

// The derived properties Lowercase and Uppercase: the categories, and the few other code points
// with the properties.
bool is_lower(std::uint32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LL || code == 0xAA || code == 0xBA ||
         (code >= 0x2B0 && code <= 0x2B8) || (code >= 0x2170 && code <= 0x217F) ||
         (code >= 0x24D0 && code <= 0x24E9);
}
bool is_upper(std::uint32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LU || (code >= 0x2160 && code <= 0x216F) ||
         (code >= 0x24B6 && code <= 0x24CF);
}
bool is_title(std::uint32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LT;
}

bool is_printable(std::uint32_t code) {
  if (code == ' ') return true;
  switch (category(code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

bool is_name_start(std::uint32_t code) {
  return code == '_' || is_alpha(code);
}
bool is_name_part(std::uint32_t code) {
  const int c = code < 0x80 ? 0 : category(code);
  return is_name_start(code) || is_decimal(code) || c == UTF8PROC_CATEGORY_MN ||
         c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_PC;
}

std::string to_upper(std::string_view text) {
  return map_text(text, [](std::string& out, std::size_t, std::size_t, std::uint32_t c) {
    append_upper(out, c);
  });
}

std::string to_lower(std::string_view text) {
  return map_text(text, [&](std::string& out, std::size_t begin, std::size_t end, std::uint32_t c) {
    append_lower(out, text, begin, end, c);
  });
}

std::string to_title(std::string_view text) {
  bool inside = false;
  return map_text(text, [&](std::string& out, std::size_t begin, std::size_t end, std::uint32_t c) {
    if (inside) {
      append_lower(out, text, begin, end, c);
    } else {
      append_title(out, c);
    }
    inside = is_cased(c);
  });
}

std::string capitalize(std::string_view text) {
  return map_text(text, [&](std::string& out, std::size_t begin, std::size_t end, std::uint32_t c) {
    if (begin == 0) {
      append_title(out, c);
    } else {
      append_lower(out, text, begin, end, c);
    }
  });
}

std::string swap_case(std::string_view text) {
  return map_text(text, [&](std::string& out, std::size_t begin, std::size_t end, std::uint32_t c) {
    if (is_upper(c)) {
      append_lower(out, text, begin, end, c);
    } else if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append_code_point(out, c);
    }
  });
}

std::string fold_case(std::string_view text) {
  return map_text(text, [&](std::string& out, std::size_t, std::size_t, std::uint32_t c) {
    if (const char* folded = expansion(kFoldExpansions, c)) {
      out += folded;
    } else if (c == 0x3C2) {
      append_code_point(out, 0x3C3);
    } else {
      append_code_point(
          out, static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  });
}

std::string_view strip(std::string_view text, std::string_view chars, bool left, bool right) {
  while (left && !text.empty()) {
    std::size_t pos = 0;
    if (!in_set(chars, next_code_point(text, pos))) break;
    text.remove_prefix(pos);
  }
  while (right && !text.empty()) {
    std::size_t pos = text.size() - 1;
    while (pos > 0 && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80) --pos;
    std::size_t at = pos;
    if (!in_set(chars, next_code_point(text, at))) break;
    text = text.substr(0, pos);
  }
  return text;
}

}  // namespace sluice::jinja
