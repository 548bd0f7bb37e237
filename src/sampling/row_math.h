// Reductions and selections over one row of logits. Each runs in a fixed order that depends on the length of
// the row alone, so equal rows give equal bits on any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "batch/step_result.h"

namespace sluice {

// e^x for x <= 0 with a relative error below 2e-7; exactly 1 at 0, and 0 below -87.
float exp_nonpositive(float x);

struct RowMax {
  float value = 0;      // the largest entry; -infinity when all are
  bool finite = false;  // no NaN, and the largest entry is finite
};
RowMax row_max(std::span<const float> row);

// The index of the first entry equal to `value`, which must occur.
std::int32_t first_equal(std::span<const float> row, float value);

// log(sum(exp(row - max))) + max, for a finite max.
double log_sum_exp(std::span<const float> row, float max);

// The k largest entries, largest first, ties to the lower index. logprob = entry - log_sum_exp.
std::vector<TokenLogprob> top_logprobs(std::span<const float> row, int k, double log_sum_exp);

// What survives of a row of weights; top_k <= 0 and top_p >= 1 and min_p <= 0 switch a filter off.
struct Filters {
  int top_k = -1;
  float top_p = 1.0f;
  float min_p = 0.0f;
};

// row := exp((row - max) / temperature); returns the sum.
double weights_in_place(std::span<float> row, float max, float temperature);

// Sets to 0 every weight that the filters drop (see sampler.h for their meaning) and returns the sum of the
// others. The weights are those of weights_in_place, whose sum is `total`.
double filter_in_place(std::span<float> weights, const Filters& filters, double total);

// The first index where the running sum of the weights exceeds u * total, u in [0, 1).
std::int32_t draw(std::span<const float> weights, double total, double u);

// Uniform in [0, 1) with 53 bits, a function of (seed, position) alone.
double uniform_at(std::uint64_t seed, std::int32_t position);

}  // namespace sluice
