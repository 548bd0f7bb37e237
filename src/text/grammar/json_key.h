// The text of a key as it stands between its quotes.
#pragma once

#include <string>
#include <string_view>

#include "text/grammar/spelling.h"
#include "text/unicode.h"

namespace sluice::grammar {

// In UTF-8. `body` is valid; what is not is left out.
inline std::string json_key(std::string_view body) {
  std::string out;
  Spelling at;
  for (const char c : body) {
    const SpellingStep next = spelling::step(at, static_cast<unsigned char>(c), true,
                                             [](char32_t, char32_t) { return true; });
    at = next.is_possible ? next.spelling : Spelling{};
    if (next.is_whole) append_utf8(out, next.code);
  }
  return out;
}

}  // namespace sluice::grammar
