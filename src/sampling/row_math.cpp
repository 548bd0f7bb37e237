#include "sampling/row_math.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/hash.h"
#include "kernels/cpu/draw_math.h"

namespace sluice {
namespace {

constexpr std::size_t kLanes = 16;       // independent running values, so that loops become vector code

// Sum of `term(i)` for i < count in one order, with kLanes partial sums in double.
template <class Term>
double lane_sum(std::size_t count, Term&& term) {
  std::array<double, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += term(i + lane);
  for (std::size_t lane = 0; i < count; ++i, ++lane) sums[lane] += term(i);
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

}  // namespace

double log_sum_exp(std::span<const float> row, float max) {
  const float* x = row.data();
  return std::log(lane_sum(row.size(), [x, max](std::size_t i) { return draw::exp_nonpositive(x[i] - max); })) + max;
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> row, int k, double log_sum_exp) {
  std::vector<TokenLogprob> best;  // holds logits until the end
  k = static_cast<int>(std::min<std::size_t>(std::max(k, 0), row.size()));
  if (k == 0) return best;
  best.reserve(static_cast<std::size_t>(k) + 1);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const float x = row[i];
    if (best.size() == static_cast<std::size_t>(k) && !(x > best.back().logprob)) continue;
    // Behind its equals: they have lower ids.
    const auto place =
        std::ranges::upper_bound(best, -x, {}, [](const TokenLogprob& t) { return -t.logprob; });
    best.insert(place, {static_cast<std::int32_t>(i), x});
    if (best.size() > static_cast<std::size_t>(k)) best.pop_back();
  }
  for (TokenLogprob& entry : best) entry.logprob = static_cast<float>(entry.logprob - log_sum_exp);
  return best;
}

double uniform_at(std::uint64_t seed, std::int32_t position) {
  // SplitMix64 started at a hash of the seed, at its position-th number. The two enter differently, so that
  // seed 1 at position 2 is not seed 2 at position 1.
  const std::uint64_t bits =
      mix64(mix64(seed) + static_cast<std::uint32_t>(position) * 0x9E3779B97F4A7C15ull);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace sluice
