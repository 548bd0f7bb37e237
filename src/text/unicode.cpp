#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace sluice {
namespace {

struct ByteAlphabet {
  std::array<char16_t, 256> character{};
  std::array<std::int16_t, 0x144> byte{};

  constexpr ByteAlphabet() {
    byte.fill(-1);
    char16_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      character[b] = printable ? static_cast<char16_t>(b) : next++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};

constexpr ByteAlphabet kByteAlphabet;

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

struct Range {
  char32_t first, last;
};

// Characters younger than Unicode 9, the version of the reference's normalisation (and of models'
// training data). There they have combining class 0 and no decomposition, but utf8proc knows them.
constexpr Range kYoung[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},
    {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x10785}, {0x10787, 0x107B0},
    {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B},
    {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11938, 0x11938},
    {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D},
    {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
};

bool is_young(utf8proc_int32_t code) {
  if (code < static_cast<utf8proc_int32_t>(kYoung[0].first)) return false;
  const auto* range =
      std::lower_bound(std::begin(kYoung), std::end(kYoung), static_cast<char32_t>(code),
                       [](const Range& r, char32_t c) { return r.last < c; });
  return range != std::end(kYoung) && range->first <= static_cast<char32_t>(code);
}

int combining_class(utf8proc_int32_t code) {
  return code < 0x300 || is_young(code) ? 0 : utf8proc_get_property(code)->combining_class;
}

// Composes in place, never across a young character.
void compose(std::vector<utf8proc_int32_t>& codes, utf8proc_option_t options) {
  std::size_t written = 0;
  for (std::size_t begin = 0; begin < codes.size();) {
    std::size_t end = begin;
    while (end < codes.size() && !is_young(codes[end])) ++end;
    const auto length = utf8proc_normalize_utf32(
        codes.data() + begin, static_cast<utf8proc_ssize_t>(end - begin), options);
    check(length >= 0, "composition failed");
    std::copy_n(codes.begin() + static_cast<std::ptrdiff_t>(begin), length,
                codes.begin() + static_cast<std::ptrdiff_t>(written));
    written += static_cast<std::size_t>(length);
    if (end < codes.size()) codes[written++] = codes[end++];
    begin = end;
  }
  codes.resize(written);
}

// Sorts each run of combining marks by class, keeping the order within a class. Not left to
// utf8proc, whose exchange sort is quadratic on a long run of marks.
void reorder_marks(std::vector<utf8proc_int32_t>& codes) {
  struct Mark {
    int combining_class;
    utf8proc_int32_t code;
  };
  std::vector<Mark> marks;
  for (std::size_t i = 0; i < codes.size();) {
    int order = combining_class(codes[i]);
    if (order == 0) {
      ++i;
      continue;
    }
    marks.clear();
    const std::size_t first = i;
    for (; order != 0; order = i < codes.size() ? combining_class(codes[i]) : 0)
      marks.push_back({order, codes[i++]});
    std::stable_sort(marks.begin(), marks.end(), [](const Mark& a, const Mark& b) {
      return a.combining_class < b.combining_class;
    });
    for (std::size_t k = 0; k < marks.size(); ++k) codes[first + k] = marks[k].code;
  }
}

}  // namespace

Utf8Step next_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Utf8Step::kCharacter, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Step::kInvalid, 1, 0};
  const int length = utf8_length(lead);
  char32_t code = lead & (0x7F >> length);
  for (int i = 1; i < length; ++i) {
    if (static_cast<std::size_t>(i) == text.size()) return {Utf8Step::kIncomplete, i, 0};
    // The second byte's range excludes overlong forms, surrogates and codes above U+10FFFF (Unicode
    // table 3-7).
    unsigned char low = 0x80, high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (byte(i) < low || byte(i) > high) return {Utf8Step::kInvalid, i, 0};
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {Utf8Step::kCharacter, length, code};
}

char32_t decode_utf8(std::string_view text, int& size) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  size = utf8_length(p[0]);
  switch (size) {
    case 1:
      return p[0];
    case 2:
      return (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    case 3:
      return (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    default:
      return (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
  }
}

char32_t last_character(std::string_view text) {
  std::size_t start = text.size() - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  int size = 0;
  return decode_utf8(text.substr(start), size);
}

void append_utf8(std::string& out, char32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | code >> 6));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | code >> 12));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | code >> 18));
    out.push_back(static_cast<char>(0x80 | (code >> 12 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  }
}

bool is_valid_utf8(std::string_view text) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    // Prompts are mostly ASCII, and may have megabytes.
    std::uint64_t word = 0;
    while (end - at >= 8 && (std::memcpy(&word, at, 8), (word & 0x8080808080808080) == 0)) at += 8;
    if (at == end) break;
    const auto byte = [&](int i) { return static_cast<unsigned char>(at[i]); };
    if (byte(0) < 0x80) {
      ++at;
    } else if (end - at >= 2 && byte(0) >= 0xC2 && byte(0) < 0xE0 && (byte(1) & 0xC0) == 0x80) {
      at += 2;
    } else {
      const Utf8Step step = next_utf8({at, static_cast<std::size_t>(end - at)});
      if (step.kind != Utf8Step::kCharacter) return false;
      at += step.size;
    }
  }
  return true;
}

void append_lossy(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    out.append(step.kind == Utf8Step::kCharacter ? text.substr(0, step.size)
                                                 : kReplacementCharacter);
    text.remove_prefix(step.size);
  }
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  append_lossy(out, text);
  return out;
}

bool is_white_space(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13);
  if (code == 0x85) return true;
  const auto kind = category(code);
  return kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL ||
         kind == UTF8PROC_CATEGORY_ZP;
}

bool is_word(char32_t code) {
  switch (category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  // Alphabetic symbols (circled and squared Latin letters) and the two Join_Control characters.
  return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
         (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189) ||
         code == 0x200C || code == 0x200D;
}

bool is_numeric(char32_t code) {
  const auto kind = category(code);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
         kind == UTF8PROC_CATEGORY_NO;
}

std::string normalize(std::string_view text, NormalForm form) {
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compat = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  // Below U+0300 every character is in NFC; ASCII is in every form. Lead bytes from 0xCC on begin
  // U+0300 and above.
  const unsigned char first_changed = form == NormalForm::kNfc ? 0xCC : 0x80;
  if (std::none_of(text.begin(), text.end(),
                   [&](char c) { return static_cast<unsigned char>(c) >= first_changed; }))
    return std::string(text);

  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (compat ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  while (!text.empty()) {
    int size = 0;
    const char32_t code = decode_utf8(text, size);
    text.remove_prefix(size);
    if (is_young(static_cast<utf8proc_int32_t>(code))) {
      codes.push_back(static_cast<utf8proc_int32_t>(code));
      continue;
    }
    std::array<utf8proc_int32_t, 32> parts;  // the longest decomposition, that of U+FDFA, has 18
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(),
                                               parts.size(), options, &boundary);
    check(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()),
          "U+{:04X} does not decompose", static_cast<std::uint32_t>(code));
    codes.insert(codes.end(), parts.begin(), parts.begin() + count);
  }
  reorder_marks(codes);
  if (composed) compose(codes, options);
  std::string out;
  for (const utf8proc_int32_t code : codes) append_utf8(out, static_cast<char32_t>(code));
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    int size = 0;
    const char32_t code = decode_utf8(text, size);
    text.remove_prefix(size);
    if (code < 0x80)
      out.push_back(static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code));
    else if (code == 0x130)
      out += "i\xCC\x87";  // the only lower-case mapping of more than one character
    else
      append_utf8(out,
                  static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }
  return out;
}

void append_byte_alphabet(std::string& out, unsigned char byte) {
  append_utf8(out, kByteAlphabet.character[byte]);
}

int byte_of_alphabet(char32_t code) {
  return code < kByteAlphabet.byte.size() ? kByteAlphabet.byte[code] : -1;
}

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) append_byte_alphabet(out, static_cast<unsigned char>(c));
  return out;
}

bool from_byte_alphabet(std::string_view text, std::string& out) {
  std::string bytes;
  while (!text.empty()) {
    int size = 0;
    const int byte = byte_of_alphabet(decode_utf8(text, size));
    if (byte < 0) return false;
    bytes.push_back(static_cast<char>(byte));
    text.remove_prefix(size);
  }
  out += bytes;
  return true;
}

}  // namespace sluice
