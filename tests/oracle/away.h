// Which chosen experts are at other ranks: their ids are -1.
#pragma once

#include <cstdint>

namespace sluice::oracle {

// kFew: the second one of every fifth token; kHalf: every second one, as of two ranks; kAll: the
// rank has none of those that the tokens chose.
enum class Away : std::uint8_t { kFew, kHalf, kAll };

inline bool is_away(Away away, std::int64_t token, std::int64_t choice) {
  return away == Away::kAll || (away == Away::kHalf && (token + choice) % 2 == 1) ||
         (away == Away::kFew && token % 5 == 4 && choice == 1);
}

// ExpertParams::groups of such a rank.
inline int groups_of(Away away) {
  return away == Away::kFew ? 1 : away == Away::kHalf ? 2 : 4;
}

}  // namespace sluice::oracle
