#include "kernels/cpu/sampling/sample.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "kernels/types/sample_math.h"

namespace sluice::draw {
namespace {

constexpr std::size_t kLanes = 16;  // independent values, so that loops are vectorised
// Weights per block: draw() skips whole blocks by their sums.
constexpr std::size_t kSampleBlock = 512;

std::uint64_t sum_of(std::span<const float> weights) {
  std::uint64_t sum = 0;
  for (const float w : weights) sum += mass_of(w);
  return sum;
}

// A cut in the order (weight descending, index ascending): it keeps the entry itself and all before
// it.
struct Cut {
  float weight = 0;  // weights of 0 are never drawn
  std::int32_t index = std::numeric_limits<std::int32_t>::max();

  bool keeps(float w, std::int32_t i) const { return w > weight || (w == weight && i <= index); }
};

// The stricter of two cuts.
Cut stricter(const Cut& a, const Cut& b) {
  return std::tuple(-a.weight, a.index) < std::tuple(-b.weight, b.index) ? a : b;
}

// Histogram bins of weights in (0, 1]: the upper bits of the float, 8 bins per octave, ascending
// with the weight.
constexpr int kBinShift = 20;
constexpr int kNumBins = (0x3F800000 >> kBinShift) + 1;
int bin_of(float weight) {
  return static_cast<int>(std::bit_cast<std::uint32_t>(weight) >> kBinShift);
}

// Finds where the sorted weights reach `count` entries or the sum `mass`, whichever comes first.
// Sorts only the bin in which that happens.
class Selection {
 public:
  explicit Selection(std::span<const float> weights)
      : weights_(weights), sums_(kNumBins), counts_(kNumBins) {
    // Histogram: mass and count of each bin.
    for (float w : weights) {
      if (!(w > 0)) continue;
      sums_[bin_of(w)] += mass_of(w);
      ++counts_[bin_of(w)];
    }
  }

  // `reached_mass` receives the sum of the weights that the cut keeps.
  Cut cut(std::int64_t count, std::uint64_t mass, std::uint64_t* reached_mass = nullptr) const {
    std::int64_t kept = 0;
    std::uint64_t sum = 0;
    // Skip whole bins from the largest weights down.
    int bin = kNumBins - 1;
    for (; bin >= 0; --bin) {
      if (kept + counts_[bin] >= count || sum + sums_[bin] >= mass) break;
      kept += counts_[bin];
      sum += sums_[bin];
    }
    Cut result;
    // The bin in which the target is reached: sort it.
    if (bin >= 0) {
      for (const auto& [weight, index] : sorted_bin(bin)) {
        result = {weight, index};
        sum += mass_of(weight);
        if (++kept >= count || sum >= mass) break;
      }
    }
    if (reached_mass != nullptr) *reached_mass = sum;
    return result;
  }

 private:
  std::vector<std::pair<float, std::int32_t>> sorted_bin(int bin) const {
    std::vector<std::pair<float, std::int32_t>> members;
    members.reserve(static_cast<std::size_t>(counts_[bin]));
    for (std::size_t i = 0; i < weights_.size(); ++i)
      if (weights_[i] > 0 && bin_of(weights_[i]) == bin)
        members.emplace_back(weights_[i], static_cast<std::int32_t>(i));
    std::ranges::sort(members, [](const auto& a, const auto& b) {
      return std::tuple(-a.first, a.second) < std::tuple(-b.first, b.second);
    });
    return members;
  }

  std::span<const float> weights_;
  std::vector<std::uint64_t> sums_;
  std::vector<std::int64_t> counts_;
};

}  // namespace

// The logits are no longer in the caches at this point, so they are prefetched well ahead.
RowMax row_max(std::span<const float> row) {
  constexpr std::size_t kVectors = 4, kBlock = kVectors * 8, kAhead = 512;
  __m256 best[kVectors], number[kVectors];  // a lane is all ones while it has seen no NaN
  for (std::size_t v = 0; v < kVectors; ++v) {
    best[v] = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
    number[v] = _mm256_cmp_ps(best[v], best[v], _CMP_ORD_Q);
  }
  std::size_t i = 0;
  for (; i + kBlock <= row.size(); i += kBlock) {
    _mm_prefetch(reinterpret_cast<const char*>(row.data() + i + kAhead), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(row.data() + i + kAhead + 16), _MM_HINT_T0);
    for (std::size_t v = 0; v < kVectors; ++v) {
      const __m256 x = _mm256_loadu_ps(row.data() + i + 8 * v);
      best[v] = _mm256_max_ps(x, best[v]);
      number[v] = _mm256_and_ps(number[v], _mm256_cmp_ps(x, x, _CMP_ORD_Q));
    }
  }
  // Reduce the lanes, then the entries after the last whole block.
  alignas(32) std::array<float, 8> lanes;
  _mm256_store_ps(lanes.data(),
                  _mm256_max_ps(_mm256_max_ps(best[0], best[1]), _mm256_max_ps(best[2], best[3])));
  const __m256 numbers =
      _mm256_and_ps(_mm256_and_ps(number[0], number[1]), _mm256_and_ps(number[2], number[3]));
  RowMax result{.value = *std::ranges::max_element(lanes),
                .numbers = _mm256_movemask_ps(numbers) == 0xFF};
  for (; i < row.size(); ++i) {
    result.value = std::max(result.value, row[i]);
    result.numbers = result.numbers && !std::isnan(row[i]);
  }
  result.finite = result.numbers && std::isfinite(result.value);
  return result;
}

// Fixed parts, whatever the number of threads; the first part that holds the maximum has `first`.
RowMax row_max(ThreadPool& pool, std::span<const float> row) {
  constexpr std::size_t kParts = 16;
  const auto begin_of = [&](std::size_t i) { return row.size() * i / kParts; };
  const auto part = [&](std::size_t i) {
    return row.subspan(begin_of(i), begin_of(i + 1) - begin_of(i));
  };
  std::array<RowMax, kParts> of;
  pool.parallel_for(kParts, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      of[i] = row_max(part(i));
  });
  RowMax all{.value = -std::numeric_limits<float>::infinity(), .numbers = true};
  for (const RowMax& one : of) {
    all.value = std::max(all.value, one.value);
    all.numbers = all.numbers && one.numbers;
  }
  all.finite = all.numbers && std::isfinite(all.value);
  for (std::size_t i = 0; all.finite && all.first < 0; ++i)
    if (of[i].value == all.value)
      all.first = static_cast<std::int32_t>(begin_of(i)) + first_equal(part(i), all.value);
  return all;
}

std::int32_t first_equal(std::span<const float> row, float value) {
  // Search whole blocks without branches, then the block that has a match.
  std::size_t begin = 0;
  for (; begin + kLanes <= row.size(); begin += kLanes) {
    std::int32_t found = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) found |= row[begin + lane] == value;
    if (found != 0) break;
  }
  const auto it =
      std::ranges::find(row.begin() + static_cast<std::ptrdiff_t>(begin), row.end(), value);
  check(it != row.end(), "first_equal: {} does not occur in a row of {}", value, row.size());
  return static_cast<std::int32_t>(it - row.begin());
}

std::uint64_t weights_in_place(std::span<float> row, float max, float temperature) {
  const float inverse = inverse_temperature(temperature);
  for (float& x : row) x = exp_nonpositive((x - max) * inverse);
  return sum_of(row);
}

std::uint64_t filter_in_place(std::span<float> weights, const Filters& filters,
                              std::uint64_t total) {
  const bool use_top_k =
      filters.top_k > 0 && static_cast<std::size_t>(filters.top_k) < weights.size();
  const bool use_top_p = filters.top_p < 1.0f;
  const bool use_min_p = filters.min_p > 0.0f;
  if (!use_top_k && !use_top_p && !use_min_p) return total;

  constexpr std::uint64_t kNoMass = std::numeric_limits<std::uint64_t>::max();
  constexpr std::int64_t kNoCount = std::numeric_limits<std::int64_t>::max();
  Cut cut;
  if (use_top_k || use_top_p) {
    const Selection selection(weights);
    std::uint64_t base = total;  // the total that top_p is a share of
    // With min_p, top_p is a share of the mass that top_k keeps. Without it, a share of the whole
    // row.
    if (use_top_k) cut = selection.cut(filters.top_k, kNoMass, use_min_p ? &base : nullptr);
    if (use_top_p) cut = stricter(cut, selection.cut(kNoCount, mass_wanted(filters.top_p, base)));
  }
  // The largest weight is exactly 1, so min_p * max(p) equals min_p in units of weights.
  if (use_min_p) cut = stricter(cut, {filters.min_p, std::numeric_limits<std::int32_t>::max()});

  for (std::size_t i = 0; i < weights.size(); ++i)
    if (!cut.keeps(weights[i], static_cast<std::int32_t>(i))) weights[i] = 0;
  return sum_of(weights);
}

std::int32_t draw(std::span<const float> weights, std::uint64_t total, double u) {
  const std::uint64_t target = sampled_mass(u, total);
  std::uint64_t sum = 0;
  for (std::size_t block = 0; block < weights.size(); block += kSampleBlock) {
    const auto members = weights.subspan(block, std::min(kSampleBlock, weights.size() - block));
    const std::uint64_t with_block = sum + sum_of(members);
    // The block ends before the target: skip it.
    if (with_block <= target) {
      sum = with_block;
      continue;
    }
    for (std::size_t i = 0; i < members.size(); ++i)
      if ((sum += mass_of(members[i])) > target) return static_cast<std::int32_t>(block + i);
  }
  fail(ErrorKind::kBug, "draw: the weights do not sum to {}", total);
}

std::int32_t choose(std::span<float> row, float max, const ops::SampleRow& how) {
  if (how.greedy()) return first_equal(row, max);
  const std::uint64_t total = weights_in_place(row, max, how.temperature);
  return draw(row, filter_in_place(row, {how.top_k, how.top_p, how.min_p}, total), how.uniform);
}

}  // namespace sluice::draw
