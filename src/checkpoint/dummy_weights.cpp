#include "checkpoint/dummy_weights.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/hash.h"

namespace sluice {
namespace {

constexpr int kNumQuantiles = 1 << 16;

// z with Phi(z) = p for p >= 1/2, by Newton's method from a start `z` at or below the root. Phi is
// concave there, so the steps rise to the root and never pass it.
double normal_quantile(double p, double z) {
  for (int i = 0; i < 60; ++i) {
    const double tail = 0.5 * std::erfc(z / std::numbers::sqrt2);
    const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
    const double step = (p - (1 - tail)) / density;
    z += step;
    if (std::fabs(step) < 1e-9) break;
  }
  return z;
}

}  // namespace

DummyWeights::DummyWeights(std::uint64_t seed, double sigma)
    : seed_(seed), quantiles_(kNumQuantiles) {
  double z = 0;
  for (int i = kNumQuantiles / 2; i < kNumQuantiles; ++i) {
    z = normal_quantile((i + 0.5) / kNumQuantiles, z);
    quantiles_[i] = static_cast<float>(sigma * z);
    quantiles_[kNumQuantiles - 1 - i] = -quantiles_[i];
  }
}

void DummyWeights::fill(std::string_view name, WeightInit init, std::uint64_t first,
                        std::span<float> out) const {
  if (init == WeightInit::kZeros) {
    std::fill(out.begin(), out.end(), 0.0f);
    return;
  }
  const float centre = init == WeightInit::kOnes ? 1.0f : 0.0f;
  const std::uint64_t stream = hash_bytes(name, mix64(seed_));
  // One 64-bit hash gives four elements.
  for (std::size_t i = 0; i < out.size();) {
    const std::uint64_t element = first + i;
    std::uint64_t bits = mix64(stream + element / 4) >> (16 * (element % 4));
    for (std::uint64_t lane = element % 4; lane < 4 && i < out.size(); ++lane, ++i, bits >>= 16)
      out[i] = centre + quantiles_[bits & 0xFFFF];
  }
}

}  // namespace sluice
