// Arithmetic of random sampling, the same on every device: equal logits give equal tokens.
//
// A weight is exp((logit - largest) / temperature) in float32. Sums of weights are integers in
// units of 2^-40. They are exact, so they do not depend on the order. A weight below half a unit is
// never drawn.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define SLUICE_ON_BOTH __host__ __device__
#else
#define SLUICE_ON_BOTH
#endif

namespace sluice::draw {

// e^x for x <= 0, with a relative error below 2e-7; exactly 1 at 0, and 0 below -87. Compiled
// without FMA contraction.
//
// Cephes-style reduction: x = n ln2 + r with |r| <= ln2 / 2, a polynomial of degree 6 for e^r, and
// n added to the exponent. Branch-free, so that loops over it are vectorised.
SLUICE_ON_BOTH inline float exp_nonpositive(float x) {
  constexpr float kLowest = -87.0f;
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = x < kLowest ? kLowest : x;
  const float shifted = clamped * 1.44269504088896341f + kMagic;
  const float n = shifted - kMagic;
  float r = clamped - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const std::int32_t exponent =
      (__builtin_bit_cast(std::int32_t, shifted) - __builtin_bit_cast(std::int32_t, kMagic)) << 23;
  const float scaled = __builtin_bit_cast(float, __builtin_bit_cast(std::int32_t, p) + exponent);
  return x < kLowest ? 0.0f : scaled;
}

// Factor of a logit's distance from the largest one. Temperatures are limited to 1e-6 from below,
// where the weights are already 0 and 1: a smaller one would overflow the quotient before exp
// underflows.
SLUICE_ON_BOTH inline float inverse_temperature(float temperature) {
  return 1.0f / (temperature < 1e-6f ? 1e-6f : temperature);
}

// A weight in [0, 1] in units of 2^-40, rounded to nearest.
SLUICE_ON_BOTH inline std::uint64_t mass_of(float weight) {
  constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const double shifted = static_cast<double>(weight) * 1099511627776.0 + kMagic;
  return __builtin_bit_cast(std::uint64_t, shifted) - __builtin_bit_cast(std::uint64_t, kMagic);
}

// The smallest sum that is at least the fraction top_p of `total`.
SLUICE_ON_BOTH inline std::uint64_t mass_wanted(float top_p, std::uint64_t total) {
  return static_cast<std::uint64_t>(ceil(static_cast<double>(top_p) * static_cast<double>(total)));
}

// The running sum of weights must exceed this for the sampled token; u in [0, 1).
SLUICE_ON_BOTH inline std::uint64_t sampled_mass(double u, std::uint64_t total) {
  const auto target = static_cast<std::uint64_t>(u * static_cast<double>(total));
  return target < total ? target : total - 1;
}

}  // namespace sluice::draw
