// Random numbers of sampled rows, the same on every device.
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "kernels/types/sample_math.h"

namespace sluice::draw {

// Uniform in [0, 1), a function of its arguments alone: SplitMix64 started at a hash of the seed,
// at its position-th number. The two enter differently, so that seed 1 at position 2 is not seed 2
// at position 1.
SLUICE_ON_BOTH inline double uniform_at(std::uint64_t seed, std::int32_t position) {
  const std::uint64_t bits =
      mix64(mix64(seed) + static_cast<std::uint32_t>(position) * 0x9E3779B97F4A7C15ull);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace sluice::draw
