// The part of the cases that a process of ops_oracle runs, so that processes share a family.
//
//   Part part = Part::parse("2/4");   // the second of four
//   if (part.next()) run_group();     // once for each group of cases, in the order of the program
//
// All processes see the same groups in the same order, so each group is in exactly one part.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace sluice::oracle {

struct Part {
  std::int64_t number = 1, of = 1;
  std::int64_t seen = 0, taken = 0;  // groups

  // Error{kBadInput}: not I/N with 1 <= I <= N.
  static Part parse(std::string_view text) {
    Part part;
    const char* const end = text.data() + text.size();
    const auto [slash, first] = std::from_chars(text.data(), end, part.number);
    bool is_right = first == std::errc() && slash != end && *slash == '/';
    if (is_right) {
      const auto [stop, second] = std::from_chars(slash + 1, end, part.of);
      is_right = second == std::errc() && stop == end;
    }
    require(is_right && part.number >= 1 && part.number <= part.of,
            "-p {}: I/N is wanted, part I of N with 1 <= I <= N", text);
    return part;
  }

  // Whether the next group is in this part. Each round of N groups begins one part later: kinds of
  // groups often alternate.
  bool next() {
    const bool is_own = (seen + seen / of) % of == number - 1;
    ++seen;
    taken += is_own;
    return is_own;
  }
};

}  // namespace sluice::oracle
