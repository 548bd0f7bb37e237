// Log-probabilities of one row of logits, and the numbers behind draws. Sums run in a fixed order
// that depends on the length of the row alone, so equal rows give equal bits on any thread. The
// draws themselves: kernels/cpu/sampling/sample.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "batch/step_result.h"

namespace sluice {

// log(sum(exp(row - max))) + max, for a finite max.
double log_sum_exp(std::span<const float> row, float max);

// The k largest entries, largest first, ties to the lower index. logprob = entry - log_sum_exp.
std::vector<TokenLogprob> top_logprobs(std::span<const float> row, int k, double log_sum_exp);

// Uniform in [0, 1) with 53 bits, a function of (seed, position) alone.
double uniform_at(std::uint64_t seed, std::int32_t position);

}  // namespace sluice
