// Units of NVFP4 in fragments (kernels/types/int_fragments.h) as the oracle fills them.
#pragma once

#include <cstring>
#include <random>

#include "kernels/types/int_fragments.h"

namespace sluice::oracle {

// Byte j behind the codes of a unit. Three of four scales are from 128 to 448, the largest, as
// files have them; the others are any. With e2m1 their root mean square is 726, and numbers are
// below 2,689. Factors are between half of `factor` and it.
inline double nv_byte(const ops::FragmentUnit& unit, std::int64_t j, float factor,
                      std::mt19937& random) {
  if (j < unit.factors_at())
    return static_cast<double>(random() % 4 == 0 ? random() % 127 : 0x70 + random() % 15);
  const std::int64_t at = j - unit.factors_at();
  const float own = factor * (1 - 0.125f * static_cast<float>(at / 4));
  std::uint8_t bytes[4];
  std::memcpy(bytes, &own, sizeof own);
  return bytes[at % 4];
}

}  // namespace sluice::oracle
