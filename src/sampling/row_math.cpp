#include "sampling/row_math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/error.h"
#include "base/hash.h"

namespace sluice {
namespace {

constexpr std::size_t kLanes = 16;       // independent running values, so that loops become vector code
constexpr std::size_t kDrawBlock = 512;  // weights summed together before a draw looks at single ones

// Cephes-style reduction: x = n ln2 + r with |r| <= ln2 / 2, a degree 6 polynomial for e^r, and n added to
// the exponent. Branch-free, so loops over it become vector code.
inline float exp_core(float x) {
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
  const std::int32_t exponent = (std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kMagic))
                                << 23;
  const float scaled = std::bit_cast<float>(std::bit_cast<std::int32_t>(p) + exponent);
  return x < kLowest ? 0.0f : scaled;
}

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

// A place in the order (weight descending, index ascending): everything before it and itself is kept.
struct Cut {
  float weight = 0;  // weights at 0 are never drawn
  std::int32_t index = std::numeric_limits<std::int32_t>::max();

  bool keeps(float w, std::int32_t i) const { return w > weight || (w == weight && i <= index); }
};

// The stricter of two cuts.
Cut stricter(const Cut& a, const Cut& b) {
  return std::tuple(-a.weight, a.index) < std::tuple(-b.weight, b.index) ? a : b;
}

// Weights in (0, 1] by the upper bits of their representation: 8 bins an octave, in ascending order of
// weight.
constexpr int kBinShift = 20;
constexpr int kNumBins = (0x3F800000 >> kBinShift) + 1;
int bin_of(float weight) {
  return static_cast<int>(std::bit_cast<std::uint32_t>(weight) >> kBinShift);
}

// Where the sorted weights reach `count` entries or the sum `mass`, whichever is first. Only the bin in which
// that happens is sorted.
class Selection {
 public:
  explicit Selection(std::span<const float> weights) : weights_(weights), sums_(kNumBins), counts_(kNumBins) {
    for (float w : weights) {
      if (!(w > 0)) continue;
      sums_[bin_of(w)] += w;
      ++counts_[bin_of(w)];
    }
  }

  // `reached_mass` gets the sum of what the cut keeps.
  Cut cut(std::int64_t count, double mass, double* reached_mass = nullptr) const {
    std::int64_t kept = 0;
    double sum = 0;
    int bin = kNumBins - 1;
    for (; bin >= 0; --bin) {
      if (kept + counts_[bin] >= count || sum + sums_[bin] >= mass) break;
      kept += counts_[bin];
      sum += sums_[bin];
    }
    Cut result;
    if (bin >= 0) {
      for (const auto& [weight, index] : sorted_bin(bin)) {
        result = {weight, index};
        sum += weight;
        if (++kept >= count || sum >= mass) break;
      }
    }
    if (reached_mass != nullptr) *reached_mass = sum;
    return result;
  }

 private:
  std::vector<std::pair<float, std::int32_t>> sorted_bin(int bin) const {
    std::vector<std::pair<float, std::int32_t>> members;
    members.reserve(counts_[bin]);
    for (std::size_t i = 0; i < weights_.size(); ++i)
      if (weights_[i] > 0 && bin_of(weights_[i]) == bin)
        members.emplace_back(weights_[i], static_cast<std::int32_t>(i));
    std::ranges::sort(members, [](const auto& a, const auto& b) {
      return std::tuple(-a.first, a.second) < std::tuple(-b.first, b.second);
    });
    return members;
  }

  std::span<const float> weights_;
  std::vector<double> sums_;
  std::vector<std::int64_t> counts_;
};

}  // namespace

float exp_nonpositive(float x) {
  return exp_core(x);
}

RowMax row_max(std::span<const float> row) {
  std::array<float, kLanes> best;
  std::array<std::int32_t, kLanes> nan{};
  best.fill(-std::numeric_limits<float>::infinity());
  std::size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float x = row[i + lane];
      best[lane] = x > best[lane] ? x : best[lane];
      nan[lane] |= x != x;
    }
  for (std::size_t lane = 0; i < row.size(); ++i, ++lane) {
    best[lane] = row[i] > best[lane] ? row[i] : best[lane];
    nan[lane] |= row[i] != row[i];
  }
  RowMax result{*std::ranges::max_element(best), true};
  result.finite =
      std::isfinite(result.value) && std::ranges::none_of(nan, [](std::int32_t n) { return n != 0; });
  return result;
}

std::int32_t first_equal(std::span<const float> row, float value) {
  // Whole blocks are looked through without branches.
  std::size_t begin = 0;
  for (; begin + kLanes <= row.size(); begin += kLanes) {
    std::int32_t found = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) found |= row[begin + lane] == value;
    if (found != 0) break;
  }
  const auto it = std::ranges::find(row.begin() + static_cast<std::ptrdiff_t>(begin), row.end(), value);
  check(it != row.end(), "first_equal: {} does not occur in a row of {}", value, row.size());
  return static_cast<std::int32_t>(it - row.begin());
}

double log_sum_exp(std::span<const float> row, float max) {
  const float* x = row.data();
  return std::log(lane_sum(row.size(), [x, max](std::size_t i) { return exp_core(x[i] - max); })) + max;
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

double weights_in_place(std::span<float> row, float max, float temperature) {
  float* x = row.data();
  // Below 1e-6 the quotient would overflow float before it underflows exp: the weights are 0 and 1 either
  // way.
  const float inverse = 1.0f / std::max(temperature, 1e-6f);
  for (std::size_t i = 0; i < row.size(); ++i) x[i] = exp_core((x[i] - max) * inverse);
  return lane_sum(row.size(), [x](std::size_t i) { return x[i]; });
}

double filter_in_place(std::span<float> weights, const Filters& filters, double total) {
  const bool use_top_k = filters.top_k > 0 && static_cast<std::size_t>(filters.top_k) < weights.size();
  const bool use_top_p = filters.top_p < 1.0f;
  const bool use_min_p = filters.min_p > 0.0f;
  if (!use_top_k && !use_top_p && !use_min_p) return total;

  constexpr double kNoMass = std::numeric_limits<double>::infinity();
  constexpr std::int64_t kNoCount = std::numeric_limits<std::int64_t>::max();
  Cut cut;
  if (use_top_k || use_top_p) {
    const Selection selection(weights);
    double base = total;  // what top-p takes its share of
    if (use_top_k) cut = selection.cut(filters.top_k, kNoMass, use_min_p ? &base : nullptr);
    if (use_top_p) cut = stricter(cut, selection.cut(kNoCount, filters.top_p * base));
  }
  // The largest weight is exactly 1, so min_p * max(p) is min_p in units of weights.
  if (use_min_p) cut = stricter(cut, {filters.min_p, std::numeric_limits<std::int32_t>::max()});

  for (std::size_t i = 0; i < weights.size(); ++i)
    if (!cut.keeps(weights[i], static_cast<std::int32_t>(i))) weights[i] = 0;
  const float* w = weights.data();
  return lane_sum(weights.size(), [w](std::size_t i) { return w[i]; });
}

std::int32_t draw(std::span<const float> weights, double total, double u) {
  const double target = u * total;
  double sum = 0;
  std::size_t block = 0;
  for (;; block += kDrawBlock) {
    const std::size_t count = std::min(kDrawBlock, weights.size() - block);
    const float* w = weights.data() + block;
    const double block_sum = lane_sum(count, [w](std::size_t i) { return w[i]; });
    if (sum + block_sum > target || block + count == weights.size()) break;
    sum += block_sum;
  }
  // Sums in blocks and one by one round differently, so the target may lie a rounding error past the last
  // weight: then the last token that can be drawn is meant.
  std::int32_t last = -1;
  for (std::size_t i = block; i < weights.size(); ++i) {
    if (!(weights[i] > 0)) continue;
    last = static_cast<std::int32_t>(i);
    sum += weights[i];
    if (sum > target) return last;
  }
  for (std::size_t i = block; last < 0 && i-- > 0;)
    if (weights[i] > 0) last = static_cast<std::int32_t>(i);
  return last;
}

double uniform_at(std::uint64_t seed, std::int32_t position) {
  // SplitMix64 started at a hash of the seed, at its position-th number. The two enter differently, so that
  // seed 1 at position 2 is not seed 2 at position 1.
  const std::uint64_t bits =
      mix64(mix64(seed) + static_cast<std::uint32_t>(position) * 0x9E3779B97F4A7C15ull);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace sluice
