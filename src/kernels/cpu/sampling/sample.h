// The random choice among the tokens of a row of logits, on the CPU. Every loop has an order that
// depends on the length of the row alone.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/types/op_params.h"

namespace sluice::draw {

struct RowMax {
  float value = 0;          // the largest entry; -infinity when all are
  bool numbers = false;     // no NaN
  bool finite = false;      // nor is the largest entry infinite
  std::int32_t first = -1;  // the first entry of that value, where it was looked for and finite
};
RowMax row_max(std::span<const float> row);
// The same of a row that is alone: threads look through parts of it side by side, and for the first
// such entry.
RowMax row_max(ThreadPool& pool, std::span<const float> row);

// The index of the first entry equal to `value`, which must occur.
std::int32_t first_equal(std::span<const float> row, float value);

// row := exp((row - max) / temperature); returns the sum. Sums are in the units of sample_math.h.
std::uint64_t weights_in_place(std::span<float> row, float max, float temperature);

// What survives of a row of weights; top_k <= 0 and top_p >= 1 and min_p <= 0 switch a filter off.
struct Filters {
  int top_k = -1;
  float top_p = 1.0f;
  float min_p = 0.0f;
};

// Sets to 0 every weight that the filters drop (see sampling/host_sampler.h for their meaning) and
// returns the sum of the others. The weights are those of weights_in_place, whose sum is `total`.
std::uint64_t filter_in_place(std::span<float> weights, const Filters& filters,
                              std::uint64_t total);

// The first index where the running sum of the weights exceeds sample_math.h's sampled_mass(u,
// total).
std::int32_t draw(std::span<const float> weights, std::uint64_t total, double u);

// All of it: the token of a row whose largest entry is `max`. The row is scratch afterwards.
std::int32_t choose(std::span<float> row, float max, const ops::SampleRow& how);

}  // namespace sluice::draw
