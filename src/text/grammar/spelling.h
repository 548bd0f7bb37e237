// How a code point is spelled in bytes: as UTF-8, or as JSON allows it between quotes.
//
// A reader has read some bytes of a character; a Spelling says which. It steps byte by byte, and at
// each step asks an acceptor whether any code point of the range that is left may follow. So a text
// that cannot be finished is refused at its first wrong byte.
#pragma once

#include <algorithm>
#include <cstdint>

#include "text/grammar/languages.h"

namespace sluice::grammar {

struct Spelling {
  enum Kind : std::uint32_t {
    kBoundary,   // between two characters
    kUtf8,       // `have` of `size` bytes, whose bits are `value`
    kBackslash,  // \ .
    kHex,        // \u and `have` digits
    kHigh,       // \uD8xx, whose ten bits are `high`
    kHighBackslash,
    kLow,  // \uD8xx\u and `have` digits
  };
  Kind kind = kBoundary;
  std::uint32_t have = 0, size = 0, value = 0, high = 0;

  // In 48 bits, and back: `value` has at most 18 bits, `high` ten.
  std::uint64_t pack() const {
    return kind | have << 3 | size << 6 | std::uint64_t{value} << 9 | std::uint64_t{high} << 30;
  }
  static Spelling unpack(std::uint64_t bits) {
    const auto field = [&](int shift, std::uint64_t mask) {
      return static_cast<std::uint32_t>(bits >> shift & mask);
    };
    return {static_cast<Kind>(field(0, 7)), field(3, 7), field(6, 7), field(9, 0x1FFFFF),
            field(30, 0x3FF)};
  }
};

// A spelling and a code point that it finished, if `is_whole`.
struct SpellingStep {
  bool is_possible = false;
  bool is_whole = false;
  char32_t code = 0;
  Spelling spelling{};
};

namespace spelling {

constexpr bool is_surrogate(char32_t code) {
  return code >= 0xD800 && code < 0xE000;
}

inline SpellingStep whole(char32_t code) {
  return {true, true, code, {}};
}
inline SpellingStep partial(Spelling spelling) {
  return {true, false, 0, spelling};
}

// Code points that may still become of a UTF-8 prefix; first > last: none.
inline CodeRange utf8_range(std::uint32_t size, std::uint32_t have, std::uint32_t value) {
  const std::uint32_t shift = 6 * (size - have);
  constexpr char32_t kFirst[] = {0, 0, 0x80, 0x800, 0x10000};
  const char32_t first = std::max<char32_t>(value << shift, kFirst[size]);
  const char32_t last = std::min<char32_t>((value << shift) + (1u << shift) - 1, 0x10FFFF);
  return {first, last};
}

inline int hex_value(unsigned char byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
  if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
  return -1;
}

// Whether `any(first, last)` holds for a part of the range outside the surrogates.
template <class Any>
bool any_scalar(CodeRange range, Any any) {
  if (range.first > range.last) return false;
  if (range.first < 0xD800 && any(range.first, std::min<char32_t>(range.last, 0xD7FF))) return true;
  return range.last >= 0xE000 && any(std::max<char32_t>(range.first, 0xE000), range.last);
}

// A code point at once, or nothing if the acceptor refuses it.
template <class Any>
SpellingStep finished(char32_t code, Any any) {
  if (is_surrogate(code) || !any(code, code)) return {};
  return whole(code);
}

template <class Any>
SpellingStep utf8(Spelling next, Any any) {
  if (next.have == next.size) {
    const CodeRange range = utf8_range(next.size, next.have, next.value);
    if (range.first != next.value || range.last != next.value) return {};  // overlong, too large
    return finished(next.value, any);
  }
  if (!any_scalar(utf8_range(next.size, next.have, next.value), any)) return {};
  return partial(next);
}

// The first bytes of a character.
template <class Any>
SpellingStep begin(unsigned char byte, bool is_json, Any any) {
  if (byte < 0x80) {
    if (is_json) {
      if (byte == '\\')
        return any_scalar({0, 0x10FFFF}, any) ? partial({.kind = Spelling::kBackslash})
                                              : SpellingStep{};
      if (byte < 0x20 || byte == '"') return {};
    }
    return finished(byte, any);
  }
  if (byte < 0xC2 || byte > 0xF4) return {};
  const std::uint32_t size = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
  return utf8({.kind = Spelling::kUtf8, .have = 1, .size = size, .value = byte & (0x7Fu >> size)},
              any);
}

template <class Any>
SpellingStep hex_digit(Spelling next, unsigned char byte, Any any) {
  const int digit = hex_value(byte);
  if (digit < 0) return {};
  next.value = next.value * 16 + static_cast<std::uint32_t>(digit);
  ++next.have;
  const std::uint32_t shift = 4 * (4 - next.have);
  const CodeRange units{next.value << shift, (next.value << shift) + (1u << shift) - 1};
  if (next.kind == Spelling::kLow) {
    const char32_t base = 0x10000 + (next.high << 10);
    const CodeRange low{std::max<char32_t>(units.first, 0xDC00),
                        std::min<char32_t>(units.last, 0xDFFF)};
    if (low.first > low.last) return {};
    if (next.have == 4) return finished(base + (next.value - 0xDC00), any);
    return any(base + low.first - 0xDC00, base + low.last - 0xDC00) ? partial(next)
                                                                    : SpellingStep{};
  }
  if (next.have == 4) {
    if (next.value < 0xD800 || next.value >= 0xE000) return finished(next.value, any);
    if (next.value >= 0xDC00) return {};
    const std::uint32_t high = next.value - 0xD800;
    const char32_t base = 0x10000 + (high << 10);
    return any(base, base + 0x3FF) ? partial({.kind = Spelling::kHigh, .high = high})
                                   : SpellingStep{};
  }
  if (any_scalar(units, any)) return partial(next);
  // a pair of surrogates
  const CodeRange high{std::max<char32_t>(units.first, 0xD800),
                       std::min<char32_t>(units.last, 0xDBFF)};
  if (high.first > high.last) return {};
  const bool is_possible =
      any(0x10000 + ((high.first - 0xD800) << 10), 0x10000 + ((high.last - 0xD800) << 10) + 0x3FF);
  return is_possible ? partial(next) : SpellingStep{};
}

// One byte. `any(first, last)`: whether any code point of the range, which holds no surrogates, may
// come at this place of the text.
template <class Any>
SpellingStep step(Spelling from, unsigned char byte, bool is_json, Any any) {
  switch (from.kind) {
    case Spelling::kBoundary:
      return begin(byte, is_json, any);
    case Spelling::kUtf8:
      if (byte < 0x80 || byte > 0xBF) return {};
      from.value = from.value << 6 | (byte & 0x3F);
      ++from.have;
      return utf8(from, any);
    case Spelling::kBackslash:
      switch (byte) {
        case '"':
        case '\\':
        case '/':
          return finished(byte, any);
        case 'b':
          return finished('\b', any);
        case 'f':
          return finished('\f', any);
        case 'n':
          return finished('\n', any);
        case 'r':
          return finished('\r', any);
        case 't':
          return finished('\t', any);
        case 'u':
          return partial({.kind = Spelling::kHex});
        default:
          return {};
      }
    case Spelling::kHigh:
      return byte == '\\' ? partial({.kind = Spelling::kHighBackslash, .high = from.high})
                          : SpellingStep{};
    case Spelling::kHighBackslash:
      return byte == 'u' ? partial({.kind = Spelling::kLow, .high = from.high}) : SpellingStep{};
    case Spelling::kHex:
    case Spelling::kLow:
      return hex_digit(from, byte, any);
  }
  return {};
}

}  // namespace spelling

}  // namespace sluice::grammar
