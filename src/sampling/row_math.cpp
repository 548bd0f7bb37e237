#include "sampling/row_math.h"

#include <algorithm>

#include "base/hash.h"
#include "kernels/types/logit_edit_math.h"

namespace sluice {

double log_sum_exp(std::span<const float> row, float max) {
  return draw::log_sum_exp(row, max);
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> row, int k, double log_sum_exp) {
  std::vector<ops::SampledRow::Entry> best(
      std::min(static_cast<std::size_t>(std::max(k, 0)), row.size()));
  draw::top_entries(row, k, log_sum_exp, best.data());
  std::vector<TokenLogprob> out;
  for (const auto& [token, logprob] : best) out.push_back({token, logprob});
  return out;
}

double uniform_at(std::uint64_t seed, std::int32_t position) {
  // SplitMix64 started at a hash of the seed, at its position-th number. The two enter differently,
  // so that seed 1 at position 2 is not seed 2 at position 1.
  const std::uint64_t bits =
      mix64(mix64(seed) + static_cast<std::uint32_t>(position) * 0x9E3779B97F4A7C15ull);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace sluice
