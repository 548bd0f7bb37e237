// Natural logarithm with the same bits on every device. Compiled without FMA contraction.
#pragma once

#include "kernels/types/sample_math.h"

namespace sluice::draw {

// ln x of a normal x > 0. The error is within 1 ulp of its larger term plus 2 units of the last
// place. x = 2^e m with m in [sqrt(1/2), sqrt(2)). ln m = 2 artanh((m - 1) / (m + 1)) as a series;
// its first omitted term is below 1e-19.
SLUICE_ON_BOTH inline double log_of(double x) {
  constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  const auto bits = __builtin_bit_cast(std::uint64_t, x);
  // Exponent of x / sqrt(1/2), so that m lies around 1.
  constexpr std::uint64_t kSqrtHalf = 0x3FE6A09E667F3BCDull;
  const auto e = static_cast<std::int64_t>(bits - kSqrtHalf) >> 52;
  const double m = __builtin_bit_cast(double, bits - (static_cast<std::uint64_t>(e) << 52));
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p = 1.0 / 23;
  for (int k = 21; k >= 1; k -= 2) p = p * z + 1.0 / k;
  const auto n = static_cast<double>(e);
  return n * kLn2High + (2.0 * s * p + n * kLn2Low);
}

// ln of a sum of weights that is in units of 2^-40 (mass_of).
SLUICE_ON_BOTH inline double log_of_mass(std::uint64_t mass) {
  return log_of(static_cast<double>(mass) * 0x1p-40);
}

}  // namespace sluice::draw
