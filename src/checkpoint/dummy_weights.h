// Seeded random weights: a model of any size from its config.json alone, for benchmarks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace sluice {

// The distribution of a dummy tensor. Norm weights near 1 and zero biases keep activations in range
// at any depth.
enum class WeightInit {
  kNormal,  // N(0, sigma)
  kOnes,    // norm weights: 1 + N(0, sigma)
  kZeros,   // biases
};

class DummyWeights {
 public:
  DummyWeights(std::uint64_t seed, double sigma);

  // Elements [first, first + out.size()) of the tensor `name`. Any thread.
  void fill(std::string_view name, WeightInit init, std::uint64_t first,
            std::span<float> out) const;

 private:
  std::uint64_t seed_;
  // sigma times the quantiles (i + 0.5) / 65536 of the standard normal. 16 random bits select one.
  // This is N(0, sigma) up to 4.3 sigma and costs a table look-up instead of a logarithm and a
  // cosine.
  std::vector<float> quantiles_;
};

}  // namespace sluice
